// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The JSON library always processes texts byte by byte. Nearly all texts are
// printable ASCII, which this file copies.

#include "files/json_text.h"

#include <nlohmann/json.hpp>

#include <algorithm>

using namespace ddphook;

void ddphook::appendJsonText(std::string *json, std::string_view text,
                             bool isRepaired) {
  using ErrorHandler = nlohmann::json::error_handler_t;
  const bool isPlain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= 0x20 && static_cast<unsigned char>(c) < 0x7f;
  });
  if (!isPlain) {
    *json += nlohmann::json(text).dump(
        /*indent=*/-1, ' ', /*ensure_ascii=*/false,
        isRepaired ? ErrorHandler::replace : ErrorHandler::strict);
    return;
  }
  *json += '"';
  const char *begin = text.data(), *end = begin + text.size();
  while (true) {
    const char *special =
        std::find_if(begin, end, [](char c) { return c == '"' || c == '\\'; });
    json->append(begin, special);
    if (special == end)
      break;
    (*json += '\\') += *special;
    begin = special + 1;
  }
  *json += '"';
}
