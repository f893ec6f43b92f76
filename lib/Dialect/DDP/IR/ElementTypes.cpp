//===- ElementTypes.cpp ----------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds MLIR's types in the list of element types, by their names.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Dialect/DDP/IR/ElementTypes.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mlir::ddp;

static const ElementType elementTypes[] = {
#define DDPHOOK_DTYPE(NAME, name, bytes, c_type, file, value)                  \
  {#name, #c_type, bytes, value},
#define DDPHOOK_ENTRY_TYPE(NAME, name, bytes, c_type, file)                    \
  {#name, #c_type, bytes, std::nullopt},
#include "ddphook/runtime/element_types.inc"
};

const ElementType *mlir::ddp::lookupElementType(Type type) {
  std::string name;
  llvm::raw_string_ostream(name) << type;
  const auto *found = llvm::find_if(
      elementTypes, [&](const ElementType &row) { return row.name == name; });
  return found == std::end(elementTypes) ? nullptr : found;
}

bool mlir::ddp::isDtype(Type type) {
  const ElementType *known = lookupElementType(type);
  return known && known->dtype;
}

StringRef mlir::ddp::getDtypeNames() {
  static const std::string names = [] {
    std::string text;
    for (const ElementType &row : elementTypes)
      if (row.dtype)
        text += (text.empty() ? "" : ", ") + row.name.str();
    size_t last = text.rfind(", ");
    return text.replace(last, 2, " or ");
  }();
  return names;
}
