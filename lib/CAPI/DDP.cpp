// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ddphook-c/DDP.h"

#include "ddphook/Compiler/Compiler.h"
#include "ddphook/Compiler/Passes.h"
#include "ddphook/Dialect/Opaque/OpaqueDialects.h"
#include "ddphook/InitAll.h"

#include "mlir/CAPI/IR.h"
#include "mlir/CAPI/Registration.h"
#include "mlir/InitAllPasses.h"

MLIR_DEFINE_CAPI_DIALECT_REGISTRATION(DDP, ddp, mlir::ddp::DDPDialect)

void ddphookRegisterDialects(MlirDialectRegistry registry) {
  mlir::ddp::registerCompilerDialects(*unwrap(registry));
}

void ddphookRegisterOpaqueDialects(MlirDialectRegistry registry) {
  mlir::ddp::registerOpaqueDialects(*unwrap(registry));
}

MlirModule ddphookModuleCreateParse(MlirContext context, MlirStringRef source) {
  mlir::MLIRContext *known = unwrap(context);
  std::string message = mlir::ddp::explainUnreadable(unwrap(source), *known);
  if (!message.empty()) {
    mlir::emitError(mlir::UnknownLoc::get(known)) << message;
    return {nullptr};
  }
  return mlirModuleCreateParse(context, source);
}

void ddphookRegisterPasses() {
  mlir::registerAllPasses();
  mlir::ddp::registerAllPasses();
  mlir::ddp::registerCompilerPasses();
}
