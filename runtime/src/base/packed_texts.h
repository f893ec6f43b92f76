// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks send each other texts that may contain any bytes, line feeds included,
// so each text is preceded by its length. No two lists of texts give the same
// bytes.

#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddphook {

template <class Text = std::string_view>
std::string packTexts(const std::vector<Text> &texts) {
  std::string packed;
  for (const Text &text : texts) {
    const uint64_t size = text.size();
    for (int i = 0; i < 8; ++i)
      packed += static_cast<char>(size >> (8 * i));
    packed += text;
  }
  return packed;
}

/// Returns the texts from which packTexts() made `packed`, or none if it is
/// malformed.
inline std::vector<std::string> unpackTexts(std::string_view packed) {
  std::vector<std::string> texts;
  while (packed.size() >= 8) {
    uint64_t size = 0;
    for (int i = 0; i < 8; ++i)
      size |= uint64_t(static_cast<unsigned char>(packed[i])) << (8 * i);
    packed.remove_prefix(8);
    if (size > packed.size())
      return {};
    texts.emplace_back(packed.substr(0, size));
    packed.remove_prefix(size);
  }
  return packed.empty() ? texts : std::vector<std::string>();
}

/// Returns two hexadecimal digits for each byte.
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
