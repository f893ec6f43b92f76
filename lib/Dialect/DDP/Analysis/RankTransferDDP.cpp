// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The transfer functions of the dialect's own operations: collectives, states,
// and arithmetic on buckets and flat arrays.

#include "RankTransfer.h"

using namespace mlir;
using namespace mlir::ddp;

static Value getDestination(Operation *op) {
  if (auto reduction = dyn_cast<AllReduceOp>(op))
    return reduction.getDestination();
  return cast<DestinationStyleOpInterface>(op).getDpsInits().front();
}

/// Returns the condition of a start; null if it always starts.
static Value getCondition(Operation *op) {
  if (auto start = dyn_cast<AllReduceStartOp>(op))
    return start.getCondition();
  if (auto start = dyn_cast<FlatStartOpInterface>(op))
    return start.getCondition();
  return {};
}

/// Returns `value` for a true or false `condition`: if it is the result of a
/// choice on that condition, the value that this branch yields.
static Value getWhere(Value value, Value condition, bool isTrue) {
  auto choice = value.getDefiningOp<scf::IfOp>();
  if (!choice || choice.getCondition() != condition)
    return value;
  unsigned number = cast<OpResult>(value).getResultNumber();
  return (isTrue ? choice.thenYield() : choice.elseYield()).getOperand(number);
}

FlatAllReduceStartOp mlir::ddp::findStartAfter(scf::IfOp choice) {
  for (Operation *op = choice->getNextNode(); op; op = op->getNextNode()) {
    if (auto start = dyn_cast<FlatAllReduceStartOp>(op))
      return start.getCondition() == choice.getCondition()
                 ? start
                 : FlatAllReduceStartOp();
    if (!isMemoryEffectFree(op))
      break;
  }
  return {};
}

/// The error differs between ranks; the bucket does not, as M is no part of it.
template <typename OpTy>
bool RankTransfer::reconstruct(OpTy op, const RankControl &control) {
  SmallVector<Value> places(op->getResults());
  if (auto flat = dyn_cast<DestinationStyleOpInterface>(op.getOperation());
      flat && places.empty())
    llvm::append_range(places, flat.getDpsInits());
  RankInputs inputs;
  for (Value value : {op.getP(), op.getQ(), op.getRest()})
    if (value)
      inputs.add(regions.read(op, value));
  RankFact out = facts.combine(inputs, places.front().getType());
  out.reducedAs = inputs.reducedAs;
  if (op.getMatrix())
    inputs.add(regions.read(op, op.getMatrix()));
  // The error may overwrite the matrix.
  RankFact error = facts.combine(inputs, places.back().getType());
  for (Value place : places) {
    const RankFact &fact = place == places.front() ? out : error;
    if (isa<MemRefType>(place.getType()))
      regions.write(op, place, fact, /*isWhole=*/true, control);
    else
      facts[place] = fact;
  }
  return true;
}

/// Handles a collective other than an all-reduce. Results that are parts for a
/// group's ranks differ between them; results that combine all ranks' values
/// are the same on all of them. Only a reduction changes the count.
RankFact RankTransfer::exchange(CollectiveOpInterface op,
                                const RankControl &control) {
  Value input = op.getInput();
  RankFact fact;
  if (op.getReductionAttr()) {
    fact = reduce(op, input, op.getGroupAttr(), /*bucket=*/{}, control);
  } else {
    RankInputs inputs;
    inputs.add(regions.read(op, input));
    fact = facts.combine(inputs, input.getType());
  }
  fact.reducedAs = nullptr;
  fact.region = {};
  ProcessGroupOp group = groups.lookup(op, op.getGroupAttr());
  if (!group)
    return fact;
  if (!op.getReductionAttr())
    recordReach(op, control, groups.getBit(group));
  fact.count.elements = getNumElements(isa<MemRefType>(input.getType())
                                           ? getDestination(op).getType()
                                           : op->getResult(0).getType());
  // With a single rank the only part is the whole.
  bool isScattered = op.getKind() == CollectiveKind::ReduceScatter ||
                     op.getKind() == CollectiveKind::AllToAll;
  fact.uniform = isScattered && !RankGroups::isTrivial(group)
                     ? 0
                     : groups.getMaskOfSum(group, fact.uniform);
  return fact;
}

/// Handles an all-reduce. A conditional start counts as a branch with a start
/// in it. The waits in the branches select the value for each branch.
RankFact RankTransfer::allReduce(CollectiveOpInterface op,
                                 const RankControl &control) {
  Value input = op.getInput(), condition = getCondition(op);
  RankControl inside{control.mask & facts.lookup(condition).uniform, op,
                     &control};
  return reduce(op, condition ? getWhere(input, condition, true) : input,
                op.getGroupAttr(), op.getBucketNameAttr(),
                condition ? inside : control);
}

