// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-pack-collectives: merges independent all-reduces of one bucket.

#include "../Analysis/ProgramWalk.h"

#include "mlir/IR/Dominance.h"

#define GEN_PASS_DEF_DDPPACKCOLLECTIVESPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns the attributes that have to be equal.
static DictionaryAttr getOtherAttributes(AllReduceOp op) {
  NamedAttrList attributes(op->getDiscardableAttrDictionary());
  attributes.erase(DDPDialect::kAssignmentAttrName);
  return attributes.getDictionary(op.getContext());
}

/// True if values that are appended to the operands of `ops` keep their bits.
/// An encoding depends on where blocks begin: with each operand or, over a
/// hierarchical group, with each rank's share of it.
static bool keepsBits(ArrayRef<AllReduceOp> ops,
                      SymbolTableCollection &symbols) {
  AllReduceOp first = ops.front();
  auto encoding =
      dyn_cast_if_present<EncodedType>(first.getWire().value_or(Type()));
  if (!encoding)
    return true;
  auto group = symbols.lookupNearestSymbolFrom<ProcessGroupOp>(
      first, first.getGroupAttr());
  return encoding.getBlock() > 0 && !encoding.isStochastic() &&
         !group.isHierarchical() && llvm::all_of(ops, [&](AllReduceOp op) {
           int64_t size = getNumElementsOf(op.getInput().getType());
           return size % encoding.getBlock() == 0;
         });
}

/// True if two all-reduces of one bucket reduce their operands in the same way.
static bool isAlike(AllReduceOp a, AllReduceOp b) {
  return a.getReduction() == b.getReduction() && a.getGroup() == b.getGroup() &&
         a.getBucketName() == b.getBucketName() && a.getWire() == b.getWire() &&
         getOtherAttributes(a) == getOtherAttributes(b) &&
         bool(getAssignment(a)) == bool(getAssignment(b)) &&
         getElementTypeOf(a.getInput().getType()) ==
             getElementTypeOf(b.getInput().getType());
}

/// Returns the assignment of the concatenated operands.
static AssignmentAttr joinAssignments(ArrayRef<AllReduceOp> ops) {
  AssignmentAttr first = getAssignment(ops.front());
  if (!first)
    return {};
  SmallVector<int64_t> members, counts;
  for (AllReduceOp op : ops) {
    llvm::append_range(members, getAssignment(op).getMembers());
    llvm::append_range(counts, getAssignment(op).getCounts());
  }
  return AssignmentAttr::get(first.getContext(), first.getBucket(),
                             first.getGroups(), members, counts);
}

/// Reduces the operands of `ops` in one collective in place of the first.
static void pack(ArrayRef<AllReduceOp> ops) {
  AllReduceOp first = ops.front();
  OpBuilder builder(first);
  Location loc = first.getLoc();
  SmallVector<Value> parts;
  SmallVector<DenseI64ArrayAttr> shapes;
  for (AllReduceOp op : ops) {
    parts.push_back(op.getInput());
    llvm::append_range(shapes,
                       cast<BucketType>(op.getInput().getType()).getShapes());
  }
  auto type = BucketType::get(
      builder.getContext(), getElementTypeOf(parts.front().getType()), shapes);
  Value packed = ConcatOp::create(builder, loc, type, parts);
  auto reduced = AllReduceOp::create(
      builder, loc, first.getReductionAttr(), packed, first.getGroupAttr(),
      first.getWireAttr(), first.getBucketNameAttr());
  reduced->setDiscardableAttrs(getOtherAttributes(first));
  setAssignment(reduced, joinAssignments(ops));
  int64_t member = 0;
  for (AllReduceOp op : ops) {
    int64_t size = cast<BucketType>(op.getInput().getType()).getNumMembers();
    SmallVector<int64_t> members =
        llvm::to_vector(llvm::seq<int64_t>(member, member + size));
    member += size;
    op.getResult().replaceAllUsesWith(
        ExtractOp::create(builder, loc, reduced.getResult(),
                          builder.getDenseI64ArrayAttr(members)));
  }
  for (AllReduceOp op : ops)
    op.erase();
}

namespace {
struct PackCollectivesPass
    : public ddp::impl::DDPPackCollectivesPassBase<PackCollectivesPass> {
  void runOnOperation() override {
    DominanceInfo dominance(getOperation());
    SymbolTableCollection symbols;
    SmallVector<SmallVector<AllReduceOp>> sets;
    // For each bucket of a block, the set that may still get more members.
    llvm::DenseMap<std::pair<Block *, StringRef>, unsigned> open;
    walkProgram(getOperation(), [&](AllReduceOp op) {
      if (!isa<BucketType>(op.getInput().getType()) || !op.getBucketName() ||
          op.getDestination())
        return;
      auto [it, isNew] =
          open.try_emplace({op->getBlock(), *op.getBucketName()}, sets.size());
      if (!isNew) {
        AllReduceOp first = sets[it->second].front();
        if (isAlike(first, op) && keepsBits(sets[it->second], symbols) &&
            dominance.properlyDominates(op.getInput(), first))
          return sets[it->second].push_back(op);
        it->second = sets.size();
      }
      sets.push_back({op});
    });
    llvm::erase_if(sets,
                   [](ArrayRef<AllReduceOp> set) { return set.size() < 2; });
    if (sets.empty())
      return markAllAnalysesPreserved();
    llvm::for_each(sets, pack);
  }
};
} // namespace
