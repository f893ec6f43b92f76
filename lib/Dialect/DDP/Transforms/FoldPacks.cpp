// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-fold-packs: recognizes gradients that are adjacent in one argument as a
// bucket that exists already. This pass only replaces values by equal ones;
// later passes decide what happens in place.

#include "../Analysis/MemoryUses.h"
#include "Utils/Arrays.h"
#include "ddphook/Dialect/DDP/IR/Remarks.h"

#include "llvm/ADT/MapVector.h"

#include <map>

#define GEN_PASS_DEF_DDPFOLDPACKSPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns the offset and size of a slice of a 1-D tensor without gaps, or
/// nullopt for other slices.
template <typename SliceOp>
static std::optional<std::pair<int64_t, int64_t>>
getRange(SliceOp slice, RankedTensorType whole) {
  if (whole.getRank() != 1 || !whole.hasStaticShape())
    return std::nullopt;
  int64_t offset = slice.getStaticOffsets().front(),
          size = slice.getStaticSizes().front(),
          stride = slice.getStaticStrides().front();
  if (ShapedType::isDynamic(offset) || ShapedType::isDynamic(size) ||
      (stride != 1 && size > 1))
    return std::nullopt;
  return std::pair(offset, size);
}

/// Returns the elements of `value` as a run, looking through reshapes, slices
/// and unpacks.
static ElementRun getRun(Value value) {
  ElementRun run{value, 0, getNumElementsOf(value.getType())};
  while (Operation *op = run.source.getDefiningOp()) {
    if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op)) {
      run.source = op->getOperand(0);
    } else if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
      auto range = getRange(slice, slice.getSourceType());
      if (!range)
        break;
      run.source = slice.getSource();
      run.offset += range->first;
    } else if (isa<UnpackOp, SplitOp>(op)) {
      for (Value before : op->getResults().take_front(
               cast<OpResult>(run.source).getResultNumber()))
        run.offset += getNumElementsOf(before.getType());
      run.source = op->getOperand(0);
    } else {
      break;
    }
  }
  // Runs can only be extracted from a 1-D tensor.
  if (cast<RankedTensorType>(run.source.getType()).getRank() != 1)
    return {value, 0, run.size};
  return run;
}

static Value createTensor(OpBuilder &builder, Location loc,
                          const ElementRun &run) {
  auto type = cast<RankedTensorType>(run.source.getType());
  if (type.getRank() == 1)
    return createSlice(builder, loc, run.source, run.offset, run.size);
  // Such a run is whole.
  auto flat = RankedTensorType::get({run.size}, type.getElementType());
  SmallVector<ReassociationIndices> all;
  if (type.getRank() == 0)
    return tensor::ExpandShapeOp::create(builder, loc, flat, run.source, all);
  all.emplace_back(llvm::to_vector(llvm::seq<int64_t>(0, type.getRank())));
  return tensor::CollapseShapeOp::create(builder, loc, flat, run.source, all);
}

namespace {
/// Rewrites packs of elements of one argument, and insertions into it.
class ArgumentFolder {
public:
  ArgumentFolder(Value argument,
                 bufferization::MaterializeInDestinationOp update)
      : argument(argument), update(update) {}

  void foldPacks(ArrayRef<std::pair<PackOp, ElementRun>> candidates);
  void foldInsertions();

private:
  SmallVector<ElementRun> collectRuns(Value value);
  bool isBucket(const ElementRun &run) const;

  Value argument;
  bufferization::MaterializeInDestinationOp update;
  /// The parts that the argument was split into, by offset.
  llvm::DenseMap<int64_t, Value> parts;
};
} // namespace

