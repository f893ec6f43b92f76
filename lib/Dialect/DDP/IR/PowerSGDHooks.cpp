//===- PowerSGDHooks.cpp ---------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// #ddp.powersgd and #ddp.batched_powersgd: Vogels, Karimireddy and Jaggi,
// "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
// Optimization" (NeurIPS 2019), step by step as PyTorch's hooks do it.
//
//===----------------------------------------------------------------------===//

#include "HookState.h"
#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/MapVector.h"
#include <cmath>

using namespace mlir;
using namespace mlir::ddp;

using BucketValue = TypedValue<BucketType>;

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

namespace {
/// The parameters that both hooks have.
struct Parameters {
  int64_t rank, startIteration;
  double epsilon;
  bool useErrorFeedback, warmStart;
  int64_t seed, loggingFrequency;
  bool localErrorFeedback, keepZeroColumns, skipNonFinite;
  Type wireType; // may be null
};
} // namespace

template <typename HookT>
static Parameters getParameters(HookT hook, double epsilon) {
  return {hook.getMatrixApproximationRank(),
          hook.getStartPowerSGDIter(),
          epsilon,
          hook.getUseErrorFeedback(),
          hook.getWarmStart(),
          hook.getRandomSeed(),
          std::max<int64_t>(1, hook.getCompressionStatsLoggingFrequency()),
          hook.getLocalErrorFeedback(),
          hook.getKeepZeroColumns(),
          hook.getSkipNonfinite(),
          hook.getWireType()};
}

static LogicalResult
verifyParameters(function_ref<InFlightDiagnostic()> emitError, int64_t rank,
                 int64_t startIteration, FloatAttr minCompressionRate,
                 bool useErrorFeedback, bool warmStart, FloatAttr epsilon,
                 int64_t seed, bool localErrorFeedback, Type wireType) {
  if (rank < 1) // C1
    return emitError() << "expected a matrix_approximation_rank of at least 1, "
                       << "but got " << rank;
  double rate = minCompressionRate.getValueAsDouble();
  if (!std::isfinite(rate) || rate <= 0) // C2
    return emitError() << "expected a min_compression_rate above 0, but got "
                       << minCompressionRate;
  if ((useErrorFeedback || warmStart) && startIteration < 2) // C3
    return emitError() << "expected a start_powerSGD_iter of at least 2 with "
                       << "use_error_feedback or warm_start, but got "
                       << startIteration;
  double value = epsilon.getValueAsDouble();
  if (!std::isfinite(value) || value < 0) // C4
    return emitError() << "expected an orthogonalization_epsilon of at least "
                       << "0, but got " << epsilon;
  if (seed < 0 || seed > UINT32_MAX) // C5
    return emitError() << "expected a random_seed from 0 to " << UINT32_MAX
                       << ", but got " << seed;
  if (wireType && !isa<Float16Type, BFloat16Type>(wireType)) // C6
    return emitError() << "expected a wire_type of f16 or bf16, but got "
                       << wireType;
  if (localErrorFeedback && !useErrorFeedback) // C7
    return emitError() << "expected local_error_feedback only with "
                       << "use_error_feedback";
  return success();
}

LogicalResult
PowerSGDHookAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                         int64_t rank, int64_t startIteration, FloatAttr rate,
                         bool useErrorFeedback, bool warmStart,
                         FloatAttr epsilon, int64_t seed, int64_t, bool,
                         bool localErrorFeedback, bool, bool, Type wireType) {
  return verifyParameters(emitError, rank, startIteration, rate,
                          useErrorFeedback, warmStart, epsilon, seed,
                          localErrorFeedback, wireType);
}

LogicalResult BatchedPowerSGDHookAttr::verify(
    function_ref<InFlightDiagnostic()> emitError, int64_t rank,
    int64_t startIteration, FloatAttr rate, bool useErrorFeedback,
    bool warmStart, FloatAttr epsilon, int64_t seed, int64_t, bool,
    bool localErrorFeedback, bool, bool, Type wireType) {
  return verifyParameters(emitError, rank, startIteration, rate,
                          useErrorFeedback, warmStart, epsilon, seed,
                          localErrorFeedback, wireType);
}

//===----------------------------------------------------------------------===//
// What is compressed
//===----------------------------------------------------------------------===//

