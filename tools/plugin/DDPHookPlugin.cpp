// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The entry point that `mlir-opt --load-dialect-plugin=DDPHookPlugin.so` calls.
// It also registers passes and pipelines: mlir-opt would look for another entry
// point only with --load-pass-plugin.

#include "ddphook/Compiler/Passes.h"
#include "ddphook/Dialect/Opaque/OpaqueDialects.h"
#include "ddphook/InitAll.h"

#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "llvm/Config/llvm-config.h"

static void registerPasses() {
  mlir::ddp::registerAllPasses();
  mlir::ddp::registerCompilerPasses();
}

extern "C" LLVM_ATTRIBUTE_WEAK
    LLVM_ATTRIBUTE_VISIBILITY_DEFAULT ::mlir::DialectPluginLibraryInfo
    mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "DDPHook", LLVM_VERSION_STRING,
          [](mlir::DialectRegistry *registry) {
            mlir::ddp::registerAllDialects(*registry);
            mlir::ddp::registerOpaqueDialects(*registry);
            registerPasses();
          }};
}

extern "C" LLVM_ATTRIBUTE_WEAK
    LLVM_ATTRIBUTE_VISIBILITY_DEFAULT ::mlir::PassPluginLibraryInfo
    mlirGetPassPluginInfo() {
  // Registers passes only, for a program that has the dialect already.
  return {MLIR_PLUGIN_API_VERSION, "DDPHook", LLVM_VERSION_STRING,
          registerPasses};
}
