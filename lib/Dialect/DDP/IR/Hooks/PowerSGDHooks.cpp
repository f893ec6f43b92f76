// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// #ddp.powersgd and #ddp.batched_powersgd: their parameters, the members of a
// bucket that they compress, and their costs.

#include "../LowRankLayout.h"
#include "PowerSGDExpansion.h"
#include "ShortestNumber.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace mlir::ddp;

static LogicalResult
verifyParameters(function_ref<InFlightDiagnostic()> emitError,
                 const PowerSGDParameters &p) {
  if (p.matrix_approximation_rank < 1) // C1
    return emitError() << "expected a matrix_approximation_rank of at least 1, "
                       << "but got " << p.matrix_approximation_rank;
  if (!std::isfinite(p.min_compression_rate) ||
      p.min_compression_rate <= 0) // C2
    return emitError() << "expected a min_compression_rate above 0, but got "
                       << getShortestText(p.min_compression_rate);
  if ((p.use_error_feedback || p.warm_start) && p.start_powerSGD_iter < 2) // C3
    return emitError() << "expected a start_powerSGD_iter of at least 2 with "
                       << "use_error_feedback or warm_start, but got "
                       << p.start_powerSGD_iter;
  if (!std::isfinite(p.orthogonalization_epsilon) ||
      p.orthogonalization_epsilon < 0) // C4
    return emitError() << "expected an orthogonalization_epsilon of at least "
                       << "0, but got "
                       << getShortestText(p.orthogonalization_epsilon);
  if (p.random_seed < 0 || p.random_seed > UINT32_MAX) // C5
    return emitError() << "expected a random_seed from 0 to " << UINT32_MAX
                       << ", but got " << p.random_seed;
  auto encoding = dyn_cast_if_present<EncodedType>(p.wire_type);
  bool isScaled = encoding && encoding.getBlock() > 0 && !encoding.isAffine() &&
                  !encoding.isStochastic();
  if (p.wire_type && !isScaled &&
      !isa<Float16Type, BFloat16Type>(p.wire_type)) // C6
    return emitError() << "expected a wire_type of f16 or bf16, or an encoding "
                          "in blocks with a scale, rounded to nearest, but got "
                       << p.wire_type;
  if (p.local_error_feedback && !p.use_error_feedback) // C7
    return emitError() << "expected local_error_feedback only with "
                       << "use_error_feedback";
  if (p.alternate && !p.warm_start) // C9
    return emitError() << "expected alternate only with warm_start, since a "
                          "step needs the previous one's factor";
  return success();
}

LogicalResult
PowerSGDHookAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                         const Parameters &parameters) {
  return verifyParameters(emitError, parameters);
}

LogicalResult
BatchedPowerSGDHookAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                const Parameters &parameters) {
  if (parameters.matrix_view != MatrixView::First) // C8
    return emitError() << "expected a matrix_view of first, since the bucket "
                          "is one matrix";
  return verifyParameters(emitError, PowerSGDParameters::from(parameters));
}

static DenseI64ArrayAttr getShape(MLIRContext *context, int64_t rows,
                                  int64_t columns) {
  return DenseI64ArrayAttr::get(context, {rows, columns});
}

namespace {
/// A view of a tensor as `count` matrices of the same shape.
struct MatrixFit {
  int64_t count, rows, columns;
};

struct MatricesOfBucket {
  BucketType bucket;
  /// For each member, the gradient that it is a matrix of.
  SmallVector<int64_t> gradients;
};
} // namespace

/// Returns the matrix of the first few dimensions by the others that has the
/// smallest factors.
static MatrixFit splitDimensions(ArrayRef<int64_t> shape) {
  int64_t numElements = ShapedType::getNumElements(shape);
  MatrixFit best = {1, numElements, 1};
  int64_t rows = 1;
  for (int64_t size : shape.drop_back()) {
    rows *= size;
    int64_t columns = numElements / rows;
    if (rows + columns < best.rows + best.columns)
      best = {1, rows, columns};
  }
  return best;
}

/// Returns true if all but the last two dimensions look like a convolution's
/// window.
static bool isKernel(ArrayRef<int64_t> shape) {
  constexpr int64_t maxWindow = 11;
  return shape.size() >= 4 &&
         llvm::all_of(shape.drop_back(2), [](int64_t size) {
           return size <= maxWindow && size % 2 == 1;
         });
}

