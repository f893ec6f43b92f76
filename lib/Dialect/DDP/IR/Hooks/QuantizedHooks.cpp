// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// #ddp.int8, #ddp.int4 and #ddp.fp8, and the hooks of PyTorch's
// quantization_hooks.py: one all-reduce in a !ddp.encoded type. The first three
// also support error feedback.

#include "HookState.h"
#include "ddphook/runtime/compiled.h"

using namespace mlir;
using namespace mlir::ddp;

using BucketValue = TypedValue<BucketType>;

static Type getCode(Int8HookAttr hook) {
  return IntegerType::get(hook.getContext(), 8);
}
static Type getCode(Int4HookAttr hook) {
  return IntegerType::get(hook.getContext(), 4);
}
static Type getCode(FP8HookAttr hook) {
  return hook.getFormat() ? hook.getFormat()
                          : Float8E4M3FNType::get(hook.getContext());
}

/// Returns the stream of a bucket's random numbers: the FNV-1a hash of the seed
/// and the first gradient's name, or the bucket's if it has none, without the
/// highest bit. (Gradients keep their names if each bucket is compiled by
/// itself.)
static int64_t getStream(int64_t seed, const BucketReduction &reduction) {
  StringRef name = reduction.bucketName.getValue();
  if (reduction.gradients && !reduction.gradients.empty())
    name = cast<StringAttr>(reduction.gradients[0]).getValue();
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char byte : (llvm::Twine(seed) + " " + name).str())
    hash = (hash ^ byte) * 0x100000001b3;
  return static_cast<int64_t>(hash & ~(uint64_t(1) << 63));
}

template <typename HookT>
static EncodedType getEncoding(HookT hook) {
  return EncodedType::get(hook.getContext(), getCode(hook),
                          hook.getBlockSize());
}

/// Adds the error of the last step to the gradient, and stores the new error.
/// Returns the sum.
static FailureOr<Value> feedBackError(OpBuilder &builder,
                                      const BucketReduction &reduction,
                                      BucketValue bucket, EncodedType encoding,
                                      Value step, StringRef hook) {
  Location loc = reduction.loc;
  BucketType type = bucket.getType();
  FailureOr<StateOp> state =
      createGradientState(builder, reduction, type, (hook + ".error").str());
  if (failed(state))
    return failure();
  auto symbol = FlatSymbolRefAttr::get(state->getSymNameAttr());
  Value last = LoadOp::create(builder, loc, type, symbol).getValue();
  Value whole = AddOp::create(builder, loc, bucket, last).getResult();
  Value lost = EncodingErrorOp::create(
                   builder, loc, whole, TypeAttr::get(encoding), step,
                   step ? reduction.group : FlatSymbolRefAttr())
                   .getResult();
  StoreOp::create(builder, loc, lost, symbol);
  return whole;
}

/// Declares the error state of a bucket that is first reduced within nodes. A
/// rank encodes only its shard of that sum, which is known only when the job
/// starts. The state is one array as large as the bucket, of which a rank uses
/// its shard, so it belongs to all gradients together.
static FailureOr<FlatSymbolRefAttr>
declareShareError(OpBuilder &builder, const BucketReduction &reduction,
                  BucketType type, StringRef hook) {
  SmallVector<int64_t> all =
      llvm::to_vector(llvm::seq<int64_t>(0, type.getNumMembers()));
  DenseI64ArrayAttr shape = builder.getDenseI64ArrayAttr(type.getNumElements());
  auto whole =
      BucketType::get(builder.getContext(), type.getElementType(), {shape});
  FailureOr<StateOp> state =
      HookState(builder, reduction)
          .createZero(StateKind::ShareError, (hook + ".share_error").str(),
                      whole, all);
  if (failed(state))
    return failure();
  return FlatSymbolRefAttr::get(state->getSymNameAttr());
}

/// Returns the value that this rank encodes, and how: the bucket, plus the
/// error of the previous step if `feedsBack`.
template <typename HookT>
static FailureOr<ScatterOperand>
prepareScaled(HookT hook, OpBuilder &builder, const BucketReduction &reduction,
              BucketValue bucket, bool feedsBack) {
  EncodedType encoding = getEncoding(hook);
  Value step;
  if (hook.getRounding() == Rounding::Stochastic) {
    FailureOr<Value> iteration =
        HookState(builder, reduction).getIteration("rounding.iter");
    if (failed(iteration))
      return failure();
    step = *iteration;
    encoding = EncodedType::get(hook.getContext(), encoding.getCode(),
                                encoding.getBlock(),
                                getStream(hook.getRandomSeed(), reduction));
  }
  if (!feedsBack)
    return ScatterOperand{bucket, encoding, step};
  FailureOr<Value> sent = feedBackError(builder, reduction, bucket, encoding,
                                        step, HookT::getMnemonic());
  if (failed(sent))
    return failure();
  return ScatterOperand{*sent, encoding, step};
}

