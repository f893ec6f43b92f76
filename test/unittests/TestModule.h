// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A context with the dialects that the tests use, and how tests find operations
// in a module: by the attribute `name`, which tests give to functions'
// operations as `test.name`.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

namespace mlir::ddp {

class ModuleTest : public ::testing::Test {
protected:
  ModuleTest() {
    DialectRegistry registry;
    registry.insert<
        DDPDialect, arith::ArithDialect, bufferization::BufferizationDialect,
        cf::ControlFlowDialect, func::FuncDialect, linalg::LinalgDialect,
        memref::MemRefDialect, scf::SCFDialect, tensor::TensorDialect>();
    registerBufferizationModels(registry);
    arith::registerBufferizableOpInterfaceExternalModels(registry);
    linalg::registerBufferizableOpInterfaceExternalModels(registry);
    scf::registerBufferizableOpInterfaceExternalModels(registry);
    tensor::registerBufferizableOpInterfaceExternalModels(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    context.allowUnregisteredDialects();
  }

  /// Parses the module that the test is about.
  ModuleOp parse(StringRef text) {
    module = parseSourceString<ModuleOp>(text, &context);
    if (!module)
      llvm::report_fatal_error("expected a valid module, but got " + text);
    return *module;
  }

  /// The operation with this `test.name`.
  Operation *find(StringRef name) {
    Operation *found = nullptr;
    module->walk([&](Operation *op) {
      auto given = op->getAttrOfType<StringAttr>("test.name");
      if (given && given.getValue() == name)
        found = op;
    });
    EXPECT_NE(found, nullptr) << name.str();
    return found;
  }

  template <typename OpTy>
  OpTy findOp(StringRef name) {
    return cast<OpTy>(find(name));
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

} // namespace mlir::ddp
