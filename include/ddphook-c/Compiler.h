/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The C form of ddphook/Compiler/Compiler.h, SharedObject.h and JitModule.h:
 * from an MlirModule to object code, a shared object, or code in this process,
 * all in memory. docs/embedding.md has an example.
 *
 * Errors. ddphookCompile() reports all errors as diagnostics of the module's
 * context (mlirContextAttachDiagnosticHandler). The functions on its result,
 * which has no context, call `onError` once, with the whole message, before
 * they return; `onError` may be null.
 *
 * Ownership. Callers destroy the objects that they create. Strings passed in
 * are copied. Returned strings belong to the object that returned them. Objects
 * do not refer to one another, nor to the module or its context, except that
 * code in this process is freed with its DDPHookJitModule.
 *
 * Threads. Threads may use different objects at the same time, unless they
 * compile modules of one context. */

#ifndef DDPHOOK_C_COMPILER_H
#define DDPHOOK_C_COMPILER_H

#include "mlir-c/IR.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Defined in ddphook/runtime/compiled.h. */
struct ddphook_compiled_module;
struct ddphook_compiled_entry;

typedef struct DDPHookCompilerOptions {
  void *ptr;
} DDPHookCompilerOptions;

typedef struct DDPHookCompiledModule {
  void *ptr;
} DDPHookCompiledModule;

typedef struct DDPHookJitModule {
  void *ptr;
} DDPHookJitModule;

/*===-- Options ---------------------------------------------------------------
 *
 * Options are checked when a module is compiled.
 *===------------------------------------------------------------------------*/

/* Creates default options: this CPU, and the highest optimization level. */
MLIR_CAPI_EXPORTED DDPHookCompilerOptions ddphookCompilerOptionsCreate(void);
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsDestroy(DDPHookCompilerOptions options);

/* The prefix of the C functions, a C identifier; default "ddphook". */
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsSetName(DDPHookCompilerOptions options,
                              MlirStringRef name);

/* Also export the module as `ddphook_compiled_module`, which ddphook-exec and
 * other programs expect in a shared object; default false. */
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsSetShared(DDPHookCompilerOptions options, bool shared);

/* Options of `ddp-pipeline`, "hook=powersgd bucket-cap-mb=25". Must not be set
 * for a module with a plan, which went through the pipeline already. */
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsSetPipeline(DDPHookCompilerOptions options,
                                  MlirStringRef pipeline);

/* 0 to 3; default 3. */
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsSetOptLevel(DDPHookCompilerOptions options,
                                  unsigned level);

/* The name of a CPU in LLVM; default "native", this machine's. */
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsSetMarch(DDPHookCompilerOptions options,
                               MlirStringRef march);

/* The backend whose memory holds arrays: "host" (default), "cuda", or another
 * one that exists when the program runs. `architecture`, "sm_80", is only for
 * "cuda": the oldest that must run the kernels; may be empty. */
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsSetDevice(DDPHookCompilerOptions options,
                                MlirStringRef device,
                                MlirStringRef architecture);

/* The path of the runtime's shared library. If set, shared objects depend on it
 * (DT_NEEDED, by its DT_SONAME), and find its functions even if the process
 * loaded it RTLD_LOCAL, as Python does. By default they depend on none, and use
 * the functions of the program or of a library loaded RTLD_GLOBAL. */
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsSetRuntime(DDPHookCompilerOptions options,
                                 MlirStringRef path);

/* Round a*b+c only once if the CPU can; default false. */
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsSetFuseMultiplyAdd(DDPHookCompilerOptions options,
                                         bool fuse);

/*===-- Compiling ---------------------------------------------------------===*/

/* Compiles a module with `ddp.all_reduce`s or with a plan. Lowers the module in
 * place to the LLVM dialect. After an error, returns null and leaves the module
 * partly lowered. */
MLIR_CAPI_EXPORTED DDPHookCompiledModule
ddphookCompile(MlirModule module, DDPHookCompilerOptions options);

static inline bool ddphookCompiledModuleIsNull(DDPHookCompiledModule compiled) {
  return !compiled.ptr;
}

MLIR_CAPI_EXPORTED void
ddphookCompiledModuleDestroy(DDPHookCompiledModule compiled);

/* Returns the bytes of a position-independent object file. */
MLIR_CAPI_EXPORTED MlirStringRef
ddphookCompiledModuleGetObject(DDPHookCompiledModule compiled);

/* Returns the C header of the entry points. */
MLIR_CAPI_EXPORTED MlirStringRef
ddphookCompiledModuleGetHeader(DDPHookCompiledModule compiled);

/* Returns the bytes of a shared object. `linker` is a program that accepts a C
 * compiler's flags; empty for LLD in this process, which needs no compiler. The
 * data is null after an error, else valid until the next call. */
MLIR_CAPI_EXPORTED MlirStringRef ddphookCompiledModuleGetSharedObject(
    DDPHookCompiledModule compiled, MlirStringRef linker,
    MlirStringCallback onError, void *userData);

/*===-- Running in this process -------------------------------------------===*/

/* A function of the runtime, such as "ddphook_rt_enter", and its address. */
typedef struct DDPHookRuntimeSymbol {
  const char *name;
  void *address;
} DDPHookRuntimeSymbol;

/* Links the code into this process. Calls of the runtime use `symbols`, which
 * may be empty, and otherwise functions of the process: a program linked with
 * DDPHook::Runtime, or one that loaded it RTLD_GLOBAL. Returns null after an
 * error. */
MLIR_CAPI_EXPORTED DDPHookJitModule
ddphookJitModuleCreate(DDPHookCompiledModule compiled, intptr_t numSymbols,
                       const DDPHookRuntimeSymbol *symbols,
                       MlirStringCallback onError, void *userData);

static inline bool ddphookJitModuleIsNull(DDPHookJitModule module) {
  return !module.ptr;
}

/* Frees the code: call ddphook_module_unload() first. */
MLIR_CAPI_EXPORTED void ddphookJitModuleDestroy(DDPHookJitModule module);

/* Returns the argument of the runtime's ddphook_module_load(). */
MLIR_CAPI_EXPORTED const struct ddphook_compiled_module *
ddphookJitModuleGet(DDPHookJitModule module);

/* Returns the entry point of this name, or null. After loading the module, call
 * it as ddphook/runtime/compiled.h describes. */
MLIR_CAPI_EXPORTED const struct ddphook_compiled_entry *
ddphookJitModuleFindEntry(DDPHookJitModule module, MlirStringRef name);

#ifdef __cplusplus
}
#endif

#endif /* DDPHOOK_C_COMPILER_H */
