// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How options are cut into words, and what hook they name.

#include "ddphook/Dialect/DDP/Transforms/Utils/HookOptions.h"
#include "OptionWords.h"
#include "TestModule.h"

using namespace mlir;
using namespace mlir::ddp;

/// The words as "name=value", each in brackets.
static std::string split(StringRef text) {
  std::string words;
  for (const OptionWord &word : splitOptionWords(text))
    words += "[" + word.name + "=" + word.getValue().str() + "]";
  return words;
}

TEST(OptionWordsTest, NamesAndValues) {
  EXPECT_EQ(split(""), "");
  EXPECT_EQ(split("  \t\n"), "");
  EXPECT_EQ(split("fuse"), "[fuse=true]");
  EXPECT_EQ(split("fuse="), "[fuse=]");
  EXPECT_EQ(split(" Bucket_Cap_MB=1  a=b=c "), "[bucket-cap-mb=1][a=b=c]");
  // Values are not changed.
  EXPECT_EQ(split("hook=My_Hook"), "[hook=My_Hook]");
}

TEST(OptionWordsTest, QuotesAndBrackets) {
  EXPECT_EQ(split("a='x y' b=\"z\" c={ p q }"), "[a=x y][b=z][c=p q]");
  EXPECT_EQ(split("hook=#ddp.wrap<f16, #ddp.fp16> x=1"),
            "[hook=#ddp.wrap<f16, #ddp.fp16>][x=1]");
  EXPECT_EQ(split("a={b={c d} e} f"), "[a=b={c d} e][f=true]");
  // A quote hides brackets, and the other quote.
  EXPECT_EQ(split("a='{ \" ' b=1"), "[a={ \"][b=1]");
  // An arrow closes nothing.
  EXPECT_EQ(split("t=<(f32) -> f16, x> y"), "[t=<(f32) -> f16, x>][y=true]");
  // Only what is around all of the value is taken off.
  EXPECT_EQ(split("a={x}{y"), "[a={x}{y]");
  EXPECT_EQ(split("a='"), "[a=']");
  EXPECT_EQ(split("a={b c"), "[a={b c]");
}

namespace {
class HookOptionsTest : public ModuleTest {
protected:
  /// The attribute's text, or the error.
  std::string hook(StringRef text, StringRef wrapper = "") {
    std::string errors;
    ScopedDiagnosticHandler handler(
        &context, [&](Diagnostic &diagnostic) { errors += diagnostic.str(); });
    auto parsed = parseHook(&context, text, wrapper, [&] {
      return emitError(UnknownLoc::get(&context));
    });
    if (failed(parsed))
      return "error: " + errors;
    EXPECT_EQ(errors, "");
    std::string printed;
    llvm::raw_string_ostream(printed) << *parsed;
    return printed;
  }
};
} // namespace

TEST_F(HookOptionsTest, NamesAndAttributes) {
  EXPECT_EQ(hook("fp16"), "#ddp.fp16");
  EXPECT_EQ(hook("batched-powersgd"), "#ddp.batched_powersgd");
  EXPECT_EQ(hook("#ddp.fp16"), "#ddp.fp16");
  EXPECT_EQ(hook(" #ddp.wrap<bf16, #ddp.noop> "), "#ddp.wrap<bf16, #ddp.noop>");
  EXPECT_EQ(hook("allreduce", "fp16"), "#ddp.wrap<f16, #ddp.allreduce>");
}

TEST_F(HookOptionsTest, Parameters) {
  EXPECT_EQ(hook("powersgd matrix-approximation-rank=2 warm-start=false"),
            "#ddp.powersgd<matrix_approximation_rank = 2, warm_start = false>");
  // NAME= leaves the default; so does the default itself.
  EXPECT_EQ(hook("powersgd matrix-approximation-rank= warm-start=1"),
            "#ddp.powersgd");
  EXPECT_EQ(hook("post_local_sgd subgroup=@node"),
            hook("post_local_sgd subgroup=node"));
}

