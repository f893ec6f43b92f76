//===- ddphook-opt.cpp - mlir-opt with the ddp dialect ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs passes on IR files: all of upstream's and all of ddphook's.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Compiler/Passes.h"
#include "ddphook/InitAll.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::ddp::registerAllDialects(registry);
  mlir::registerAllPasses();
  mlir::ddp::registerAllPasses();
  mlir::ddp::registerCompilerPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(
      argc, argv, "ddphook: gradient compression as a compiler transform\n",
      registry));
}
