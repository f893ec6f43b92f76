//===- Passes.h - passes of the ddp dialect ---------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the passes and the few types that their options need. What each pass
// does is in Passes.td and in docs/generated.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_DIALECT_DDP_TRANSFORMS_PASSES_H
#define DDPHOOK_DIALECT_DDP_TRANSFORMS_PASSES_H

#include "ddphook/Dialect/DDP/IR/DDP.h"
#include "ddphook/Dialect/DDP/Transforms/Utils/HookOptions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"
#include <limits>

namespace mlir::ddp {

/// In which order `ddp-bucketize` packs gradients.
enum class BucketOrder { Ready, Forward, Reverse };

/// A limit of buckets that nobody has given. No number of MiB that a user could
/// mean, not even by mistake.
constexpr double kUnsetLimit = -std::numeric_limits<double>::infinity();

/// What a pass keeps of a module's collectives: nothing, the tensors that they
/// reduce, those as the buckets' records, the elements that travel, or all of
/// them in their places.
enum class OrderAcrossPass { Nothing, Members, Recorded, Elements, Everything };

/// What `ddp-verify-order` found after the pass before; shared by all of one
/// pipeline.
struct CollectiveTrace;
using CollectiveHistory = std::shared_ptr<std::unique_ptr<CollectiveTrace>>;
CollectiveHistory createCollectiveHistory();

/// `ddp-verify-order` behind `pass`, which keeps so much.
std::unique_ptr<Pass> createVerifyOrderAfterPass(CollectiveHistory history,
                                                 StringRef pass,
                                                 OrderAcrossPass kept);

/// Registers how operations of MLIR's own dialects are bufferized, which the
/// passes on memory ask them. `mlir::registerAllDialects` does that, too, and
/// may be called as well.
void registerBufferizationModels(DialectRegistry &registry);

#define GEN_PASS_DECL
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"

} // namespace mlir::ddp

#endif // DDPHOOK_DIALECT_DDP_TRANSFORMS_PASSES_H
