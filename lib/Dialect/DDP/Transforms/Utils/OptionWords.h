// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Options of passes as users write them: NAME=VALUE, separated by spaces.

#pragma once

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace mlir::ddp {

struct OptionWord {
  /// The name in lower case, with dashes.
  std::string name;
  /// `=VALUE` as written; empty for a name alone.
  llvm::StringRef equalsValue;

  /// Returns the value without quotes, or `true` for a name alone.
  llvm::StringRef getValue() const;
};

/// Returns the number of characters before the first space outside of quotes
/// and brackets.
size_t getWordLength(llvm::StringRef text);

llvm::SmallVector<OptionWord> splitOptionWords(llvm::StringRef text);

} // namespace mlir::ddp
