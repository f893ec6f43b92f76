/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * From the text of a module to code that runs in this process, through the C
 * API: proves that its headers are C, and that its library is enough to link.
 */

#include "ddphook-c/Compiler.h"
#include "ddphook-c/DDP.h"
#include "ddphook/runtime/runtime.h"

#include "mlir-c/Diagnostics.h"
#include "mlir-c/Pass.h"

#include <stdio.h>
#include <string.h>

static const char step[] =
    "ddp.process_group @dp\n"
    "func.func @step(%g: tensor<6xf32>) -> tensor<6xf32> {\n"
    "  %r = ddp.all_reduce mean %g on @dp : tensor<6xf32>\n"
    "  return %r : tensor<6xf32>\n"
    "}\n";

static int fail(const char *what) {
  fprintf(stderr, "capi consumer: %s\n", what);
  return 1;
}

/* The last message, of a diagnostic or of a callback. */
static char message[512];

static void keep(MlirStringRef text, void *userData) {
  (void)userData;
  size_t length = strlen(message);
  size_t room = sizeof(message) - 1 - length;
  memcpy(message + length, text.data, text.length < room ? text.length : room);
}

static MlirLogicalResult onDiagnostic(MlirDiagnostic diagnostic,
                                      void *userData) {
  memset(message, 0, sizeof(message));
  mlirDiagnosticPrint(diagnostic, keep, userData);
  return mlirLogicalResultSuccess();
}

/* Runs the code that `compiled` is, on as many ranks as the launcher started.
 */
static int run(DDPHookCompiledModule compiled) {
  DDPHookJitModule code = ddphookJitModuleCreate(compiled, 0, NULL, keep, NULL);
  if (ddphookJitModuleIsNull(code))
    return fail(message);
  ddphook_context_t *job = NULL;
  if (ddphook_context_create(NULL, &job) != DDPHOOK_OK)
    return fail(ddphook_last_error());
  const ddphook_compiled_module_t *module = ddphookJitModuleGet(code);
  const ddphook_compiled_entry_t *entry =
      ddphookJitModuleFindEntry(code, mlirStringRefCreateFromCString("step"));
  float gradient[] = {1, 2, 3, 4, 5, 6}, mean[6] = {0};
  void *buffers[] = {gradient, mean};
  if (ddphook_module_load(job, module) != DDPHOOK_OK ||
      entry->invoke(buffers) != DDPHOOK_OK)
    return fail(ddphook_last_error());
  ddphook_module_unload(module);
  ddphook_context_destroy(job);
  ddphookJitModuleDestroy(code);
  return memcmp(mean, gradient, sizeof(mean)) == 0
             ? 0
             : fail("expected the gradient as its own mean");
}

/* Compiles `text`; null after an error, which `message` then holds. */
static DDPHookCompiledModule compile(MlirContext context, const char *text,
                                     const char *pipeline) {
  DDPHookCompiledModule compiled = {NULL};
  MlirModule module =
      mlirModuleCreateParse(context, mlirStringRefCreateFromCString(text));
  if (mlirModuleIsNull(module))
    return compiled;
  DDPHookCompilerOptions options = ddphookCompilerOptionsCreate();
  ddphookCompilerOptionsSetName(options,
                                mlirStringRefCreateFromCString("model"));
  ddphookCompilerOptionsSetPipeline(options,
                                    mlirStringRefCreateFromCString(pipeline));
  compiled = ddphookCompile(module, options);
  ddphookCompilerOptionsDestroy(options);
  mlirModuleDestroy(module);
  return compiled;
}

/* Passes by their names, in a pass manager of MLIR's C API. */
static int runPasses(MlirContext context) {
  ddphookRegisterPasses();
  MlirModule module =
      mlirModuleCreateParse(context, mlirStringRefCreateFromCString(step));
  MlirPassManager passes = mlirPassManagerCreate(context);
  if (mlirLogicalResultIsFailure(mlirParsePassPipeline(
          mlirPassManagerGetAsOpPassManager(passes),
          mlirStringRefCreateFromCString(
              "builtin.module(ddp-tensor-pipeline{hook=fp16},"
              "ddp-bufferize,ddp-memory-pipeline,ddp-lower-to-llvm{name=a})"),
          keep, NULL)))
    return fail(message);
  if (mlirLogicalResultIsFailure(
          mlirPassManagerRunOnOp(passes, mlirModuleGetOperation(module))))
    return fail(message);
  mlirPassManagerDestroy(passes);
  mlirModuleDestroy(module);
  return 0;
}

int main(void) {
  MlirDialectRegistry registry = mlirDialectRegistryCreate();
  ddphookRegisterDialects(registry);
  MlirContext context = mlirContextCreateWithRegistry(registry, true);
  mlirDialectRegistryDestroy(registry);
  mlirContextAttachDiagnosticHandler(context, onDiagnostic, NULL, NULL);

  DDPHookCompiledModule compiled =
      compile(context, step, "hook=fp16 bucket-cap-mb=25");
  if (ddphookCompiledModuleIsNull(compiled))
    return fail(message);
  if (run(compiled))
    return 1;
  MlirStringRef header = ddphookCompiledModuleGetHeader(compiled);
  if (header.length == 0 || !strstr(header.data, "model_step("))
    return fail("expected a header that declares model_step");
  if (ddphookCompiledModuleGetObject(compiled).length == 0)
    return fail("expected an object file");
  MlirStringRef none = mlirStringRefCreate(NULL, 0);
  MlirStringRef shared =
      ddphookCompiledModuleGetSharedObject(compiled, none, keep, NULL);
  if (!shared.data || memcmp(shared.data,
                             "\x7f"
                             "ELF",
                             4) != 0)
    return fail("expected a shared object");

  /* Errors: of the linker by the callback, of the module by a diagnostic. */
  memset(message, 0, sizeof(message));
  shared = ddphookCompiledModuleGetSharedObject(
      compiled, mlirStringRefCreateFromCString("no-such-linker"), keep, NULL);
  if (shared.data || !strstr(message, "cannot find the linker"))
    return fail("expected a linker that is missing to be an error");
  ddphookCompiledModuleDestroy(compiled);
  if (!ddphookCompiledModuleIsNull(compile(context, step, "hook=gzip")) ||
      !strstr(message, "'gzip'"))
    return fail("expected a hook that does not exist to be an error");
  if (!ddphookCompiledModuleIsNull(compile(context, step, "cap=1")) ||
      !strstr(message, "in the options of ddp-pipeline"))
    return fail("expected an option that does not exist to be an error");

  if (runPasses(context))
    return 1;
  mlirContextDestroy(context);
  puts("capi consumer: ok");
  return 0;
}
