// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes JSON text quickly, because files may hold tens of thousands of names.

#pragma once

#include <string>
#include <string_view>

namespace ddphook {

/// Appends `text` as a quoted JSON string. Bytes that are not UTF-8 are
/// replaced if `isRepaired`; otherwise it throws the JSON library's exception.
void appendJsonText(std::string *json, std::string_view text,
                    bool isRepaired = false);

} // namespace ddphook
