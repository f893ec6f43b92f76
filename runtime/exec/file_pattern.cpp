// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A run may have too many files to list, so names are compared with unknown
// digits: for every choice of the numbers' lengths, the two names are aligned,
// and characters at the same position must be equal. Undetermined digits are as
// small as possible, which gives the smallest numbers that collide; the files
// collide if these occur in the run.

#include "file_pattern.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

using namespace ddphook;

static constexpr char rankWord[] = "{rank}";
static constexpr char stepWord[] = "{step}";
static constexpr size_t wordLength = sizeof(rankWord) - 1;

template <typename Text>
static Text expand(const std::string &pattern, const Text &rank,
                   const Text &step) {
  Text name;
  for (size_t i = 0; i < pattern.size();) {
    const bool isRank = pattern.compare(i, wordLength, rankWord) == 0;
    if (isRank || pattern.compare(i, wordLength, stepWord) == 0) {
      const Text &number = isRank ? rank : step;
      name.insert(name.end(), number.begin(), number.end());
      i += wordLength;
    } else {
      name.push_back(pattern[i++]);
    }
  }
  return name;
}

std::string ddphook::expandPattern(const std::string &pattern, int32_t rank,
                                   int64_t step) {
  return expand(pattern, std::to_string(rank), std::to_string(step));
}

/// The characters of a name; those from `firstUnknown` on are unknown digits.
using Cells = std::vector<int>;
static constexpr int firstUnknown = 256;

/// The rank and step of the first file, then of the second.
constexpr size_t numberCount = 4;
using Lengths = std::array<int, numberCount>;
constexpr int maxDigits = 19;

/// Returns the collision of files with numbers of these lengths, if any.
static std::optional<Collision>
collide(const FileSet &first, const FileSet &second, const Lengths &lengths) {
  std::array<Cells, numberCount> numbers;
  for (size_t n = 0; n < numberCount; ++n)
    for (int i = 0; i < lengths[n]; ++i)
      numbers[n].push_back(firstUnknown + static_cast<int>(n) * maxDigits + i);
  Cells a = expand(first.pattern, numbers[0], numbers[1]);
  Cells b = expand(second.pattern, numbers[2], numbers[3]);
  if (a.size() != b.size())
    return std::nullopt;
  auto replaceAll = [&](int cell, int other) {
    std::replace(a.begin(), a.end(), cell, other);
    std::replace(b.begin(), b.end(), cell, other);
    for (Cells &number : numbers)
      std::replace(number.begin(), number.end(), cell, other);
  };
  for (size_t i = 0; i < a.size(); ++i) {
    const auto [known, unknown] = std::minmax({a[i], b[i]});
    if (known == unknown)
      continue;
    const bool isDigit =
        known >= firstUnknown || (known >= '0' && known <= '9');
    if (unknown < firstUnknown || !isDigit)
      return std::nullopt;
    replaceAll(unknown, known);
  }
  for (const Cells &number : numbers) {
    if (number.size() > 1 && number[0] >= firstUnknown)
      replaceAll(number[0], '1');
    if (number.size() > 1 && number[0] == '0')
      return std::nullopt;
  }
  const int64_t ends[] = {first.ranks, first.steps, second.ranks, second.steps};
  std::array<int64_t, numberCount> values;
  for (size_t n = 0; n < numberCount; ++n) {
    uint64_t value = 0;
    for (int cell : numbers[n])
      value = value * 10 +
              static_cast<uint64_t>(cell < firstUnknown ? cell - '0' : 0);
    if (value >= static_cast<uint64_t>(ends[n]))
      return std::nullopt;
    values[n] = static_cast<int64_t>(value);
  }
  return Collision{{static_cast<int32_t>(values[0]), values[1]},
                   {static_cast<int32_t>(values[2]), values[3]}};
}

/// Returns the digits of the largest number below `end`; 1 without the word.
static int digitsBelow(const std::string &pattern, const char *word,
                       int64_t end) {
  return pattern.find(word) == std::string::npos
             ? 1
             : static_cast<int>(std::to_string(end - 1).size());
}

/// Normalizes names so that equal ones have equal text, except for links.
static FileSet normalize(FileSet set) {
  std::error_code code;
  auto path = std::filesystem::absolute(set.pattern, code);
  if (!code)
    set.pattern = path.lexically_normal().string();
  return set;
}

static std::optional<Collision> search(const FileSet &first,
                                       const FileSet &second, bool isSame) {
  const Lengths most = {digitsBelow(first.pattern, rankWord, first.ranks),
                        digitsBelow(first.pattern, stepWord, first.steps),
                        digitsBelow(second.pattern, rankWord, second.ranks),
                        digitsBelow(second.pattern, stepWord, second.steps)};
  for (Lengths l = {1, 1, 1, 1}; l[0] <= most[0]; ++l[0])
    for (l[1] = 1; l[1] <= most[1]; ++l[1])
      for (l[2] = 1; l[2] <= most[2]; ++l[2])
        for (l[3] = 1; l[3] <= most[3]; ++l[3]) {
          // With numbers of equal lengths, names differ where the numbers do.
          if (isSame && l[0] == l[2] && l[1] == l[3])
            continue;
          if (std::optional<Collision> found = collide(first, second, l))
            return found;
        }
  return std::nullopt;
}

std::optional<Collision> ddphook::findCollision(const FileSet &set) {
  const FileSet files = normalize(set);
  return search(files, files, /*isSame=*/true);
}

std::optional<Collision> ddphook::findCollision(const FileSet &first,
                                                const FileSet &second) {
  return search(normalize(first), normalize(second), /*isSame=*/false);
}
