// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loaded by ddphook's tools with --load-dialect-plugin.

#include "MyHook.h"

#include "mlir/Tools/Plugins/DialectPlugin.h"

extern "C" LLVM_ATTRIBUTE_WEAK mlir::DialectPluginLibraryInfo
mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "MyHooks", LLVM_VERSION_STRING,
          [](mlir::DialectRegistry *registry) {
            registry->insert<my::MyDialect>();
          }};
}
