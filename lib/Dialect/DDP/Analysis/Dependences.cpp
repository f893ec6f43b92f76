// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Implements the queries of Dependences.h.

#include "Dependences.h"

#include "ProgramWalk.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace mlir::ddp;

/// All memory except that of states, and the statistics of compression. Only
/// the addresses of these variables matter.
static const char kMemory = 0, kStatistics = 0;

/// States are distinguished by name.
static const void *getKey(FlatSymbolRefAttr state) {
  return state.getAttr().getAsOpaquePointer();
}

static void collect(Operation *op, Effects &effects) {
  auto add = [&](const void *what, bool isWrite) {
    effects.accesses.push_back({what, isWrite});
  };
  if (auto load = dyn_cast<LoadOp>(op))
    return add(getKey(load.getStateAttr()), false);
  if (auto store = dyn_cast<StoreOp>(op))
    return add(getKey(store.getStateAttr()), true);
  if (isa<CountCompressionOp>(op))
    return add(&kStatistics, true);
  if (auto draw = dyn_cast<RandomNormalOp>(op))
    add(getKey(draw.getGeneratorAttr()), true);

  bool isRecursive = op->hasTrait<OpTrait::HasRecursiveMemoryEffects>();
  if (auto interface = dyn_cast<MemoryEffectOpInterface>(op)) {
    SmallVector<MemoryEffects::EffectInstance> instances;
    interface.getEffects(instances);
    for (const MemoryEffects::EffectInstance &instance : instances)
      if (!isa<CollectiveResource, StateResource>(instance.getResource()))
        add(&kMemory, !isa<MemoryEffects::Read>(instance.getEffect()));
  } else if (!isRecursive) {
    effects.isUnknown = true;
  }
  if (isRecursive)
    for (Region &region : op->getRegions())
      for (Operation &nested : region.getOps())
        collect(&nested, effects);
}

/// True if the operation overwrites `operand` with a result, or probably will.
/// An elementwise operation on buckets is free to use other memory.
static bool mayOverwrite(Operation *op, OpOperand &operand) {
  if (auto dps = dyn_cast<DestinationStyleOpInterface>(op))
    return dps.isDpsInit(&operand);
  // A loop or a branch: only its body shows the use of the operand.
  if (op->getNumRegions() != 0)
    return true;
  auto start = dyn_cast<AllReduceStartOp>(op);
  return isa<AllReduceOp, BroadcastOp>(op) ||
         (start && start.getCondition() && operand.get() == start.getInput());
}

Effects mlir::ddp::getEffects(Operation *op, const TensorsInMemory &inMemory) {
  Effects effects;
  collect(op, effects);
  TensorsInMemory::Use use = inMemory.getUse(op);
  if (use.reads)
    effects.accesses.push_back({&kMemory, false});
  if (use.writes)
    effects.accesses.push_back({&kMemory, true});
  return effects;
}

namespace {
/// Follows tensors from `bufferization.to_tensor` to all values that may be
/// computed in place of them. Unknown operations may return their operands.
class MemoryFlow {
public:
  MemoryFlow(Operation *root, llvm::DenseSet<Value> &values) : values(values) {
    walkProgram(root, [&](Operation *op) {
      if (auto toTensor = dyn_cast<bufferization::ToTensorOp>(op))
        add(toTensor.getResult());
      else if (auto function = dyn_cast<FunctionOpInterface>(op))
        functions[function.getNameAttr()] = function;
      else if (isa<CallOpInterface>(op))
        calls.push_back(op);
    });
    while (!pending.empty())
      for (OpOperand &use : pending.pop_back_val().getUses())
        follow(use);
  }

private:
  void add(Value value) {
    if (isa<TensorType, BucketType, FutureType>(value.getType()) &&
        values.insert(value).second)
      pending.push_back(value);
  }
  void addAll(ValueRange range) {
    for (Value value : range)
      add(value);
  }
  void addArguments(Operation *op) {
    for (Region &region : op->getRegions())
      for (Block &block : region)
        addAll(block.getArguments());
  }
  static StringAttr getCallee(Operation *call) {
    auto symbol = dyn_cast<SymbolRefAttr>(
        cast<CallOpInterface>(call).getCallableForCallee());
    return symbol ? symbol.getLeafReference() : StringAttr();
  }

