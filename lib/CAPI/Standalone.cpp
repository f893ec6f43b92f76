// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LLD registers all LLVM targets, and can optimize across modules with Polly.
// We only link object files of two targets. So the functions that it calls for
// everything else do nothing here, and none of it is linked.

#include "llvm/Plugins/PassPlugin.h"

#define UNUSED_TARGET(name)                                                    \
  extern "C" void LLVMInitialize##name##Target() {}                            \
  extern "C" void LLVMInitialize##name##TargetMC() {}                          \
  extern "C" void LLVMInitialize##name##AsmPrinter() {}                        \
  extern "C" void LLVMInitialize##name##AsmParser() {}                         \
  extern "C" void LLVMInitialize##name##Disassembler() {}
// CMakeLists.txt writes a line for each.
#include "UnusedTargets.inc"

// LLVM's archives refer to it, but none in Debian defines it.
llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "Polly", "left out",
          [](llvm::PassBuilder &) {}};
}
