// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Follows the memory of tensors, using the operations' interfaces.

#include "MemoryUses.h"

#include "ProgramWalk.h"
#include "ddphook/Dialect/DDP/IR/MLIRVersion.h"

#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// The values that may share an operand's memory because of one use.
using Values = SmallVector<Value, 2>;
} // namespace

/// Returns the values that receive `use` when `op` branches from `point`, or
/// nullopt if it does not pass `use` on from there.
static std::optional<Values> getReceivers(RegionBranchOpInterface op,
                                          RegionBranchPoint point,
                                          OpOperand &use) {
  SmallVector<RegionSuccessor> successors;
  op.getSuccessorRegions(point, successors);
  std::optional<Values> values;
  for (RegionSuccessor &successor : successors) {
    OperandRange operands = op.getSuccessorOperands(point, successor);
    ValueRange inputs = getSuccessorInputs(op, successor);
    if (operands.empty() || operands.size() != inputs.size())
      continue;
    unsigned begin = operands.getBeginOperandIndex();
    if (use.getOperandNumber() - begin >= operands.size())
      continue;
    if (!values)
      values.emplace();
    values->push_back(inputs[use.getOperandNumber() - begin]);
  }
  return values;
}

std::optional<Values> mlir::ddp::getYieldedTo(OpOperand &use) {
  auto terminator = dyn_cast<RegionBranchTerminatorOpInterface>(use.getOwner());
  auto parent =
      dyn_cast_or_null<RegionBranchOpInterface>(use.getOwner()->getParentOp());
  if (!terminator || !parent)
    return std::nullopt;
  return getReceivers(parent, RegionBranchPoint(terminator), use);
}

/// Returns the values that may share the memory of `use` because of it, or
/// nullopt if that is unknown.
static std::optional<Values> getSharing(OpOperand &use) {
  Operation *user = use.getOwner();
  // One-Shot Bufferize does not know these operations:
  // `ddp-materialize-buckets` turns unpack and split into views, and copies for
  // the others unless it can prove that sharing is safe.
  if (auto concat = dyn_cast<ConcatOp>(user);
      concat && use.get() == concat.getDestination())
    return Values{concat.getResult()};
  if (isa<PackOp, ConcatOp, StoreOp>(user))
    return Values();
  if (isa<UnpackOp, SplitOp>(user))
    return Values(user->getResults());
  // A returned value leaves the function; nothing in the function shares its
  // memory after that.
  if (isReturn(user))
    return Values();
  if (user->hasTrait<OpTrait::IsTerminator>())
    return getYieldedTo(use);
  if (llvm::any_of(user->getResultTypes(), llvm::IsaPred<BaseMemRefType>))
    return std::nullopt;
  // A callee may return its argument, and has no other way to keep it.
  if (isa<CallOpInterface>(user)) {
    Values values;
    for (Value result : user->getResults())
      if (isa<TensorType>(result.getType()))
        values.push_back(result);
    return values;
  }
  if (auto branch = dyn_cast<RegionBranchOpInterface>(user))
    return getReceivers(branch, RegionBranchPoint::parent(), use);
  if (!isa<bufferization::BufferizableOpInterface>(user))
    return std::nullopt;
  static const bufferization::BufferizationOptions options;
  bufferization::AnalysisState state(options);
  Values values;
  for (const bufferization::AliasingValue &alias : state.getAliasingValues(use))
    values.push_back(alias.value);
  return values;
}

WalkResult
mlir::ddp::visitMemoryUses(Value tensor,
                           function_ref<WalkResult(OpOperand &)> visit) {
  Region *home = tensor.getParentRegion();
  llvm::SetVector<Value> sharing;
  sharing.insert(tensor);
  for (unsigned i = 0; i < sharing.size(); ++i)
    for (OpOperand &use : sharing[i].getUses()) {
      WalkResult result = visit(use);
      if (result.wasInterrupted())
        return result;
      if (result.wasSkipped())
        continue;
      std::optional<Values> values = getSharing(use);
      if (!values)
        return WalkResult::interrupt();
      for (Value value : *values) {
        // A loop around the tensor carries it into its next iteration.
        if (isa<BlockArgument>(value) &&
            value.getParentRegion()->isAncestor(home))
          return WalkResult::interrupt();
        sharing.insert(value);
      }
    }
  return WalkResult::advance();
}

static bool isBefore(Operation *user, Operation *op) {
  if (Operation *inBlock = op->getBlock()->findAncestorOpInBlock(*user))
    return inBlock->isBeforeInBlock(op);
  Operation *around = user->getBlock()->findAncestorOpInBlock(*op);
  return around && user->isBeforeInBlock(around);
}