  void follow(OpOperand &use) {
    Operation *op = use.getOwner();
    // These operations create a bucket from their operands.
    if (isa<PackOp, AllReduceOp>(op) && !isa<BucketType>(use.get().getType()))
      return;
    if (isa<CallOpInterface>(op)) {
      if (Operation *function = functions.lookup(getCallee(op)))
        addArguments(function);
      return addAll(op->getResults());
    }
    if (op->hasTrait<OpTrait::IsTerminator>()) {
      for (Block *successor : op->getSuccessors())
        addAll(successor->getArguments());
      return leave(op->getParentOp());
    }
    if (op->getNumRegions() != 0 && !isa<linalg::LinalgOp>(op))
      return enter(op);
    if (auto dps = dyn_cast<DestinationStyleOpInterface>(op)) {
      if (dps.isDpsInit(&use) && op->getNumResults() != 0)
        add(dps.getTiedOpResult(&use));
      return;
    }
    addAll(op->getResults());
  }

  /// A region may pass its inputs to other regions and back.
  void enter(Operation *op) {
    addArguments(op);
    addAll(op->getResults());
  }

  void leave(Operation *op) {
    auto function = dyn_cast<FunctionOpInterface>(op);
    if (!function)
      return enter(op);
    for (Operation *call : calls)
      if (getCallee(call) == function.getNameAttr())
        addAll(call->getResults());
  }

  llvm::DenseSet<Value> &values;
  SmallVector<Value> pending;
  llvm::DenseMap<StringAttr, Operation *> functions;
  SmallVector<Operation *> calls;
};
} // namespace

TensorsInMemory::TensorsInMemory(Operation *root) { MemoryFlow(root, values); }

TensorsInMemory::Use TensorsInMemory::getUse(Operation *op) const {
  Use use;
  if (values.empty())
    return use;
  op->walk([&](Operation *nested) {
    for (OpOperand &operand : nested->getOpOperands())
      if (values.contains(operand.get())) {
        use.reads = true;
        use.writes |= mayOverwrite(nested, operand);
      }
  });
  return use;
}

void mlir::ddp::forEachUse(Operation *op,
                           function_ref<void(Value, bool)> visit) {
  for (OpOperand &operand : op->getOpOperands())
    visit(operand.get(), mayOverwrite(op, operand));
  for (Region &region : op->getRegions())
    region.walk([&](Operation *nested) {
      for (OpOperand &operand : nested->getOpOperands())
        if (!op->isAncestor(operand.get().getParentRegion()->getParentOp()))
          visit(operand.get(), mayOverwrite(nested, operand));
    });
}

/// True if the results are parts of the first operand.
static bool givesParts(Operation *op) {
  return isa<ExtractOp, SplitOp, UnpackOp, tensor::ExtractSliceOp,
             tensor::CastOp, tensor::CollapseShapeOp, tensor::ExpandShapeOp>(
      op);
}

Value mlir::ddp::getWhole(Value value) {
  Operation *op = value.getDefiningOp();
  for (; op && givesParts(op); op = value.getDefiningOp())
    value = op->getOperand(0);
  return value;
}

WalkResult
mlir::ddp::visitUsesOfParts(Value whole,
                            function_ref<WalkResult(OpOperand &)> visit) {
  SmallVector<Value> pending = {whole};
  while (!pending.empty())
    for (OpOperand &use : pending.pop_back_val().getUses()) {
      WalkResult result = visit(use);
      if (result.wasInterrupted())
        return result;
      Operation *user = use.getOwner();
      if (result.wasSkipped() || !givesParts(user) ||
          use.getOperandNumber() != 0)
        continue;
      llvm::append_range(pending, user->getResults());
    }
  return WalkResult::advance();
}

bool mlir::ddp::isWithoutContents(Value value) {
  Operation *op = value.getDefiningOp();
  return op && (isa<tensor::EmptyOp, linalg::FillOp>(op) ||
                op->hasTrait<OpTrait::ConstantLike>());
}
