// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the passes and the types that their options need. Passes.td and
// docs/generated describe each pass.

#ifndef DDPHOOK_DIALECT_DDP_TRANSFORMS_PASSES_H
#define DDPHOOK_DIALECT_DDP_TRANSFORMS_PASSES_H

#include "ddphook/Dialect/DDP/Analysis/Orders.h"
#include "ddphook/Dialect/DDP/Transforms/Utils/HookOptions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"
#include <limits>

namespace mlir::ddp {

/// The value of a limit of buckets or groups that was not given. Users cannot
/// enter it as a number of MiB, even by mistake.
constexpr double kUnsetLimit = -std::numeric_limits<double>::infinity();

/// The amount of data, in MiB, that hooks take through all their stages
/// together on a host: with its error and its result it fits in the caches of a
/// core (docs/benchmarks.md). It does not depend on the machine that compiles
/// the program, since all ranks must use the same groups.
constexpr double kDefaultGroupMb = 4;

/// The collectives that `ddp-verify-order` found after the previous pass;
/// shared by all its runs in one pipeline.
struct CollectiveTrace;
using CollectiveHistory = std::shared_ptr<std::unique_ptr<CollectiveTrace>>;
CollectiveHistory createCollectiveHistory();

/// Creates the `ddp-verify-order` that runs after `pass`, which preserves
/// `kept`.
std::unique_ptr<Pass> createVerifyOrderAfterPass(CollectiveHistory history,
                                                 StringRef pass,
                                                 OrderAcrossPass kept);

/// Registers the bufferization interface of the dialect's operations, attached
/// from outside like that of upstream's dialects.
void registerBufferizableOpInterfaceExternalModels(DialectRegistry &registry);
/// Also registers those of MLIR's own dialects, which the passes on memory use.
/// `mlir::registerAllDialects` registers them too; both may be called.
void registerBufferizationModels(DialectRegistry &registry);

#define GEN_PASS_DECL
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"

} // namespace mlir::ddp

#endif // DDPHOOK_DIALECT_DDP_TRANSFORMS_PASSES_H

// A file that defines a pass includes this header after GEN_PASS_DEF_<PASS>.
namespace mlir::ddp {
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"
} // namespace mlir::ddp
