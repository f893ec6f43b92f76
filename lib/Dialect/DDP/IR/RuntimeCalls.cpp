// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Looks up properties of the runtime's functions by name, and checks that their
// names are free in a module.

#include "ddphook/Dialect/DDP/IR/RuntimeCalls.h"

using namespace mlir;
using namespace mlir::ddp;

bool mlir::ddp::readsOnly(StringRef function, unsigned number) {
#define DDPHOOK_FUNCTION(known)                                                \
  if (function == rt::known.name)                                              \
    return rt::known.readsOnly(number);
#include "ddphook/runtime/functions.inc"
  return false;
}

static LogicalResult checkName(ModuleOp module, StringRef name,
                               LLVM::LLVMFunctionType type) {
  Operation *symbol = module.lookupSymbol(name);
  auto function = dyn_cast_or_null<LLVM::LLVMFuncOp>(symbol);
  if (!symbol ||
      (function && function.isExternal() && function.getFunctionType() == type))
    return success();
  return symbol->emitError()
         << "expected '" << name << "' to be the runtime's function of type "
         << type;
}

LogicalResult mlir::ddp::checkRuntimeNames(ModuleOp module) {
  MLIRContext *context = module.getContext();
#define DDPHOOK_FUNCTION(function)                                             \
  if (failed(checkName(module, rt::function.name,                              \
                       rt::function.getType(context))))                        \
    return failure();
#include "ddphook/runtime/functions.inc"
  return success();
}
