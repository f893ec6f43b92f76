// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Translates a gpu.module to PTX. Needs neither a GPU nor NVIDIA's software.

#pragma once

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <string>

namespace llvm {
class TargetMachine;
} // namespace llvm

namespace mlir::ddp {

/// Returns the code generator for GPUs of this architecture ("sm_80") and later
/// ones.
llvm::Expected<std::unique_ptr<llvm::TargetMachine>>
createDeviceTarget(llvm::StringRef architecture);

/// Returns PTX of the kernels of `ddp-outline-gpu-kernels`, which are not
/// changed. Emits a diagnostic on failure.
FailureOr<std::string> emitDeviceCode(gpu::GPUModuleOp kernels,
                                      llvm::TargetMachine &target);

} // namespace mlir::ddp
