// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The names that gradients get, and which of them are refused.

#include "GradientNames.h"
#include "TestModule.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
class GradientNamesTest : public ModuleTest {
protected:
  /// The names of all reductions in program order, or the error.
  std::string name(StringRef text) {
    parse(("ddp.process_group @dp\n" + text).str());
    std::string errors;
    ScopedDiagnosticHandler handler(
        &context, [&](Diagnostic &diagnostic) { errors += diagnostic.str(); });
    if (failed(nameGradients(*module)))
      return "error: " + errors;
    std::string names;
    module->walk([&](AllReduceOp op) {
      names += names.empty() ? "" : ", ";
      if (auto name = op->getAttrOfType<StringAttr>(DDPDialect::kNameAttrName))
        names += name.str();
      else if (op.getGradients())
        for (auto member : op.getGradientsAttr().getAsRange<StringAttr>())
          names += member.str() + ";";
    });
    return names;
  }
};
} // namespace

TEST_F(GradientNamesTest, NamesComeFromPlaces) {
  EXPECT_EQ(name(R"mlir(
    func.func @step(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
      %0 = ddp.all_reduce mean %b on @dp : tensor<4xf32>
      %s = arith.addf %a, %0 : tensor<4xf32>
      %1 = ddp.all_reduce mean %s on @dp : tensor<4xf32>
      %t = arith.addf %1, %1 : tensor<4xf32>
      %2 = ddp.all_reduce mean %t on @dp : tensor<4xf32>
      return %2 : tensor<4xf32>
    })mlir"),
            "step.arg1, step.gradient1, step.result0");
}

TEST_F(GradientNamesTest, GivenNamesComeFirst) {
  EXPECT_EQ(name(R"mlir(
    func.func @step(%a: tensor<4xf32> {ddp.name = "w"},
                    %b: tensor<4xf32> loc("loss"(callsite("x" at "y")))) {
      %0 = ddp.all_reduce mean %a on @dp : tensor<4xf32>
      %1 = ddp.all_reduce mean %b on @dp : tensor<4xf32>
      %2 = ddp.all_reduce mean %a on @dp {ddp.name = "v"} : tensor<4xf32>
      %3 = ddp.all_reduce mean %b on @dp : tensor<4xf32> loc("here")
      return
    })mlir"),
            "w, loss, v, here");
}

TEST_F(GradientNamesTest, NamesThatAreTakenGetANumber) {
  // Whether it is taken further below does not matter.
  EXPECT_EQ(name(R"mlir(
    func.func @step(%a: tensor<4xf32>, %b: tensor<4xf32> {ddp.name = "w"}) {
      %0 = ddp.all_reduce mean %a on @dp : tensor<4xf32>
      %1 = ddp.all_reduce mean %a on @dp : tensor<4xf32>
      %2 = ddp.all_reduce mean %b on @dp : tensor<4xf32>
      %3 = ddp.all_reduce mean %b on @dp : tensor<4xf32>
      %4 = ddp.all_reduce mean %a on @dp {ddp.name = "step.arg0"}
          : tensor<4xf32>
      %5 = ddp.all_reduce mean %a on @dp {ddp.name = "w#1"} : tensor<4xf32>
      return
    })mlir"),
            "step.arg0#1, step.arg0#2, w, w#2, step.arg0, w#1");
}

TEST_F(GradientNamesTest, MembersOfBuckets) {
  EXPECT_EQ(name(R"mlir(
    func.func @step(%a: !ddp.bucket<f32, [4, 8]>) {
      %0 = ddp.all_reduce mean %a on @dp as "b0" : !ddp.bucket<f32, [4, 8]>
      %1 = ddp.all_reduce mean %a on @dp : !ddp.bucket<f32, [4, 8]>
      return
    })mlir"),
            "b0.0;b0.1;, ");
}

TEST_F(GradientNamesTest, TwoGivenNamesThatAreEqualAreAnError) {
  for (StringRef second :
       {"%1 = ddp.all_reduce mean %b on @dp {ddp.name = \"w\"}"
        " : tensor<4xf32>\n",
        "%1 = ddp.all_reduce mean %c on @dp as \"b0\" "
        ": !ddp.bucket<f32, [4]> of [\"w\"]\n"}) {
    std::string text = ("func.func @step(%a: tensor<4xf32>, %b: tensor<4xf32>, "
                        "%c: !ddp.bucket<f32, [4]>) {\n"
                        "%0 = ddp.all_reduce mean %a on @dp {ddp.name = \"w\"} "
                        ": tensor<4xf32>\n" +
                        second + "return\n}\n")
                           .str();
    EXPECT_EQ(name(text), "error: 'ddp.all_reduce' op expected unique gradient "
                          "names, but got \"w\" twice");
  }
}

TEST_F(GradientNamesTest, AnArgumentAndItsReductionShareAName) {
  EXPECT_EQ(name(R"mlir(
    func.func @step(%a: tensor<4xf32> {ddp.name = "w"}) {
      %0 = ddp.all_reduce mean %a on @dp {ddp.name = "w"} : tensor<4xf32>
      return
    })mlir"),
            "w");
  // But not with the reduction of another one.
  EXPECT_EQ(name(R"mlir(
    func.func @step(%a: tensor<4xf32> {ddp.name = "w"}, %b: tensor<4xf32>) {
      %0 = ddp.all_reduce mean %b on @dp {ddp.name = "w"} : tensor<4xf32>
      return
    })mlir")
                .substr(0, 6),
            "error:");
}

TEST_F(GradientNamesTest, BytesThatAreNoTextAreReplaced) {
  parse("ddp.process_group @dp\nfunc.func @step(%a: tensor<4xf32>) {\n"
        "  %0 = ddp.all_reduce mean %a on @dp : tensor<4xf32>\n  return\n}");
  module->walk([&](AllReduceOp op) {
    op->setLoc(NameLoc::get(StringAttr::get(&context, "w\xff")));
  });
  ASSERT_TRUE(succeeded(nameGradients(*module)));
  module->walk([&](AllReduceOp op) {
    EXPECT_EQ(op->getAttrOfType<StringAttr>(DDPDialect::kNameAttrName),
              StringAttr::get(&context, "w\xef\xbf\xbd"));
  });
}
