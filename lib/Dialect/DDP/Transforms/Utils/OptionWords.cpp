// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See OptionWords.h. MLIR's parser of options is not public and does not know
// the brackets `<` and `(`; otherwise it splits text in the same way.

#include "OptionWords.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir::ddp;
using llvm::SmallVector;
using llvm::StringRef;

StringRef OptionWord::getValue() const {
  StringRef value = equalsValue;
  if (!value.consume_front("="))
    return "true";
  for (StringRef quotes : {"''", "\"\"", "{}"})
    if (value.size() >= 2 && value.front() == quotes[0] &&
        value.back() == quotes[1])
      return value.drop_front().drop_back().trim();
  return value;
}

size_t mlir::ddp::getWordLength(StringRef text) {
  constexpr StringRef openings = "\"'{[(<", closings = "\"'}])>";
  SmallVector<char> expected;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (!expected.empty() && c == expected.back()) {
      // The `>` of an arrow is not a closing bracket.
      if (c != '>' || text[i - 1] != '-')
        expected.pop_back();
    } else if (!expected.empty() &&
               llvm::is_contained("\"'", expected.back())) {
      continue;
    } else if (size_t kind = openings.find(c); kind != StringRef::npos) {
      expected.push_back(closings[kind]);
    } else if (expected.empty() && llvm::isSpace(c)) {
      return i;
    }
  }
  return text.size();
}

SmallVector<OptionWord> mlir::ddp::splitOptionWords(StringRef text) {
  SmallVector<OptionWord> words;
  for (text = text.ltrim(); !text.empty(); text = text.ltrim()) {
    StringRef word = text.take_front(getWordLength(text));
    text = text.drop_front(word.size());
    std::string name = word.take_until([](char c) { return c == '='; }).lower();
    StringRef equalsValue = word.drop_front(name.size());
    std::replace(name.begin(), name.end(), '_', '-');
    words.push_back({std::move(name), equalsValue});
  }
  return words;
}
