//===- RankTransfer.cpp ----------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The transfer functions of RankAnalysis: what is known of an operation's
// results, given what is known of its operands. For an operation that is not
// listed here, its interfaces decide; without them its results may differ on
// every rank.
//
//===----------------------------------------------------------------------===//

#include "RankAnalysis.h"
#include "ddphook/Dialect/DDP/IR/DDP.h"

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

int64_t mlir::ddp::getNumElements(Type type) {
  if (auto bucket = dyn_cast<BucketType>(type))
    return bucket.getNumElements();
  if (auto future = dyn_cast<FutureType>(type))
    return getNumElements(future.getValueType());
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped)
    return 1;
  return shaped.hasStaticShape() ? shaped.getNumElements() : INT64_MAX;
}

static bool isMemory(Value value) {
  return isa<BaseMemRefType>(value.getType());
}

//===----------------------------------------------------------------------===//
// Facts
//===----------------------------------------------------------------------===//

void RankAnalysis::set(Value value, RankFact fact) { facts[value] = fact; }

unsigned RankAnalysis::getSource(const void *origin) {
  auto [it, isNew] = sourceOf.try_emplace(origin, 0);
  if (isNew)
    it->second = sources.createSource();
  return it->second;
}

/// Data that comes from nowhere: whatever a rank has.
RankFact RankAnalysis::createUnknown(Value value) {
  RankFact fact;
  fact.uniform = 0;
  // A number by itself is a setting, not a gradient.
  if (isa<ShapedType, BucketType>(value.getType())) {
    fact.count.times = GradientCount::Unreduced;
    fact.count.sources = getSource(value.getAsOpaquePointer());
    fact.count.elements = getNumElements(value.getType());
  }
  return fact;
}

RankFact RankAnalysis::createArgument(Value value, bool isReplicated) {
  RankFact fact = isReplicated ? RankFact() : createUnknown(value);
  if (auto type = dyn_cast<BaseMemRefType>(value.getType())) {
    const void *root = value.getAsOpaquePointer();
    int64_t bytes = INT64_MAX;
    if (type.hasStaticShape() && type.getElementType().isIntOrFloat())
      bytes = cast<ShapedType>(type).getNumElements() *
              llvm::divideCeil(type.getElementTypeBitWidth(), 8);
    fact.region = {root, 0, bytes, bytes != INT64_MAX};
    memory.setInitial(root, fact.uniform);
    fact.uniform = kAllRanks;
  }
  return fact;
}

void RankAnalysis::add(Inputs &inputs, Operation *op, Value value) {
  RankFact fact = facts.lookup(value);
  if (isMemory(value)) {
    access(op, fact.region, /*isWrite=*/false);
    MemoryContents contents = memory.read(fact.region);
    fact.uniform &= contents.uniform;
    fact.reducedAs = contents.reducedAs;
  }
  if (inputs.counts.empty())
    inputs.reducedAs = fact.reducedAs;
  else if (inputs.reducedAs != fact.reducedAs)
    inputs.reducedAs = nullptr;
  inputs.uniform &= fact.uniform;
  inputs.counts.push_back(fact.count);
}

/// What the regions of an operation take from outside of it.
void RankAnalysis::addUsedAbove(Inputs &inputs, Operation *op) {
  for (Region &region : op->getRegions())
    region.walk([&](Operation *nested) {
      for (Value operand : nested->getOperands())
        if (!op->isAncestor(operand.getParentRegion()->getParentOp()))
          add(inputs, op, operand);
    });
}

RankFact RankAnalysis::combine(const Inputs &inputs, Type type) {
  RankFact fact;
  fact.uniform = inputs.uniform;
  fact.count = combineCounts(sources, inputs.counts);
  if (isa<ShapedType, BucketType, FutureType>(type))
    fact.count.elements = std::min(fact.count.elements, getNumElements(type));
  return fact;
}

