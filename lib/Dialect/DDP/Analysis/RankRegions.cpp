// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "RankRegions.h"
#include "LoopSlices.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::ddp;

/// The root of all regions of the arena.
static const char kArena = 0;

RankMask RankRegions::narrowState(Operation *op, FlatSymbolRefAttr name,
                                  RankMask mask) {
  auto [it, isNew] = stateMasks.try_emplace(name.getAttr(), 0);
  if (isNew) {
    auto state = symbols.lookupNearestSymbolFrom<StateOp>(op, name);
    bool isReplicated =
        state && state.getPlacement() == StatePlacement::Replicated;
    it->second = isReplicated ? kAllRanks : 0;
  }
  RankMask before = it->second;
  statesChanged |= (before & mask) != before;
  return it->second = before & mask;
}

/// The first element and the number of elements of a slice without gaps, whose
/// place in its source is known; nothing for any other.
static std::optional<std::pair<int64_t, int64_t>>
getStretch(memref::SubViewOp slice) {
  MemRefType source = slice.getSourceType();
  ArrayRef<int64_t> offsets = slice.getStaticOffsets();
  ArrayRef<int64_t> sizes = slice.getStaticSizes();
  auto isOne = [](int64_t number) { return number == 1; };
  if (!source.hasStaticShape() || !source.getLayout().isIdentity() ||
      ShapedType::isDynamicShape(offsets) ||
      ShapedType::isDynamicShape(sizes) ||
      !llvm::all_of(slice.getStaticStrides(), isOne))
    return std::nullopt;
  int64_t begin = 0, numElements = 1, stride = 1;
  bool isWhole = true;
  for (auto [dim, offset, size] :
       llvm::reverse(llvm::zip_equal(source.getShape(), offsets, sizes))) {
    // Outside of a dimension that is cut there may be one index only.
    if (!isWhole && size != 1)
      return std::nullopt;
    begin += offset * stride;
    stride *= dim;
    numElements *= size;
    isWhole &= size == dim;
  }
  return std::pair(begin, numElements);
}

MemoryRegion RankRegions::find(OpResult result) {
  Operation *op = result.getOwner();
  auto type = dyn_cast<MemRefType>(result.getType());
  bool isPlain = type && type.hasStaticShape() &&
                 type.getLayout().isIdentity() &&
                 type.getElementType().isIntOrIndexOrFloat();
  int64_t elementBytes = 0, bytes = INT64_MAX;
  if (isPlain) {
    Type element = type.getElementType();
    elementBytes = element.isIndex()
                       ? 8
                       : llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
    bytes = type.getNumElements() * elementBytes;
  }
  if (isa<ArenaOp>(op))
    return {&kArena, 0, bytes, true};
  if (auto buffer = dyn_cast<StateBufferOp>(op)) {
    const void *root = buffer.getStateAttr().getAttr().getAsOpaquePointer();
    memory.setInitial(root, getState(op, buffer.getStateAttr()));
    return {root, 0, bytes, isPlain};
  }
  if (auto global = dyn_cast<memref::GetGlobalOp>(op)) {
    const void *root = global.getNameAttr().getAttr().getAsOpaquePointer();
    auto declared = symbols.lookupNearestSymbolFrom<memref::GlobalOp>(
        op, global.getNameAttr());
    memory.setInitial(root, declared && declared.getConstant() ? kAllRanks : 0);
    return {root, 0, bytes, isPlain};
  }
  // Somewhere in what the operands point to.
  MemoryRegion any;
  bool isFirst = true;
  for (Value operand : op->getOperands())
    if (isMemory(operand)) {
      MemoryRegion place = facts.lookup(operand).region;
      any = isFirst ? place : facts.unite(any, place);
      isFirst = false;
    }
  any.isExact = false;
  if (any.places)
    return any;
  if (auto view = dyn_cast<ViewOp>(op)) {
    MemoryRegion source = facts.lookup(view.getSource()).region;
    int64_t begin = source.begin + int64_t(view.getOffset()) * elementBytes;
    return {source.root, begin, begin + bytes, source.isExact && isPlain};
  }
  if (auto view = dyn_cast<memref::ViewOp>(op)) {
    MemoryRegion source = facts.lookup(view.getSource()).region;
    APInt shift;
    if (!isPlain || !matchPattern(view.getByteShift(), m_ConstantInt(&shift)))
      return {source.root, source.begin, source.end, false};
    int64_t begin = source.begin + shift.getSExtValue();
    return {source.root, begin, begin + bytes, source.isExact};
  }
  if (auto slice = dyn_cast<memref::SubViewOp>(op)) {
    MemoryRegion source = facts.lookup(slice.getSource()).region;
    auto stretch = getStretch(slice);
    int64_t numElements = slice.getSourceType().hasStaticShape()
                              ? slice.getSourceType().getNumElements()
                              : 0;
    source.isExact &= stretch && numElements != 0;
    if (!source.isExact)
      return source;
    int64_t size = (source.end - source.begin) / numElements;
    int64_t begin = source.begin + stretch->first * size;
    return {source.root, begin, begin + stretch->second * size, true};
  }
  if (auto view = dyn_cast<ViewLikeOpInterface>(op)) {
    MemoryRegion source = facts.lookup(view.getViewSource()).region;
    source.isExact &= isPlain && source.end - source.begin == bytes;
    return source;
  }
  if (isa<memref::AllocOp, memref::AllocaOp, bufferization::ToBufferOp>(op))
    return {result.getAsOpaquePointer(), 0, bytes, isPlain};
  return any;
}

