// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Looks up MLIR types by name in the lists of element types and encodings.

#include "ddphook/Dialect/DDP/IR/ElementTypes.h"
#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "llvm/ADT/SmallVectorExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ScopedPrinter.h"

using namespace mlir;
using namespace mlir::ddp;

static const ElementType elementTypes[] = {
#define DDPHOOK_DTYPE(NAME, name, bytes, c_type, file, value)                  \
  {#name, #c_type, bytes, value},
#define DDPHOOK_ENTRY_TYPE(NAME, name, bytes, c_type, file)                    \
  {#name, #c_type, bytes, std::nullopt},
#include "ddphook/runtime/element_types.inc"
};

/// Returns the row that is named like the type, or null.
template <typename RowT>
static const RowT *lookup(ArrayRef<RowT> rows, Type type) {
  std::string name = llvm::to_string(type);
  const RowT *found =
      llvm::find_if(rows, [&](const RowT &row) { return row.name == name; });
  return found == rows.end() ? nullptr : found;
}

const ElementType *mlir::ddp::lookupElementType(Type type) {
  return lookup(ArrayRef(elementTypes), type);
}

bool mlir::ddp::isDtype(Type type) {
  const ElementType *known = lookupElementType(type);
  return known && known->dtype;
}

std::string mlir::ddp::listAlternatives(ArrayRef<StringRef> names) {
  std::string text = llvm::join(names.drop_back(), ", ");
  return (text.empty() ? "" : text + " or ") + names.back().str();
}

StringRef mlir::ddp::getDtypeNames() {
  static const std::string names = [] {
    SmallVector<StringRef> all;
    for (const ElementType &row : elementTypes)
      if (row.dtype)
        all.push_back(row.name);
    return listAlternatives(all);
  }();
  return names;
}

static const EncodingRow encodings[] = {
#define DDPHOOK_ENCODING(NAME, name, bits, KIND, value)                        \
  {#name, bits, EncodingRow::KIND, value},
#include "ddphook/runtime/encodings.inc"
};

const EncodingRow *mlir::ddp::lookupEncoding(Type code) {
  return lookup(ArrayRef(encodings), code);
}

StringRef mlir::ddp::getEncodingNames() {
  static const std::string names = listAlternatives(llvm::map_to_vector(
      encodings, [](const EncodingRow &row) { return row.name; }));
  return names;
}
