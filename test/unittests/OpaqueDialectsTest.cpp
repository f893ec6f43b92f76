// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A dialect that is registered is not replaced by its stand-in.

#include "ddphook/Dialect/Opaque/OpaqueDialects.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/MLIRContext.h"

#include "gtest/gtest.h"

using namespace mlir;

namespace {
/// Knows no operation, attribute or type.
struct RealDialect : public Dialect {
  explicit RealDialect(MLIRContext *context)
      : Dialect(getDialectNamespace(), context, TypeID::get<RealDialect>()) {}
  static constexpr StringLiteral getDialectNamespace() { return "stablehlo"; }
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(RealDialect)
};

TEST(OpaqueDialectsTest, RealDialectsStay) {
  DialectRegistry registry;
  registry.insert<RealDialect>();
  ddp::registerOpaqueDialects(registry);
  // Twice, as by two plugins.
  ddp::registerOpaqueDialects(registry);
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  EXPECT_EQ(context.getLoadedDialect("stablehlo"),
            context.getLoadedDialect<RealDialect>());
  ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) {});
  EXPECT_FALSE(parseAttribute("#stablehlo<precision DEFAULT>", &context));
  for (StringRef text :
       {"#sdy<manual_axes{\"dp\"}>", "#chlo<precision DEFAULT>",
        "#mhlo.sharding<x> : i32"}) {
    Attribute attribute = parseAttribute(text, &context);
    ASSERT_TRUE(attribute) << text.str();
    std::string printed;
    llvm::raw_string_ostream(printed) << attribute;
    EXPECT_EQ(printed, text);
  }
}
} // namespace
