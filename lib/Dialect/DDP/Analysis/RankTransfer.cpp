// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The transfer functions of everything but the dialect's own operations.

#include "RankTransfer.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::ddp;

/// Adds the outer values that an operation's regions use.
void RankTransfer::addUsedAbove(RankInputs &inputs, Operation *op) {
  for (Region &region : op->getRegions())
    region.walk([&](Operation *nested) {
      for (Value operand : nested->getOperands())
        if (!op->isAncestor(operand.getParentRegion()->getParentOp()))
          inputs.add(regions.read(op, operand));
    });
}

void RankTransfer::recordReach(Operation *op, const RankControl &control,
                               RankMask bit) {
  if (!isRecording)
    return;
  Reach &reach = reached[op];
  reach.mask &= control.mask;
  if (reach.cause || (control.mask & bit) == bit)
    return;
  for (const RankControl *around = &control;
       around && (around->mask & bit) != bit; around = around->outer)
    reach.cause = around->op;
}

RankFact RankTransfer::reduce(Operation *op, Value input,
                              FlatSymbolRefAttr name, StringAttr bucket,
                              const RankControl &control) {
  RankInputs inputs;
  inputs.add(regions.read(op, input));
  RankFact fact = facts.combine(inputs, input.getType());
  ProcessGroupOp group = groups.lookup(op, name);
  if (!group)
    return fact;
  RankMask bit = groups.getBit(group);
  recordReach(op, control, bit);
  RankMask before = fact.uniform;
  fact.uniform = groups.getMaskOfSum(group, before);
  if (RankGroups::isTrivial(group))
    return fact;

  Operation *caller = nullptr;
  for (const RankControl *around = &control; around && !caller;
       around = around->outer)
    if (isa_and_nonnull<CallOpInterface>(around->op))
      caller = around->op;
  if (isRecording)
    reducedSources[{op, caller}] = fact.count.sources;
  bool isRepeated = bucket && inputs.reducedAs == bucket && (before & bit);
  auto [known, isNew] = repeated.insert({op, isRepeated});
  known->second &= isRepeated;

  GradientCount count = fact.count;
  fact.count = reduceCount(groups, count, group, op);
  fact.count.elements =
      std::max<int64_t>(count.elements, getNumElements(input.getType()));
  RankMask mask = control.mask;
  if (!isRecording)
    mask = reached.contains(op) ? reached.lookup(op).mask : kAllRanks;
  if (!(mask & bit)) {
    fact.count.divergent = op;
    for (const RankControl *around = &control; around; around = around->outer)
      if (isa_and_nonnull<CallOpInterface>(around->op) && around->outer &&
          !(around->outer->mask & bit))
        fact.count.divergent = around->op;
  }
  fact.reducedAs = bucket;
  return fact;
}

/// Handles operations that join values without computing with them.
bool RankTransfer::applyTensor(Operation *op) {
  RankInputs all;
  auto addAll = [&] {
    for (Value operand : op->getOperands())
      all.add(regions.read(op, operand));
  };
  auto place = [&](Value part, Value into) {
    addAll();
    RankFact fact = facts.combine(all, op->getResult(0).getType());
    fact.count = placeCounts(facts.sources, facts.lookup(part).count,
                             facts.lookup(into).count);
    // Each element has its own position: nothing is broadcast.
    fact.count.elements = getNumElements(op->getResult(0).getType());
    return set(op->getResult(0), fact);
  };
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op)) {
    if (getNumElements(insert.getSourceType()) !=
            getNumElements(insert.getType()) ||
        !insert.getType().hasStaticShape())
      return place(insert.getSource(), insert.getDest());
    return set(insert.getResult(), facts.lookup(insert.getSource()));
  }
  if (isa<tensor::InsertOp, tensor::ScatterOp, vector::InsertOp,
          vector::InsertStridedSliceOp>(op))
    return place(op->getOperand(0), op->getOperand(1));
  if (auto write = dyn_cast<vector::TransferWriteOp>(op);
      write && write.getResult()) {
    if (getNumElements(write.getVectorType()) !=
            getNumElements(write.getShapedType()) ||
        write.getMask() || write.hasOutOfBoundsDim())
      return place(write.getVector(), write.getBase());
    return set(write.getResult(), facts.lookup(write.getVector()));
  }
  if (auto scatter = dyn_cast<vector::ScatterOp>(op);
      scatter && scatter->getNumResults() != 0)
    return place(scatter.getValueToStore(), scatter.getBase());
  if (auto gather = dyn_cast<vector::GatherOp>(op);
      gather && !isMemory(gather.getBase()))
    return place(gather.getBase(), gather.getPassThru());
  if (isa<PackOp, ConcatOp, tensor::ConcatOp, tensor::FromElementsOp,
          vector::FromElementsOp, vector::InterleaveOp, vector::ShuffleOp>(
          op)) {
    // The memory of a concat's `into` is that of its parts.
    auto concat = dyn_cast<ConcatOp>(op);
    ValueRange parts = concat ? concat.getParts() : op->getOperands();
    for (Value part : parts)
      all.add(regions.read(op, part));
    RankFact fact = facts.combine(all, op->getResult(0).getType());
    if (!parts.empty())
      fact.count = facts.lookup(parts.front()).count;
    for (Value part : parts.drop_front(parts.empty() ? 0 : 1))
      fact.count =
          placeCounts(facts.sources, fact.count, facts.lookup(part).count);
    fact.count.elements = getNumElements(op->getResult(0).getType());
    // A hook's concat belongs to its bucket; the program may pack any value.
    if (concat)
      fact.reducedAs = all.reducedAs;
    return set(op->getResult(0), fact);
  }
  if (auto copy = dyn_cast<bufferization::AllocTensorOp>(op))
    return set(copy.getResult(), facts.lookup(copy.getCopy()));
  if (auto select = dyn_cast<arith::SelectOp>(op)) {
    addAll();
    RankFact fact = facts.combine(all, select.getType());
    unsigned flowing = fact.count.sources;
    fact.count =
        joinCounts(facts.sources, facts.lookup(select.getTrueValue()).count,
                   facts.lookup(select.getFalseValue()).count);
    fact.count.sources = flowing;
    if (isMemory(select.getResult())) {
      fact.uniform = facts.lookup(select.getCondition()).uniform &
                     facts.lookup(select.getTrueValue()).uniform &
                     facts.lookup(select.getFalseValue()).uniform;
      fact.region = facts.unite(facts.lookup(select.getTrueValue()).region,
                                facts.lookup(select.getFalseValue()).region);
    }
    return set(select.getResult(), fact);
  }
  if (isa<tensor::DimOp, memref::DimOp>(op)) {
    RankFact fact;
    fact.uniform = facts.lookup(op->getOperand(0)).uniform &
                   facts.lookup(op->getOperand(1)).uniform;
    return set(op->getResult(0), fact);
  }
  if (isa<ExtractOp, SplitOp, ResizeOp, tensor::ExtractSliceOp>(op)) {
    addAll();
    for (Value result : op->getResults()) {
      RankFact fact = facts.combine(all, result.getType());
      fact.reducedAs = all.reducedAs;
      facts[result] = fact;
    }
    return true;
  }
  return false;
}

