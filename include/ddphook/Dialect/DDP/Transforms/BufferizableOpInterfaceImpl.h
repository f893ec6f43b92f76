// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bufferization interface of the dialect's operations, attached from
// outside like that of upstream's dialects.

#pragma once

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace mlir::ddp {

/// Registers the models of ddp only; registerBufferizationModels() (Passes.h)
/// registers those of the upstream dialects that the passes use.
void registerBufferizableOpInterfaceExternalModels(DialectRegistry &registry);

} // namespace mlir::ddp
