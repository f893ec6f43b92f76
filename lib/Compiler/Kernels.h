//===- Kernels.h - what lib/CodeGen does for the compiler -------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The one way from the compiler to lib/CodeGen, which is optional: the build
// compiles either CodeGenKernels.cpp, or NoKernels.cpp in its place.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_LIB_COMPILER_KERNELS_H
#define DDPHOOK_LIB_COMPILER_KERNELS_H

#include "ddphook/Compiler/Passes.h"

#include "llvm/Support/Error.h"

#include <memory>
#include <string>

namespace mlir::ddp {

/// Registers the passes of lib/CodeGen by name.
void registerKernelPasses();

/// Adds the passes that turn linalg operations into fast loops for this CPU.
/// What they leave becomes upstream's plain loops.
void addCPUKernelPasses(OpPassManager &pm, const LLVMLoweringOptions &options);

/// Makes kernels of a module's linalg operations.
class KernelCompiler {
public:
  virtual ~KernelCompiler() = default;

  /// Replaces linalg operations by launches of kernels, in a gpu.module of the
  /// name kDeviceModuleName, and returns the code of these kernels: empty when
  /// there are none. Fails after a diagnostic.
  virtual FailureOr<std::string> compile(ModuleOp module) = 0;
};

/// The compiler of kernels for GPUs of `architecture` and later ones; null for
/// a device whose kernels cannot be made here.
llvm::Expected<std::unique_ptr<KernelCompiler>>
createKernelCompiler(StringRef device, StringRef architecture);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_COMPILER_KERNELS_H
