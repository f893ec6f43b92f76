// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Suggests names for misspelled flags of tools and environment variables.

#pragma once

#include <string_view>
#include <vector>

namespace ddphook {

/// Returns the name in `known` that is most similar to `name`: the one with the
/// fewest insertions, removals and replacements (at most two, or a third of the
/// name), else one that contains or is contained in `name`. Otherwise empty.
std::string_view suggestName(std::string_view name,
                             const std::vector<std::string_view> &known);

} // namespace ddphook
