// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What another compiler builds: operations and hooks with defaults, and options
// of pipelines that are no text.

#include "TestModule.h"
#include "ddphook/Pipelines/Pipelines.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/Verifier.h"

using namespace mlir;
using namespace mlir::ddp;

static std::string printAttr(Attribute attribute) {
  std::string text;
  llvm::raw_string_ostream(text) << attribute;
  return text;
}

namespace {
class BuildersTest : public ModuleTest {
protected:
  BuildersTest() : builder(&context) {
    module = ModuleOp::create(builder, builder.getUnknownLoc());
    builder.setInsertionPointToStart(module->getBody());
  }
  Location loc() { return builder.getUnknownLoc(); }
  static std::string print(Operation *op) {
    std::string text;
    llvm::raw_string_ostream(text) << *op;
    return text;
  }
  OpBuilder builder;
};
} // namespace

TEST_F(BuildersTest, ProcessGroups) {
  EXPECT_EQ(print(ProcessGroupOp::create(builder, loc(), "dp")),
            "ddp.process_group @dp");
  EXPECT_EQ(print(ProcessGroupOp::create(builder, loc(), "four", 4)),
            "ddp.process_group @four size 4");
  EXPECT_EQ(print(ProcessGroupOp::create(builder, loc(), "node",
                                         Placement::IntraNode)),
            "ddp.process_group @node placement intra_node");
  EXPECT_EQ(print(ProcessGroupOp::create(builder, loc(), "across",
                                         Placement::InterNode, "dp")),
            "ddp.process_group @across placement inter_node parent @dp");
  EXPECT_TRUE(succeeded(module->verify()));
}

TEST_F(BuildersTest, AllReduces) {
  auto group = ProcessGroupOp::create(builder, loc(), "dp");
  auto type = RankedTensorType::get({4, 8}, builder.getF32Type());
  auto function = func::FuncOp::create(builder, loc(), "step",
                                       builder.getFunctionType({type}, {type}));
  builder.setInsertionPointToStart(function.addEntryBlock());
  Value gradient = function.getArgument(0);
  auto mean = AllReduceOp::create(builder, loc(), gradient, group);
  EXPECT_EQ(mean.getReduction(), Reduction::Mean);
  EXPECT_EQ(mean.getGroup(), "dp");
  EXPECT_EQ(mean.getResult().getType(), type);
  EXPECT_FALSE(mean.getWire() || mean.getBucketName() || mean.getGradients());
  auto sum =
      AllReduceOp::create(builder, loc(), gradient, "dp", Reduction::Sum);
  EXPECT_EQ(sum.getReduction(), Reduction::Sum);
  sum.setGradientName("layer.weight");
  sum.setHook(FP16HookAttr::get(&context));
  EXPECT_EQ(sum->getAttr("ddp.name"), builder.getStringAttr("layer.weight"));
  EXPECT_EQ(getEffectiveHook(sum), FP16HookAttr::get(&context));
  func::ReturnOp::create(builder, loc(), sum.getResult());
  EXPECT_TRUE(succeeded(verify(*module)));
}

TEST_F(BuildersTest, HooksWithDefaults) {
  auto all = PowerSGDHookAttr::get(&context);
  EXPECT_EQ(all, parseAttribute("#ddp.powersgd", &context));
  PowerSGDHookAttr::Parameters parameters;
  EXPECT_EQ(PowerSGDHookAttr::get(&context, parameters), all);
  parameters.matrix_approximation_rank = 2;
  parameters.min_compression_rate = 1.5;
  parameters.wire_type = builder.getF16Type();
  auto hook = PowerSGDHookAttr::get(&context, parameters);
  EXPECT_EQ(hook, parseAttribute("#ddp.powersgd<matrix_approximation_rank = 2, "
                                 "min_compression_rate = 1.5 : f64, "
                                 "wire_type = f16>",
                                 &context));
  EXPECT_EQ(hook.getParameters().min_compression_rate, 1.5);
  EXPECT_EQ(hook.getParameters().orthogonalization_epsilon, 0);
  EXPECT_EQ(PostLocalSGDHookAttr::get(&context),
            parseAttribute("#ddp.post_local_sgd", &context));
}

TEST_F(BuildersTest, WrongParametersAreReported) {
  std::string errors;
  ScopedDiagnosticHandler handler(
      &context, [&](Diagnostic &diagnostic) { errors += diagnostic.str(); });
  PowerSGDHookAttr::Parameters parameters;
  parameters.min_compression_rate = -1;
  auto hook = PowerSGDHookAttr::getChecked([&] { return emitError(loc()); },
                                           &context, parameters);
  EXPECT_FALSE(hook);
  EXPECT_EQ(errors, "expected a min_compression_rate above 0, but got "
                    "-1");
  parameters.min_compression_rate = 2;
  EXPECT_TRUE(PowerSGDHookAttr::getChecked([&] { return emitError(loc()); },
                                           &context, parameters));
}

TEST_F(BuildersTest, PipelineOptionsTakeAttributes) {
  PowerSGDHookAttr::Parameters parameters;
  parameters.matrix_approximation_rank = 2;
  parameters.min_compression_rate = 1 + 0x1p-52; // every bit arrives
  parameters.orthogonalization_epsilon = 1e-300;
  auto hook = PowerSGDHookAttr::get(&context, parameters);
  DDPPipelineOptions options;
  options.hook = hook;
  auto error = [&] { return emitError(loc()); };
  EXPECT_EQ(parseHook(&context, options.hook, options.wrapper, error), hook);

  auto wrapped = WrapHookAttr::get(&context, builder.getBF16Type(), hook);
  options.hook = wrapped;
  EXPECT_TRUE(options.hook.hasValue());
  EXPECT_EQ(parseHook(&context, options.hook, options.wrapper, error), wrapped);

  options.hook = "fp16";
  EXPECT_EQ(parseHook(&context, options.hook, options.wrapper, error),
            FP16HookAttr::get(&context));
  options.hook = HookAttrInterface();
  EXPECT_EQ(parseHook(&context, options.hook, options.wrapper, error),
            AllReduceHookAttr::get(&context));
}

TEST_F(BuildersTest, AHookReachesThePlan) {
  parse(R"mlir(
    ddp.process_group @dp
    func.func @step(%g: tensor<64x32xf32>) -> tensor<64x32xf32> {
      %r = ddp.all_reduce mean %g on @dp : tensor<64x32xf32>
      return %r : tensor<64x32xf32>
    }
  )mlir");
  PowerSGDHookAttr::Parameters parameters;
  parameters.matrix_approximation_rank = 2;
  auto hook = PowerSGDHookAttr::get(&context, parameters);
  DDPTensorPipelineOptions options;
  options.hook = hook;
  options.bucketCapMb = 1;
  PassManager pm(&context);
  buildDDPTensorPipeline(pm, options);
  ASSERT_TRUE(succeeded(pm.run(*module)));
  auto infos = module->getOps<BucketInfoOp>();
  ASSERT_FALSE(infos.empty());
  EXPECT_EQ(printAttr((*infos.begin()).getHook()), printAttr(hook));
}
