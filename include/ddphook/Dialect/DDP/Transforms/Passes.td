// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the passes from gradients to memory, phase by phase.

#ifndef DDPHOOK_DIALECT_DDP_TRANSFORMS_PASSES_TD
#define DDPHOOK_DIALECT_DDP_TRANSFORMS_PASSES_TD

include "ddphook/Dialect/DDP/Transforms/GradientPasses.td"
include "ddphook/Dialect/DDP/Transforms/BucketPasses.td"
include "ddphook/Dialect/DDP/Transforms/TensorPasses.td"
include "ddphook/Dialect/DDP/Transforms/MemoryPasses.td"

#endif // DDPHOOK_DIALECT_DDP_TRANSFORMS_PASSES_TD
