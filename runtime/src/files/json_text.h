// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes JSON text quickly, because files may hold tens of thousands of names.

#ifndef DDPHOOK_RUNTIME_SRC_FILES_JSON_TEXT_H
#define DDPHOOK_RUNTIME_SRC_FILES_JSON_TEXT_H

#include <string>
#include <string_view>

namespace ddphook {

/// Appends `text` as a quoted JSON string. Bytes that are not UTF-8 are
/// replaced if `isRepaired`; otherwise it throws the JSON library's exception.
void appendJsonText(std::string *json, std::string_view text,
                    bool isRepaired = false);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_FILES_JSON_TEXT_H
