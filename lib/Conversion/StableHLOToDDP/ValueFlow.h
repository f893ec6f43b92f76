//===- ValueFlow.h - where values go ----------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Follows values through calls, loops and branches of programs that JAX writes.
// JAX makes one function of what a program does in several places, so that a
// value which has entered a function by one call leaves it by the same one.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_VALUEFLOW_H
#define DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_VALUEFLOW_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::ddp {

class ValueFlow {
public:
  /// A value, and by which call its function was entered: 0 where it has not
  /// been followed into one.
  using Place = std::pair<Value, unsigned>;

  explicit ValueFlow(ModuleOp module);

  /// Gives the values that are `use`'s, behind a call, a return, a loop or a
  /// branch. Returns false if its owner is none of these.
  bool follow(OpOperand &use, unsigned entry, function_ref<void(Place)> push);

  /// Gives the values that `place` is, inside the function whose call gives it
  /// or outside of the one whose argument it is. Returns false if it is
  /// neither: an argument of a function that nobody calls is the program's.
  bool followBack(Place place, function_ref<void(Place)> push);

  /// The calls of a function.
  ArrayRef<func::CallOp> getCalls(func::FuncOp function) const;

private:
  /// The function that `call` runs, and the number by which it is entered; null
  /// if its operations are not known.
  std::pair<func::FuncOp, unsigned> enter(func::CallOp call, unsigned entry);

  llvm::StringMap<SmallVector<func::CallOp>> calls;
  SymbolTableCollection symbols;
  /// A call, and by which one its own function was entered; numbered from 1.
  llvm::MapVector<std::pair<Operation *, unsigned>, unsigned> entries;
};

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_VALUEFLOW_H
