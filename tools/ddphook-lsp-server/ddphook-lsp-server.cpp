// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Completion, hovering and diagnostics in editors for .mlir files with ddp
// operations.

#include "ToolOptions.h"
#include "ddphook/Dialect/Opaque/OpaqueDialects.h"
#include "ddphook/InitAll.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"

int main(int argc, char **argv) {
  mlir::ddp::setVersionPrinter("ddphook-lsp-server");
  if (!mlir::ddp::checkHelpIsMeant("ddphook-lsp-server",
                                   llvm::ArrayRef(argv, argc)))
    return 1;
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::ddp::registerAllDialects(registry);
  mlir::ddp::registerOpaqueDialects(registry);
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}
