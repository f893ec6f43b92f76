//===- GroupMatrices.cpp ---------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-group-matrices: takes the low-rank steps of a bucket through all their
// stages in groups of a few matrices, so that the later stages find in the
// cache what the first one read.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "mlir/IR/Remarks.h"

namespace mlir::ddp {
#define GEN_PASS_DEF_DDPGROUPMATRICESPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"
} // namespace mlir::ddp

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// The operations of one bucket's low-rank step, from ddp.project to
/// ddp.reconstruct. Those that a step may lack are null.
struct LowRankStep {
  ProjectOp project;
  AllReduceOp reduceP, reduceRest, reduceQ;
  ExtractOp extractP, extractRest;
  ScaleOp scaleRest, scaleQ;
  OrthogonalizeOp orthogonalize;
  MatmulOp matmul;
  ReconstructOp reconstruct;
};

/// A run of adjacent members: matrices by their places among the operation's
/// members, and the others.
struct Group {
  SmallVector<int64_t> matrices, others;
};
} // namespace

/// The only user of `value`, if it is an OpT.
template <typename OpT>
static OpT getOnlyUser(Value value) {
  return value && value.hasOneUse() ? dyn_cast<OpT>(*value.user_begin())
                                    : OpT();
}

/// Follows all-reduce and division of the rest to where it is put together.
static bool matchRest(LowRankStep &step, Value rest) {
  if (auto scale = getOnlyUser<ScaleOp>(rest)) {
    step.scaleRest = scale;
    rest = scale.getResult();
  }
  step.reconstruct = getOnlyUser<ReconstructOp>(rest);
  return step.reconstruct && step.reconstruct.getRest() == rest;
}

/// Finds the step that begins with a projection; nothing if it is not of the
/// form that PowerSGD's expansion has.
static std::optional<LowRankStep> matchStep(ProjectOp project) {
  LowRankStep step;
  step.project = project;
  if (project.getOthers() || !project.getDestination().empty())
    return std::nullopt;
  Value p = project.getValues()[project.getPNumber()];
  step.reduceP = getOnlyUser<AllReduceOp>(p);
  if (!step.reduceP)
    return std::nullopt;
  p = step.reduceP.getResult();
  ReconstructOp ofRest;
  if (project.getPacked()) {
    int64_t numMatrices = project.getMembers().size();
    for (Operation *user : p.getUsers()) {
      auto extract = dyn_cast<ExtractOp>(user);
      if (!extract || extract.getMembers().empty())
        return std::nullopt;
      (extract.getMembers().front() < numMatrices ? step.extractP
                                                  : step.extractRest) = extract;
    }
    if (!step.extractP || !step.extractRest ||
        !matchRest(step, step.extractRest.getResult()))
      return std::nullopt;
    ofRest = step.reconstruct;
    p = step.extractP.getResult();
  } else if (project.getValues().size() == project.getPNumber() + 2) {
    step.reduceRest = getOnlyUser<AllReduceOp>(project.getValues().back());
    if (!step.reduceRest || !matchRest(step, step.reduceRest.getResult()))
      return std::nullopt;
    ofRest = step.reconstruct;
  }
  step.orthogonalize = getOnlyUser<OrthogonalizeOp>(p);
  if (!step.orthogonalize)
    return std::nullopt;
  p = step.orthogonalize.getResult();
  for (Operation *user : p.getUsers()) {
    if (auto matmul = dyn_cast<MatmulOp>(user))
      step.matmul = matmul;
    else if (auto reconstruct = dyn_cast<ReconstructOp>(user))
      step.reconstruct = reconstruct;
    else
      return std::nullopt;
  }
  Value matrix =
      project.getError() ? project.getValues().front() : project.getInput();
  if (!step.matmul || !step.matmul.getTransposeLhs() ||
      step.matmul.getLhs() != matrix || !step.matmul.getMembers() ||
      *step.matmul.getMembers() != project.getMembers() ||
      llvm::range_size(p.getUsers()) != 2)
    return std::nullopt;
  step.reduceQ = getOnlyUser<AllReduceOp>(step.matmul.getResult());
  if (!step.reduceQ)
    return std::nullopt;
  Value q = step.reduceQ.getResult();
  if (auto scale = getOnlyUser<ScaleOp>(q)) {
    step.scaleQ = scale;
    q = scale.getResult();
  }
  ReconstructOp reconstruct = step.reconstruct;
  if (!reconstruct || (ofRest && ofRest != reconstruct) ||
      reconstruct.getOthers() || reconstruct.getP() != p ||
      reconstruct.getQ() != q ||
      reconstruct.getMembers() != project.getMembers() ||
      (project.getError() ? reconstruct.getMatrix() != matrix
                          : reconstruct.getMatrix() != Value()) ||
      reconstruct->getBlock() != project->getBlock())
    return std::nullopt;
  return step;
}

