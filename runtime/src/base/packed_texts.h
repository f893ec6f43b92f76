// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers and texts as bytes, for messages and files. Numbers are
// little-endian. Texts may contain any bytes, line feeds included, so each is
// preceded by its length, and no two lists of texts give the same bytes.

#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddphook {

template <typename Integer>
void putNumber(std::string &bytes, Integer value) {
  for (size_t i = 0; i < sizeof(Integer); ++i)
    bytes += static_cast<char>(value >> (8 * i));
}

/// Returns the number at `offset` of `bytes`, which must contain it.
template <typename Integer>
Integer takeNumber(std::string_view bytes, size_t offset = 0) {
  Integer value = 0;
  for (size_t i = 0; i < sizeof(Integer); ++i)
    value |= static_cast<Integer>(static_cast<unsigned char>(bytes[offset + i]))
             << (8 * i);
  return value;
}

template <class Text = std::string_view>
std::string packTexts(const std::vector<Text> &texts) {
  std::string packed;
  for (const Text &text : texts) {
    putNumber<uint64_t>(packed, text.size());
    packed += text;
  }
  return packed;
}

/// Returns the texts that packTexts() packed, or none if it is malformed.
inline std::vector<std::string> unpackTexts(std::string_view packed) {
  std::vector<std::string> texts;
  while (packed.size() >= 8) {
    const auto size = takeNumber<uint64_t>(packed);
    packed.remove_prefix(8);
    if (size > packed.size())
      return {};
    texts.emplace_back(packed.substr(0, size));
    packed.remove_prefix(size);
  }
  return packed.empty() ? texts : std::vector<std::string>();
}

inline std::string toHex(std::string_view bytes) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += digits[value >> 4];
    text += digits[value & 15];
  }
  return text;
}

/// Returns `text` with every `word` replaced.
inline std::string replaceAll(std::string text, std::string_view word,
                              std::string_view by) {
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos;
       at += by.size())
    text.replace(at, word.size(), by);
  return text;
}

/// Splits `text` at its commas; the result has at least one part.
inline std::vector<std::string> splitAtCommas(const std::string &text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

} // namespace ddphook
