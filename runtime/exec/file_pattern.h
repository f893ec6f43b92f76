// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Patterns in which `{rank}` and `{step}` stand for numbers, and a check for
// two files of a run with the same name. Links are not followed.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ddphook {

/// Returns `pattern` with every `{rank}` and `{step}` replaced.
std::string expandPattern(const std::string &pattern, int32_t rank,
                          int64_t step);

/// The files that `ranks` ranks use in `steps` steps.
struct FileSet {
  std::string pattern;
  int32_t ranks = 1;
  int64_t steps = 1;
};

/// The rank and step at which a file is used.
struct FilePlace {
  int32_t rank = 0;
  int64_t step = 0;
};

struct Collision {
  FilePlace first;
  FilePlace second;
};

/// Returns two uses in which `set` has the same name. Its pattern must have a
/// `{rank}` for several ranks, and a `{step}` for several steps.
std::optional<Collision> findCollision(const FileSet &set);

/// Returns a use of `first` and one of `second` with the same name.
std::optional<Collision> findCollision(const FileSet &first,
                                       const FileSet &second);

} // namespace ddphook
