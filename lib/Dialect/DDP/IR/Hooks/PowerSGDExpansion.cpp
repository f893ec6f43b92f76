// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// PowerSGD as operations of the dialect: Vogels, Karimireddy and Jaggi,
// "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
// Optimization" (NeurIPS 2019), step by step as PyTorch's hooks do it.

#include "PowerSGDExpansion.h"
#include "../LowRankLayout.h"
#include "ddphook/Dialect/DDP/IR/Remarks.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns the type of the state of `factors`, with one member for each
/// compressed gradient, and the numbers of these gradients.
static std::pair<BucketType, SmallVector<SmallVector<int64_t>>>
getFactorState(BucketType factors, ArrayRef<int64_t> members,
               ArrayRef<int64_t> gradients) {
  SmallVector<SmallVector<int64_t>> lists;
  SmallVector<DenseI64ArrayAttr> shapes;
  for (auto [factor, member] : llvm::enumerate(members)) {
    auto [rows, rank] = factors.getMatrixShape(factor);
    SmallVector<int64_t> list = {gradients[member]};
    // The matrices of one gradient are adjacent and have the same shape.
    if (!lists.empty() && lists.back() == list) {
      rows += shapes.back()[0];
      shapes.pop_back();
    } else {
      lists.push_back(list);
    }
    shapes.push_back(
        DenseI64ArrayAttr::get(factors.getContext(), {rows, rank}));
  }
  return {
      BucketType::get(factors.getContext(), factors.getElementType(), shapes),
      lists};
}

/// Sets `state` to the state that was declared, if any.
static LogicalResult keep(StateOp &state, FailureOr<StateOp> declared) {
  if (succeeded(declared))
    state = *declared;
  return declared;
}

LogicalResult PowerSGDExpansion::declareStates(BucketType errorType) {
  FailureOr<Value> counter = states.getIteration("powersgd.iter");
  if (failed(counter) ||
      failed(keep(generator, states.getGenerator("powersgd.generator",
                                                 parameters.random_seed))))
    return failure();
  iteration = *counter;
  SmallVector<int64_t> all =
      llvm::to_vector(llvm::seq(gradients.empty() ? 0 : gradients.back() + 1));
  SmallVector<SmallVector<int64_t>> ofError;
  for (int64_t gradient : all)
    ofError.push_back({gradient});
  // The batched hook's square is one matrix of all gradients.
  const bool isOneMatrix = errorType.getNumMembers() != all.size();
  if (isOneMatrix)
    ofError = {all};
  if (parameters.use_error_feedback && acrossNodes) {
    // The members whose errors a rank keeps depend on the whole bucket.
    if (failed(keep(error, states.createZero(StateKind::ShareError,
                                             "powersgd.share_error", errorType,
                                             {all}))))
      return failure();
    if (groupBegins.size() > 1) {
      std::string method;
      llvm::raw_string_ostream os(method);
      llvm::interleaveComma(groupBegins, os << "assigned in groups [");
      error.setMethod(method += ']');
    }
  } else if (parameters.use_error_feedback &&
             failed(keep(error,
                         states.createZero(StateKind::Error, "powersgd.error",
                                           errorType, ofError)))) {
    return failure();
  }
  auto declareFactor = [&](StateOp &state, StringRef role, BucketType factors,
                           ArrayRef<int64_t> draws) {
    auto [type, members] =
        getFactorState(factors, compression.members, gradients);
    if (isOneMatrix) {
      type = factors;
      members = {all};
    }
    return keep(state,
                states.createNormal(role, type, generator, draws, members));
  };
  if (parameters.warm_start &&
      failed(declareFactor(q, "powersgd.q", compression.q, compression.draws)))
    return failure();
  if (parameters.alternate &&
      failed(declareFactor(p, "powersgd.p", compression.p,
                           {compression.p.getNumElements()})))
    return failure();
  if (!parameters.skip_nonfinite)
    return success();
  return keep(nonFinite, states.getCounter("powersgd.nonfinite"));
}

void PowerSGDExpansion::remarkNoAssignment(StringRef why) {
  if (reduction.isHierarchical)
    remark::missed(loc, remarkOf("Assignment", "ddp-expand-hooks"))
        << "each rank compresses its own gradient " + why.str();
}