namespace {
/// Which members of a bucket are compressed, and what to.
struct Compression {
  /// Grouped by the shape of the matrix, in the order in which shapes are first
  /// seen: PyTorch's order of the factors in memory and of random draws.
  SmallVector<int64_t> members;
  /// The others, in order.
  SmallVector<int64_t> rest;
  BucketType p, q;
  /// Sizes of the random draws that make the first Q.
  SmallVector<int64_t> draws;
};
} // namespace

static DenseI64ArrayAttr getShape(MLIRContext *context, int64_t rows,
                                  int64_t columns) {
  return DenseI64ArrayAttr::get(context, {rows, columns});
}

static Compression getCompression(PowerSGDHookAttr hook, BucketType bucket) {
  double minRate = hook.getMinCompressionRate().getValueAsDouble();
  llvm::MapVector<std::pair<int64_t, int64_t>, SmallVector<int64_t>> byShape;
  Compression result;
  for (int64_t member = 0; member < bucket.getNumMembers(); ++member) {
    auto [rows, columns] = bucket.getMatrixShape(member);
    int64_t rank = std::min({rows, columns, hook.getMatrixApproximationRank()});
    double compressed = static_cast<double>((rows + columns) * rank);
    // PyTorch cannot view a 0-D tensor as a matrix; here it is not compressed.
    if (!bucket.getShape(member).empty() &&
        compressed * minRate < static_cast<double>(rows * columns))
      byShape[{rows, columns}].push_back(member);
    else
      result.rest.push_back(member);
  }
  MLIRContext *context = bucket.getContext();
  SmallVector<DenseI64ArrayAttr> pShapes, qShapes;
  for (auto &[shape, members] : byShape) {
    auto [rows, columns] = shape;
    int64_t rank = std::min({rows, columns, hook.getMatrixApproximationRank()});
    llvm::append_range(result.members, members);
    pShapes.append(members.size(), getShape(context, rows, rank));
    qShapes.append(members.size(), getShape(context, columns, rank));
    int64_t count = members.size(), size = columns * rank;
    if (hook.getBatchTensorsWithSameShape())
      result.draws.push_back(count * size);
    else
      result.draws.append(count, size);
  }
  Type type = bucket.getElementType();
  result.p = BucketType::get(context, type, pShapes);
  result.q = BucketType::get(context, type, qShapes);
  return result;
}

/// The side of the smallest square that holds a bucket.
static int64_t getSide(BucketType bucket) {
  int64_t elements = bucket.getNumElements();
  int64_t side = static_cast<int64_t>(std::sqrt(static_cast<double>(elements)));
  while (side * side < elements)
    ++side;
  while (side > 0 && (side - 1) * (side - 1) >= elements)
    --side;
  return side;
}

/// A bucket of one square matrix.
static BucketType getSquare(BucketType bucket) {
  int64_t side = getSide(bucket);
  return BucketType::get(bucket.getContext(), bucket.getElementType(),
                         {getShape(bucket.getContext(), side, side)});
}

static Compression getCompression(BatchedPowerSGDHookAttr hook,
                                  BucketType bucket) {
  int64_t side = getSide(bucket), rank = hook.getMatrixApproximationRank();
  DenseI64ArrayAttr shape = getShape(bucket.getContext(), side, rank);
  auto factor =
      BucketType::get(bucket.getContext(), bucket.getElementType(), {shape});
  return {{0}, {}, factor, factor, {side * rank}};
}

//===----------------------------------------------------------------------===//
// Expansion
//===----------------------------------------------------------------------===//

namespace {
/// Builds the operations of one bucket.
class Expansion {
public:
  Expansion(OpBuilder &builder, const BucketReduction &reduction,
            const Parameters &parameters, Compression compression,
            BucketType bucket)
      : builder(builder), loc(reduction.loc), reduction(reduction),
        parameters(parameters), compression(std::move(compression)),
        states(builder, reduction),
        uncompressedElements(bucket.getNumElements()) {}

  /// Declares the states that the rest uses; `error` is the type of the error.
  LogicalResult declareStates(BucketType error);

  /// The reduced bucket: all-reduced as it is before the first compressed
  /// iteration, `compress` of it afterwards.
  Value run(BucketValue bucket,
            function_ref<Value(BucketValue)> compressedBody);