/// What a region that is not followed gives: elements of any of the inputs.
RankFact RankAnalysis::combineUnfollowed(const Inputs &inputs, Type type) {
  RankFact fact = combine(inputs, type);
  for (const GradientCount &count : inputs.counts) {
    int64_t elements = fact.count.elements;
    fact.count = joinCounts(sources, fact.count, count);
    fact.count.elements = elements;
  }
  return fact;
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

/// Records which ranks reach `op`; `bit` is the group of a collective, if any.
void RankAnalysis::recordReach(Operation *op, const RankControl &control,
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

RankFact RankAnalysis::reduce(Operation *op, Value input,
                              FlatSymbolRefAttr name, StringAttr bucket,
                              const RankControl &control) {
  Inputs inputs;
  add(inputs, op, input);
  RankFact fact = combine(inputs, input.getType());
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
  auto [known, isNew] = findings.repeated.insert({op, isRepeated});
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

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

/// Operations that put values together without computing with them.
bool RankAnalysis::transferTensor(Operation *op) {
  Inputs all;
  auto addAll = [&] {
    for (Value operand : op->getOperands())
      add(all, op, operand);
  };
  auto place = [&](Value part, Value into) {
    addAll();
    RankFact fact = combine(all, op->getResult(0).getType());
    fact.count = placeCounts(sources, facts.lookup(part).count,
                             facts.lookup(into).count);
    // Each element has its place: nothing is broadcast.
    fact.count.elements = getNumElements(op->getResult(0).getType());
    set(op->getResult(0), fact);
    return true;
  };
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op)) {
    if (getNumElements(insert.getSourceType()) !=
            getNumElements(insert.getType()) ||
        !insert.getType().hasStaticShape())
      return place(insert.getSource(), insert.getDest());
    set(insert.getResult(), facts.lookup(insert.getSource()));
    return true;
  }
  if (auto insert = dyn_cast<tensor::InsertOp>(op))
    return place(insert.getScalar(), insert.getDest());
  if (auto scatter = dyn_cast<tensor::ScatterOp>(op))
    return place(scatter.getSource(), scatter.getDest());
  if (auto write = dyn_cast<vector::TransferWriteOp>(op);
      write && write.getResult()) {
    if (getNumElements(write.getVectorType()) !=
            getNumElements(write.getShapedType()) ||
        write.getMask() || write.hasOutOfBoundsDim())
      return place(write.getVector(), write.getBase());
    set(write.getResult(), facts.lookup(write.getVector()));
    return true;
  }
  if (auto insert = dyn_cast<vector::InsertOp>(op))
    return place(insert.getValueToStore(), insert.getDest());
  if (auto insert = dyn_cast<vector::InsertStridedSliceOp>(op))
    return place(insert.getValueToStore(), insert.getDest());
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
      add(all, op, part);
    RankFact fact = combine(all, op->getResult(0).getType());
    if (!parts.empty())
      fact.count = facts.lookup(parts.front()).count;
    for (Value part : parts.drop_front(parts.empty() ? 0 : 1))
      fact.count = placeCounts(sources, fact.count, facts.lookup(part).count);
    fact.count.elements = getNumElements(op->getResult(0).getType());
    // A hook's concat belongs to its bucket; the program may pack any value.
    if (concat)
      fact.reducedAs = all.reducedAs;
    set(op->getResult(0), fact);
    return true;
  }
  if (auto copy = dyn_cast<bufferization::AllocTensorOp>(op)) {
    set(copy.getResult(), facts.lookup(copy.getCopy()));
    return true;
  }
  if (auto select = dyn_cast<arith::SelectOp>(op)) {
    addAll();
    RankFact fact = combine(all, select.getType());
    unsigned flowing = fact.count.sources;
    fact.count = joinCounts(sources, facts.lookup(select.getTrueValue()).count,
                            facts.lookup(select.getFalseValue()).count);
    fact.count.sources = flowing;
    if (isMemory(select.getResult())) {
      fact.uniform = facts.lookup(select.getCondition()).uniform &
                     facts.lookup(select.getTrueValue()).uniform &
                     facts.lookup(select.getFalseValue()).uniform;
      fact.region = unite(facts.lookup(select.getTrueValue()).region,
                          facts.lookup(select.getFalseValue()).region);
    }
    set(select.getResult(), fact);
    return true;
  }
  if (isa<tensor::DimOp, memref::DimOp>(op)) {
    RankFact fact;
    fact.uniform = facts.lookup(op->getOperand(0)).uniform &
                   facts.lookup(op->getOperand(1)).uniform;
    set(op->getResult(0), fact);
    return true;
  }
  if (isa<ExtractOp, SplitOp, ResizeOp, tensor::ExtractSliceOp>(op)) {
    addAll();
    for (Value result : op->getResults()) {
      RankFact fact = combine(all, result.getType());
      fact.reducedAs = all.reducedAs;
      set(result, fact);
    }
    return true;
  }
  return false;
}

/// Whether every element of `init`'s result is computed. Only a generic
/// operation may leave some alone.
static bool coversWhole(DestinationStyleOpInterface op, OpOperand &init) {
  auto generic = dyn_cast<linalg::GenericOp>(op.getOperation());
  return !generic ||
         generic.getMatchingIndexingMap(&init).isProjectedPermutation();
}

