//===- OptionWords.h - options taken apart ----------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Options of passes as users write them: NAME=VALUE, separated by spaces.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_OPTIONWORDS_H
#define DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_OPTIONWORDS_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace mlir::ddp {

struct OptionWord {
  /// In lower case, with dashes.
  std::string name;
  /// As it is written; empty for a name alone.
  llvm::StringRef equalsValue;

  /// The value without what quotes it; `true` for a name alone.
  llvm::StringRef getValue() const;
};

/// The number of characters before the first space that is in no quotes and no
/// brackets.
size_t getWordLength(llvm::StringRef text);

llvm::SmallVector<OptionWord> splitOptionWords(llvm::StringRef text);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_TRANSFORMS_UTILS_OPTIONWORDS_H
