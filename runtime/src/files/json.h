// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A JSON tree, and JSON text. The parser library's own trees allocate memory
// when they are destroyed, so running out of memory would end the process.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddphook {

class Json {
public:
  enum class Kind { Null, Boolean, Integer, Number, String, List, Object };

  enum class Result {
    Parsed,
    NotJson,
    /// An object has a duplicate key, the nesting is too deep for recursion, or
    /// there is a zero byte, which the library takes for the end.
    Refused
  };

  /// Parses `text` into `value`, which has a part of it after a failure.
  static Result parse(std::string_view text, Json *value);

  bool is(Kind other) const { return kind == other; }
  /// Returns the value of a key of an object, or null.
  const Json *find(std::string_view key) const;
  /// Returns the text of a string, or "".
  const std::string &string() const;
  /// Returns the text on one line. Bytes that are not UTF-8 are replaced.
  std::string print() const;

  friend bool operator==(const Json &a, const Json &b) {
    return a.kind == b.kind && a.boolean == b.boolean &&
           a.integer == b.integer && a.text == b.text && a.keys == b.keys &&
           a.elements == b.elements;
  }

  Kind kind = Kind::Null;
  bool boolean = false;
  int64_t integer = 0; ///< For Integer; a number that does not fit is a Number.
  std::string text;    ///< For String, and for numbers as written.
  std::vector<std::string> keys; ///< For Object.
  std::vector<Json> elements;    ///< For List and Object, in order.
};

/// Appends `text` as a quoted JSON string, quickly, because files may hold tens
/// of thousands of names. Bytes that are not UTF-8 are replaced if
/// `isRepaired`; otherwise it throws the JSON library's exception.
void appendJsonText(std::string *json, std::string_view text,
                    bool isRepaired = false);

} // namespace ddphook
