// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the symbols to which many operations refer.
// Operation::getAttrDictionary() would create a dictionary of every operation's
// properties, which the context keeps; a training step has tens of thousands of
// operations, but their properties rarely differ.

#pragma once

#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseSet.h"

namespace mlir::ddp {

/// Reports the symbols in attributes of the operations that it visits. Each
/// symbol is reported once, even if many operations refer to it. Unlike
/// SymbolUserMap, it accepts unregistered operations. Operations must not
/// change between visits.
class SymbolRefFinder {
public:
  explicit SymbolRefFinder(std::function<void(SymbolRefAttr)> report);

  /// Visits all attributes of `op` itself.
  void visit(Operation *op);
  /// Visits only the discardable attributes of `op`.
  void visitDiscardable(Operation *op);

private:
  struct SameProperties : llvm::DenseMapInfo<Operation *> {
    static unsigned getHashValue(Operation *op);
    static bool isEqual(Operation *first, Operation *second);
  };

  AttrTypeWalker walker;
  llvm::DenseSet<Operation *, SameProperties> visited;
};

} // namespace mlir::ddp
