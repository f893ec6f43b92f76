// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The expansion of both PowerSGD hooks, given the members that they compress.

#pragma once

#include "HookState.h"

namespace mlir::ddp {

using BucketValue = TypedValue<BucketType>;

/// The parameters, which both hooks have.
using PowerSGDParameters = PowerSGDHookAttr::Parameters;

/// The members of a bucket that are compressed, and their factors.
struct PowerSGDCompression {
  /// Grouped by the shape of the matrix, in the order in which shapes first
  /// occur: PyTorch's order of the factors in memory and of random draws.
  SmallVector<int64_t> members;
  /// The other members, in order.
  SmallVector<int64_t> rest;
  BucketType p, q;
  /// Sizes of the random draws of the first Q.
  SmallVector<int64_t> draws;

  /// Returns what an iteration sends for `bucket`. `sizeOf` returns the size of
  /// a number of elements.
  int64_t getSent(BucketType bucket, bool sendsP, bool sendsQ,
                  function_ref<int64_t(int64_t)> sizeOf) const {
    return sizeOf(getSubBucket(bucket, rest).getNumElements()) +
           (sendsP ? sizeOf(p.getNumElements()) : 0) +
           (sendsQ ? sizeOf(q.getNumElements()) : 0);
  }
};

/// Adjacent members of a bucket that go through all stages together.
struct PowerSGDGroup {
  /// A bucket of these members, and how it is compressed.
  BucketType bucket;
  PowerSGDCompression compression;
  /// Their factors, as members of the whole bucket's factors.
  SmallVector<int64_t> factors;
  /// The first of them in the whole bucket.
  int64_t firstMember = 0;
};

/// Builds the operations of one bucket.
class PowerSGDExpansion {
public:
  PowerSGDExpansion(OpBuilder &builder, const BucketReduction &reduction,
                    const PowerSGDParameters &parameters,
                    PowerSGDCompression compression, BucketType bucket,
                    SmallVector<int64_t> gradients)
      : builder(builder), loc(reduction.loc), reduction(reduction),
        parameters(parameters), compression(std::move(compression)),
        states(builder, reduction), bucketType(bucket),
        gradients(std::move(gradients)) {}

  /// Assigns, over a hierarchical group, the matrices of a node's mean to its
  /// ranks, which compress them. Without an assignment each rank compresses its
  /// own gradient. Call this before anything is declared.
  LogicalResult assignMatrices();
  /// Reports, for a hierarchical group, why matrices are not assigned.
  void remarkNoAssignment(StringRef why);

  /// Declares the states that the rest uses; `error` is the type of the error.
  LogicalResult declareStates(BucketType error);

  /// Returns the reduced bucket: the result of `compressedBody` in compressed
  /// iterations, otherwise an uncompressed all-reduce.
  Value run(BucketValue bucket,
            function_ref<Value(BucketValue)> compressedBody);

  /// Builds a compressed iteration. Returns the sum or mean of all ranks'
  /// gradients and errors in low-rank approximation.
  Value compress(BucketValue gradient);

private:
  /// The factors that an iteration computes and reduces. If it is one, the
  /// other one is that of an earlier iteration, orthogonalized.
  enum class Turn { Both, P, Q };

