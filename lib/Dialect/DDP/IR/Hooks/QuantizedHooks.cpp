//===- QuantizedHooks.cpp - collectives in an encoding --------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// #ddp.int8, #ddp.int4 and #ddp.fp8, and the hooks of PyTorch's
// quantization_hooks.py: one all-reduce in a !ddp.encoded type, and for the
// former an error that is fed back.
//
//===----------------------------------------------------------------------===//

#include "HookState.h"
#include "ddphook/runtime/compiled.h"

using namespace mlir;
using namespace mlir::ddp;

using BucketValue = TypedValue<BucketType>;

//===----------------------------------------------------------------------===//
// #ddp.int8, #ddp.int4, #ddp.fp8
//===----------------------------------------------------------------------===//

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

/// A bucket's random numbers: FNV-1a of the seed and the name of its first
/// gradient, or its own if it has none, without its highest bit. (Gradients
/// keep their names where each bucket is compiled by itself.)
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

/// Reads the error of the last step, and has the next one's stored. Gives the
/// gradient with the former.
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

/// The state of a bucket that is reduced within nodes first: what is encoded is
/// a rank's share of their sum, which is known when the job is. Of the state,
/// which is one array as large as the bucket, a rank uses its share, so that it
/// belongs to all gradients together.
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
          .createZero((hook + ".share_error").str(), whole,
                      StatePlacement::PerRank, all);
  if (failed(state))
    return failure();
  return FlatSymbolRefAttr::get(state->getSymNameAttr());
}

/// What is encoded on this rank, and how: the bucket, or that and what the step
/// before lost of it, if this rank feeds back its own error.
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

/// Reads the bucket and writes the codes, then the way back; with an error,
/// reads it, writes the sum, reads that and writes the error.
template <typename HookT>
static double getScaledPasses(HookT hook, BucketType bucket) {
  double codes = static_cast<double>(hook.getWireBytes(bucket)) /
                 std::max<double>(bucket.getNumBytes(), 1);
  return 2 * (1 + codes) + (hook.getErrorFeedback() ? 4 : 0);
}

/// All that is kept is the error, which is a gradient whatever made it.
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
    /* Over a hierarchical group, too, it encodes what a rank has. */          \
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
  Attribute HookT::getStateMethod() const { return getScaledMethod(*this); }   \
  double HookT::getLocalPasses(BucketType bucket) const {                      \
    return getScaledPasses(*this, bucket);                                     \
  }
DDPHOOK_SCALED_HOOK(Int8HookAttr)
DDPHOOK_SCALED_HOOK(Int4HookAttr)
DDPHOOK_SCALED_HOOK(FP8HookAttr)
#undef DDPHOOK_SCALED_HOOK

//===----------------------------------------------------------------------===//
// #ddp.quantization_pertensor, #ddp.quantization_perchannel
//===----------------------------------------------------------------------===//

/// Bytes with a scale and a zero point for each block; 0: for all of them.
static EncodedType getAffine(MLIRContext *context, int64_t block) {
  return EncodedType::get(
      context, IntegerType::get(context, 8, IntegerType::Unsigned), block);
}

/// Reads the bucket for its range and for its codes, writes these, and the way
/// back.
static double getAffinePasses(BucketType bucket) {
  return 2 + 1 + 2.0 / bucket.getElementBytes();
}

FailureOr<Value>
QuantizationPerTensorHookAttr::expand(OpBuilder &builder,
                                      const BucketReduction &reduction,
                                      BucketValue bucket) const {
  return buildFinalAllReduce(builder, reduction, bucket,
                             getWireType(bucket.getType()));
}

Type QuantizationPerTensorHookAttr::getWireType(BucketType) const {
  return getAffine(getContext(), 0);
}

int64_t QuantizationPerTensorHookAttr::getWireBytes(BucketType bucket) const {
  return getAffine(getContext(), 0).getNumBytes(bucket.getNumElements());
}

double QuantizationPerTensorHookAttr::getLocalPasses(BucketType bucket) const {
  return getAffinePasses(bucket);
}

LogicalResult QuantizationPerChannelHookAttr::verify(
    function_ref<InFlightDiagnostic()> emitError,
    const Parameters &parameters) {
  if (parameters.bucket_size > 0 && parameters.bucket_size <= kMaxElements)
    return success();
  return emitError() << "expected bucket_size to be from 1 to " << kMaxElements
                     << ", but got " << parameters.bucket_size; // C1
}

FailureOr<Value>
QuantizationPerChannelHookAttr::expand(OpBuilder &builder,
                                       const BucketReduction &reduction,
                                       BucketValue bucket) const {
  return buildFinalAllReduce(builder, reduction, bucket,
                             getWireType(bucket.getType()));
}

Type QuantizationPerChannelHookAttr::getWireType(BucketType) const {
  return getAffine(getContext(), getBucketSize());
}

int64_t QuantizationPerChannelHookAttr::getWireBytes(BucketType bucket) const {
  return getAffine(getContext(), getBucketSize())
      .getNumBytes(bucket.getNumElements());
}

double QuantizationPerChannelHookAttr::getLocalPasses(BucketType bucket) const {
  return getAffinePasses(bucket);
}