LogicalResult PowerSGDExpansion::assignMatrices() {
  if (!reduction.isHierarchical || bucketType.getNumElements() == 0)
    return success();
  // With these options a rank feeds back, undoes or sends its own data.
  for (auto [isGiven, why] :
       {std::pair(parameters.local_error_feedback, "with local_error_feedback"),
        std::pair(parameters.skip_nonfinite, "with skip_nonfinite"),
        std::pair(parameters.alternate, "with alternate"),
        std::pair(bool(parameters.wire_type), "with a wire_type")})
    if (isGiven) {
      remarkNoAssignment(why);
      return success();
    }
  if (failed(declareLevel(withinNode, Placement::IntraNode, "node")) ||
      failed(declareLevel(acrossNodes, Placement::InterNode, "across")))
    return failure();
  for (const PowerSGDGroup &group : makeGroups(bucketType))
    groupBegins.push_back(group.firstMember);
  return success();
}

/// Sets `level` to a level of the hierarchical group. Reports an error if its
/// name is taken.
LogicalResult PowerSGDExpansion::declareLevel(FlatSymbolRefAttr &level,
                                              Placement placement,
                                              StringRef suffix) {
  level = states.getLevel(placement, suffix);
  if (level)
    return success();
  std::string name = (reduction.group.getValue() + "." + suffix).str();
  return (emitError(loc) << "expected the name @" << name
                         << " to be free for the ranks of @"
                         << reduction.group.getValue()
                         << (placement == Placement::IntraNode
                                 ? " on a node"
                                 : " at the same position on all nodes"))
             .attachNote(getModule(builder).lookupSymbol(name)->getLoc())
         << "the name is used here";
}

/// Returns the assignment of parts that belong to members of a group, or null
/// if nothing is assigned.
AssignmentAttr PowerSGDExpansion::getAssignment(const PowerSGDGroup &group,
                                                ArrayRef<int64_t> members,
                                                BucketType parts) const {
  if (!acrossNodes)
    return {};
  SmallVector<int64_t> ofBucket, counts;
  for (auto [part, member] : llvm::enumerate(members)) {
    ofBucket.push_back(group.firstMember + member);
    counts.push_back(parts.getNumElements(part));
  }
  return AssignmentAttr::get(builder.getContext(), reduction.bucketName,
                             groupBegins, ofBucket, counts);
}

/// Reduces a node's gradients for the ranks that they are assigned to. Does not
/// name the bucket, since only reductions between nodes count as sent for it.
BucketValue PowerSGDExpansion::reduceWithinNode(const PowerSGDGroup &group,
                                                BucketValue gradient) {
  BucketReduction ofNode = reduction;
  ofNode.group = withinNode;
  ofNode.bucketName = {};
  auto reduced =
      cast<BucketValue>(buildFinalAllReduce(builder, ofNode, gradient));
  setAssignment(
      reduced.getDefiningOp(),
      getAssignment(group, getAllMembers(group.bucket), group.bucket));
  return reduced;
}

Value PowerSGDExpansion::run(BucketValue bucket,
                             function_ref<Value(BucketValue)> compressedBody) {
  auto compareIteration = [&](arith::CmpIPredicate predicate, int64_t limit) {
    Value constant =
        arith::ConstantIntOp::create(builder, loc, limit, /*width=*/64);
    return Value(
        arith::CmpIOp::create(builder, loc, predicate, iteration, constant));
  };
  Value isVanilla;
  if (int64_t start = parameters.start_powerSGD_iter; start > 0)
    isVanilla = compareIteration(arith::CmpIPredicate::slt, start);
  if (int64_t stop = parameters.stop_powerSGD_iter; stop >= 0) {
    Value isLate = compareIteration(arith::CmpIPredicate::sge, stop);
    isVanilla =
        isVanilla ? Value(arith::OrIOp::create(builder, loc, isVanilla, isLate))
                  : isLate;
  }
  // Without a vanilla phase no branch is needed.
  if (!isVanilla)
    return compressedBody(bucket);
  return choose(
      isVanilla, bucket.getType(),
      [&] {
        // Nothing feeds back what an encoding would lose.
        if (isa_and_present<EncodedType>(parameters.wire_type))
          return buildFinalAllReduce(builder, reduction, bucket);
        return Value(reduce(bucket, reduction.kind));
      },
      [&] { return compressedBody(bucket); });
}