template <typename HookT>
static FailureOr<Value> expandScaled(HookT hook, OpBuilder &builder,
                                     const BucketReduction &reduction,
                                     BucketValue bucket) {
  const bool ofShares = hook.getErrorFeedback() && reduction.isHierarchical;
  FailureOr<ScatterOperand> sent =
      prepareScaled(hook, builder, reduction, bucket,
                    /*feedsBack=*/hook.getErrorFeedback() && !ofShares);
  if (failed(sent))
    return failure();
  Value reduced = buildFinalAllReduce(builder, reduction, sent->value,
                                      sent->wire, sent->step);
  if (!ofShares)
    return reduced;
  FailureOr<FlatSymbolRefAttr> error = declareShareError(
      builder, reduction, bucket.getType(), HookT::getMnemonic());
  if (failed(error))
    return failure();
  setErrorState(reduced.getDefiningOp(), *error);
  return reduced;
}

/// Keeps only what affects the error, which is valid for any encoding.
template <typename HookT>
static Attribute getScaledMethod(HookT hook) {
  typename HookT::Parameters parameters;
  parameters.error_feedback = hook.getErrorFeedback();
  return HookT::get(hook.getContext(), parameters);
}

template <typename ParametersT>
static LogicalResult verifyScaled(function_ref<InFlightDiagnostic()> emitError,
                                  const ParametersT &parameters) {
  int64_t size = parameters.block_size;
  if (size <= 0 || size % DDPHOOK_BLOCK_UNIT != 0 || size > DDPHOOK_BLOCK_MOST)
    return emitError() << "expected block_size to be a multiple of "
                       << DDPHOOK_BLOCK_UNIT << " up to " << DDPHOOK_BLOCK_MOST
                       << ", but got " << size; // C1
  int64_t seed = parameters.random_seed;
  if (seed < 0 || seed > UINT32_MAX) // C2
    return emitError() << "expected a random_seed from 0 to " << UINT32_MAX
                       << ", but got " << seed;
  if constexpr (std::is_same_v<ParametersT, FP8HookAttr::Parameters>)
    if (Type format = parameters.format;
        format && !isa<Float8E4M3FNType, Float8E5M2Type>(format))
      return emitError() << "expected format to be f8E4M3FN or f8E5M2, but got "
                         << format; // C3
  return success();
}

#define DDPHOOK_SCALED_HOOK(HookT)                                             \
  LogicalResult HookT::verify(function_ref<InFlightDiagnostic()> emitError,    \
                              const Parameters &parameters) {                  \
    return verifyScaled(emitError, parameters);                                \
  }                                                                            \
  FailureOr<Value> HookT::expand(OpBuilder &builder,                           \
                                 const BucketReduction &reduction,             \
                                 BucketValue bucket) const {                   \
    return expandScaled(*this, builder, reduction, bucket);                    \
  }                                                                            \
  FailureOr<ScatterOperand> HookT::prepareScatter(                             \
      OpBuilder &builder, const BucketReduction &reduction,                    \
      BucketValue bucket) const {                                              \
    /* Encodes a rank's own data, also over a hierarchical group. */           \
    return prepareScaled(*this, builder, reduction, bucket,                    \
                         /*feedsBack=*/getErrorFeedback());                    \
  }                                                                            \
  Type HookT::getWireType(BucketType) const { return getEncoding(*this); }     \
  int64_t HookT::getWireBytes(BucketType bucket) const {                       \
    return getEncoding(*this).getNumBytes(bucket.getNumElements());            \
  }                                                                            \
  int64_t HookT::getStateBytes(BucketType bucket) const {                      \
    return getErrorFeedback() ? bucket.getNumBytes() : 0;                      \
  }                                                                            \
  Attribute HookT::getStateMethod() const { return getScaledMethod(*this); }
DDPHOOK_SCALED_HOOK(Int8HookAttr)
DDPHOOK_SCALED_HOOK(Int4HookAttr)
DDPHOOK_SCALED_HOOK(FP8HookAttr)
#undef DDPHOOK_SCALED_HOOK

/// Returns an affine encoding in bytes; one block if `block` is 0.
static EncodedType getAffine(MLIRContext *context, int64_t block) {
  return EncodedType::get(
      context, IntegerType::get(context, 8, IntegerType::Unsigned), block);
}

LogicalResult QuantizationPerChannelHookAttr::verify(
    function_ref<InFlightDiagnostic()> emitError,
    const Parameters &parameters) {
  if (parameters.bucket_size > 0 && parameters.bucket_size <= kMaxElements)
    return success();
  return emitError() << "expected bucket_size to be from 1 to " << kMaxElements
                     << ", but got " << parameters.bucket_size; // C1
}

#define DDPHOOK_AFFINE_HOOK(HookT, block)                                      \
  FailureOr<Value> HookT::expand(OpBuilder &builder,                           \
                                 const BucketReduction &reduction,             \
                                 BucketValue bucket) const {                   \
    return buildFinalAllReduce(builder, reduction, bucket,                     \
                               getWireType(bucket.getType()));                 \
  }                                                                            \
  Type HookT::getWireType(BucketType) const {                                  \
    return getAffine(getContext(), block);                                     \
  }                                                                            \
  int64_t HookT::getWireBytes(BucketType bucket) const {                       \
    return getAffine(getContext(), block)                                      \
        .getNumBytes(bucket.getNumElements());                                 \
  }
DDPHOOK_AFFINE_HOOK(QuantizationPerTensorHookAttr, 0)
DDPHOOK_AFFINE_HOOK(QuantizationPerChannelHookAttr, getBucketSize())
#undef DDPHOOK_AFFINE_HOOK
