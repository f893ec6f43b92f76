// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// JAX names results, not operations.

#pragma once

#include "ValueFlow.h"
#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "llvm/ADT/StringSet.h"

namespace mlir::ddp {

/// Names gradients after the first result that is computed from them element by
/// element: the parameter's new value.
class ResultNames {
public:
  ResultNames(ModuleOp module, ValueFlow &flow);

  /// Sets the name of `reduction` if it has none and one is found.
  void name(AllReduceOp reduction);

private:
  std::optional<unsigned> findResult(Value value, StringAttr &info);
  void follow(OpOperand &use, unsigned entry,
              function_ref<void(ValueFlow::Place)> push);

  ValueFlow &flow;
  llvm::StringSet<> taken;
};

} // namespace mlir::ddp