  /// What a compressed iteration makes of the gradient: the sum or mean of all
  /// ranks' gradients and errors, in low-rank approximation.
  Value compress(BucketValue gradient);

private:
  template <typename OpT, typename... Args>
  BucketValue create(Args &&...args) {
    auto op = OpT::create(builder, loc, std::forward<Args>(args)...);
    return cast<BucketValue>(Value(op->getResult(0)));
  }
  BucketValue load(StateOp state) {
    return create<LoadOp>(cast<BucketType>(state.getType()),
                          FlatSymbolRefAttr::get(state.getSymNameAttr()));
  }
  void store(Value value, StateOp state) {
    StoreOp::create(builder, loc, value,
                    FlatSymbolRefAttr::get(state.getSymNameAttr()));
  }
  BucketValue orthogonalize(BucketValue factor) {
    return create<OrthogonalizeOp>(
        factor, builder.getF64FloatAttr(parameters.epsilon),
        parameters.keepZeroColumns ? builder.getUnitAttr() : UnitAttr(),
        MatrixListAttr(), Value());
  }
  BucketValue matmul(BucketType type, BucketValue lhs, BucketValue rhs,
                     bool transposeLhs, bool transposeRhs) {
    return create<MatmulOp>(type, lhs, rhs, transposeLhs, transposeRhs,
                            DenseI64ArrayAttr(), MatrixListAttr(), Value());
  }
  BucketValue reduce(BucketValue value, Reduction kind) {
    BucketReduction asKind = reduction;
    asKind.kind = kind;
    Value reduced = buildFinalAllReduce(builder, asKind, value);
    if (parameters.wireType)
      reduced.getDefiningOp<AllReduceOp>().setWire(parameters.wireType);
    return cast<BucketValue>(reduced);
  }
  BucketValue sum(BucketValue value) { return reduce(value, Reduction::Sum); }
  BucketValue divideByWorld(BucketValue value) {
    return create<ScaleOp>(value.getType(), value, FloatAttr(), reduction.group,
                           Value());
  }
  /// A sum as the reduction wants it.
  BucketValue finish(BucketValue value) {
    return reduction.kind == Reduction::Mean ? divideByWorld(value) : value;
  }
  BucketValue drawQ();
  BucketValue assemble(BucketType type, BucketValue p, BucketValue q,
                       BucketValue rest);
  void countElements(BucketType type);
  void updateStates(BucketValue newQ, BucketValue rest, BucketValue newError);

  OpBuilder &builder;
  Location loc;
  const BucketReduction &reduction;
  Parameters parameters;
  Compression compression;
  HookState states;
  Value iteration;
  StateOp generator, error, q, nonFinite;
  /// Elements of the gradient, without what fills it up.
  int64_t uncompressedElements;
};
} // namespace

LogicalResult Expansion::declareStates(BucketType errorType) {
  FailureOr<Value> counter = states.getIteration("powersgd.iter");
  if (failed(counter))
    return failure();
  iteration = *counter;
  FailureOr<StateOp> found =
      states.getGenerator("powersgd.generator", parameters.seed);
  if (failed(found))
    return failure();
  generator = *found;
  StringRef bucket = reduction.bucketName.getValue();
  if (parameters.useErrorFeedback) {
    found = states.createZero((bucket + ".error").str(), errorType,
                              StatePlacement::PerRank);
    if (failed(found))
      return failure();
    error = *found;
  }
  if (parameters.warmStart) {
    found = states.createNormal((bucket + ".q").str(), compression.q, generator,
                                compression.draws);
    if (failed(found))
      return failure();
    q = *found;
  }
  if (parameters.skipNonFinite) {
    found = states.getCounter("powersgd.nonfinite");
    if (failed(found))
      return failure();
    nonFinite = *found;
  }
  return success();
}

