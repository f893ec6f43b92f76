//===- ReportTest.cpp ------------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reports as another compiler asks for them. test/python/test_report.py tests
// what is made of them.
//
//===----------------------------------------------------------------------===//

#include "TestModule.h"
#include "ddphook/Pipelines/Pipelines.h"
#include "ddphook/Report/PlanReporter.h"

#include "mlir/IR/Remarks.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace mlir::ddp;
namespace json = llvm::json;

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
  /// Returns the report of kStep after the pipeline.
  json::Object report(StringRef options) {
    parse(kStep);
    PassManager pm(&context);
    auto fail = [](const Twine &) { return failure(); };
    EXPECT_TRUE(succeeded(buildDDPPipeline(pm, options, fail)));
    PlanReporter reporter;
    reporter.attach(pm);
    EXPECT_TRUE(succeeded(pm.run(*module)));
    llvm::Expected<json::Object> report = reporter.getReport(*module);
    EXPECT_TRUE(static_cast<bool>(report));
    return report ? std::move(*report) : json::Object();
  }
};
} // namespace

TEST_F(ReportTest, TellsWhatThePlanDoesNotSay) {
  json::Object plan = report("hook=fp16");
  const json::Array &buckets = *plan.getObject("program")->getArray("buckets");
  ASSERT_EQ(buckets.size(), 1u);
  const json::Object &bucket = *buckets.front().getAsObject();
  EXPECT_EQ(bucket.getString("hook_from"), "option hook");
  const json::Object &gradients = *bucket.getObject("gradients");
  EXPECT_EQ(gradients.getString("a"), "model.py:3:4");
  EXPECT_EQ(gradients.getString("b"), "jit(step)");
  const json::Array &planned = *plan.getObject("plan")->getArray("buckets");
  ASSERT_EQ(planned.size(), 1u);
  EXPECT_EQ(planned.front().getAsObject()->getInteger("wire_bytes"), 272);
  EXPECT_FALSE(plan.getArray("remarks")->empty());
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
  EXPECT_TRUE(report("").getArray("remarks")->empty());
  EXPECT_EQ(context.getRemarkEngine(), engine);
}

TEST_F(ReportTest, NeedsAPlan) {
  parse(kStep);
  llvm::Expected<json::Object> report = PlanReporter().getReport(*module);
  ASSERT_FALSE(static_cast<bool>(report));
  EXPECT_TRUE(StringRef(toString(report.takeError()))
                  .starts_with("expected a module with a plan"));
}
