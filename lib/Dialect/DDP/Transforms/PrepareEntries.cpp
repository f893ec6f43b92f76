//===- PrepareEntries.cpp --------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-prepare-entries: what a compiled function may do to its caller's memory.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::ddp {
#define GEN_PASS_DEF_DDPPREPAREENTRIESPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"
} // namespace mlir::ddp

using namespace mlir;
using namespace mlir::ddp;

/// Makes scalar results 0-D tensors.
static void wrapScalarResults(func::FuncOp function) {
  SmallVector<Type> results(function.getResultTypes());
  bool changed = false;
  for (auto [index, type] : llvm::enumerate(results)) {
    if (!type.isIntOrIndexOrFloat())
      continue;
    changed = true;
    results[index] = RankedTensorType::get({}, type);
    function.walk([&, index = index](func::ReturnOp op) {
      OpBuilder builder(op);
      OpOperand &operand = op->getOpOperand(index);
      operand.set(tensor::FromElementsOp::create(
          builder, op.getLoc(), cast<RankedTensorType>(results[index]),
          operand.get()));
    });
  }
  if (changed)
    function.setFunctionType(FunctionType::get(
        function.getContext(), function.getArgumentTypes(), results));
}

namespace {
struct PrepareEntriesPass
    : public ddp::impl::DDPPrepareEntriesPassBase<PrepareEntriesPass> {
  using DDPPrepareEntriesPassBase::DDPPrepareEntriesPassBase;

  void runOnOperation() override {
    constexpr StringLiteral writable =
        bufferization::BufferizationDialect::kWritableAttrName;
    SymbolTableCollection symbols;
    SymbolUserMap users(symbols, getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal() || !function.isPublic())
        continue;
      for (auto [index, type] : llvm::enumerate(function.getArgumentTypes())) {
        auto isWritable = function.getArgAttrOfType<BoolAttr>(index, writable);
        if (isa<TensorType>(type) && !isWritable)
          function.setArgAttr(index, writable,
                              BoolAttr::get(&getContext(), false));
        // Bufferization drops `writable`; the plan needs to know.
        if (isa<MemRefType>(type) || (isWritable && isWritable.getValue()))
          function.setArgAttr(index, DDPDialect::kInoutAttrName,
                              UnitAttr::get(&getContext()));
      }
      if (users.getUsers(function).empty())
        wrapScalarResults(function);
    }
  }
};
} // namespace
