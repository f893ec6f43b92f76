//===- json.h - values of JSON texts ----------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Trees of values. The ones of the library that parses the texts allocate
// memory when they are destroyed, so that running out of it ends the process.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_FILES_JSON_H
#define DDPHOOK_RUNTIME_SRC_FILES_JSON_H

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
    /// An object has a key twice, the nesting is too deep for recursions over
    /// the tree, or there is a zero byte, which the library takes for the end.
    Refused
  };

  /// Replaces `value` by that of `text`; unless it is parsed, by a part of it.
  static Result parse(std::string_view text, Json *value);

  bool is(Kind other) const { return kind == other; }
  /// The value under a key of an object; null if there is none.
  const Json *find(std::string_view key) const;
  /// The text of a string, or "".
  const std::string &string() const;
  /// On one line. Bytes that are not UTF-8 are replaced.
  std::string print() const;

  friend bool operator==(const Json &a, const Json &b) {
    return a.kind == b.kind && a.boolean == b.boolean &&
           a.integer == b.integer && a.text == b.text && a.keys == b.keys &&
           a.elements == b.elements;
  }

  Kind kind = Kind::Null;
  bool boolean = false;
  int64_t integer = 0; ///< Of Integer; what does not fit is a Number.
  std::string text;    ///< Of String, and of numbers as it was written.
  std::vector<std::string> keys; ///< Of Object.
  std::vector<Json> elements;    ///< Of List and Object, in their order.
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_FILES_JSON_H
