// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Utilities for passes that change a function's interface and all its calls.

#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::ddp {

/// The private functions of a module whose interface may be changed, with their
/// calls: functions with a body that only `func.call`s refer to.
using PrivateFunctions =
    llvm::MapVector<func::FuncOp, SmallVector<func::CallOp>>;
PrivateFunctions collectPrivateFunctions(ModuleOp module);

/// Returns all symbol names that operations of the module refer to.
llvm::DenseSet<StringAttr> collectReferencedNames(ModuleOp module);

/// Returns all return operations of a function.
SmallVector<func::ReturnOp> getReturns(func::FuncOp function);

/// For each result, returns the first one with the same value in each return.
SmallVector<unsigned> findFirstEqual(ArrayRef<func::ReturnOp> returns,
                                     unsigned numResults);

/// Removes results of a function.
void eraseResults(func::FuncOp function, const llvm::BitVector &erased);

/// Replaces a call by one with `newOperands` appended to its operands and
/// without the erased results, which must have no uses. Sets `call` to the new
/// call.
void replaceCall(func::CallOp &call, const llvm::BitVector &erased,
                 ArrayRef<Value> newOperands);

} // namespace mlir::ddp
