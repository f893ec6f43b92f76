//===- HookOptions.cpp -----------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the options `hook` and `wrapper` mean, and how options may be spelt.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace mlir::ddp;

std::string mlir::ddp::normalizeOptionSpelling(StringRef options) {
  std::string normalized;
  bool inName = true;
  int depth = 0; // of braces, quotes count as one
  char quote = 0;
  for (char c : options) {
    if (quote) {
      quote = c == quote ? 0 : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (depth == 0 && llvm::isSpace(c)) {
      inName = true;
    } else if (depth == 0 && c == '=') {
      inName = false;
    } else if (depth == 0 && inName) {
      c = c == '_' ? '-' : llvm::toLower(c);
    }
    normalized += c;
  }
  return normalized;
}

namespace {
/// Reads parameters from their texts, and remembers whether all were right.
class ParameterReader {
public:
  explicit ParameterReader(function_ref<InFlightDiagnostic()> emitError)
      : emitError(emitError) {}

  int64_t getInteger(StringRef name, StringRef text, int64_t unset) {
    int64_t value = unset;
    if (!text.empty() && text.getAsInteger(10, value))
      fail(name, "a whole number", text);
    return value;
  }

  double getNumber(StringRef name, StringRef text, double unset) {
    double value = unset;
    if (!text.empty() && text.getAsDouble(value))
      fail(name, "a number", text);
    return value;
  }

  bool getFlag(StringRef name, StringRef text, bool unset) {
    if (text.empty())
      return unset;
    std::string lower = text.lower();
    if (lower == "true" || lower == "1")
      return true;
    if (lower != "false" && lower != "0")
      fail(name, "true or false", text);
    return false;
  }

  bool isOk() const { return ok; }

private:
  void fail(StringRef name, StringRef expected, StringRef got) {
    if (ok)
      emitError() << "expected " << name << " to be " << expected
                  << ", but got '" << got << "'";
    ok = false;
  }

  function_ref<InFlightDiagnostic()> emitError;
  bool ok = true;
};
} // namespace

/// `wireType` is the wrapper's type, or null; it is used up if the collectives
/// alone are to be in it.
template <typename HookT>
static Attribute parsePowerSGD(MLIRContext *context, const HookOptions &options,
                               function_ref<InFlightDiagnostic()> emitError,
                               Type &wireType) {
  ParameterReader read(emitError);
  Builder builder(context);
  int64_t rank = read.getInteger("matrix-approximation-rank",
                                 options.matrixApproximationRank, 1);
  int64_t start =
      read.getInteger("start-powersgd-iter", options.startPowerSGDIter, 1000);
  double rate =
      read.getNumber("min-compression-rate", options.minCompressionRate, 2);
  bool useErrorFeedback =
      read.getFlag("use-error-feedback", options.useErrorFeedback, true);
  bool warmStart = read.getFlag("warm-start", options.warmStart, true);
  double epsilon = read.getNumber("orthogonalization-epsilon",
                                  options.orthogonalizationEpsilon, 0);
  int64_t seed = read.getInteger("random-seed", options.randomSeed, 0);
  int64_t frequency =
      read.getInteger("compression-stats-logging-frequency",
                      options.compressionStatsLoggingFrequency, 10000);
  bool batch = read.getFlag("batch-tensors-with-same-shape",
                            options.batchTensorsWithSameShape, false);
  bool isImproved = options.numerics == "improved";
  if (!isImproved && !options.numerics.empty() && options.numerics != "eager")
    return emitError() << "expected numerics=eager or improved, but got '"
                       << options.numerics << "'",
           Attribute();
  bool localErrorFeedback =
      read.getFlag("local-error-feedback", options.localErrorFeedback,
                   isImproved && useErrorFeedback);
  bool keepZeroColumns =
      read.getFlag("keep-zero-columns", options.keepZeroColumns, isImproved);
  bool skipNonFinite =
      read.getFlag("skip-nonfinite", options.skipNonfinite, isImproved);
  bool fp32Error =
      read.getFlag("fp32-error", options.fp32Error, isImproved && wireType);
  if (!read.isOk())
    return {};
  if (fp32Error && !wireType)
    return emitError() << "expected fp32-error only with a wrapper",
           Attribute();
  Type collectiveType;
  if (fp32Error)
    std::swap(collectiveType, wireType);
  return HookT::getChecked(emitError, context, rank, start,
                           builder.getF64FloatAttr(rate), useErrorFeedback,
                           warmStart, builder.getF64FloatAttr(epsilon), seed,
                           frequency, batch, localErrorFeedback,
                           keepZeroColumns, skipNonFinite, collectiveType);
}

static Attribute
parsePostLocalSGD(MLIRContext *context, const HookOptions &options,
                  function_ref<InFlightDiagnostic()> emitError) {
  ParameterReader read(emitError);
  int64_t start =
      read.getInteger("start-localsgd-iter", options.startLocalSGDIter, 100);
  bool allReduces = read.getFlag("post-local-gradient-allreduce",
                                 options.postLocalGradientAllreduce, true);
  if (!read.isOk())
    return {};
  FlatSymbolRefAttr subgroup;
  StringRef name = options.subgroup;
  name.consume_front("@");
  if (!name.empty())
    subgroup = FlatSymbolRefAttr::get(context, name);
  return PostLocalSGDHookAttr::get(context, start, subgroup, allReduces);
}

/// Checks that only parameters of this hook are given: the three of post-local
/// SGD, or all others for PowerSGD.
static LogicalResult
checkParameters(const HookOptions &options, bool isPowerSGD, bool isPostLocal,
                function_ref<InFlightDiagnostic()> emitError) {
  auto check = [&](StringRef name, StringRef text) -> LogicalResult {
    if (text.empty())
      return success();
    bool ofPostLocal = llvm::is_contained(
        {"start-localsgd-iter", "subgroup", "post-local-gradient-allreduce"},
        name);
    if (ofPostLocal ? isPostLocal : isPowerSGD)
      return success();
    return emitError() << "expected " << name << " only with hook="
                       << (ofPostLocal ? "post_local_sgd"
                                       : "powersgd or batched_powersgd")
                       << ", but got hook=" << options.hook;
  };
#define DDP_HOOK_PARAMETER(field, option, description)                         \
  if (failed(check(option, options.field)))                                    \
    return failure();
#include "ddphook/Dialect/DDP/Transforms/HookParameters.def"
  return success();
}

FailureOr<HookAttrInterface>
mlir::ddp::parseHookOptions(MLIRContext *context, const HookOptions &options,
                            function_ref<InFlightDiagnostic()> emitError) {
  // Dashes and underscores are the same here, too.
  std::string hook = options.hook;
  llvm::replace(hook, '-', '_');
  bool isPowerSGD = hook == "powersgd" || hook == "batched_powersgd";
  bool isPostLocal = hook == "post_local_sgd";
  if (failed(checkParameters(options, isPowerSGD, isPostLocal, emitError)))
    return failure();
  Type wrapper;
  if (!options.wrapper.empty()) {
    wrapper = llvm::StringSwitch<Type>(options.wrapper)
                  .Case("fp16", Float16Type::get(context))
                  .Case("bf16", BFloat16Type::get(context))
                  .Default({});
    if (!wrapper)
      return emitError() << "expected wrapper=fp16 or bf16, but got '"
                         << options.wrapper << "'";
  }

  Attribute attr;
  if (hook == "powersgd")
    attr =
        parsePowerSGD<PowerSGDHookAttr>(context, options, emitError, wrapper);
  else if (hook == "batched_powersgd")
    attr = parsePowerSGD<BatchedPowerSGDHookAttr>(context, options, emitError,
                                                  wrapper);
  else if (isPostLocal)
    attr = parsePostLocalSGD(context, options, emitError);
  else
    attr = llvm::StringSwitch<Attribute>(hook)
               .Case("allreduce", AllReduceHookAttr::get(context))
               .Case("fp16", FP16HookAttr::get(context))
               .Case("bf16", BF16HookAttr::get(context))
               .Case("noop", NoopHookAttr::get(context))
               .Default({});
  if (!attr && !isPowerSGD && !isPostLocal)
    return emitError()
           << "expected hook=allreduce, fp16, bf16, noop, powersgd, "
           << "batched_powersgd or post_local_sgd, but got '" << options.hook
           << "'";
  if (!attr)
    return failure(); // said already
  if (wrapper)
    attr = WrapHookAttr::get(context, wrapper, attr);
  return cast<HookAttrInterface>(attr);
}
