// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "base/suggestion.h"

#include <algorithm>
#include <numeric>

using namespace ddphook;

/// A shorter part of a name says too little.
static constexpr size_t shortestPart = 4;

/// Returns the Levenshtein distance.
static size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

static bool contains(std::string_view name, std::string_view part) {
  return part.size() >= shortestPart &&
         name.find(part) != std::string_view::npos;
}

std::string_view
ddphook::suggestName(std::string_view name,
                     const std::vector<std::string_view> &known) {
  std::string_view best;
  size_t least = std::max<size_t>(2, name.size() / 3) + 1;
  for (std::string_view candidate : known) {
    const size_t distance = editDistance(name, candidate);
    // A candidate of which no character remains was not meant.
    if (distance >= least || distance >= candidate.size())
      continue;
    least = distance;
    best = candidate;
  }
  if (!best.empty())
    return best;
  auto found =
      std::find_if(known.begin(), known.end(), [&](std::string_view candidate) {
        return contains(candidate, name) || contains(name, candidate);
      });
  return found == known.end() ? std::string_view() : *found;
}