/// Destinations count as far as the body reads them.
void RankAnalysis::transferDestinationStyle(DestinationStyleOpInterface op,
                                            const RankControl &control) {
  Block *body = nullptr;
  if (isa<linalg::LinalgOp>(op.getOperation()) && op->getNumRegions() == 1 &&
      op->getRegion(0).hasOneBlock())
    body = &op->getRegion(0).front();
  // A named operation does one thing; the body of another may do several.
  bool isFollowed =
      body && isa<linalg::GenericOp, linalg::MapOp, linalg::ReduceOp,
                  linalg::SelectOp, linalg::ElementwiseOp>(op.getOperation());
  Inputs all;
  for (OpOperand &operand : op->getOpOperands()) {
    if (body && operand.getOperandNumber() < body->getNumArguments()) {
      BlockArgument argument = body->getArgument(operand.getOperandNumber());
      if (argument.use_empty())
        continue;
      if (!isFollowed) {
        add(all, op, operand.get());
        continue;
      }
      Inputs input;
      add(input, op, operand.get());
      RankFact fact = combine(input, operand.get().getType());
      set(argument, fact);
    }
    add(all, op, operand.get());
  }
  // A short program of scalars, followed like any other.
  if (isFollowed)
    for (Operation &nested : body->without_terminator())
      visit(&nested, control);
  else if (!body)
    addUsedAbove(all, op);
  for (auto [number, init] : llvm::enumerate(op.getDpsInitsMutable())) {
    RankFact fact;
    if (isFollowed) {
      Inputs yielded;
      add(yielded, op, body->getTerminator()->getOperand(number));
      fact = combine(yielded, init.get().getType());
      if (!coversWhole(op, init)) {
        RankFact rest = facts.lookup(init.get());
        fact.uniform &= rest.uniform;
        fact.count = placeCounts(sources, fact.count, rest.count);
      }
    } else {
      Type type = init.get().getType();
      bool isUnfollowed = !body && op->getNumRegions() != 0;
      fact = isUnfollowed ? combineUnfollowed(all, type) : combine(all, type);
      // Without a body it is unknown which elements keep their old values.
      if (!body && !isUnfollowed && !isMemory(init.get())) {
        Inputs inputs;
        for (OpOperand *input : op.getDpsInputOperands())
          add(inputs, op, input->get());
        fact.count = placeCounts(sources, combine(inputs, type).count,
                                 facts.lookup(init.get()).count);
      }
    }
    if (isMemory(init.get()))
      write(op, init.get(), fact, body && coversWhole(op, init), control);
    else if (OpResult result = op.getTiedOpResult(&init))
      set(result, fact);
  }
}

//===----------------------------------------------------------------------===//
// Everything else
//===----------------------------------------------------------------------===//

/// Operations without operands that give the same on all ranks. (Others may
/// well ask which rank this is.)
static bool isSameEverywhere(Operation *op) {
  return op->hasTrait<OpTrait::ConstantLike>() ||
         isa<tensor::EmptyOp, linalg::IndexOp, ub::PoisonOp, memref::AllocOp,
             memref::AllocaOp, memref::GetGlobalOp, ArenaOp, StateBufferOp,
             LLVM::AddressOfOp, LLVM::ZeroOp, LLVM::PoisonOp, LLVM::UndefOp>(
             op);
}

void RankAnalysis::transferEffects(Operation *op, const RankControl &control) {
  Inputs inputs;
  for (Value operand : op->getOperands())
    if (!isMemory(operand))
      add(inputs, op, operand);
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
      add(inputs, op, value);
    else
      inputs.uniform = 0; // Through a pointer, whatever is there.
  }
  // Memory lies elsewhere in every process.
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
    RankFact fact = isFromNowhere ? createUnknown(result)
                    : op->getNumRegions() != 0
                        ? combineUnfollowed(inputs, result.getType())
                        : combine(inputs, result.getType());
    if (isMemory(result)) {
      fact.uniform = kAllRanks;
      for (Value operand : op->getOperands())
        if (isMemory(operand) || operand.getType().isIndex())
          fact.uniform &= facts.lookup(operand).uniform;
      fact.region = findRegion(result);
      if (auto buffer = dyn_cast<bufferization::ToBufferOp>(op))
        memory.write(fact.region,
                     {facts.lookup(buffer.getTensor()).uniform, nullptr}, true);
    }
    set(result, fact);
  }
  auto overwrite = [&](Value memref) {
    RankFact fact;
    fact.uniform = inputs.uniform;
    write(op, memref, fact, /*isWhole=*/isa<memref::CopyOp>(op), control);
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

void RankAnalysis::transfer(Operation *op, const RankControl &control) {
  if (transferDDP(op, control) || transferTensor(op))
    return;
  if (auto materialize =
          dyn_cast<bufferization::MaterializeInDestinationOp>(op)) {
    RankFact fact = facts.lookup(materialize.getSource());
    if (materialize.getResult())
      set(materialize.getResult(), fact);
    else
      write(op, materialize.getDest(), fact, /*isWhole=*/true, control);
    return;
  }
  if (auto toTensor = dyn_cast<bufferization::ToTensorOp>(op)) {
    RankFact memref = facts.lookup(toTensor.getBuffer());
    MemoryContents contents = memory.read(memref.region);
    RankFact fact;
    fact.uniform = contents.uniform;
    fact.reducedAs = contents.reducedAs;
    if (memref.count.times)
      fact.count = memref.count;
    set(toTensor.getResult(), fact);
    return;
  }
  // vector.transfer_read implements the interface without a destination.
  if (auto dps = dyn_cast<DestinationStyleOpInterface>(op);
      dps && dps.getNumDpsInits() != 0)
    return transferDestinationStyle(dps, control);
  transferEffects(op, control);
}