/// Builds a branch that returns one of two values.
Value PowerSGDExpansion::choose(Value condition, Type type,
                                function_ref<Value()> thenValue,
                                function_ref<Value()> elseValue) {
  auto choice = scf::IfOp::create(builder, loc, type, condition,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(choice.thenBlock());
  Value value = thenValue();
  scf::YieldOp::create(builder, loc, value);
  builder.setInsertionPointToStart(choice.elseBlock());
  value = elseValue();
  scf::YieldOp::create(builder, loc, value);
  return choice.getResult(0);
}

/// Returns the factor on which an iteration projects: the last one's, or a new
/// one without warm start.
BucketValue PowerSGDExpansion::getLastFactor(Turn turn) {
  if (turn == Turn::Q)
    return load(p, compression.p);
  if (parameters.warm_start)
    return load(q, compression.q);
  return create<RandomNormalOp>(
      compression.q, FlatSymbolRefAttr::get(generator.getSymNameAttr()),
      builder.getDenseI64ArrayAttr(compression.draws));
}

Value PowerSGDExpansion::compress(BucketValue gradient) {
  if (!parameters.alternate)
    return compress(gradient, Turn::Both);
  auto constant = [&](int64_t value) {
    return arith::ConstantIntOp::create(builder, loc, value, /*width=*/64);
  };
  Value parity = arith::RemSIOp::create(builder, loc, iteration, constant(2));
  Value isOdd = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne,
                                      parity, constant(0));
  return choose(
      isOdd, gradient.getType(), [&] { return compress(gradient, Turn::Q); },
      [&] { return compress(gradient, Turn::P); });
}

Value PowerSGDExpansion::compress(BucketValue gradient, Turn turn) {
  BucketType type = gradient.getType();
  countElements(type, turn);
  BucketValue lastError;
  if (parameters.use_error_feedback)
    lastError = load(error, type);
  // Even if nothing is compressed: the generator must advance as in PyTorch.
  BucketValue lastFactor = getLastFactor(turn);
  std::vector<PowerSGDGroup> groups = makeGroups(type);
  // Orthogonalize in one pass if all results are already in order.
  bool isOnePass = !compression.members.empty() && areAdjacent(groups);
  BucketValue factors = isOnePass ? orthogonalize(lastFactor) : lastFactor;
  SmallVector<BucketValue> gradients = split(gradient, groups),
                           errors = split(lastError, groups),
                           bases = makeBases(factors, groups, isOnePass);
  SmallVector<Step> steps;
  SmallVector<Value> outs, newErrors;
  for (auto [group, part, error, ownBasis] :
       llvm::zip(groups, gradients, errors, bases)) {
    Step step =
        steps.emplace_back(compress(group, part, error, ownBasis, turn));
    outs.push_back(step.out);
    newErrors.push_back(step.error);
  }
  const bool isP = turn == Turn::P;
  SmallVector<std::pair<BucketValue, StateOp>> values;
  if (parameters.warm_start)
    values.push_back(
        {joinNewFactor(isP ? compression.p : compression.q, steps, groups),
         isP ? p : q});
  // ddp-verify-order expects that a state is stored after it was loaded.
  if (turn != Turn::Both)
    values.push_back({factors, isP ? q : p});
  values.push_back({join(type, newErrors), error});
  BucketValue out = join(type, outs);
  updateStates(steps, values);
  return out;
}

