// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddphook-opt, the dialect `testhook`, and passes for tests.

#include "BreakCollectives.h"
#include "TestHook.h"

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
  registry.insert<testhook::TestHookDialect>();
  mlir::registerAllPasses();
  mlir::ddp::registerAllPasses();
  mlir::ddp::registerCompilerPasses();
  testhook::registerBreakCollectivesPipeline();
  return mlir::asMainReturnCode(mlir::MlirOptMain(
      argc, argv, "ddphook-opt with the dialect testhook\n", registry));
}
