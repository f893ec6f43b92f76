// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifies which operations may have parts that are assigned to the ranks of a
// node, and how. Whether the members are those of the bucket is checked when
// the plan is made.

#include "Verifiers.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::ddp;

static constexpr llvm::StringLiteral kName = DDPDialect::kAssignmentAttrName;

/// True if all members belong to one group and, if `areAdjacent`, follow each
/// other.
static bool areOfOneGroup(AssignmentAttr assignment, bool areAdjacent) {
  ArrayRef<int64_t> groups = assignment.getGroups(),
                    members = assignment.getMembers();
  for (size_t i = 1; i < members.size(); ++i)
    if (llvm::upper_bound(groups, members[i]) !=
            llvm::upper_bound(groups, members[0]) ||
        (areAdjacent && members[i] != members[i - 1] + 1))
      return false;
  return true;
}

/// Verifies an assignment of parts of an all-reduce's operand.
static LogicalResult verifyReduced(CollectiveOpInterface op,
                                   AssignmentAttr assignment) {
  if (TypeAttr wire = op.getWireAttr())
    return op->emitOpError() << "expected no wire type with '" << kName // C3
                             << "', but got " << wire.getValue();
  ReductionAttr reduction = op.getReductionAttr();
  auto lookup = [](Operation *from, FlatSymbolRefAttr name) {
    return name ? SymbolTable::lookupNearestSymbolFrom<ProcessGroupOp>(from,
                                                                       name)
                : ProcessGroupOp();
  };
  ProcessGroupOp group = lookup(op, op.getGroupAttr());
  // A missing or unknown group or reduction is reported elsewhere.
  if (!group || !reduction)
    return success();
  if (group.isHierarchical()) {
    if (reduction.getValue() == Reduction::Sum)
      return success();
    return op->emitOpError() << "expected a sum with '" << kName // C4
                             << "' over a hierarchical group, but got a mean";
  }
  ProcessGroupOp whole = lookup(group, group.getParentAttr());
  if (group.getPlacement() != Placement::IntraNode || !whole ||
      !whole.isHierarchical())
    return op->emitOpError() // C5
           << "expected '" << kName
           << "' over a hierarchical group or its ranks on a node, but got @"
           << group.getSymName();
  if (areOfOneGroup(assignment, /*areAdjacent=*/true))
    return success();
  return op->emitOpError() // C6
         << "expected adjacent members of one group within nodes, but got "
         << assignment;
}

/// Verifies an assignment of members of the large bucket of a low-rank
/// operation. `layout` covers a range of its elements.
static LogicalResult verifyList(Operation *op, AssignmentAttr assignment,
                                MatrixListAttr layout) {
  SmallVector<int64_t> ends;
  int64_t end = layout.getBegin();
  for (int64_t count : assignment.getCounts())
    ends.push_back(end += count);
  auto isCut = [&](int64_t offset, int64_t count) {
    auto part = llvm::upper_bound(ends, offset);
    return count > 0 && (part == ends.end() || count > *part - offset);
  };
  for (const MatrixPlace &matrix : layout.getMatrices()) {
    int64_t count;
    if (llvm::MulOverflow(matrix.rows, matrix.columns, count) ||
        isCut(matrix.offset, count))
      return op->emitOpError() // C8
             << "expected parts that split no matrix, but got " << assignment;
  }
  for (const PiecePlace &piece : layout.getPieces())
    if (isCut(piece.offset, piece.count))
      return op->emitOpError() // C8
             << "expected parts that split no piece, but got " << assignment;
  return success();
}

LogicalResult mlir::ddp::verifyAssignment(Operation *op, Attribute attribute) {
  auto assignment = dyn_cast<AssignmentAttr>(attribute);
  if (!assignment ||
      !isa<AllReduceOp, FlatAllReduceOp, MatmulOp, FlatMatmulOp, ProjectOp,
           FlatProjectOp, ReconstructOp, FlatReconstructOp>(op))
    return op->emitOpError() << "expected '" << kName
                             << "' to be a #ddp.assignment, on an all-reduce "
                                "or a low-rank operation, "
                                "but got "
                             << attribute;
  // The operation itself has not been verified yet.
  auto layout = llvm::TypeSwitch<Operation *, MatrixListAttr>(op)
                    .Case<FlatMatmulOp, FlatProjectOp, FlatReconstructOp>(
                        [](auto lowRank) { return lowRank.getLayoutAttr(); })
                    .Default([](Operation *) { return MatrixListAttr(); });
  Type type = op->getNumOperands() == 0 ? Type() : op->getOperand(0).getType();
  auto shaped = dyn_cast_if_present<ShapedType>(type);
  std::optional<int64_t> numElements;
  if (layout)
    numElements = layout.getEnd() - layout.getBegin();
  else if (isa<AllReduceOp, FlatAllReduceOp>(op) &&
           (isa_and_present<BucketType>(type) ||
            (shaped && shaped.hasStaticShape())))
    numElements = getNumElementsOf(type);
  if (numElements && assignment.getNumElements() != *numElements)
    return op->emitOpError() << "expected an assignment of " << *numElements
                             << " elements, but got " << assignment;
  if (auto reduce = dyn_cast<CollectiveOpInterface>(op))
    return verifyReduced(reduce, assignment);
  if (!areOfOneGroup(assignment, /*areAdjacent=*/false))
    return op->emitOpError() // C7
           << "expected members of one group, but got " << assignment;
  return layout ? verifyList(op, assignment, layout) : success();
}