WalkResult mlir::ddp::requireBefore(Operation *user, Operation *op) {
  if (insideMutuallyExclusiveRegions(user, op))
    return WalkResult::skip();
  return isBefore(user, op) ? WalkResult::advance() : WalkResult::interrupt();
}

bool mlir::ddp::runsAtMostOncePer(Value value, Operation *op) {
  Operation *ancestor = value.getParentBlock()->findAncestorOpInBlock(*op);
  if (!ancestor)
    return false;
  for (Operation *around = op; around != ancestor;) {
    around = around->getParentOp();
    if (!isa<RegionBranchOpInterface>(around) ||
        isa<LoopLikeOpInterface>(around))
      return false;
  }
  return true;
}

bool mlir::ddp::isLastUser(Operation *op, Value tensor, WalkResult own) {
  return runsAtMostOncePer(tensor, op) &&
         !visitMemoryUses(tensor, [&](OpOperand &use) {
            Operation *user = use.getOwner();
            return user == op ? own : requireBefore(user, op);
          }).wasInterrupted();
}

bool mlir::ddp::isOnlyRead(OpOperand &use) {
  std::optional<Values> values = getSharing(use);
  return values && values->empty() &&
         !use.getOwner()->hasTrait<OpTrait::IsTerminator>();
}

/// Like requireBefore, for all reads by one use of the memory.
static WalkResult requireOverBy(OpOperand &use, Operation *write) {
  Operation *user = use.getOwner();
  if (user == write)
    return WalkResult::advance();
  // A collective reads its operand until it is awaited.
  if (auto collective = dyn_cast<CollectiveOpInterface>(user))
    user = collective.getEnd();
  return requireBefore(user, write);
}

bool mlir::ddp::isOverBy(Value value, Operation *write) {
  return !visitMemoryUses(value, [&](OpOperand &use) {
            return requireOverBy(use, write);
          }).wasInterrupted();
}

bool mlir::ddp::isOverBy(OpOperand &use, Operation *write) {
  return !visitMemoryUses(use.get(), [&](OpOperand &other) {
            if (other.get() == use.get() && &other != &use)
              return WalkResult::skip();
            return requireOverBy(other, write);
          }).wasInterrupted();
}

OpOperand *mlir::ddp::findUseInPlace(Value value,
                                     function_ref<bool(OpOperand &)> isFound) {
  constexpr size_t maxValues = 16;
  llvm::SmallSetVector<Value, maxValues> values;
  values.insert(value);
  for (size_t i = 0; i < std::min(values.size(), maxValues); ++i)
    for (OpOperand &use : values[i].getUses()) {
      if (isFound(use))
        return &use;
      Operation *user = use.getOwner();
      if (auto wait = dyn_cast<FlatWaitOp>(user)) {
        if (use.get() == wait.getDestination())
          values.insert(wait.getResult());
        continue;
      }
      auto flat = dyn_cast<FlatOpInterface>(user);
      for (OpResult result : user->getResults())
        if (flat && result.getType() == value.getType() &&
            flat.mayOverwrite(result.getResultNumber(), use))
          values.insert(result);
    }
  return nullptr;
}

bool mlir::ddp::endsInStore(Value value, StringRef state) {
  return findUseInPlace(value, [&](OpOperand &use) {
    auto store = dyn_cast<StoreOp>(use.getOwner());
    return store && store.getState() == state;
  });
}

bool mlir::ddp::outlivesMaking(Value value, StoreOp store) {
  Operation *made = store.getValue().getDefiningOp();
  Block *block = store->getBlock();
  if (!made || made->getBlock() != block)
    return false;
  return llvm::any_of(value.getUsers(), [&](Operation *user) {
    // A collective reads its operand until it is awaited.
    if (auto collective = dyn_cast<CollectiveOpInterface>(user))
      user = collective.getEnd();
    Operation *ancestor = block->findAncestorOpInBlock(*user);
    return ancestor && made->isBeforeInBlock(ancestor);
  });
}

bufferization::MaterializeInDestinationOp
mlir::ddp::findArgumentUpdate(Value tensor) {
  auto read = tensor.getDefiningOp<bufferization::ToTensorOp>();
  if (!read || !read.getRestrict() || !read.getWritable())
    return {};
  auto argument = dyn_cast<BlockArgument>(read.getBuffer());
  if (!argument || read->getBlock() != argument.getOwner())
    return {};
  Region *body = argument.getParentRegion();
  if (!isa<FunctionOpInterface>(body->getParentOp()) || !body->hasOneBlock())
    return {};
  bufferization::MaterializeInDestinationOp update;
  for (Operation *user : argument.getUsers()) {
    if (user == read)
      continue;
    auto write = dyn_cast<bufferization::MaterializeInDestinationOp>(user);
    if (!write || update || write.getDest() != argument ||
        write->getBlock() != argument.getOwner())
      return {};
    update = write;
  }
  return update;
}
