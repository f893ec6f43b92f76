//===- FinalizeEntries.cpp -------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-finalize-entries: results that are an argument's own buffer.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/BitVector.h"

namespace mlir::ddp {
#define GEN_PASS_DEF_DDPFINALIZEENTRIESPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"
} // namespace mlir::ddp

using namespace mlir;
using namespace mlir::ddp;

/// The argument of the entry block that every return gives as result `index`,
/// or -1.
static int64_t getReturnedArgument(ArrayRef<func::ReturnOp> returns,
                                   unsigned index, Block &entry) {
  int64_t argument = -1;
  for (func::ReturnOp op : returns) {
    auto value = dyn_cast<BlockArgument>(op.getOperand(index));
    if (!value || value.getOwner() != &entry ||
        (argument != -1 && argument != value.getArgNumber()))
      return -1;
    argument = value.getArgNumber();
  }
  return argument;
}

namespace {
struct FinalizeEntriesPass
    : public ddp::impl::DDPFinalizeEntriesPassBase<FinalizeEntriesPass> {
  using DDPFinalizeEntriesPassBase::DDPFinalizeEntriesPassBase;

  void runOnOperation() override {
    SymbolTableCollection symbols;
    SymbolUserMap users(symbols, getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal() || !function.isPublic())
        continue;
      // A caller inside the module uses the results that it asked for.
      bool isCalled = !users.getUsers(function).empty();
      SmallVector<func::ReturnOp> returns;
      function.walk([&](func::ReturnOp op) { returns.push_back(op); });
      SmallVector<int64_t> arguments;
      llvm::BitVector dropped(function.getNumResults());
      for (unsigned i = 0; i < function.getNumResults(); ++i) {
        int64_t argument = -1;
        if (!isCalled && isa<MemRefType>(function.getResultTypes()[i]))
          argument = getReturnedArgument(returns, i, function.front());
        // Each argument can stand for one result; a second one is copied.
        if (argument != -1 && llvm::is_contained(arguments, argument))
          argument = -1;
        arguments.push_back(argument);
        if (argument != -1)
          dropped.set(i);
      }
      function->setAttr(DDPDialect::kResultArgumentsAttrName,
                        DenseI64ArrayAttr::get(&getContext(), arguments));
      if (dropped.none())
        continue;
      for (func::ReturnOp op : returns)
        op->eraseOperands(dropped);
      if (failed(function.eraseResults(dropped)))
        return signalPassFailure();
    }
  }
};
} // namespace
