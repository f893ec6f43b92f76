//===- ReportTest.cpp ------------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What another compiler asks for a report, and the sums behind a trace.
//
//===----------------------------------------------------------------------===//

#include "TestModule.h"
#include "ddphook/Pipelines/Pipelines.h"
#include "ddphook/Report/Difference.h"
#include "ddphook/Report/PlanReporter.h"
#include "ddphook/Report/ReportWriter.h"

#include "mlir/IR/Remarks.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace mlir::ddp;

static constexpr StringLiteral kStep = R"mlir(
ddp.process_group @dp
func.func @step(%a: tensor<16x8xf32>, %b: tensor<8xf32>)
    -> (tensor<16x8xf32>, tensor<8xf32>) {
  %0 = ddp.all_reduce mean %a on @dp {ddp.name = "a"} : tensor<16x8xf32> loc("model.py":3:4)
  %1 = ddp.all_reduce mean %b on @dp {ddp.name = "b"} : tensor<8xf32> loc("jit(step)")
  return %0, %1 : tensor<16x8xf32>, tensor<8xf32>
}
)mlir";

namespace {
class ReportTest : public ModuleTest {
protected:
  /// The report of kStep behind the pipeline.
  PlanReport report(StringRef options) {
    parse(kStep);
    PassManager pm(&context);
    auto fail = [](const Twine &) { return failure(); };
    EXPECT_TRUE(succeeded(buildDDPPipeline(pm, options, fail)));
    PlanReporter reporter;
    reporter.attach(pm);
    EXPECT_TRUE(succeeded(pm.run(*module)));
    llvm::Expected<PlanReport> report = reporter.getReport(*module);
    EXPECT_TRUE(static_cast<bool>(report));
    return report ? std::move(*report) : PlanReport();
  }
};
} // namespace

TEST_F(ReportTest, TellsWhatThePlanDoesNotSay) {
  PlanReport plan = report("hook=fp16");
  ASSERT_EQ(plan.buckets.size(), 1u);
  const ReportBucket &bucket = plan.buckets.front();
  EXPECT_EQ(bucket.hookFrom, "option hook");
  ASSERT_EQ(bucket.gradients.size(), 2u);
  EXPECT_EQ(bucket.gradients[0].source, "model.py:3:4");
  EXPECT_EQ(bucket.gradients[1].source, "jit(step)");
  EXPECT_EQ(plan.getGradientBytes(), 544);
  EXPECT_EQ(plan.getWireBytes(), 272);
  EXPECT_FALSE(plan.remarks.empty());
  EXPECT_EQ(context.getRemarkEngine(), nullptr);
}

TEST_F(ReportTest, LeavesRemarksToWhoHasThem) {
  struct Silence : remark::detail::MLIRRemarkStreamerBase {
    void streamOptimizationRemark(const remark::detail::Remark &) override {}
  };
  ASSERT_TRUE(succeeded(remark::enableOptimizationRemarks(
      context, std::make_unique<Silence>(),
      std::make_unique<remark::RemarkEmittingPolicyAll>(), {})));
  auto *engine = context.getRemarkEngine();
  EXPECT_TRUE(report("").remarks.empty());
  EXPECT_EQ(context.getRemarkEngine(), engine);
}

TEST_F(ReportTest, ReadsWhatItWrites) {
  PlanReport plan = report("hook=powersgd start_powerSGD_iter=2");
  std::string text = writeReportJSON(plan);
  llvm::Expected<PlanReport> read = readReport(text);
  ASSERT_TRUE(static_cast<bool>(read));
  EXPECT_EQ(writeReportJSON(*read), text);
  EXPECT_TRUE(comparePlans(plan, *read).empty());
}

TEST_F(ReportTest, NeedsAPlan) {
  parse(kStep);
  llvm::Expected<PlanReport> report = PlanReporter().getReport(*module);
  ASSERT_FALSE(static_cast<bool>(report));
  EXPECT_TRUE(StringRef(toString(report.takeError()))
                  .starts_with("expected a module with a plan"));
}

TEST(PlanReportTest, AddsDamagedNumbers) {
  PlanReport plan;
  plan.buckets.resize(2);
  for (ReportBucket &bucket : plan.buckets)
    bucket.gradientBytes = bucket.wireBytes = INT64_MAX;
  EXPECT_EQ(plan.getGradientBytes(), INT64_MAX);
  EXPECT_EQ(plan.getWireBytes(), INT64_MAX);
}

TEST(PlanReportTest, TextHasNoControlCharacters) {
  PlanReport plan;
  plan.groups.resize(1);
  plan.groups[0].placement = "intra_node";
  plan.groups[0].parent = "d\x1b[31mp";
  EXPECT_NE(writeReportText(plan).find("of @d\\x1b[31mp"), std::string::npos);
}

TEST(StepTraceTest, TellsWaitingFromMoving) {
  StepTrace trace;
  trace.events = {
      {TraceEvent::Step, "step", -1, "", 0, 0, 0, 100},
      {TraceEvent::Wait, "future", -1, "", 0, 0, 80, 20},
      {TraceEvent::Collective, "all_reduce b0", 0, "b0", 0, 1, 30, 60, 25},
      {TraceEvent::Step, "step", -1, "", 0, 0, 100, 120}};
  TraceSummary summary = summarize(trace);
  ASSERT_EQ(summary.steps.size(), 1u);
  EXPECT_EQ(summary.steps[0].runs, 2);
  EXPECT_EQ(summary.steps[0].total, 110); // between the two in the middle
  EXPECT_EQ(summary.steps[0].communicating, 30);
  EXPECT_EQ(summary.steps[0].exposed, 10);
  ASSERT_EQ(summary.collectives.size(), 1u);
  EXPECT_EQ(summary.collectives[0].waiting, 25);
  EXPECT_EQ(summary.collectives[0].moving, 35);
  EXPECT_EQ(summary.collectives[0].exposed, 10);
  // The step that took the lower median, with what it contains.
  EXPECT_EQ(summary.picture.size(), 3u);
}

TEST(FormatTest, Names) {
  // U+009B is a control character; U+00D7 is none.
  EXPECT_EQ(printable("a\x1b[31m\n\x7f \xc2\x9b \xc3\x97 \xc2"),
            "a\\x1b[31m\\x0a\\x7f \\x9b \xc3\x97 \xc2");
}

TEST(FormatTest, Bytes) {
  EXPECT_EQ(formatBytes(0), "0 B");
  EXPECT_EQ(formatBytes(999), "999 B");
  EXPECT_EQ(formatBytes(1000), "1.00 kB");
  EXPECT_EQ(formatBytes(9995), "10.0 kB");
  EXPECT_EQ(formatBytes(999499), "999 kB");
  EXPECT_EQ(formatBytes(999500), "1.00 MB");
  EXPECT_EQ(formatBytes(int64_t(1) << 62), "4612 PB");
}
