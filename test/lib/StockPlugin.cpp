// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What stock mlir-opt loads to get ddphook with a hook of another dialect: a
// plugin finds there no dialect that another plugin has.

#include "TestHook.h"

#include "ddphook/InitAll.h"

#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "llvm/Config/llvm-config.h"

extern "C" LLVM_ATTRIBUTE_WEAK
    LLVM_ATTRIBUTE_VISIBILITY_DEFAULT ::mlir::DialectPluginLibraryInfo
    mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "DDPHookAndTestHook", LLVM_VERSION_STRING,
          [](mlir::DialectRegistry *registry) {
            mlir::ddp::registerAllDialects(*registry);
            mlir::ddp::registerAllPasses();
            registry->insert<testhook::TestHookDialect>();
          }};
}
