// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Accumulators.h"

#include "ddphook/Dialect/DDP/IR/DDP.h"

using namespace mlir;
using namespace mlir::ddp;

void mlir::ddp::requestWideAccumulators(ModuleOp module) {
  bool isNarrow =
      module
          .walk([](Operation *op) {
            return llvm::any_of(op->getResultTypes(),
                                [](Type type) {
                                  type = getElementTypeOrSelf(type);
                                  return type.isF16() || type.isBF16();
                                })
                       ? WalkResult::interrupt()
                       : WalkResult::advance();
          })
          .wasInterrupted();
  if (isNarrow)
    module->setAttr(DDPDialect::kWidenAccumulatorsAttrName,
                    UnitAttr::get(module.getContext()));
}