/// Returns how to view a tensor without dimensions of size 1 as matrices. If
/// its first dimension is smaller than both sides of the matrices of the
/// others, and these compress well, each index of it is a matrix, such as that
/// of a layer.
static MatrixFit fitMatrices(ArrayRef<int64_t> shape, int64_t rank) {
  constexpr int64_t minRate = 8;
  MatrixFit whole = splitDimensions(shape);
  if (shape.size() < 3 || isKernel(shape))
    return whole;
  MatrixFit inner = fitMatrices(shape.drop_front(), rank);
  if (shape.front() < std::min(inner.rows, inner.columns) &&
      inner.rows * inner.columns >=
          minRate * rank * (inner.rows + inner.columns))
    return {shape.front() * inner.count, inner.rows, inner.columns};
  return whole;
}

static bool isWorthwhile(PowerSGDHookAttr hook, int64_t rows, int64_t columns) {
  double minRate = hook.getMinCompressionRate().getValueAsDouble();
  int64_t rank = std::min({rows, columns, hook.getMatrixApproximationRank()});
  double compressed = static_cast<double>((rows + columns) * rank);
  return compressed * minRate < static_cast<double>(rows * columns);
}

static MatricesOfBucket getMatrices(PowerSGDHookAttr hook, BucketType bucket) {
  MatricesOfBucket all = {bucket, getAllMembers(bucket)};
  if (hook.getMatrixView() == MatrixView::First)
    return all;
  all.gradients.clear();
  SmallVector<DenseI64ArrayAttr> shapes;
  for (int64_t member : getAllMembers(bucket)) {
    SmallVector<int64_t> dims;
    llvm::copy_if(bucket.getShape(member), std::back_inserter(dims),
                  [](int64_t size) { return size != 1; });
    // Vectors and empty tensors keep their shapes.
    const bool isMatrix =
        dims.size() >= 2 && bucket.getNumElements(member) != 0;
    MatrixFit fit = {1, 1, 1};
    if (isMatrix)
      fit = fitMatrices(dims, hook.getMatrixApproximationRank());
    if (isMatrix && !isWorthwhile(hook, fit.rows, fit.columns))
      fit = splitDimensions(dims);
    if (isMatrix && isWorthwhile(hook, fit.rows, fit.columns)) {
      shapes.append(fit.count,
                    getShape(bucket.getContext(), fit.rows, fit.columns));
      all.gradients.append(fit.count, member);
    } else {
      shapes.push_back(bucket.getShapes()[member]);
      all.gradients.push_back(member);
    }
  }
  all.bucket =
      BucketType::get(bucket.getContext(), bucket.getElementType(), shapes);
  assert(all.bucket.getNumElements() == bucket.getNumElements());
  return all;
}

