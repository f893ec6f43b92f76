// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The list. Every entry crashes `mlir-opt` 22.1 without any of our passes.

#include "UpstreamCrashes.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Regex.h"

#include <string>

using llvm::SmallVector;
using llvm::StringRef;

/// The parser calls itself for every bracket that opens.
static constexpr int maxDepth = 100;

/// The parsers of these operations go on after a list that they could not read,
/// without an attribute.
static bool hasBrokenList(StringRef text, StringRef operation, StringRef list) {
  constexpr StringRef number = " *-?[0-9]+ *";
  llvm::Regex wholeList(
      (llvm::Twine(list) + " = \\[(" + number + "(," + number + ")*)? *\\]")
          .str());
  SmallVector<StringRef> parts;
  text.split(parts, operation);
  return llvm::any_of(llvm::drop_begin(parts),
                      [&](StringRef part) { return !wholeList.match(part); });
}

/// The parser of linalg.generic takes what is in this list for strings.
static bool hasBrokenIterators(StringRef text) {
  constexpr StringRef space = "[ \n]*";
  const std::string iterator =
      (space + "(\"[a-z]*\"|#linalg\\.iterator_type<[a-z]*>)" + space).str();
  llvm::Regex wholeList((llvm::Twine("^") + space + "=" + space + "\\[(" +
                         iterator + "(," + iterator + ")*)?" + space + "\\]")
                            .str());
  SmallVector<StringRef> parts;
  text.split(parts, "iterator_types");
  return llvm::any_of(llvm::drop_begin(parts),
                      [&](StringRef part) { return !wholeList.match(part); });
}

bool mlir::ddp::crashesUpstream(StringRef text) {
  if (hasBrokenList(text, "linalg.transpose", "permutation") ||
      hasBrokenList(text, "linalg.broadcast", "dimensions") ||
      hasBrokenList(text, "linalg.reduce", "dimensions") ||
      hasBrokenIterators(text))
    return true;
  int depth = 0;
  for (char c : text) {
    depth += StringRef("([{<").contains(c) ? 1 : 0;
    depth -= StringRef(")]}>").contains(c) && depth > 0 ? 1 : 0;
    if (depth > maxDepth)
      return true;
  }
  return false;
}
