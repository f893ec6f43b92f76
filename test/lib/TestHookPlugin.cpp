// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What `--load-dialect-plugin` and `--load-pass-plugin` of ddphook-opt,
// ddphook-cc and ddphook-run load.

#include "BreakModule.h"
#include "ReduceResults.h"
#include "TestHook.h"

#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "llvm/Config/llvm-config.h"

extern "C" LLVM_ATTRIBUTE_WEAK ::mlir::DialectPluginLibraryInfo
mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "TestHook", LLVM_VERSION_STRING,
          [](mlir::DialectRegistry *registry) {
            registry->insert<testhook::TestHookDialect>();
          }};
}

extern "C" LLVM_ATTRIBUTE_WEAK ::mlir::PassPluginLibraryInfo
mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "TestHook", LLVM_VERSION_STRING, [] {
            testhook::registerBreakModulePass();
            testhook::registerReduceResultsPass();
          }};
}
