// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For builds with DDPHOOK_CODEGEN=OFF. On CPUs, linalg operations become
// upstream's plain loops, which compute the same bits. For a device there are
// no kernels; `ddp-check-device-memory` reports operations that need one.

#include "Kernels.h"

using namespace mlir;

void mlir::ddp::registerKernelPasses() {}

void mlir::ddp::addCPUKernelPasses(OpPassManager &,
                                   const LLVMLoweringOptions &) {}

llvm::Expected<std::unique_ptr<ddp::KernelCompiler>>
mlir::ddp::createKernelCompiler(StringRef, StringRef) {
  return nullptr;
}
