// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-fuse: fuses operations that one call of the runtime can do.

#include "../Analysis/ProgramWalk.h"

#include "mlir/IR/Dominance.h"

#define GEN_PASS_DEF_DDPFUSEPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// cast(all_reduce(cast(x : T → 16 bit)) → T)  →  all_reduce wire (x). The two
/// differ over a hierarchical group, where a node sums x uncompressed.
static void fuseCasts(CastOp decompress, SymbolTableCollection &symbols) {
  auto reduce = decompress.getInput().getDefiningOp<AllReduceOp>();
  if (!reduce || reduce.getWire() || !reduce.getResult().hasOneUse() ||
      symbols
          .lookupNearestSymbolFrom<ProcessGroupOp>(reduce,
                                                   reduce.getGroupAttr())
          .isHierarchical())
    return;
  Type wireType = getElementTypeOf(reduce.getInput().getType());
  if (!isa<Float16Type, BFloat16Type>(wireType))
    return;
  auto compress = reduce.getInput().getDefiningOp<CastOp>();
  if (!compress || compress.getInput().getType() != decompress.getType())
    return;
  // Insert where the reduction was, to keep the order of collectives.
  OpBuilder builder(reduce);
  auto fused =
      AllReduceOp::create(builder, reduce.getLoc(), reduce.getReductionAttr(),
                          compress.getInput(), reduce.getGroupAttr(),
                          TypeAttr::get(wireType), reduce.getBucketNameAttr());
  fused->setDiscardableAttrs(reduce->getDiscardableAttrDictionary());
  decompress.getResult().replaceAllUsesWith(fused.getResult());
  decompress.erase();
  reduce.erase();
  if (compress->use_empty())
    compress.erase();
}

/// Extends the assignment of `members` of `bucket` to all its members, which
/// are adjacent members of an assigned bucket.
static AssignmentAttr widenAssignment(AssignmentAttr assignment,
                                      ArrayRef<int64_t> members,
                                      BucketType bucket) {
  if (!assignment)
    return {};
  int64_t first = assignment.getMembers().front() - members.front();
  SmallVector<int64_t> all, counts;
  for (int64_t member = 0; member < bucket.getNumMembers(); ++member) {
    all.push_back(first + member);
    counts.push_back(bucket.getNumElements(member));
  }
  return AssignmentAttr::get(assignment.getContext(), assignment.getBucket(),
                             assignment.getGroups(), all, counts);
}

/// Lets a product of members of a bucket read them in the bucket.
static void fuseExtract(MatmulOp matmul) {
  auto extract = matmul.getLhs().getDefiningOp<ExtractOp>();
  if (!extract || matmul.getTransposeRhs() || matmul.getMembers())
    return;
  matmul.getLhsMutable().assign(extract.getBucket());
  matmul.setMembers(extract.getMembers());
  setAssignment(
      matmul, widenAssignment(getAssignment(matmul), extract.getMembers(),
                              cast<BucketType>(extract.getBucket().getType())));
  if (extract->use_empty())
    extract.erase();
}

/// add(g, e) → matmul (members), extract (the rest)  →  project
static void fuseProject(MatmulOp matmul) {
  if (matmul.getTransposeLhs() || matmul.getTransposeRhs() ||
      !matmul.getMembers())
    return;
  Value matrix = matmul.getLhs();
  auto bucket = cast<BucketType>(matrix.getType());
  SmallVector<int64_t> members = llvm::to_vector(*matmul.getMembers());
  SmallVector<int64_t> restMembers = getRestMembers(bucket, members);
  auto add = matrix.getDefiningOp<AddOp>();
  if (add && add->getBlock() != matmul->getBlock())
    add = nullptr;
  ExtractOp rest;
  for (Operation *user : matrix.getUsers()) {
    // Users of the sum must come after the operation that now computes it.
    Operation *inBlock = matmul->getBlock()->findAncestorOpInBlock(*user);
    if (add && user != matmul && inBlock && inBlock->isBeforeInBlock(matmul))
      return;
    auto extract = dyn_cast<ExtractOp>(user);
    if (extract && inBlock == extract.getOperation() &&
        extract.getMembers() == ArrayRef(restMembers))
      rest = extract;
  }
  // Without error and rest a plain product remains.
  if (!add && !rest)
    return;
  if (rest && rest->isBeforeInBlock(matmul))
    return;

  OpBuilder builder(matmul);
  SmallVector<Type> types;
  if (add)
    types.push_back(bucket);
  types.push_back(matmul.getResult().getType());
  if (!restMembers.empty())
    types.push_back(getSubBucket(bucket, restMembers));
  auto project = ProjectOp::create(
      builder, matmul.getLoc(), types, add ? add.getInput() : matrix,
      add ? add.getRhs() : Value(), matmul.getRhs(),
      builder.getDenseI64ArrayAttr(members), /*packed=*/false);
  setAssignment(project, getAssignment(matmul));
  matmul.getResult().replaceAllUsesWith(
      project.getValues()[project.getPNumber()]);
  matmul.erase();
  if (rest) {
    rest.getResult().replaceAllUsesWith(project.getValues().back());
    rest.erase();
  }
  if (add) {
    add.getResult().replaceAllUsesWith(project.getValues().front());
    add.erase();
  }
}