TEST_F(HookOptionsTest, Improvements) {
  EXPECT_EQ(hook("powersgd numerics=eager"), "#ddp.powersgd");
  std::string improved = hook("powersgd numerics=improved");
  for (StringRef parameter :
       {"local_error_feedback = true", "independent_columns = true",
        "skip_nonfinite = true"})
    EXPECT_NE(improved.find(parameter.str()), std::string::npos) << improved;
  EXPECT_EQ(improved.find("wire_type"), std::string::npos) << improved;
  // What is written counts; an improvement of what is off is left out.
  improved = hook("powersgd numerics=improved use-error-feedback=false "
                  "independent-columns=false");
  EXPECT_EQ(improved.find("local_error_feedback"), std::string::npos);
  EXPECT_EQ(improved.find("independent_columns"), std::string::npos);
  // The hook takes the wrapper's type for itself.
  EXPECT_EQ(hook("powersgd fp32-error", "bf16"),
            "#ddp.powersgd<wire_type = bf16>");
  EXPECT_EQ(hook("powersgd numerics=improved", "bf16").substr(0, 13),
            "#ddp.powersgd");
}

TEST_F(HookOptionsTest, WhatIsWrongIsSaid) {
  auto expectError = [&](StringRef text, StringRef part,
                         StringRef wrapper = "") {
    std::string got = hook(text, wrapper);
    EXPECT_EQ(got.substr(0, 7), "error: ") << text.str();
    EXPECT_NE(got.find(part.str()), std::string::npos) << got;
  };
  expectError("unknown", "but got 'unknown'");
  expectError("", "but got ''");
  expectError("fp16",
              "expected wrapper=fp16, bf16, int8, int4 or fp8, but got 'f32'",
              "f32");
  expectError("fp16 warm-start", "only with hook=powersgd or batched_powersgd, "
                                 "but got hook=fp16");
  expectError("powersgd nonsense=1", "but got nonsense");
  expectError("powersgd random-seed=1.5",
              "expected random-seed to be a whole number, but got '1.5'");
  expectError("powersgd random-seed", "expected a value for the option");
  expectError("powersgd warm-start=maybe",
              "expected warm-start to be true or false, but got 'maybe'");
  expectError("powersgd min-compression-rate=x", "to be a number");
  expectError("powersgd numerics=best", "but got 'best'");
  expectError("powersgd fp32-error", "only with a wrapper");
  expectError("powersgd matrix-approximation-rank=0", "");
  expectError("#ddp.fp16 x=1", "inside the attribute, but got the option x");
  expectError("#ddp.fp16<", "in hook=#ddp.fp16<: ");
  expectError("#nowhere.hook", "which no plugin has loaded");
  expectError("#ddp.plan_group<name=\"x\">", "expected a hook, but got");
}

TEST_F(HookOptionsTest, OptionsBesideTheHook) {
  auto isDeclared = [](StringRef name) {
    return name == "fuse" || name == "hook";
  };
  std::string error;
  auto normalize = [&](StringRef text) {
    error.clear();
    FailureOr<std::string> normal =
        normalizeOptions(text, isDeclared, [&](const Twine &message) {
          error = message.str();
          return failure();
        });
    EXPECT_EQ(failed(normal), !error.empty()) << error;
    return failed(normal) ? "refused" : StringRef(*normal).trim().str();
  };
  EXPECT_EQ(normalize(""), "");
  EXPECT_EQ(normalize("Fuse=1"), "fuse=1");
  EXPECT_EQ(normalize("Bucket_Cap_MB=1 hook=powersgd warm_start=false"),
            "bucket-cap-mb=1 hook={powersgd warm-start=false}");
  // A parameter alone goes to the default hook, which will refuse it.
  EXPECT_EQ(normalize("warm-start"), "hook={allreduce warm-start}");
  // Nobody knows yet what options a hook of another dialect has.
  EXPECT_EQ(normalize("fuse=0 weight=2 hook=other.weighted"),
            "fuse=0 hook={other.weighted weight=2}");
  // What is normal stays as it is.
  std::string once = normalize("hook=powersgd warm_start=false fuse");
  EXPECT_EQ(normalize(once), once);
  // Two spellings are one option.
  EXPECT_EQ(normalize("hook=powersgd warm_start=false warm-start"), "refused");
  EXPECT_NE(error.find("warm"), std::string::npos) << error;
}