/// Replaces each pack by its part of the argument. The parts and the gaps
/// between them are results of one split, so each of them is separate memory.
void ArgumentFolder::foldPacks(
    ArrayRef<std::pair<PackOp, ElementRun>> candidates) {
  SmallVector<std::pair<PackOp, ElementRun>> folded;
  for (auto &candidate : candidates) {
    const ElementRun &run = candidate.second;
    if (llvm::none_of(folded, [&](auto &other) {
          return run.offset < other.second.getEnd() &&
                 other.second.offset < run.getEnd();
        }))
      folded.push_back(candidate);
  }
  if (folded.empty())
    return;
  for (auto &[pack, run] : folded)
    remark::passed(pack.getLoc(), remarkOf("FlatBucket", "ddp-fold-packs"))
        << "gradients are contiguous in an argument, which becomes their bucket"
        << remark::metric("offset", run.offset)
        << remark::metric("elements", run.size);
  if (folded.front().second.isWhole()) {
    folded.front().first.replaceAllUsesWith(argument);
    folded.front().first.erase();
    return;
  }
  PackOp first = folded.front().first;
  llvm::sort(folded, [](auto &a, auto &b) {
    return a.second.offset < b.second.offset;
  });
  SmallVector<int64_t> offsets;
  SmallVector<Type> types;
  auto addPart = [&](int64_t begin, int64_t end) {
    if (begin == end)
      return;
    offsets.push_back(begin);
    types.push_back(RankedTensorType::get(
        {end - begin}, getElementTypeOf(argument.getType())));
  };
  int64_t end = 0;
  for (auto &[pack, run] : folded) {
    addPart(end, run.offset);
    addPart(run.offset, run.getEnd());
    end = run.getEnd();
  }
  addPart(end, getNumElementsOf(argument.getType()));
  OpBuilder builder(first);
  auto split = SplitOp::create(builder, first.getLoc(), types, argument);
  for (auto [offset, part] : llvm::zip(offsets, split.getParts()))
    parts[offset] = part;
  for (auto &[pack, run] : folded) {
    pack.replaceAllUsesWith(parts[run.offset]);
    pack.erase();
  }
}

/// Returns the elements of `value`, into which a chain of insertions put
/// slices.
SmallVector<ElementRun> ArgumentFolder::collectRuns(Value value) {
  SmallVector<tensor::InsertSliceOp> insertions;
  while (auto insertion = value.getDefiningOp<tensor::InsertSliceOp>()) {
    if (!getRange(insertion, insertion.getDestType()))
      break;
    insertions.push_back(insertion);
    value = insertion.getDest();
  }
  // By offset in `value`; later insertions override earlier ones.
  std::map<int64_t, ElementRun> byOffset;
  int64_t numElements = getNumElementsOf(value.getType());
  byOffset[0] = {value, 0, numElements};
  auto cutAt = [&](int64_t offset) {
    auto it = std::prev(byOffset.upper_bound(offset));
    ElementRun &run = it->second;
    int64_t before = offset - it->first;
    if (before == 0 || offset >= numElements)
      return;
    byOffset[offset] = {run.source, run.offset + before, run.size - before};
    run.size = before;
  };
  for (tensor::InsertSliceOp insertion : llvm::reverse(insertions)) {
    auto [offset, size] = *getRange(insertion, insertion.getDestType());
    if (size == 0)
      continue;
    cutAt(offset);
    cutAt(offset + size);
    byOffset.erase(byOffset.lower_bound(offset),
                   byOffset.lower_bound(offset + size));
    byOffset[offset] = getRun(insertion.getSource());
  }
  SmallVector<ElementRun> runs;
  for (auto &[offset, run] : byOffset)
    if (run.size != 0)
      appendRun(runs, run);
  return runs;
}

/// True if these are elements of a bucket. The initial contents of another
/// argument are not, and neither are values that the program may compute in
/// another argument, since that argument may get its new value earlier.
bool ArgumentFolder::isBucket(const ElementRun &run) const {
  return llvm::any_of(run.source.getUsers(), llvm::IsaPred<UnpackOp>) &&
         (run.source == argument || !findArgumentUpdate(run.source));
}

/// Returns the length of the chain of insertions that ends in `last`.
static unsigned countInsertions(tensor::InsertSliceOp last) {
  unsigned number = 0;
  for (; last; last = last.getDest().getDefiningOp<tensor::InsertSliceOp>())
    ++number;
  return number;
}

