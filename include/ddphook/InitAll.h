// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions with which a tool, a plugin or another compiler registers the
// dialect, the passes and the pipelines.

#pragma once

#include "ddphook/Pipelines/Pipelines.h"

namespace mlir::ddp {

/// Registers the dialect, and the interfaces of other dialects' operations that
/// the passes use.
inline void registerAllDialects(DialectRegistry &registry) {
  registry.insert<DDPDialect>();
  registerBufferizationModels(registry);
}

inline void registerAllPasses() {
  registerDDPPasses();
  registerDDPConversionPasses();
  registerDDPPipelines();
}

} // namespace mlir::ddp