bool RankTransfer::applyDDP(Operation *op, const RankControl &control) {
  if (auto collective = dyn_cast<CollectiveOpInterface>(op)) {
    Value input = collective.getInput();
    RankFact fact = collective.getKind() == CollectiveKind::AllReduce
                        ? allReduce(collective, control)
                        : exchange(collective, control);
    if (isMemory(input))
      regions.followCollective(collective, getDestination(op), fact, control);
    for (Value value : op->getResults())
      facts[value] = isa<IntegerType>(value.getType()) ? RankFact() : fact;
    return true;
  }
  if (Operation *start = getAwaited(op)) {
    regions.followWait(op, start);
    Value value = op->getOperand(0);
    if (isIdleWait(op))
      value = getWhere(cast<CollectiveOpInterface>(start).getInput(),
                       getCondition(start), false);
    return set(op->getResults(), facts.lookup(value));
  }
  if (auto average = dyn_cast<AverageOp>(op)) {
    RankFact fact = facts.lookup(average.getInput());
    if (ProcessGroupOp group = groups.lookup(op, average.getGroupAttr())) {
      recordReach(op, control, groups.getBit(group));
      // The mean in one step, the operand in another.
      fact.uniform &= groups.getMaskOfSum(group, fact.uniform);
    }
    return set(average.getResult(), fact);
  }
  if (auto load = dyn_cast<LoadOp>(op)) {
    RankFact fact;
    fact.uniform = regions.getState(op, load.getStateAttr());
    if (fact.uniform == 0)
      fact = facts.createUnknown(load.getValue());
    return set(load.getValue(), fact);
  }
  if (auto store = dyn_cast<StoreOp>(op)) {
    RankMask mask = facts.lookup(store.getValue()).uniform & control.mask;
    auto [known, isNew] = stored.insert({op, mask});
    known->second &= mask;
    recordReach(op, control, 1);
    (void)regions.narrowState(op, store.getStateAttr(),
                              isRecording ? mask : kAllRanks);
    return true;
  }
  if (isa<RandomNormalOp, FlatRandomNormalOp>(op)) {
    // The generator then differs unless all ranks draw.
    RankFact fact;
    fact.uniform = regions.narrowState(
        op, op->getAttrOfType<FlatSymbolRefAttr>("generator"),
        isRecording ? control.mask : kAllRanks);
    if (op->getNumResults() == 0)
      regions.write(op, getDestination(op), fact, /*isWhole=*/true, control);
    return set(op->getResults(), fact);
  }
  if (auto unpack = dyn_cast<UnpackOp>(op)) {
    RankFact fact = facts.lookup(unpack.getBucket());
    auto [known, isNew] = unpacked.insert({op, fact.uniform});
    known->second &= fact.uniform;
    fact.reducedAs = nullptr;
    return set(unpack.getTensors(), fact);
  }
  if (auto reconstruct = dyn_cast<ReconstructOp>(op))
    return this->reconstruct(reconstruct, control);
  if (auto reconstruct = dyn_cast<FlatReconstructOp>(op))
    return this->reconstruct(reconstruct, control);
  return isa<AddOp, CastOp, DensifyOp, EncodingErrorOp, FlatOpInterface,
             MatmulOp, OrthogonalizeOp, ProjectOp, ScaleOp, SparsifyOp, SubOp>(
             op) &&
         applyArithmetic(op, control);
}

/// True if each rank computes with its own random numbers.
static bool isByChance(Operation *op) {
  if (auto error = dyn_cast<EncodingErrorOp>(op))
    return bool(error.getStep());
  auto error = dyn_cast<FlatEncodingErrorOp>(op);
  return error && error.getStep();
}

/// Derives the results of an operation on buckets or flat arrays, or the
/// contents that it writes, from all of its operands except the destinations.
bool RankTransfer::applyArithmetic(Operation *op, const RankControl &control) {
  RankInputs inputs;
  auto flat = dyn_cast<DestinationStyleOpInterface>(op);
  for (OpOperand &operand : op->getOpOperands())
    if (!flat || !flat.isDpsInit(&operand))
      inputs.add(regions.read(op, operand.get()));
  SmallVector<Value> places(op->getResults());
  if (places.empty())
    llvm::append_range(places, flat.getDpsInits());
  for (Value place : places) {
    RankFact fact = facts.combine(inputs, place.getType());
    fact.reducedAs = inputs.reducedAs;
    if (isByChance(op))
      fact.uniform = 0;
    if (op->getNumResults() != 0)
      facts[place] = fact;
    else
      regions.write(op, place, fact, /*isWhole=*/true, control);
  }
  return true;
}