/// Replaces adjacent insertions of slices of a bucket into the argument by the
/// bucket.
void ArgumentFolder::foldInsertions() {
  Value result = update.getSource();
  auto last = result.getDefiningOp<tensor::InsertSliceOp>();
  if (!last || !getRange(last, last.getDestType()))
    return;
  SmallVector<ElementRun> runs = collectRuns(result);
  bool isOneRun = runs.size() == 1 &&
                  (runs.front().source == argument || isBucket(runs.front()));
  bool hasBucket = llvm::any_of(runs, [&](const ElementRun &run) {
    return run.isWhole() && isBucket(run);
  });
  // One-Shot Bufferize compares each insertion with all others.
  constexpr unsigned maxInsertions = 16;
  if (!isOneRun && !hasBucket && countInsertions(last) <= maxInsertions)
    return;
  OpBuilder builder(last);
  SmallVector<Value> tensors;
  int64_t offset = 0;
  for (const ElementRun &run : runs) {
    Value part = parts.lookup(offset);
    bool isUntouched = run.source == argument && run.offset == offset && part &&
                       getNumElementsOf(part.getType()) == run.size &&
                       part.getDefiningOp()->isBeforeInBlock(last);
    tensors.push_back(
        isUntouched ? part : createTensor(builder, result.getLoc(), run));
    offset += run.size;
  }
  result.replaceAllUsesWith(isOneRun
                                ? tensors.front()
                                : ConcatOp::create(builder, result.getLoc(),
                                                   result.getType(), tensors)
                                      .getResult());
}

namespace {
struct FoldPacksPass : public ddp::impl::DDPFoldPacksPassBase<FoldPacksPass> {
  void runOnOperation() override {
    Region &body = getOperation().getFunctionBody();
    if (!body.hasOneBlock())
      return markAllAnalysesPreserved();
    Block &block = body.front();
    // In program order.
    llvm::MapVector<Value, SmallVector<std::pair<PackOp, ElementRun>>> packs;
    for (Operation &op : block) {
      if (auto read = dyn_cast<bufferization::ToTensorOp>(op))
        if (isFlat(read.getType()) && findArgumentUpdate(read.getResult()))
          packs[read.getResult()];
      auto pack = dyn_cast<PackOp>(op);
      if (!pack)
        continue;
      if (std::optional<ElementRun> run = getRun(pack))
        if (auto it = packs.find(run->source); it != packs.end())
          it->second.emplace_back(pack, *run);
      if (getNumElementsOf(pack.getBucket().getType()) == 0)
        forgetOperands(pack);
    }
    for (auto &[argument, candidates] : packs) {
      ArgumentFolder folder(argument, findArgumentUpdate(argument));
      folder.foldPacks(candidates);
      folder.foldInsertions();
    }
    eraseUnused(block);
  }

  static bool isFlat(Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return tensor && tensor.getRank() == 1;
  }

  /// Returns the packed elements if they are one run.
  static std::optional<ElementRun> getRun(PackOp pack) {
    SmallVector<ElementRun> runs;
    for (Value tensor : pack.getTensors())
      if (ElementRun run = ::getRun(tensor); run.size != 0)
        appendRun(runs, run);
    return runs.size() == 1 ? std::optional(runs.front()) : std::nullopt;
  }

  /// Replaces empty operands, which would count as uses of their source.
  static void forgetOperands(PackOp pack) {
    OpBuilder builder(pack);
    for (OpOperand &operand : pack->getOpOperands())
      operand.set(tensor::EmptyOp::create(
          builder, pack.getLoc(), operand.get().getType(), ValueRange()));
  }

  /// Erases unused operations, which would count as uses of the memory.
  static void eraseUnused(Block &block) {
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (isa<tensor::ExtractSliceOp, tensor::InsertSliceOp,
              tensor::ExpandShapeOp, tensor::CollapseShapeOp, UnpackOp>(op) &&
          op.use_empty())
        op.erase();
  }
};
} // namespace
