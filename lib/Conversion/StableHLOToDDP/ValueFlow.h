// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Follows values through calls, loops and branches of JAX programs. JAX shares
// one function between several call sites, so a value that enters a function
// through a call must leave it through the same one.

#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::ddp {

class ValueFlow {
public:
  /// A value and the entry of its function, a number for the call through which
  /// it was entered; 0 if the value was not followed into a function.
  using Place = std::pair<Value, unsigned>;

  explicit ValueFlow(ModuleOp module);

  /// Pushes the values that `use` becomes through a call, a return, a loop or a
  /// branch. Returns false if its owner is none of these.
  bool follow(OpOperand &use, unsigned entry, function_ref<void(Place)> push);

  /// Pushes the values that `place` comes from: those a callee returns, or a
  /// caller passes. Returns false if it is neither a call's result nor an
  /// argument. An argument of a function that nobody calls is the program's.
  bool followBack(Place place, function_ref<void(Place)> push);

  ArrayRef<func::CallOp> getCalls(func::FuncOp function) const;

private:
  /// Returns the function that `call` runs and the number of this entry, or
  /// null if its body is unknown.
  std::pair<func::FuncOp, unsigned> enter(func::CallOp call, unsigned entry);

  llvm::StringMap<SmallVector<func::CallOp>> calls;
  SymbolTableCollection symbols;
  /// The number, from 1, of each call and the entry of the function around it.
  llvm::MapVector<std::pair<Operation *, unsigned>, unsigned> entries;
};

} // namespace mlir::ddp
