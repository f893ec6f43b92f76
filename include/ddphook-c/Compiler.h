/*===- Compiler.h - from a module to machine code, in C ------------*- C -*-===*
 *
 * Part of the ddphook project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The C form of ddphook/Compiler/Compiler.h, SharedObject.h and JitModule.h:
 * from an MlirModule to object code, a shared object, or code in this process,
 * all in memory. docs/embedding.md has an example.
 *
 * Errors. ddphookCompile() reports all errors as diagnostics of the module's
 * context (mlirContextAttachDiagnosticHandler). The functions that work on its
 * result, which has no context, call `onError` with one message, in one piece,
 * before they return; `onError` may be null.
 *
 * Ownership. Whoever creates an object destroys it. Strings that are passed in
 * are copied. Strings that are returned belong to the object that they were
 * asked of. The objects do not refer to one another, nor to the module or its
 * context, except that code in this process ends with its DDPHookJitModule.
 *
 * Threads. Different objects may be used by different threads at the same time,
 * as long as no two of them compile modules of one context.
 *
 *===----------------------------------------------------------------------===*/
#ifndef DDPHOOK_C_COMPILER_H
#define DDPHOOK_C_COMPILER_H

#include "mlir-c/IR.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of ddphook/runtime/compiled.h. */
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
 * They are checked when a module is compiled.
 *===------------------------------------------------------------------------*/

/* All defaults: code for this CPU, at the highest optimization level. */
MLIR_CAPI_EXPORTED DDPHookCompilerOptions ddphookCompilerOptionsCreate(void);
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsDestroy(DDPHookCompilerOptions options);

/* Prefix of the C functions, a C identifier; default "ddphook". */
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsSetName(DDPHookCompilerOptions options,
                              MlirStringRef name);

/* Also export the module as `ddphook_compiled_module`, as ddphook-exec and
 * other programs expect it of a shared object; default false. */
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsSetShared(DDPHookCompilerOptions options, bool shared);

/* Options of `ddp-pipeline`, "hook=powersgd bucket-cap-mb=25". They must not be
 * set for a module that has a plan, as it went through the pipeline already. */
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsSetPipeline(DDPHookCompilerOptions options,
                                  MlirStringRef pipeline);

/* 0 … 3; default 3. */
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsSetOptLevel(DDPHookCompilerOptions options,
                                  unsigned level);

/* A CPU's name as LLVM knows it; default "native", this machine's. */
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsSetMarch(DDPHookCompilerOptions options,
                               MlirStringRef march);

/* The backend that arrays belong to: "host" (default), "cuda", or the name of
 * another that is there when the program runs. `architecture`, "sm_80", is for
 * "cuda": the oldest that must run the kernels; may be empty. */
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsSetDevice(DDPHookCompilerOptions options,
                                MlirStringRef device,
                                MlirStringRef architecture);

/* Path of the runtime's shared library. Shared objects then name it as needed
 * (DT_NEEDED, by its DT_SONAME), and find its functions also in a process that
 * loaded it RTLD_LOCAL, as Python does. By default they name none, and find the
 * functions of the program or of a library that was loaded RTLD_GLOBAL. */
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsSetRuntime(DDPHookCompilerOptions options,
                                 MlirStringRef path);

/* Round a*b+c once if the CPU can; default false. */
MLIR_CAPI_EXPORTED void
ddphookCompilerOptionsSetFuseMultiplyAdd(DDPHookCompilerOptions options,
                                         bool fuse);

/*===-- Compiling ---------------------------------------------------------===*/

/* Compiles the module: one with `ddp.all_reduce`s, or one with a plan. The
 * module is changed in place, and is in the LLVM dialect afterwards; after an
 * error it is in between two stages. Returns null after an error. */
MLIR_CAPI_EXPORTED DDPHookCompiledModule
ddphookCompile(MlirModule module, DDPHookCompilerOptions options);

static inline bool ddphookCompiledModuleIsNull(DDPHookCompiledModule compiled) {
  return !compiled.ptr;
}

MLIR_CAPI_EXPORTED void
ddphookCompiledModuleDestroy(DDPHookCompiledModule compiled);

/* The bytes of a position-independent object file. */
MLIR_CAPI_EXPORTED MlirStringRef
ddphookCompiledModuleGetObject(DDPHookCompiledModule compiled);

/* The C header of its entry points. */
MLIR_CAPI_EXPORTED MlirStringRef
ddphookCompiledModuleGetHeader(DDPHookCompiledModule compiled);

/* The bytes of a shared object. `linker` is a program that takes a C compiler's
 * flags; empty: LLD in this process, which needs no compiler. The data is null
 * after an error, and otherwise valid until the next call of this function. */
MLIR_CAPI_EXPORTED MlirStringRef ddphookCompiledModuleGetSharedObject(
    DDPHookCompiledModule compiled, MlirStringRef linker,
    MlirStringCallback onError, void *userData);

/*===-- Running in this process -------------------------------------------===*/

/* A function of the runtime, "ddphook_rt_enter", and its address. */
typedef struct DDPHookRuntimeSymbol {
  const char *name;
  void *address;
} DDPHookRuntimeSymbol;

/* Links the code into this process. Calls of the runtime go to `symbols`, which
 * may be none, and otherwise to what the process has: a program linked with
 * DDPHook::Runtime, or one that loaded it with RTLD_GLOBAL. Returns null after
 * an error. */
MLIR_CAPI_EXPORTED DDPHookJitModule
ddphookJitModuleCreate(DDPHookCompiledModule compiled, intptr_t numSymbols,
                       const DDPHookRuntimeSymbol *symbols,
                       MlirStringCallback onError, void *userData);

static inline bool ddphookJitModuleIsNull(DDPHookJitModule module) {
  return !module.ptr;
}

/* Frees the code: call ddphook_module_unload() first. */
MLIR_CAPI_EXPORTED void ddphookJitModuleDestroy(DDPHookJitModule module);

/* What ddphook_module_load() of the runtime takes. */
MLIR_CAPI_EXPORTED const struct ddphook_compiled_module *
ddphookJitModuleGet(DDPHookJitModule module);

/* The entry point of this name, or null. Once the module is loaded it is called
 * as ddphook/runtime/compiled.h says. */
MLIR_CAPI_EXPORTED const struct ddphook_compiled_entry *
ddphookJitModuleFindEntry(DDPHookJitModule module, MlirStringRef name);

#ifdef __cplusplus
}
#endif

#endif /* DDPHOOK_C_COMPILER_H */