/// project → concat of P and the rest  →  project packed
static void fusePacking(ProjectOp project) {
  unsigned pNumber = project.getPNumber();
  ResultRange values = project.getValues();
  if (project.getPacked() || values.size() != pNumber + 2 ||
      !values[pNumber].hasOneUse() || !values.back().hasOneUse())
    return;
  auto concat = dyn_cast<ConcatOp>(*values.back().user_begin());
  if (!concat || concat.getOrder() || concat.getParts().size() != 2 ||
      concat.getParts()[0] != values[pNumber] ||
      concat.getParts()[1] != values.back())
    return;
  OpBuilder builder(project);
  SmallVector<Type> types(values.take_front(pNumber).getTypes());
  types.push_back(concat.getType());
  auto packed = ProjectOp::create(
      builder, project.getLoc(), types, project.getInput(), project.getError(),
      project.getFactor(), project.getMembersAttr(), /*packed=*/true);
  setAssignment(packed, getAssignment(project));
  concat.getResult().replaceAllUsesWith(packed.getValues().back());
  concat.erase();
  if (pNumber != 0)
    values.front().replaceAllUsesWith(packed.getValues().front());
  project.erase();
}

/// Returns the subtraction from another bucket of `bucket`, possibly divided by
/// the group's size, or null.
static SubOp findError(Value bucket) {
  for (Operation *user : bucket.getUsers()) {
    auto sub = dyn_cast<SubOp>(user);
    if (sub && sub.getRhs() == bucket && sub.getInput() != bucket)
      return sub;
    auto scale = dyn_cast<ScaleOp>(user);
    if (scale && scale.getGroup() && scale.getResult().hasOneUse())
      if (auto scaled = dyn_cast<SubOp>(*scale.getResult().user_begin()))
        if (scaled.getRhs() == scale.getResult())
          return scaled;
  }
  return {};
}

/// matmul (members), rest → concat → sub  →  reconstruct
static void fuseReconstruct(ConcatOp concat, DominanceInfo &dominance) {
  if (!concat.getOrder() || concat.getParts().empty() ||
      concat.getParts().size() > 2)
    return;
  auto matmul = concat.getParts().front().getDefiningOp<MatmulOp>();
  if (!matmul || !matmul.getTransposeRhs() || !matmul.getResult().hasOneUse())
    return;
  auto bucket = cast<BucketType>(concat.getType());
  ArrayRef<int64_t> order = *concat.getOrder();
  size_t numMatrices =
      cast<BucketType>(matmul.getResult().getType()).getNumMembers();
  SmallVector<int64_t> members = llvm::to_vector(order.take_front(numMatrices));
  if (order.drop_front(numMatrices) !=
      ArrayRef(getRestMembers(bucket, members)))
    return;
  Value rest = concat.getParts().size() == 2 ? concat.getParts()[1] : Value();

  SubOp sub = findError(concat.getResult());
  if (sub && !dominance.properlyDominates(sub.getInput(), concat))
    sub = nullptr;
  ScaleOp scale = sub ? sub.getRhs().getDefiningOp<ScaleOp>() : ScaleOp();
  OpBuilder builder(concat);
  SmallVector<Type> types(sub ? 2 : 1, bucket);
  auto reconstruct = ReconstructOp::create(
      builder, concat.getLoc(), types, matmul.getLhs(), matmul.getRhs(),
      builder.getDenseI64ArrayAttr(members), rest,
      sub ? sub.getInput() : Value(),
      scale ? scale.getGroupAttr() : FlatSymbolRefAttr());
  setAssignment(reconstruct,
                widenAssignment(getAssignment(matmul), members, bucket));
  if (sub) {
    sub.getResult().replaceAllUsesWith(reconstruct.getValues().back());
    sub.erase();
    if (scale)
      scale.erase();
  }
  concat.getResult().replaceAllUsesWith(reconstruct.getValues().front());
  concat.erase();
  matmul.erase();
}

namespace {
struct FusePass : public ddp::impl::DDPFusePassBase<FusePass> {
  void runOnOperation() override {
    SmallVector<CastOp> casts;
    SmallVector<MatmulOp> matmuls;
    SmallVector<ConcatOp> concats;
    walkProgram(getOperation(), [&](Operation *op) {
      if (auto cast = dyn_cast<CastOp>(op);
          cast && cast.getInput().getDefiningOp<AllReduceOp>())
        casts.push_back(cast);
      else if (auto matmul = dyn_cast<MatmulOp>(op))
        matmuls.push_back(matmul);
      else if (auto concat = dyn_cast<ConcatOp>(op))
        concats.push_back(concat);
    });
    if (casts.empty() && matmuls.empty())
      return markAllAnalysesPreserved();
    SymbolTableCollection symbols;
    for (CastOp cast : casts)
      fuseCasts(cast, symbols);
    DominanceInfo dominance(getOperation());
    for (ConcatOp concat : concats)
      fuseReconstruct(concat, dominance);
    matmuls.clear();
    walkProgram(getOperation(), [&](MatmulOp op) { matmuls.push_back(op); });
    llvm::for_each(matmuls, fuseExtract);
    llvm::for_each(matmuls, fuseProject);
    SmallVector<ProjectOp> projects;
    walkProgram(getOperation(), [&](ProjectOp op) { projects.push_back(op); });
    llvm::for_each(projects, fusePacking);
  }
};
} // namespace
