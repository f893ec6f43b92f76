// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses command lines by tables of flags, from which --help follows too.

#pragma once

#include "base/packed_texts.h"
#include "base/status.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ddphook::bench {

using Arguments = std::vector<std::string>;

/// Parses the value of a flag; `flag` is its name as the user wrote it.
using Setter =
    std::function<Status(const std::string &flag, const std::string &value)>;

struct Flag {
  char shortName; ///< 0: none
  std::string name;
  std::string value; ///< What --help calls the value; empty: there is none.
  std::string help;
  Setter set;
};

/// Parses `arguments`: flags as --name=VALUE, --name VALUE, -n VALUE or
/// -nVALUE, and other words with `word`.
Status parseFlags(const Arguments &arguments, const std::vector<Flag> &flags,
                  const std::function<Status(const std::string &)> &word);

/// Returns the lines about the flags for --help.
std::string helpOf(const std::vector<Flag> &flags);

/// Returns ", did you mean NAME?" for the closest of `known`, with a prefix to
/// the name, or an empty text.
std::string didYouMean(std::string_view name,
                       const std::vector<std::string_view> &known,
                       const std::string &prefix = "");

/// Prints a failure, and the help of a wrong usage; returns the exit status.
int fail(const Status &status, const char *help = nullptr);

Status mismatch(const std::string &flag, const char *wanted,
                const std::string &value);

/// Setters for common kinds of values.
Setter toNumber(double *number, double least, double most);
Setter toInt(int *number, int least, int most);
/// A list: `add` parses an item, and adds what it stands for.
template <class T>
Setter toList(std::vector<T> *list, Setter add) {
  return [=](const std::string &flag, const std::string &value) {
    list->clear();
    for (const std::string &item : splitAtCommas(value))
      DDPHOOK_TRY(add(flag, item));
    return Status::ok();
  };
}
/// A number of bytes, with an optional suffix K, M or G.
Setter toSize(int64_t *bytes);
/// A text that is not empty.
Setter toText(std::string *text, const char *wanted = "the name of a file");
/// For flags without a value.
Setter toTrue(bool *flag);

} // namespace ddphook::bench
