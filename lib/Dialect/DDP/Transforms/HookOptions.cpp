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

template <typename HookT>
static Attribute parsePowerSGD(MLIRContext *context, const HookOptions &options,
                               function_ref<InFlightDiagnostic()> emitError) {
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
  if (!read.isOk())
    return {};
  return HookT::getChecked(emitError, context, rank, start,
                           builder.getF64FloatAttr(rate), useErrorFeedback,
                           warmStart, builder.getF64FloatAttr(epsilon), seed,
                           frequency, batch);
}

/// The name of a given option that only PowerSGD has, or nothing.
static StringRef findPowerSGDOption(const HookOptions &options) {
  const std::pair<StringRef, StringRef> all[] = {
      {"matrix-approximation-rank", options.matrixApproximationRank},
      {"start-powersgd-iter", options.startPowerSGDIter},
      {"min-compression-rate", options.minCompressionRate},
      {"use-error-feedback", options.useErrorFeedback},
      {"warm-start", options.warmStart},
      {"orthogonalization-epsilon", options.orthogonalizationEpsilon},
      {"random-seed", options.randomSeed},
      {"compression-stats-logging-frequency",
       options.compressionStatsLoggingFrequency},
      {"batch-tensors-with-same-shape", options.batchTensorsWithSameShape}};
  for (auto [name, text] : all)
    if (!text.empty())
      return name;
  return {};
}

FailureOr<HookAttrInterface> mlir::ddp::parseHookOptions(
    MLIRContext *context, const HookOptions &options,
    function_ref<InFlightDiagnostic()> emitError) {
  Attribute attr;
  if (options.hook == "powersgd")
    attr = parsePowerSGD<PowerSGDHookAttr>(context, options, emitError);
  else if (options.hook == "batched_powersgd" ||
           options.hook == "batched-powersgd")
    attr = parsePowerSGD<BatchedPowerSGDHookAttr>(context, options, emitError);
  else if (StringRef name = findPowerSGDOption(options); !name.empty())
    return emitError() << "expected " << name
                       << " only with hook=powersgd or batched_powersgd, but "
                       << "got hook=" << options.hook;
  else
    attr = llvm::StringSwitch<Attribute>(options.hook)
               .Case("allreduce", AllReduceHookAttr::get(context))
               .Case("fp16", FP16HookAttr::get(context))
               .Case("bf16", BF16HookAttr::get(context))
               .Case("noop", NoopHookAttr::get(context))
               .Default({});
  bool isPowerSGD =
      llvm::is_contained({"powersgd", "batched_powersgd", "batched-powersgd"},
                         options.hook);
  if (!attr && isPowerSGD)
    return failure(); // said already
  if (!attr)
    return emitError() << "expected hook=allreduce, fp16, bf16, noop, powersgd "
                       << "or batched_powersgd, but got '" << options.hook
                       << "'";
  if (options.wrapper.empty())
    return cast<HookAttrInterface>(attr);
  Type type = llvm::StringSwitch<Type>(options.wrapper)
                  .Case("fp16", Float16Type::get(context))
                  .Case("bf16", BFloat16Type::get(context))
                  .Default({});
  if (!type)
    return emitError() << "expected wrapper=fp16 or bf16, but got '"
                       << options.wrapper << "'";
  return cast<HookAttrInterface>(
      Attribute(WrapHookAttr::get(context, type, attr)));
}
