// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A run may have too many files to list, so names are compared with unknown
// digits: for every choice of the numbers' lengths, the two names are aligned,
// and characters at the same position must be equal. Undetermined digits are as
// small as possible, which gives the smallest numbers that collide; the files
// collide if these occur in the run.

#include "file_pattern.h"

#include <array>
#include <filesystem>
#include <numeric>
#include <vector>

using namespace ddphook;

static constexpr char rankWord[] = "{rank}";
static constexpr char stepWord[] = "{step}";
static constexpr size_t wordLength = sizeof(rankWord) - 1;

/// Calls `onRank`, `onStep`, or `onText` with a character, for all of
/// `pattern`.
template <typename OnRank, typename OnStep, typename OnText>
static void scan(const std::string &pattern, OnRank onRank, OnStep onStep,
                 OnText onText) {
  for (size_t i = 0; i < pattern.size();) {
    if (pattern.compare(i, wordLength, rankWord) == 0) {
      onRank();
      i += wordLength;
    } else if (pattern.compare(i, wordLength, stepWord) == 0) {
      onStep();
      i += wordLength;
    } else {
      onText(pattern[i++]);
    }
  }
}

std::string ddphook::expandPattern(const std::string &pattern, int32_t rank,
                                   int64_t step) {
  std::string name;
  scan(
      pattern, [&] { name += std::to_string(rank); },
      [&] { name += std::to_string(step); }, [&](char c) { name += c; });
  return name;
}

namespace {

/// A character of a name: a known one, or an unknown digit.
struct Cell {
  int digit; ///< −1: known.
  char known;
};

/// The rank and step of the first file, then of the second.
constexpr size_t numberCount = 4;
using Lengths = std::array<int, numberCount>;
constexpr int maxDigits = 19;

/// The digits of four numbers, and which of them must be equal.
class Digits {
public:
  explicit Digits(const Lengths &lengths)
      : lengths(lengths), parents(numberCount * maxDigits),
        known(parents.size(), '\0') {
    std::iota(parents.begin(), parents.end(), 0);
  }

  /// Returns the cells of `pattern`, whose rank is number `rank` and whose step
  /// is the next number.
  std::vector<Cell> layOut(const std::string &pattern, size_t rank) const {
    std::vector<Cell> cells;
    auto append = [&](size_t number) {
      for (int i = 0; i < lengths[number]; ++i)
        cells.push_back({static_cast<int>(number) * maxDigits + i, '\0'});
    };
    scan(
        pattern, [&] { append(rank); }, [&] { append(rank + 1); },
        [&](char c) { cells.push_back({-1, c}); });
    return cells;
  }

  /// Makes two cells equal; returns false if that is impossible.
  bool unite(const Cell &a, const Cell &b) {
    if (a.digit < 0 && b.digit < 0)
      return a.known == b.known;
    if (a.digit < 0)
      return unite(b, a);
    const int root = find(a.digit);
    char value = b.known;
    if (b.digit >= 0) {
      const int other = find(b.digit);
      value = known[other];
      parents[other] = root;
    }
    if (value == '\0' || value == known[root])
      return true;
    const bool wasFree = known[root] == '\0';
    known[root] = value;
    return wasFree && value >= '0' && value <= '9';
  }

  /// Finds the smallest values of the numbers; false if one would begin with 0.
  bool solve(std::array<uint64_t, numberCount> &numbers) {
    for (size_t number = 0; number < numberCount; ++number) {
      char &leading = known[find(static_cast<int>(number) * maxDigits)];
      if (lengths[number] < 2)
        continue;
      if (leading == '0')
        return false;
      if (leading == '\0')
        leading = '1';
    }
    for (size_t number = 0; number < numberCount; ++number) {
      numbers[number] = 0;
      for (int i = 0; i < lengths[number]; ++i) {
        const char digit =
            known[find(static_cast<int>(number) * maxDigits + i)];
        numbers[number] = numbers[number] * 10 +
                          static_cast<uint64_t>(digit ? digit - '0' : 0);
      }
    }
    return true;
  }

private:
  int find(int digit) const {
    while (parents[digit] != digit)
      digit = parents[digit];
    return digit;
  }

  const Lengths &lengths;
  std::vector<int> parents;
  std::vector<char> known; ///< For roots only; '\0': any.
};

} // namespace

/// Returns the collision of files with numbers of these lengths, if any.
static std::optional<Collision>
collide(const FileSet &first, const FileSet &second, const Lengths &lengths) {
  Digits digits(lengths);
  const std::vector<Cell> a = digits.layOut(first.pattern, 0);
  const std::vector<Cell> b = digits.layOut(second.pattern, 2);
  if (a.size() != b.size())
    return std::nullopt;
  for (size_t i = 0; i < a.size(); ++i)
    if (!digits.unite(a[i], b[i]))
      return std::nullopt;
  std::array<uint64_t, numberCount> numbers;
  if (!digits.solve(numbers))
    return std::nullopt;
  const int64_t ends[] = {first.ranks, first.steps, second.ranks, second.steps};
  for (size_t i = 0; i < numberCount; ++i)
    if (numbers[i] >= static_cast<uint64_t>(ends[i]))
      return std::nullopt;
  auto place = [&](size_t i) {
    return FilePlace{static_cast<int32_t>(numbers[i]),
                     static_cast<int64_t>(numbers[i + 1])};
  };
  return Collision{place(0), place(2)};
}

/// Returns the number of digits of the largest number below `end`, or 1 if
/// `pattern` has no such number.
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
          // Names of one pattern with numbers of equal lengths differ wherever
          // the numbers do.
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
