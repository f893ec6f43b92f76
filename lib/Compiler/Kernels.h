// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The only interface from the compiler to lib/CodeGen, which is optional: the
// build compiles either CodeGenKernels.cpp or NoKernels.cpp.

#pragma once

#include "ddphook/Compiler/Passes.h"

#include "llvm/Support/Error.h"

#include <memory>
#include <string>

namespace mlir::ddp {

/// Registers the passes of lib/CodeGen by name.
void registerKernelPasses();

/// Adds the passes that turn linalg operations into fast loops for this CPU.
/// Operations that they skip become upstream's plain loops.
void addCPUKernelPasses(OpPassManager &pm, const LLVMLoweringOptions &options);

/// Compiles a module's linalg operations to kernels.
class KernelCompiler {
public:
  virtual ~KernelCompiler() = default;

  /// Replaces linalg operations by launches of kernels in a gpu.module named
  /// kDeviceModuleName, and returns the kernels' code, empty if there are none.
  /// Emits a diagnostic on failure.
  virtual FailureOr<std::string> compile(ModuleOp module) = 0;
};

/// Returns the compiler of kernels for GPUs of `architecture` and later ones,
/// or null if this build cannot make kernels for the device.
llvm::Expected<std::unique_ptr<KernelCompiler>>
createKernelCompiler(StringRef device, StringRef architecture);

} // namespace mlir::ddp