  template <typename OpT, typename... Args>
  BucketValue create(Args &&...args) {
    auto op = OpT::create(builder, loc, std::forward<Args>(args)...);
    return cast<BucketValue>(Value(op->getResult(0)));
  }
  BucketValue view(BucketValue value, BucketType type) {
    return value.getType() == type ? value : create<ResizeOp>(type, value);
  }
  BucketValue load(StateOp state, BucketType type) {
    auto value = create<LoadOp>(cast<BucketType>(state.getType()),
                                FlatSymbolRefAttr::get(state.getSymNameAttr()));
    return view(value, type);
  }
  void store(BucketValue value, StateOp state) {
    StoreOp::create(builder, loc,
                    view(value, cast<BucketType>(state.getType())),
                    FlatSymbolRefAttr::get(state.getSymNameAttr()));
  }
  BucketValue orthogonalize(BucketValue factor) {
    auto unitIf = [&](bool flag) {
      return flag ? builder.getUnitAttr() : UnitAttr();
    };
    // An epsilon makes columns shorter than 1, so that projections on them
    // leave a part that is no rounding error.
    double epsilon = parameters.independent_columns
                         ? 0
                         : parameters.orthogonalization_epsilon;
    return create<OrthogonalizeOp>(factor, builder.getF64FloatAttr(epsilon),
                                   unitIf(parameters.keep_zero_columns),
                                   unitIf(parameters.independent_columns));
  }
  /// Multiplies matrices, and records their assignment, if any.
  BucketValue matmul(BucketType type, BucketValue lhs, BucketValue rhs,
                     bool transposeLhs, bool transposeRhs,
                     AssignmentAttr assignment) {
    auto product = create<MatmulOp>(type, lhs, rhs, transposeLhs, transposeRhs,
                                    DenseI64ArrayAttr());
    setAssignment(product.getDefiningOp(), assignment);
    return product;
  }
  BucketValue reduce(BucketValue value, Reduction kind) {
    BucketReduction asKind = reduction;
    asKind.kind = kind;
    return cast<BucketValue>(
        buildFinalAllReduce(builder, asKind, value, parameters.wire_type));
  }
  /// Sums parts over their compressors, and records their assignment.
  BucketValue sum(BucketValue value, AssignmentAttr assignment) {
    BucketValue reduced = reduce(value, Reduction::Sum);
    setAssignment(reduced.getDefiningOp(), assignment);
    return reduced;
  }
  /// Returns what other ranks receive of a value that this rank sends, without
  /// the rounding to 16 bits. A hierarchical group encodes sums of nodes.
  BucketValue decodeSent(BucketValue value) {
    auto encoding = dyn_cast_if_present<EncodedType>(parameters.wire_type);
    if (!encoding || reduction.isHierarchical)
      return value;
    return create<SubOp>(value,
                         create<EncodingErrorOp>(value, TypeAttr::get(encoding),
                                                 Value(), FlatSymbolRefAttr()));
  }
  BucketValue divideByWorld(BucketValue value) {
    return create<ScaleOp>(value, FloatAttr(), getCompressors());
  }
  /// Returns the group of the ranks that compress the same matrix.
  FlatSymbolRefAttr getCompressors() const {
    return acrossNodes ? acrossNodes : reduction.group;
  }
  AssignmentAttr getAssignment(const PowerSGDGroup &group,
                               ArrayRef<int64_t> members,
                               BucketType parts) const;
  LogicalResult declareLevel(FlatSymbolRefAttr &level, Placement placement,
                             StringRef suffix);
  BucketValue reduceWithinNode(const PowerSGDGroup &group,
                               BucketValue gradient);
  /// Turns a sum into the reduction's result.
  BucketValue finish(BucketValue value) {
    return reduction.kind == Reduction::Mean ? divideByWorld(value) : value;
  }
  /// The results of a compressed iteration for one group: its part of the
  /// output, the new error, and the last values that are reduced. Null if there
  /// are none.
  struct Step {
    BucketValue out, error, factor, rest;
    /// The state's new contents of `factor`, by runs of the bucket's factors.
    SmallVector<Value> newFactor;
  };
  Value choose(Value condition, Type type, function_ref<Value()> thenValue,
               function_ref<Value()> elseValue);
  BucketValue getLastFactor(Turn turn);
  std::vector<PowerSGDGroup> makeGroups(BucketType type);
  Value compress(BucketValue gradient, Turn turn);
  Step compress(const PowerSGDGroup &group, BucketValue gradient,
                BucketValue lastError, BucketValue basis, Turn turn);
  BucketValue assemble(const PowerSGDGroup &group, BucketValue p, BucketValue q,
                       BucketValue rest);
  SmallVector<BucketValue> split(BucketValue bucket,
                                 ArrayRef<PowerSGDGroup> groups);
  BucketValue join(BucketType type, ArrayRef<Value> parts);
  static bool areAdjacent(ArrayRef<PowerSGDGroup> groups);
  SmallVector<BucketValue> makeBases(BucketValue factors,
                                     ArrayRef<PowerSGDGroup> groups,
                                     bool areOrthonormal);
  SmallVector<Value> makeNewFactor(const PowerSGDGroup &group,
                                   BucketValue reduced, BucketValue &finished);
  BucketValue joinNewFactor(BucketType type, ArrayRef<Step> steps,
                            ArrayRef<PowerSGDGroup> groups);
  void countElements(BucketType type, Turn turn);
  void updateStates(ArrayRef<Step> steps,
                    ArrayRef<std::pair<BucketValue, StateOp>> values);

  OpBuilder &builder;
  Location loc;
  const BucketReduction &reduction;
  PowerSGDParameters parameters;
  PowerSGDCompression compression;
  HookState states;
  Value iteration;
  StateOp generator, error, p, q, nonFinite;
  /// If matrices are assigned to ranks: the ranks of a node, and those with one
  /// position on all nodes. Otherwise null.
  FlatSymbolRefAttr withinNode, acrossNodes;
  /// The first member of each group of the bucket.
  SmallVector<int64_t> groupBegins;
  /// The type of the gradient's bucket, without padding.
  BucketType bucketType;
  /// For each member of the bucket, the gradient that it is a matrix of. The
  /// matrices of one gradient are adjacent.
  SmallVector<int64_t> gradients;
};

} // namespace mlir::ddp
