// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-check-bufferizable: reports the operations on tensors that cannot be
// bufferized, and suggests a fix. One-Shot Bufferize would only say that they
// were not bufferized.

#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringSwitch.h"

#define GEN_PASS_DEF_DDPCHECKBUFFERIZABLEPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns the type of the first tensor operand or result, or null.
static Type findTensor(Operation *op) {
  for (TypeRange types :
       {TypeRange(op->getOperandTypes()), TypeRange(op->getResultTypes())})
    for (Type type : types)
      if (isa<TensorType>(type))
        return type;
  return {};
}

/// Returns the pass that imports reductions of another dialect, or an empty
/// name.
static StringRef findImport(StringRef dialect) {
  return llvm::StringSwitch<StringRef>(dialect)
      .Case("shard", "ddp-import-shard")
      .Cases({"stablehlo", "sdy", "chlo"}, "ddp-import-stablehlo")
      .Cases({"torch", "_c10d_functional"}, "ddp-import-fx")
      .Default({});
}

/// Returns a recursive function among `function` and its direct and indirect
/// callees; null if there is none. `state` maps each visited function to true
/// while its callees are being visited.
static func::FuncOp findRecursion(func::FuncOp function, SymbolTable &symbols,
                                  llvm::DenseMap<Operation *, bool> &state) {
  auto [it, isNew] = state.try_emplace(function, /*isUnderWay=*/true);
  if (!isNew)
    return it->second ? function : func::FuncOp();
  func::FuncOp found;
  function.walk([&](func::CallOp call) {
    auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
    if (callee && !found)
      found = findRecursion(callee, symbols, state);
  });
  state[function] = false;
  return found;
}

namespace {
struct CheckBufferizablePass
    : public ddp::impl::DDPCheckBufferizablePassBase<CheckBufferizablePass> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    llvm::SmallPtrSet<const void *, 4> reported;
    SymbolTable symbols(getOperation());
    llvm::DenseMap<Operation *, bool> state;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (func::FuncOp recursive = findRecursion(function, symbols, state)) {
        recursive.emitError()
            << "expected no recursion in functions on tensors, but '"
            << recursive.getName() << "' calls itself";
        return signalPassFailure();
      }
    for (auto function : getOperation().getOps<func::FuncOp>())
      function.walk([&](Operation *op) {
        // The DDP dialect reports its own operations.
        if (op == function || isa_and_nonnull<DDPDialect>(op->getDialect()) ||
            isa<bufferization::BufferizableOpInterface>(op))
          return;
        Type tensor = findTensor(op);
        OperationName name = op->getName();
        if (!tensor || !reported.insert(name.getAsOpaquePointer()).second)
          return;
        InFlightDiagnostic diagnostic =
            op->emitError()
            << "expected '" << name
            << "' to implement BufferizableOpInterface, since it works on "
            << tensor << " in '" << function.getName()
            << "', which is compiled to memory; see docs/passes.md";
        if (!op->isRegistered())
          diagnostic.attachNote()
              << "the dialect '" << name.getDialectNamespace()
              << "' has no operation of this name, or is not registered";
        if (OpTrait::hasElementwiseMappableTraits(op))
          diagnostic.attachNote()
              << "convert-elementwise-to-linalg, run before ddp-pipeline, "
                 "turns it into a linalg operation";
        StringRef pass = findImport(name.getDialectNamespace());
        if (!pass.empty())
          diagnostic.attachNote()
              << pass << ", run before ddp-pipeline, imports programs of '"
              << name.getDialectNamespace() << "'";
        signalPassFailure();
      });
  }
};
} // namespace