/// True if every element of `init`'s result is computed. Only a generic
/// operation may leave some unchanged.
static bool coversWhole(DestinationStyleOpInterface op, OpOperand &init) {
  auto generic = dyn_cast<linalg::GenericOp>(op.getOperation());
  return !generic ||
         generic.getMatchingIndexingMap(&init).isProjectedPermutation();
}

/// Destinations count as far as the body reads them.
void RankTransfer::applyDestinationStyle(DestinationStyleOpInterface op,
                                         const RankControl &control) {
  Block *body = nullptr;
  if (isa<linalg::LinalgOp>(op.getOperation()) && op->getNumRegions() == 1 &&
      op->getRegion(0).hasOneBlock())
    body = &op->getRegion(0).front();
  // A named operation does one thing; the body of another may do several.
  bool isFollowed =
      body && isa<linalg::GenericOp, linalg::MapOp, linalg::ReduceOp,
                  linalg::SelectOp, linalg::ElementwiseOp>(op.getOperation());
  RankInputs all;
  for (OpOperand &operand : op->getOpOperands()) {
    if (body && operand.getOperandNumber() < body->getNumArguments()) {
      BlockArgument argument = body->getArgument(operand.getOperandNumber());
      if (argument.use_empty())
        continue;
      if (!isFollowed) {
        all.add(regions.read(op, operand.get()));
        continue;
      }
      RankInputs input;
      input.add(regions.read(op, operand.get()));
      RankFact fact = facts.combine(input, operand.get().getType());
      facts[argument] = fact;
    }
    all.add(regions.read(op, operand.get()));
  }
  // The body is a short program of scalars, followed like any other.
  if (isFollowed)
    for (Operation &nested : body->without_terminator())
      follow(&nested, control);
  else if (!body)
    addUsedAbove(all, op);
  for (auto [number, init] : llvm::enumerate(op.getDpsInitsMutable())) {
    RankFact fact;
    if (isFollowed) {
      RankInputs yielded;
      yielded.add(regions.read(op, body->getTerminator()->getOperand(number)));
      fact = facts.combine(yielded, init.get().getType());
      if (!coversWhole(op, init)) {
        RankFact rest = facts.lookup(init.get());
        fact.uniform &= rest.uniform;
        fact.count = placeCounts(facts.sources, fact.count, rest.count);
      }
    } else {
      Type type = init.get().getType();
      bool isUnfollowed = !body && op->getNumRegions() != 0;
      fact = isUnfollowed ? facts.combineUnfollowed(all, type)
                          : facts.combine(all, type);
      // Without a body it is unknown which elements keep their old values.
      if (!body && !isUnfollowed && !isMemory(init.get())) {
        RankInputs inputs;
        for (OpOperand *input : op.getDpsInputOperands())
          inputs.add(regions.read(op, input->get()));
        fact.count =
            placeCounts(facts.sources, facts.combine(inputs, type).count,
                        facts.lookup(init.get()).count);
      }
    }
    if (isMemory(init.get()))
      regions.write(op, init.get(), fact, body && coversWhole(op, init),
                    control);
    else if (OpResult result = op.getTiedOpResult(&init))
      facts[result] = fact;
  }
}