/// Returns which members of a bucket of matrices are compressed.
static PowerSGDCompression getCompression(PowerSGDHookAttr hook,
                                          BucketType bucket) {
  llvm::MapVector<std::pair<int64_t, int64_t>, SmallVector<int64_t>> byShape;
  PowerSGDCompression result;
  for (int64_t member = 0; member < bucket.getNumMembers(); ++member) {
    auto [rows, columns] = bucket.getMatrixShape(member);
    // PyTorch cannot view a 0-D tensor as a matrix; here it is not compressed.
    if (!bucket.getShape(member).empty() && isWorthwhile(hook, rows, columns))
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

/// Returns the side of the smallest square that holds a bucket.
static int64_t getSide(BucketType bucket) {
  int64_t elements = bucket.getNumElements();
  int64_t side = static_cast<int64_t>(std::sqrt(static_cast<double>(elements)));
  while (side * side < elements)
    ++side;
  while (side > 0 && (side - 1) * (side - 1) >= elements)
    --side;
  return side;
}

static BucketType getSquare(BucketType bucket) {
  int64_t side = getSide(bucket);
  return BucketType::get(bucket.getContext(), bucket.getElementType(),
                         {getShape(bucket.getContext(), side, side)});
}

static PowerSGDCompression getCompression(BatchedPowerSGDHookAttr hook,
                                          BucketType bucket) {
  int64_t side = getSide(bucket), rank = hook.getMatrixApproximationRank();
  DenseI64ArrayAttr shape = getShape(bucket.getContext(), side, rank);
  auto factor =
      BucketType::get(bucket.getContext(), bucket.getElementType(), {shape});
  return {{0}, {}, factor, factor, {side * rank}};
}

FailureOr<Value> PowerSGDHookAttr::expand(OpBuilder &builder,
                                          const BucketReduction &reduction,
                                          BucketValue bucket) const {
  BucketType type = bucket.getType();
  auto [matrices, gradients] = getMatrices(*this, type);
  PowerSGDExpansion expansion(builder, reduction, getParameters(),
                              getCompression(*this, matrices), matrices,
                              gradients);
  if (failed(expansion.assignMatrices()) ||
      failed(expansion.declareStates(type)))
    return failure();
  Value viewed =
      builder.createOrFold<ResizeOp>(reduction.loc, matrices, bucket);
  Value out =
      expansion.run(cast<BucketValue>(viewed), [&](BucketValue gradient) {
        return expansion.compress(gradient);
      });
  return builder.createOrFold<ResizeOp>(reduction.loc, type, out);
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
  // An empty square leaves nothing to reduce.
  if (bucket.getType().getNumElements() == 0)
    return buildFinalAllReduce(builder, reduction, bucket);
  BucketType type = bucket.getType(), square = getSquare(type);
  // PyTorch passes its epsilon only to the other hook.
  auto parameters = PowerSGDParameters::from(getParameters());
  parameters.orthogonalization_epsilon = 0;
  PowerSGDExpansion expansion(builder, reduction, parameters,
                              getCompression(*this, type), type,
                              getAllMembers(type));
  expansion.remarkNoAssignment(
      "with a batched hook, since the bucket is one matrix");
  if (failed(expansion.declareStates(square)))
    return failure();
  return expansion.run(bucket, [&](BucketValue gradient) -> Value {
    Value padded = ResizeOp::create(builder, reduction.loc, square, gradient);
    Value out = expansion.compress(cast<BucketValue>(padded));
    return ResizeOp::create(builder, reduction.loc, type, out);
  });
}

static MatricesOfBucket getMatrices(BatchedPowerSGDHookAttr,
                                    BucketType bucket) {
  return {bucket, getAllMembers(bucket)};
}

static BucketType getErrorType(PowerSGDHookAttr, BucketType bucket) {
  return bucket;
}

static BucketType getErrorType(BatchedPowerSGDHookAttr, BucketType bucket) {
  return getSquare(bucket);
}

template <typename HookT>
static int64_t getWireBytesOf(HookT hook, BucketType bucket) {
  BucketType matrices = getMatrices(hook, bucket).bucket;
  Type wire = hook.getWireType(bucket);
  auto compression = getCompression(hook, matrices);
  auto getSent = [&](bool sendsP, bool sendsQ) {
    return compression.getSent(
        matrices, sendsP, sendsQ, [&](int64_t numElements) {
          if (auto encoding = dyn_cast<EncodedType>(wire))
            return encoding.getNumBytes(numElements);
          return numElements * bucket.cloneWith(wire).getElementBytes();
        });
  };
  return hook.getAlternate()
             ? llvm::divideCeil(getSent(true, false) + getSent(false, true), 2)
             : getSent(true, true);
}

template <typename HookT>
static int64_t getStateBytesOf(HookT hook, BucketType bucket) {
  int64_t bytes = 0;
  if (hook.getUseErrorFeedback())
    bytes += getErrorType(hook, bucket).getNumBytes();
  auto compression = getCompression(hook, getMatrices(hook, bucket).bucket);
  if (hook.getWarmStart())
    bytes += compression.q.getNumBytes();
  if (hook.getAlternate())
    bytes += compression.p.getNumBytes();
  return bytes;
}

/// Returns all parameters except the frequency at which statistics are printed.
template <typename HookT>
static Attribute getMethodOf(HookT hook) {
  typename HookT::Parameters parameters = hook.getParameters(), defaults;
  parameters.compression_stats_logging_frequency =
      defaults.compression_stats_logging_frequency;
  return HookT::get(hook.getContext(), parameters);
}

#define DDPHOOK_POWERSGD_HOOK(HookT)                                           \
  Type HookT::getWireType(BucketType bucket) const {                           \
    return getWireType() ? getWireType() : bucket.getElementType();            \
  }                                                                            \
  int64_t HookT::getWireBytes(BucketType bucket) const {                       \
    return getWireBytesOf(*this, bucket);                                      \
  }                                                                            \
  int64_t HookT::getStateBytes(BucketType bucket) const {                      \
    return getStateBytesOf(*this, bucket);                                     \
  }                                                                            \
  Attribute HookT::getStateMethod() const { return getMethodOf(*this); }
DDPHOOK_POWERSGD_HOOK(PowerSGDHookAttr)
DDPHOOK_POWERSGD_HOOK(BatchedPowerSGDHookAttr)
#undef DDPHOOK_POWERSGD_HOOK
