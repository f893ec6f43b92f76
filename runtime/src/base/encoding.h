// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The encodings of encodings.inc with their sizes. docs/quantization.md defines
// them, to the bit.

#pragma once

#include "base/status.h"
#include "ddphook/runtime/compiled.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddphook {

enum class Code : int32_t {
#define DDPHOOK_ENCODING(NAME, name, bits, KIND, value) NAME = value,
#include "ddphook/runtime/encodings.inc"
};

enum class CodeKind { CAST, SCALED, AFFINE };

constexpr const char *codeName(Code code) {
  switch (code) {
#define DDPHOOK_ENCODING(NAME, name, bits, KIND, value)                        \
  case Code::NAME:                                                             \
    return #name;
#include "ddphook/runtime/encodings.inc"
  }
  return "unknown";
}

constexpr int64_t codeBits(Code code) {
  switch (code) {
#define DDPHOOK_ENCODING(NAME, name, bits, KIND, value)                        \
  case Code::NAME:                                                             \
    return bits;
#include "ddphook/runtime/encodings.inc"
  }
  return 0;
}

constexpr CodeKind codeKind(Code code) {
  switch (code) {
#define DDPHOOK_ENCODING(NAME, name, bits, KIND, value)                        \
  case Code::NAME:                                                             \
    return CodeKind::KIND;
#include "ddphook/runtime/encodings.inc"
  }
  return CodeKind::CAST;
}

/// The parameters of a block of affine codes, in which each element has the
/// value scale · (code − zero).
struct AffineScale {
  float scale;
  float zero;
};

/// A code and the number of elements that share a scale.
struct Encoding {
  Code code = Code::F16;
  /// The elements of a block. 0 for casts, which have no blocks, and for affine
  /// codes with one block for the whole array.
  int64_t block = 0;

  static constexpr int64_t kLeastBlock = DDPHOOK_BLOCK_UNIT;
  static constexpr int64_t kMostBlock = DDPHOOK_BLOCK_MOST;

  CodeKind kind() const { return codeKind(code); }
  bool isAffine() const { return kind() == CodeKind::AFFINE; }

  /// Returns the bytes of `count` codes that begin with a block.
  int64_t codeBytes(int64_t count) const {
    return (count * codeBits(code) + 7) / 8;
  }
  /// Returns the bytes of their blocks' scales: bfloat16 or AffineScale.
  int64_t scaleBytes(int64_t count) const {
    if (kind() == CodeKind::CAST || count == 0)
      return 0;
    const int64_t blocks = block == 0 ? 1 : (count + block - 1) / block;
    return blocks * (isAffine() ? int64_t{sizeof(AffineScale)} : 2);
  }
  /// Returns the bytes that one rank contributes for `count` elements.
  int64_t bytes(int64_t count) const {
    return codeBytes(count) + scaleBytes(count);
  }
  /// Returns the smallest number of elements that can be encoded separately.
  /// Casts have a granule, too, so that parts of an array begin at cache lines.
  int64_t granule() const {
    return kind() == CodeKind::SCALED ? block : kLeastBlock;
  }

  /// Returns "i8 in blocks of 256".
  std::string describe() const {
    std::string text = codeName(code);
    return block == 0 ? text : concat(text, " in blocks of ", block);
  }

  friend bool operator==(const Encoding &a, const Encoding &b) {
    return a.code == b.code && a.block == b.block;
  }
};

/// Returns the code with that name in a plan, or nullopt.
inline std::optional<Code> parseCode(std::string_view name) {
#define DDPHOOK_ENCODING(NAME, text, bits, KIND, value)                        \
  if (name == #text)                                                           \
    return Code::NAME;
#include "ddphook/runtime/encodings.inc"
  return std::nullopt;
}

constexpr std::optional<Code> codeFromAbi(int32_t number) {
#define DDPHOOK_ENCODING(NAME, name, bits, KIND, value)                        \
  if (number == value)                                                         \
    return Code::NAME;
#include "ddphook/runtime/encodings.inc"
  return std::nullopt;
}

/// Returns the encoding with those numbers in the ABI, or nullopt.
constexpr std::optional<Encoding> encodingFromAbi(int32_t number,
                                                  int64_t block) {
  const std::optional<Code> code = codeFromAbi(number);
  if (!code)
    return std::nullopt;
  return Encoding{*code, block};
}

/// True if the code allows blocks of `block` elements.
constexpr bool isBlockOf(Code code, int64_t block) {
  switch (codeKind(code)) {
  case CodeKind::CAST:
    return block == 0;
  case CodeKind::SCALED:
    return block >= Encoding::kLeastBlock && block <= Encoding::kMostBlock &&
           block % Encoding::kLeastBlock == 0;
  case CodeKind::AFFINE:
    // A block has whole bytes.
    return block >= 0 && block % 8 * codeBits(code) % 8 == 0;
  }
  return false;
}

} // namespace ddphook
