// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step has one or more linalg operations for each gradient, and most of its
// operations are in their bodies, which compute one element. These do not
// access gradients, buckets or memory, and a module of many thousands of
// gradients is larger than any cache. So a pass that searches for something
// skips them, unless it has to see everything.

#pragma once

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/STLExtras.h"

namespace mlir::ddp {

/// Calls `visit` like `root->walk`: for all operations of its argument's type,
/// with nested operations before the one around them. But skips operations in
/// bodies of linalg operations. `visit` may erase the operation.
template <typename FnT>
void walkProgram(Operation *root, FnT &&visit) {
  using OpT =
      typename llvm::function_traits<std::decay_t<FnT>>::template arg_t<0>;
  if (root->getNumRegions() != 0 && !isa<linalg::LinalgOp>(root))
    for (Region &region : root->getRegions())
      for (Block &block : region)
        for (Operation &op : llvm::make_early_inc_range(block))
          walkProgram(&op, visit);
  if constexpr (std::is_same_v<OpT, Operation *>)
    visit(root);
  else if (auto op = dyn_cast<OpT>(root))
    visit(op);
}

/// True if `op` returns from a function.
inline bool isReturn(Operation *op) {
  return op->hasTrait<OpTrait::ReturnLike>() &&
         isa<FunctionOpInterface>(op->getParentOp());
}

/// Calls `visit` for the functions under `root`, in order.
template <typename FnT>
WalkResult walkFunctions(Operation *root, FnT &&visit) {
  return root->walk<WalkOrder::PreOrder>([&](Operation *op) {
    auto function = dyn_cast<FunctionOpInterface>(op);
    if (!function)
      return WalkResult::advance();
    WalkResult result = visit(function);
    return result.wasInterrupted() ? result : WalkResult::skip();
  });
}

} // namespace mlir::ddp