PowerSGDExpansion::Step PowerSGDExpansion::compress(const PowerSGDGroup &group,
                                                    BucketValue gradient,
                                                    BucketValue lastError,
                                                    BucketValue basis,
                                                    Turn turn) {
  if (withinNode)
    gradient = reduceWithinNode(group, gradient);
  BucketValue matrix = gradient;
  if (lastError)
    matrix = create<AddOp>(gradient, lastError);

  // The factors that assemble the result, and this rank's own ones.
  ArrayRef<int64_t> members = group.compression.members,
                    restMembers = group.compression.rest;
  BucketValue p = basis, q = basis, ownP = basis, ownQ = basis;
  BucketValue matrices, reduced, ownRest, rest;
  SmallVector<Value> newFactor;
  AssignmentAttr assignment;
  auto makeQ = [&] {
    ownQ = matmul(group.compression.q, matrices, p, true, false, assignment);
    // Otherwise the matrices are those of a node's sum, not of this gradient.
    if (!acrossNodes)
      setCompressedBucket(ownQ.getDefiningOp(), reduction.bucketName);
  };
  if (!members.empty()) {
    matrices = create<ExtractOp>(matrix, members);
    assignment = getAssignment(group, members, matrices.getType());
    if (turn == Turn::Q)
      makeQ();
    else
      ownP = matmul(group.compression.p, matrices, basis, false, false,
                    assignment);
  }
  if (members.empty() || !restMembers.empty())
    ownRest = create<ExtractOp>(matrix, restMembers);
  auto sumFactor = [&](BucketValue own) {
    return sum(own, getAssignment(group, members, own.getType()));
  };
  if (!members.empty())
    reduced = sumFactor(turn == Turn::Q ? ownQ : ownP);
  if (ownRest)
    rest = finish(
        sum(ownRest, getAssignment(group, restMembers, ownRest.getType())));
  if (!members.empty()) {
    if (turn == Turn::Both) {
      ownP = p = orthogonalize(reduced);
      makeQ();
      reduced = sumFactor(ownQ);
    }
    newFactor = makeNewFactor(group, reduced, turn == Turn::P ? p : q);
  }
  BucketValue out = assemble(group, p, q, rest);

  BucketValue newError;
  if (lastError) {
    BucketValue kept = out;
    if (parameters.local_error_feedback) {
      if (BucketValue &sent = turn == Turn::P ? ownP : ownQ)
        sent = decodeSent(sent);
      kept =
          assemble(group, ownP, ownQ, ownRest ? decodeSent(ownRest) : ownRest);
    } else if (reduction.kind == Reduction::Sum) {
      kept = divideByWorld(out);
    }
    newError = create<SubOp>(matrix, kept);
  }
  return {out, newError, turn == Turn::P ? p : q, rest, newFactor};
}

/// Builds a bucket from products P·Qᵀ and the uncompressed members.
BucketValue PowerSGDExpansion::assemble(const PowerSGDGroup &group,
                                        BucketValue p, BucketValue q,
                                        BucketValue rest) {
  SmallVector<int64_t> order = group.compression.members;
  SmallVector<Value> parts;
  if (p) {
    BucketType matrices = getSubBucket(group.bucket, order);
    parts.push_back(matmul(matrices, p, q, false, true,
                           getAssignment(group, order, matrices)));
  }
  if (rest)
    parts.push_back(rest);
  llvm::append_range(order, group.compression.rest);
  return create<ConcatOp>(group.bucket, parts,
                          builder.getDenseI64ArrayAttr(order));
}

void PowerSGDExpansion::countElements(BucketType type, Turn turn) {
  int64_t frequency =
      std::max<int64_t>(1, parameters.compression_stats_logging_frequency);
  CountCompressionOp::create(
      builder, loc, reduction.bucketName,
      builder.getI64IntegerAttr(bucketType.getNumElements()),
      builder.getI64IntegerAttr(
          compression.getSent(type, turn != Turn::Q, turn != Turn::P,
                              [](int64_t count) { return count; })),
      iteration, builder.getI64IntegerAttr(frequency));
}

/// Stores values that are not null in their states, always or only if all
/// reduced values are finite. Those are equal on all ranks, so all choose
/// alike.
void PowerSGDExpansion::updateStates(
    ArrayRef<Step> steps, ArrayRef<std::pair<BucketValue, StateOp>> values) {
  auto storeAll = [&] {
    for (auto [value, state] : values)
      if (value)
        store(value, state);
  };
  if (!parameters.skip_nonfinite)
    return storeAll();
  // Q depends on all of P, so it is not finite if P was not.
  Value isFinite;
  for (const Step &step : steps)
    for (BucketValue value : {step.factor, step.rest}) {
      if (!value)
        continue;
      Value one = IsFiniteOp::create(builder, loc, builder.getI1Type(), value);
      isFinite = isFinite
                     ? Value(arith::AndIOp::create(builder, loc, isFinite, one))
                     : one;
    }
  auto choice = scf::IfOp::create(builder, loc, TypeRange(), isFinite,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(choice.thenBlock());
  storeAll();
  builder.setInsertionPointToStart(choice.elseBlock());
  auto symbol = FlatSymbolRefAttr::get(nonFinite.getSymNameAttr());
  Value count = LoadOp::create(builder, loc, builder.getI64Type(), symbol);
  Value one = arith::ConstantIntOp::create(builder, loc, 1, /*width=*/64);
  StoreOp::create(builder, loc, arith::AddIOp::create(builder, loc, count, one),
                  symbol);
}
