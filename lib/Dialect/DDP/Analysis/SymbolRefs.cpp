// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the symbols that operations refer to.

#include "SymbolRefs.h"

using namespace mlir;
using namespace mlir::ddp;

unsigned SymbolRefFinder::SameProperties::getHashValue(Operation *op) {
  return llvm::hash_combine(op->getName(), op->hashProperties());
}

bool SymbolRefFinder::SameProperties::isEqual(Operation *first,
                                              Operation *second) {
  if (first == second)
    return true;
  for (Operation *key : {getEmptyKey(), getTombstoneKey()})
    if (first == key || second == key)
      return false;
  return first->getName() == second->getName() &&
         first->getName().compareOpProperties(first->getPropertiesStorage(),
                                              second->getPropertiesStorage());
}

SymbolRefFinder::SymbolRefFinder(std::function<void(SymbolRefAttr)> report) {
  walker.addWalk(std::move(report));
}

void SymbolRefFinder::visit(Operation *op) {
  // Without properties, all attributes are in the dictionary.
  if (op->getPropertiesStorageSize() > 0 && visited.insert(op).second)
    if (Attribute properties = op->getPropertiesAsAttribute())
      walker.walk(properties);
  if (DictionaryAttr attrs = op->getRawDictionaryAttrs(); !attrs.empty())
    walker.walk(attrs);
}

void SymbolRefFinder::visitDiscardable(Operation *op) {
  walker.walk(op->getDiscardableAttrDictionary());
}