/// Returns the operation that overwrites all of `slice`, if nothing else uses
/// it; otherwise null.
static Operation *findOverwriter(memref::SubViewOp slice) {
  if (!slice->hasOneUse())
    return nullptr;
  OpOperand &use = *slice->use_begin();
  Operation *user = use.getOwner();
  if (user->getBlock() != slice->getBlock())
    return nullptr;
  if (auto copy = dyn_cast<memref::CopyOp>(user))
    return copy.getTarget() == slice ? user : nullptr;
  // With a reduction dimension of size 0 it would write nothing.
  auto op = dyn_cast<linalg::LinalgOp>(user);
  bool overwrites = op && op.isDpsInit(&use) &&
                    !op.payloadUsesValueFromOperand(&use) &&
                    op.getMatchingIndexingMap(&use).isPermutation();
  return overwrites ? user : nullptr;
}

/// Returns the memref outside of the loop that `value` is or is a view of; null
/// if it comes from anything but views.
static Value findOutside(LoopLikeOpInterface loop, Value value) {
  while (!loop.isDefinedOutsideOfLoop(value)) {
    auto view = value.getDefiningOp<ViewLikeOpInterface>();
    if (!view)
      return {};
    value = view.getViewSource();
  }
  return value;
}

/// Returns true if `op` may access memory that is none of its operands.
static bool mayAccessOtherMemory(Operation *op) {
  if (isa<CallOpInterface>(op))
    return true;
  return !isa<memref::AllocOp, memref::AllocaOp>(op) &&
         !op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() &&
         llvm::none_of(op->getOperands(), isMemory) && !isMemoryEffectFree(op);
}

void RankRegions::forgetOverwritten(LoopLikeOpInterface loop) {
  SmallVector<LoopRange> ranges = getRanges(loop);
  if (ranges.empty())
    return;
  SmallVector<memref::SubViewOp> slices;
  for (auto slice :
       loop.getLoopRegions().front()->front().getOps<memref::SubViewOp>()) {
    Value source = slice.getSource();
    if (loop.isDefinedOutsideOfLoop(source) && findOverwriter(slice) &&
        facts.lookup(source).region.isExact &&
        coversAll(slice, slice.getSourceType(), ranges))
      slices.push_back(slice);
  }
  if (slices.empty())
    return;
  // Each memref operand of an operation in the loop, as the memref outside that
  // it is a view of. Null stands for unknown memory.
  SmallVector<std::pair<Operation *, Value>> accesses;
  loop.walk([&](Operation *op) {
    if (mayAccessOtherMemory(op))
      accesses.emplace_back(op, Value());
    for (Value operand : op->getOperands())
      if (isMemory(operand))
        accesses.emplace_back(op, findOutside(loop, operand));
  });
  for (memref::SubViewOp slice : slices) {
    MemoryRegion region = facts.lookup(slice.getSource()).region;
    Operation *writer = findOverwriter(slice);
    unsigned numByWriter = 0;
    bool isAlone = llvm::all_of(accesses, [&](auto &access) {
      auto [op, memref] = access;
      if (op == slice)
        return true;
      MemoryRegion other =
          memref ? facts.lookup(memref).region : MemoryRegion();
      if (!other.root)
        return false;
      return !region.overlaps(other) || (op == writer && ++numByWriter == 1);
    });
    if (isAlone)
      memory.write(region, {kAllRanks, nullptr}, /*isWhole=*/true);
  }
}

