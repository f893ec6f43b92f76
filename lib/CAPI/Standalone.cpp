//===- Standalone.cpp - What a C API with LLVM inside leaves out ----------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LLD registers all targets of LLVM, and knows how to optimize across modules
// with Polly. We use it to link object files of two targets, so what it calls
// for all else does nothing here, and none of that is linked.
//
//===----------------------------------------------------------------------===//

#include "llvm/Plugins/PassPlugin.h"

#define UNUSED_TARGET(name)                                                    \
  extern "C" void LLVMInitialize##name##Target() {}                            \
  extern "C" void LLVMInitialize##name##TargetMC() {}                          \
  extern "C" void LLVMInitialize##name##AsmPrinter() {}                        \
  extern "C" void LLVMInitialize##name##AsmParser() {}                         \
  extern "C" void LLVMInitialize##name##Disassembler() {}
// A line for each, by CMakeLists.txt.
#include "UnusedTargets.inc"

// LLVM's archives name it, and Debian has no archive that defines it.
llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "Polly", "left out",
          [](llvm::PassBuilder &) {}};
}
