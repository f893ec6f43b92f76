// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Looks up MLIR types by name in the lists of element types and encodings.

#include "ddphook/Dialect/DDP/IR/ElementTypes.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

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

/// Joins names as "a, b or c".
static std::string joinNames(ArrayRef<StringRef> names) {
  std::string text = llvm::join(names.drop_back(), ", ");
  return text + " or " + names.back().str();
}

StringRef mlir::ddp::getDtypeNames() {
  static const std::string names = [] {
    SmallVector<StringRef> all;
    for (const ElementType &row : elementTypes)
      if (row.dtype)
        all.push_back(row.name);
    return joinNames(all);
  }();
  return names;
}

//===----------------------------------------------------------------------===//
// Encodings
//===----------------------------------------------------------------------===//

static const EncodingRow encodings[] = {
#define DDPHOOK_ENCODING(NAME, name, bits, KIND, value)                        \
  {#name, bits, EncodingRow::KIND, value},
#include "ddphook/runtime/encodings.inc"
};

const EncodingRow *mlir::ddp::lookupEncoding(Type code) {
  std::string name;
  llvm::raw_string_ostream(name) << code;
  const auto *found = llvm::find_if(
      encodings, [&](const EncodingRow &row) { return row.name == name; });
  return found == std::end(encodings) ? nullptr : found;
}

StringRef mlir::ddp::getEncodingNames() {
  static const std::string names = [] {
    SmallVector<StringRef> all;
    for (const EncodingRow &row : encodings)
      all.push_back(row.name);
    return joinNames(all);
  }();
  return names;
}
