//===- json_text.h - texts in JSON ------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes JSON text quickly: files may hold tens of thousands of names.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_FILES_JSON_TEXT_H
#define DDPHOOK_RUNTIME_SRC_FILES_JSON_TEXT_H

#include <string>
#include <string_view>

namespace ddphook {

/// Appends `text` as a JSON string, quotes included. Of a text that is no UTF-8
/// it throws what the JSON library throws, or replaces what is wrong if it
/// `isRepaired`.
void appendJsonText(std::string *json, std::string_view text,
                    bool isRepaired = false);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_FILES_JSON_TEXT_H
