// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Versions of the dialect's bytecode. That files of earlier versions are read
// is tested in test/Dialect/DDP/bytecode.mlir.

#include "TestModule.h"
#include "ddphook/Dialect/DDP/IR/DDPBytecode.h"

#include "mlir/Bytecode/BytecodeWriter.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
class BytecodeTest : public ModuleTest {
protected:
  /// Writes the module as that version, and reads it; the errors if that fails.
  std::string readWritten(std::optional<uint64_t> version) {
    BytecodeWriterConfig config;
    if (version)
      config.setDialectVersion<DDPDialect>(
          std::make_unique<DDPVersion>(*version));
    std::string bytes;
    llvm::raw_string_ostream os(bytes);
    EXPECT_TRUE(succeeded(writeBytecodeToFile(*module, os, config)));
    std::string errors;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      errors += diagnostic.str() + "\n";
    });
    again = parseSourceString<ModuleOp>(bytes, &context);
    EXPECT_EQ(static_cast<bool>(again), errors.empty());
    return errors;
  }

  static std::string print(ModuleOp module) {
    std::string text;
    llvm::raw_string_ostream(text) << module;
    return text;
  }

  OwningOpRef<ModuleOp> again;
};
} // namespace

TEST_F(BytecodeTest, ReadsWhatItWrites) {
  parse("ddp.process_group @dp size 2\n"
        "func.func @step(%g: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %r = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.fp16}"
        " : tensor<4xf32>\n"
        "  return %r : tensor<4xf32>\n"
        "}\n");
  EXPECT_EQ(readWritten(std::nullopt), "");
  EXPECT_EQ(print(*again), print(*module));
  EXPECT_EQ(readWritten(DDPVersion::kCurrent), "");
}

TEST_F(BytecodeTest, RefusesVersionsThatItDoesNotKnow) {
  parse("ddp.process_group @dp");
  for (uint64_t version :
       {DDPVersion::kCurrent + 1, uint64_t(1) << 40, uint64_t(0)}) {
    std::string errors = readWritten(version);
    EXPECT_NE(errors.find("expected bytecode of version 1 to " +
                          std::to_string(DDPVersion::kCurrent) +
                          " of the ddp dialect, but got version " +
                          std::to_string(version)),
              std::string::npos)
        << errors;
  }
}

TEST_F(BytecodeTest, OtherModulesHaveNoVersion) {
  parse("func.func private @f()");
  EXPECT_EQ(readWritten(DDPVersion::kCurrent + 1), "");
}
