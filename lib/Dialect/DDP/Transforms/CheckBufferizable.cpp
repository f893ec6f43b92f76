// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-check-bufferizable: reports the operations on tensors that cannot be
// bufferized, and suggests a fix. One-Shot Bufferize would only say that they
// were not bufferized.

#include "mlir/Analysis/CallGraph.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SCCIterator.h"
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

/// Returns a function that calls itself, directly or through others; null if
/// there is none.
static func::FuncOp findRecursion(ModuleOp module) {
  CallGraph graph(module);
  const CallGraph *nodes = &graph;
  for (auto it = llvm::scc_begin(nodes); !it.isAtEnd(); ++it)
    if (it.hasCycle())
      if (auto function = dyn_cast<func::FuncOp>(
              it->front()->getCallableRegion()->getParentOp()))
        return function;
  return {};
}

namespace {
struct CheckBufferizablePass
    : public ddp::impl::DDPCheckBufferizablePassBase<CheckBufferizablePass> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    llvm::SmallPtrSet<const void *, 4> reported;
    if (func::FuncOp recursive = findRecursion(getOperation())) {
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