Value Expansion::run(BucketValue bucket,
                     function_ref<Value(BucketValue)> compressedBody) {
  // Without a vanilla phase there is nothing to choose.
  if (parameters.startIteration <= 0)
    return compressedBody(bucket);
  Value start = arith::ConstantOp::create(
      builder, loc, builder.getI64IntegerAttr(parameters.startIteration));
  Value isVanilla = arith::CmpIOp::create(
      builder, loc, arith::CmpIPredicate::slt, iteration, start);
  auto choice = scf::IfOp::create(builder, loc, TypeRange(bucket.getType()),
                                  isVanilla, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(choice.thenBlock());
  scf::YieldOp::create(builder, loc, Value(reduce(bucket, reduction.kind)));
  builder.setInsertionPointToStart(choice.elseBlock());
  Value compressed = compressedBody(bucket);
  scf::YieldOp::create(builder, loc, compressed);
  return choice.getResult(0);
}

/// The Q of this iteration: the last one's, or without warm start a new one.
BucketValue Expansion::drawQ() {
  if (parameters.warmStart)
    return load(q);
  return create<RandomNormalOp>(
      compression.q, FlatSymbolRefAttr::get(generator.getSymNameAttr()),
      builder.getDenseI64ArrayAttr(compression.draws), Value());
}

Value Expansion::compress(BucketValue gradient) {
  BucketType type = gradient.getType();
  countElements(type);
  BucketValue matrix = gradient;
  if (parameters.useErrorFeedback)
    matrix = create<AddOp>(gradient, load(error), Value());
  // Also where nothing is compressed: the generator goes on as PyTorch's does.
  BucketValue lastQ = drawQ();
  ArrayRef<int64_t> members = compression.members;

  // Everything that is reduced, and this rank's share of the low-rank part.
  BucketValue projected, p, ownQ, newQ, ownRest, rest;
  if (!members.empty()) {
    BucketValue basis = orthogonalize(lastQ);
    BucketValue matrices = create<ExtractOp>(matrix, members);
    projected = matmul(compression.p, matrices, basis, false, false);
    if (!compression.rest.empty())
      ownRest = create<ExtractOp>(matrix, compression.rest);
    BucketValue sumP = sum(projected);
    if (ownRest)
      rest = finish(sum(ownRest));
    p = orthogonalize(sumP);
    ownQ = matmul(compression.q, matrices, p, true, false);
    newQ = finish(sum(ownQ));
  } else {
    ownRest = create<ExtractOp>(matrix, compression.rest);
    rest = finish(sum(ownRest));
  }
  BucketValue out = assemble(type, p, newQ, rest);

  BucketValue newError;
  if (parameters.useErrorFeedback) {
    BucketValue kept = out;
    if (parameters.localErrorFeedback)
      kept = assemble(type, p, ownQ, ownRest);
    else if (reduction.kind == Reduction::Sum)
      kept = divideByWorld(out);
    newError = create<SubOp>(matrix, kept, Value());
  }
  updateStates(newQ, rest, newError);
  return out;
}

/// A bucket of products P·Qᵀ and of what is not compressed.
BucketValue Expansion::assemble(BucketType type, BucketValue p, BucketValue q,
                                BucketValue rest) {
  SmallVector<Value> parts;
  if (p)
    parts.push_back(
        matmul(getSubBucket(type, compression.members), p, q, false, true));
  if (rest)
    parts.push_back(rest);
  SmallVector<int64_t> order = compression.members;
  llvm::append_range(order, compression.rest);
  return create<ConcatOp>(type, parts, builder.getDenseI64ArrayAttr(order));
}

void Expansion::countElements(BucketType type) {
  CountCompressionOp::create(
      builder, loc, reduction.bucketName,
      builder.getI64IntegerAttr(uncompressedElements),
      builder.getI64IntegerAttr(
          compression.p.getNumElements() + compression.q.getNumElements() +
          getSubBucket(type, compression.rest).getNumElements()),
      iteration, builder.getI64IntegerAttr(parameters.loggingFrequency));
}

/// Stores Q and the error: always, or where all that was reduced is finite.
/// Reduced values are the same on all ranks, and so is that choice.
void Expansion::updateStates(BucketValue newQ, BucketValue rest,
                             BucketValue newError) {
  auto storeAll = [&] {
    if (newQ && parameters.warmStart)
      store(newQ, q);
    if (newError)
      store(newError, error);
  };
  if (!parameters.skipNonFinite)
    return storeAll();
  // Q depends on all of P: it is not finite where P was not.
  Value isFinite;
  for (BucketValue value : {newQ, rest}) {
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
  Value one =
      arith::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(1));
  StoreOp::create(builder, loc, arith::AddIOp::create(builder, loc, count, one),
                  symbol);
}

//===----------------------------------------------------------------------===//
// The hooks
//===----------------------------------------------------------------------===//

LogicalResult
PowerSGDHookAttr::verifyBucket(BucketType,
                               function_ref<InFlightDiagnostic()>) const {
  return success();
}

FailureOr<Value> PowerSGDHookAttr::expand(OpBuilder &builder,
                                          const BucketReduction &reduction,
                                          BucketValue bucket) const {
  Parameters parameters =
      getParameters(*this, getOrthogonalizationEpsilon().getValueAsDouble());
  Expansion expansion(builder, reduction, parameters,
                      getCompression(*this, bucket.getType()),
                      bucket.getType());
  if (failed(expansion.declareStates(bucket.getType())))
    return failure();
  return expansion.run(bucket, [&](BucketValue gradient) {
    return expansion.compress(gradient);
  });
}

/// Elements that are sent in a compressed step.
static int64_t getSentElements(const Compression &compression,
                               BucketType bucket) {
  return compression.p.getNumElements() + compression.q.getNumElements() +
         getSubBucket(bucket, compression.rest).getNumElements();
}

static int64_t getStateBytesOf(const Compression &compression,
                               BucketType errorType, bool useErrorFeedback,
                               bool warmStart) {
  return (useErrorFeedback ? errorType.getNumBytes() : 0) +
         (warmStart ? compression.q.getNumBytes() : 0);
}

/// The type that collectives travel in.
static Type getWireTypeOf(Type wireType, BucketType bucket) {
  return wireType ? wireType : bucket.getElementType();
}

Type PowerSGDHookAttr::getWireType(BucketType bucket) const {
  return getWireTypeOf(getWireType(), bucket);
}

int64_t PowerSGDHookAttr::getWireBytes(BucketType bucket) const {
  return getSentElements(getCompression(*this, bucket), bucket) *
         bucket.cloneWith(getWireType(bucket)).getElementBytes();
}

int64_t PowerSGDHookAttr::getStateBytes(BucketType bucket) const {
  return getStateBytesOf(getCompression(*this, bucket), bucket,
                         getUseErrorFeedback(), getWarmStart());
}

double PowerSGDHookAttr::getLocalPasses(BucketType) const {
  // Read the gradient (and add the error: read, write), read for Q, then write
  // the result (and read M, write the error).
  return getUseErrorFeedback() ? 7 : 3;
}

LogicalResult BatchedPowerSGDHookAttr::verifyBucket(
    BucketType bucket, function_ref<InFlightDiagnostic()> emitError) const {
  int64_t side = getSide(bucket);
  if (bucket.getNumElements() == 0 || getMatrixApproximationRank() <= side)
    return success();
  return emitError() << "expected a matrix_approximation_rank of at most "
                     << side << ", the side of a square of "
                     << bucket.getNumElements() << " elements, but got "
                     << getMatrixApproximationRank();
}

FailureOr<Value>
BatchedPowerSGDHookAttr::expand(OpBuilder &builder,
                                const BucketReduction &reduction,
                                BucketValue bucket) const {
  // A square of nothing: there is nothing to reduce.
  if (bucket.getType().getNumElements() == 0)
    return buildFinalAllReduce(builder, reduction, bucket);
  BucketType type = bucket.getType(), square = getSquare(type);
  // PyTorch gives its epsilon to the other hook only.
  Parameters parameters = getParameters(*this, /*epsilon=*/0.0);
  Expansion expansion(builder, reduction, parameters,
                      getCompression(*this, type), type);
  if (failed(expansion.declareStates(square)))
    return failure();
  return expansion.run(bucket, [&](BucketValue gradient) -> Value {
    Value padded = ResizeOp::create(builder, reduction.loc, square, gradient);
    Value out = expansion.compress(cast<BucketValue>(padded));
    return ResizeOp::create(builder, reduction.loc, type, out);
  });
}

Type BatchedPowerSGDHookAttr::getWireType(BucketType bucket) const {
  return getWireTypeOf(getWireType(), bucket);
}

int64_t BatchedPowerSGDHookAttr::getWireBytes(BucketType bucket) const {
  return getSentElements(getCompression(*this, bucket), bucket) *
         bucket.cloneWith(getWireType(bucket)).getElementBytes();
}

int64_t BatchedPowerSGDHookAttr::getStateBytes(BucketType bucket) const {
  return getStateBytesOf(getCompression(*this, bucket), getSquare(bucket),
                         getUseErrorFeedback(), getWarmStart());
}

double BatchedPowerSGDHookAttr::getLocalPasses(BucketType) const {
  return getUseErrorFeedback() ? 11 : 7; // and there and back into the square
}