/// Records the collectives in flight whose memory `op` must not access.
void RankRegions::access(Operation *op, const MemoryRegion &region,
                         bool isWrite) {
  for (const RankMemory::InFlight &collective : memory.inFlight) {
    if (getAwaited(op) == collective.start)
      continue;
    if (collective.destination.overlaps(region) ||
        (isWrite && collective.input.overlaps(region)))
      conflicts.insert({op, collective.start});
  }
}

void RankRegions::write(Operation *op, Value memref, const RankFact &fact,
                        bool isWhole, const RankControl &control) {
  const RankFact &place = facts.lookup(memref);
  access(op, place.region, /*isWrite=*/true);
  if (place.region.places)
    for (const MemoryRegion &region : *place.region.places)
      written.insert(region.root);
  else
    written.insert(place.region.root);
  // Some ranks may not run this, and those that do may write to different
  // places.
  RankMask uniform = fact.uniform & place.uniform & control.mask;
  memory.write(place.region, {uniform, fact.reducedAs}, isWhole);
}

RankFact RankRegions::read(Operation *op, Value value) {
  RankFact fact = facts.lookup(value);
  if (isMemory(value)) {
    access(op, fact.region, /*isWrite=*/false);
    MemoryContents contents = memory.read(fact.region);
    fact.uniform &= contents.uniform;
    fact.reducedAs = contents.reducedAs;
  }
  return fact;
}

void RankRegions::followCollective(CollectiveOpInterface op, Value destination,
                                   const RankFact &fact,
                                   const RankControl &control) {
  MemoryRegion region = facts.lookup(destination).region;
  const RankMemory &without = memoryWithoutStart.start == op.getOperation()
                                  ? memoryWithoutStart.memory
                                  : memory;
  MemoryContents before = without.read(region);
  write(op, destination, fact, /*isWhole=*/true, control);
  if (op.getEnd() != op.getOperation())
    memory.inFlight.push_back(
        {op, facts.lookup(op.getInput()).region, region, before});
}

void RankRegions::followWait(Operation *op, Operation *start) {
  for (const RankMemory::InFlight &collective : memory.inFlight)
    if (collective.start == start && isIdleWait(op))
      memory.write(collective.destination, collective.before, true);
  llvm::erase_if(memory.inFlight, [&](const RankMemory::InFlight &other) {
    return other.start == start;
  });
}

RankFact RankRegions::createArgument(Value value, bool isReplicated) {
  RankFact fact = isReplicated ? RankFact() : facts.createUnknown(value);
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

void RankRegions::renameMade(CallOpInterface call,
                             FunctionOpInterface function) {
  if (llvm::none_of(call->getResultTypes(), llvm::IsaPred<BaseMemRefType>))
    return;
  llvm::SmallDenseMap<const void *, const void *> names;
  function.walk([&](memref::AllocOp op) {
    names[op.getResult().getAsOpaquePointer()] = nullptr;
  });
  for (Value result : call->getResults()) {
    MemoryRegion &region = facts[result].region;
    auto name = names.find(region.root);
    if (region.places || name == names.end())
      continue;
    if (!name->second)
      name->second = result.getAsOpaquePointer();
    MemoryContents contents = memory.read(region);
    region.root = name->second;
    memory.write(region, contents, /*isWhole=*/true);
  }
}