/// Splits a bucket into runs of members of at most `limit` bytes, or of one
/// matrix, each with at least one.
static SmallVector<Group> makeGroups(ProjectOp project, int64_t limit) {
  auto bucket = cast<BucketType>(project.getInput().getType());
  llvm::DenseMap<int64_t, int64_t> places; // among the matrices
  for (auto [place, member] : llvm::enumerate(project.getMembers()))
    places[member] = place;
  SmallVector<Group> groups(1);
  int64_t bytes = 0;
  for (int64_t member = 0; member < bucket.getNumMembers(); ++member) {
    auto place = places.find(member);
    int64_t size = bucket.getNumElements(member) * bucket.getElementBytes();
    if (place == places.end()) {
      groups.back().others.push_back(member);
    } else {
      if (!groups.back().matrices.empty() && bytes + size > limit) {
        groups.emplace_back();
        bytes = 0;
      }
      groups.back().matrices.push_back(place->second);
    }
    bytes += size;
  }
  return groups;
}

namespace {
/// A group between its stages: the reduced P with the rest behind it, then the
/// basis, and the reduced Q.
struct GroupInStages {
  explicit GroupInStages(const Group &group) : group(group) {}

  const Group &group;
  DenseI64ArrayAttr members;
  Value p, rest, q;
};

/// Builds a step again, group by group. Each stage of a group takes bucket and
/// M as the last one that was built left them, of whatever group: so no stage's
/// operand is overwritten before it has run.
class GroupBuilder {
public:
  explicit GroupBuilder(LowRankStep step)
      : step(step), builder(step.project), loc(step.project.getLoc()),
        gradient(step.project.getInput()), matrix(step.project.getError()) {}

  /// Project, and all-reduce P.
  void project(GroupInStages &group);
  /// Make P a basis, Q = Mᵀ·P, and all-reduce Q.
  void multiply(GroupInStages &group);
  /// Put bucket and error together.
  void reconstruct(GroupInStages &group);
  void finish();

private:
  BucketType take(Value factors, ArrayRef<int64_t> places) {
    return getSubBucket(cast<BucketType>(factors.getType()), places);
  }
  Value reduce(AllReduceOp like, Value value) {
    auto reduced = AllReduceOp::create(
        builder, like.getLoc(), value.getType(), like.getReductionAttr(), value,
        like.getGroupAttr(), like.getWireAttr(), like.getBucketNameAttr(),
        /*destination=*/Value());
    reduced->setDiscardableAttrs(like->getDiscardableAttrDictionary());
    return reduced.getResult();
  }
  Value scale(ScaleOp like, Value value) {
    if (!like)
      return value;
    return ScaleOp::create(builder, like.getLoc(), value.getType(), value,
                           like.getFactorAttr(), like.getGroupAttr(),
                           /*destination=*/Value())
        .getResult();
  }
  Value extract(Value bucket, int64_t first, int64_t count) {
    return ExtractOp::create(builder, loc, bucket,
                             builder.getDenseI64ArrayAttr(llvm::to_vector(
                                 llvm::seq(first, first + count))));
  }

  LowRankStep step;
  OpBuilder builder;
  Location loc;
  /// The bucket, and M: what earlier groups have made of them.
  Value gradient, matrix;
  SmallVector<Value> qParts;
  SmallVector<int64_t> qOrder;
};
} // namespace

void GroupBuilder::project(GroupInStages &stages) {
  const Group &group = stages.group;
  ProjectOp project = step.project;
  auto bucket = cast<BucketType>(gradient.getType());
  SmallVector<int64_t> members;
  for (int64_t place : group.matrices)
    members.push_back(project.getMembers()[place]);
  stages.members = builder.getDenseI64ArrayAttr(members);
  DenseI64ArrayAttr othersAttr = builder.getDenseI64ArrayAttr(group.others);
  bool hasRest = !group.others.empty();
  bool isPacked = project.getPacked() && hasRest;

  // Where the rest travels with P, it lies behind it.
  BucketType restType = getSubBucket(bucket, group.others);
  BucketType pType = take(step.orthogonalize.getInput(), group.matrices);
  SmallVector<Type> types;
  if (matrix)
    types.push_back(bucket);
  if (isPacked) {
    SmallVector<DenseI64ArrayAttr> shapes(pType.getShapes());
    llvm::append_range(shapes, restType.getShapes());
    types.push_back(
        BucketType::get(builder.getContext(), bucket.getElementType(), shapes));
  } else {
    types.push_back(pType);
    if (hasRest)
      types.push_back(restType);
  }
  Value basis = ExtractOp::create(builder, loc, project.getFactor(),
                                  builder.getDenseI64ArrayAttr(group.matrices));
  auto projected = ProjectOp::create(builder, loc, types, gradient, matrix,
                                     basis, stages.members, othersAttr,
                                     isPacked, MatrixListAttr(), ValueRange());
  if (matrix)
    matrix = projected.getValues().front();
  stages.p =
      reduce(step.reduceP, projected.getValues()[projected.getPNumber()]);
  if (hasRest && !isPacked)
    stages.rest = reduce(step.reduceRest, projected.getValues().back());
}