/// True for operations without operands that return the same on all ranks.
/// (Others may depend on the rank.)
static bool isSameEverywhere(Operation *op) {
  return op->hasTrait<OpTrait::ConstantLike>() ||
         isa<tensor::EmptyOp, linalg::IndexOp, ub::PoisonOp, memref::AllocOp,
             memref::AllocaOp, memref::GetGlobalOp, ArenaOp, StateBufferOp,
             LLVM::AddressOfOp, LLVM::ZeroOp, LLVM::PoisonOp, LLVM::UndefOp>(
             op);
}

void RankTransfer::applyEffects(Operation *op, const RankControl &control) {
  RankInputs inputs;
  for (Value operand : op->getOperands())
    if (!isMemory(operand))
      inputs.add(regions.read(op, operand));
  SmallVector<MemoryEffects::EffectInstance> effects;
  auto interface = dyn_cast<MemoryEffectOpInterface>(op);
  bool isKnown = isMemoryEffectFree(op);
  if (interface) {
    interface.getEffects(effects);
    isKnown |= llvm::all_of(effects, [](const auto &effect) {
      return effect.getValue() != nullptr;
    });
  }
  for (const auto &effect : effects) {
    Value value = effect.getValue();
    if (!value || !isa<MemoryEffects::Read>(effect.getEffect()))
      continue;
    if (isMemory(value))
      inputs.add(regions.read(op, value));
    else
      inputs.uniform = 0; // The pointee is unknown.
  }
  // Addresses differ between processes.
  if (isa<memref::ExtractAlignedPointerAsIndexOp>(op))
    inputs.uniform = 0;
  if (op->getNumRegions() != 0) {
    // The nested operations are not followed: every value may flow anywhere.
    addUsedAbove(inputs, op);
    isKnown &= isMemoryEffectFree(op);
  }
  if (op->getNumOperands() == 0 && op->getNumRegions() == 0)
    isKnown = isSameEverywhere(op);
  if (!isKnown)
    inputs.uniform = 0;

  for (OpResult result : op->getResults()) {
    bool isFromNowhere = !isKnown && op->getNumOperands() == 0;
    RankFact fact = isFromNowhere ? facts.createUnknown(result)
                    : op->getNumRegions() != 0
                        ? facts.combineUnfollowed(inputs, result.getType())
                        : facts.combine(inputs, result.getType());
    if (isMemory(result)) {
      fact.uniform = kAllRanks;
      for (Value operand : op->getOperands())
        if (isMemory(operand) || operand.getType().isIndex())
          fact.uniform &= facts.lookup(operand).uniform;
      fact.region = regions.find(result);
      if (auto buffer = dyn_cast<bufferization::ToBufferOp>(op))
        regions.memory.write(
            fact.region, {facts.lookup(buffer.getTensor()).uniform, nullptr},
            true);
    }
    facts[result] = fact;
  }
  auto overwrite = [&](Value memref) {
    RankFact fact;
    fact.uniform = inputs.uniform;
    regions.write(op, memref, fact, /*isWhole=*/isa<memref::CopyOp>(op),
                  control);
  };
  if (isKnown) {
    for (const auto &effect : effects)
      if (Value value = effect.getValue();
          value && isMemory(value) &&
          isa<MemoryEffects::Write>(effect.getEffect()))
        overwrite(value);
    return;
  }
  for (Value operand : op->getOperands())
    if (isMemory(operand))
      overwrite(operand);
  for (Region &region : op->getRegions())
    region.walk([&](Operation *nested) {
      for (Value operand : nested->getOperands())
        if (isMemory(operand) && facts.contains(operand))
          overwrite(operand);
    });
}

void RankTransfer::apply(Operation *op, const RankControl &control) {
  if (applyDDP(op, control) || applyTensor(op))
    return;
  if (auto materialize =
          dyn_cast<bufferization::MaterializeInDestinationOp>(op)) {
    RankFact fact = facts.lookup(materialize.getSource());
    if (materialize.getResult())
      facts[materialize.getResult()] = fact;
    else
      regions.write(op, materialize.getDest(), fact, /*isWhole=*/true, control);
    return;
  }
  if (auto toTensor = dyn_cast<bufferization::ToTensorOp>(op)) {
    RankFact memref = facts.lookup(toTensor.getBuffer());
    MemoryContents contents = regions.memory.read(memref.region);
    RankFact fact;
    fact.uniform = contents.uniform;
    fact.reducedAs = contents.reducedAs;
    if (memref.count.times)
      fact.count = memref.count;
    facts[toTensor.getResult()] = fact;
    return;
  }
  // vector.transfer_read implements the interface without a destination.
  if (auto dps = dyn_cast<DestinationStyleOpInterface>(op);
      dps && dps.getNumDpsInits() != 0)
    return applyDestinationStyle(dps, control);
  applyEffects(op, control);
}
