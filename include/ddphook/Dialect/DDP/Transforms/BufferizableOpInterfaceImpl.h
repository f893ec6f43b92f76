//===- BufferizableOpInterfaceImpl.h - bufferization of ddp -----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What One-Shot Bufferize asks the dialect's operations, attached from outside
// as upstream's dialects do it.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_DIALECT_DDP_TRANSFORMS_BUFFERIZABLEOPINTERFACEIMPL_H
#define DDPHOOK_DIALECT_DDP_TRANSFORMS_BUFFERIZABLEOPINTERFACEIMPL_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace mlir::ddp {

/// For the operations of ddp alone; those of upstream's dialects that the
/// passes meet come with registerBufferizationModels() (Passes.h).
void registerBufferizableOpInterfaceExternalModels(DialectRegistry &registry);

} // namespace mlir::ddp

#endif // DDPHOOK_DIALECT_DDP_TRANSFORMS_BUFFERIZABLEOPINTERFACEIMPL_H