void GroupBuilder::multiply(GroupInStages &stages) {
  const Group &group = stages.group;
  int64_t numMatrices = group.matrices.size();
  if (!group.others.empty() && !stages.rest) {
    stages.rest = extract(stages.p, numMatrices, group.others.size());
    stages.p = extract(stages.p, 0, numMatrices);
  }
  if (stages.rest)
    stages.rest = scale(step.scaleRest, stages.rest);
  stages.p = OrthogonalizeOp::create(builder, loc, stages.p.getType(), stages.p,
                                     step.orthogonalize.getEpsilonAttr(),
                                     step.orthogonalize.getUnitColumnsAttr(),
                                     MatrixListAttr(), Value())
                 .getResult();
  Value q =
      MatmulOp::create(
          builder, loc, take(step.matmul.getResult(), group.matrices),
          matrix ? matrix : gradient, stages.p, /*transposeLhs=*/true,
          /*transposeRhs=*/false, stages.members, MatrixListAttr(), Value())
          .getResult();
  stages.q = reduce(step.reduceQ, q);
}

void GroupBuilder::reconstruct(GroupInStages &stages) {
  const Group &group = stages.group;
  Value q = scale(step.scaleQ, stages.q);
  qParts.push_back(q);
  llvm::append_range(qOrder, group.matrices);

  SmallVector<Type> outTypes(matrix ? 2 : 1, gradient.getType());
  auto rebuilt = ReconstructOp::create(
      builder, loc, outTypes, stages.p, q, stages.members,
      builder.getDenseI64ArrayAttr(group.others), stages.rest, matrix, gradient,
      step.reconstruct.getGroupAttr(), MatrixListAttr(), ValueRange());
  gradient = rebuilt.getValues().front();
  if (matrix)
    matrix = rebuilt.getValues().back();
}

void GroupBuilder::finish() {
  Value oldQ = step.scaleQ ? step.scaleQ.getResult() : step.reduceQ.getResult();
  Value q = ConcatOp::create(builder, loc, oldQ.getType(), qParts,
                             builder.getDenseI64ArrayAttr(qOrder));
  oldQ.replaceUsesWithIf(
      q, [&](OpOperand &use) { return use.getOwner() != step.reconstruct; });
  step.reconstruct.getValues().front().replaceAllUsesWith(gradient);
  if (matrix)
    step.reconstruct.getValues().back().replaceAllUsesWith(matrix);
  // From the end to the start: each is used by those before it only.
  for (Operation *op : std::initializer_list<Operation *>{
           step.reconstruct, step.scaleQ, step.reduceQ, step.matmul,
           step.orthogonalize, step.scaleRest, step.extractRest, step.extractP,
           step.reduceRest, step.reduceP, step.project})
    if (op)
      op->erase();
}

/// Builds all groups. With a distance of d, a group is that many groups behind
/// the one before it in each stage.
static void buildGroups(LowRankStep step, ArrayRef<Group> groups,
                        unsigned distance) {
  GroupBuilder builder(step);
  SmallVector<GroupInStages> stages;
  for (const Group &group : groups)
    stages.emplace_back(group);
  size_t lag = distance;
  for (size_t turn = 0; turn < stages.size() + 2 * lag; ++turn) {
    if (turn < stages.size())
      builder.project(stages[turn]);
    if (turn >= lag && turn - lag < stages.size())
      builder.multiply(stages[turn - lag]);
    if (turn >= 2 * lag && turn - 2 * lag < stages.size())
      builder.reconstruct(stages[turn - 2 * lag]);
  }
  builder.finish();
}

namespace {
struct GroupMatricesPass
    : public ddp::impl::DDPGroupMatricesPassBase<GroupMatricesPass> {
  using DDPGroupMatricesPassBase::DDPGroupMatricesPassBase;

  void runOnOperation() override {
    if (groupMb <= 0)
      return;
    SmallVector<ProjectOp> projects;
    getOperation()->walk([&](ProjectOp op) {
      if (isa<BucketType>(op.getInput().getType()))
        projects.push_back(op);
    });
    auto limit = static_cast<int64_t>(groupMb * 1024 * 1024);
    for (ProjectOp project : projects) {
      SmallVector<Group> groups = makeGroups(project, limit);
      if (groups.size() < 2)
        continue;
      std::optional<LowRankStep> step = matchStep(project);
      if (!step) {
        remark::missed(
            project.getLoc(),
            remark::RemarkOpts::name("Group").category("ddp-group-matrices"))
            << "not a step that can be taken apart";
        continue;
      }
      buildGroups(*step, groups, distance);
    }
  }
};
} // namespace
