// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the first difference of two plans, the same one on all ranks.

#include "plan/plan.h"

#include "files/json.h"

#include <algorithm>

using namespace ddphook;

namespace {
struct Difference {
  std::string path;
  std::string first;
  std::string second;
};
} // namespace

static std::string show(const Json &json) {
  std::string text = json.print();
  return text.size() <= 100 ? text : text.substr(0, 97) + "...";
}

static bool find(const Json &a, const Json &b, const std::string &path,
                 Difference *result) {
  if (a == b)
    return false;
  if (a.is(Json::Kind::Object) && b.is(Json::Kind::Object)) {
    auto placeOf = [&](const std::string &key) {
      return path.empty() ? key : path + "." + key;
    };
    for (size_t i = 0; i < a.keys.size(); ++i) {
      const std::string inner = placeOf(a.keys[i]);
      const Json *const other = b.find(a.keys[i]);
      if (!other) {
        *result = {inner, show(a.elements[i]), "absent"};
        return true;
      }
      if (find(a.elements[i], *other, inner, result))
        return true;
    }
    for (size_t i = 0; i < b.keys.size(); ++i)
      if (!a.find(b.keys[i])) {
        *result = {placeOf(b.keys[i]), "absent", show(b.elements[i])};
        return true;
      }
    return false;
  }
  if (a.is(Json::Kind::List) && b.is(Json::Kind::List)) {
    const size_t aSize = a.elements.size(), bSize = b.elements.size();
    for (size_t i = 0; i < std::min(aSize, bSize); ++i)
      if (find(a.elements[i], b.elements[i], concat(path, "[", i, "]"), result))
        return true;
    if (aSize == bSize)
      return false;
    *result = {"the length of " + path, std::to_string(aSize),
               std::to_string(bSize)};
    return true;
  }
  *result = {path.empty() ? "the whole plan" : path, show(a), show(b)};
  return true;
}

std::string ddphook::describeDifference(std::string_view firstText,
                                        const std::string &first,
                                        std::string_view secondText,
                                        const std::string &second) {
  Json a, b;
  const bool areParsed = Json::parse(firstText, &a) == Json::Result::Parsed &&
                         Json::parse(secondText, &b) == Json::Result::Parsed;
  Difference difference;
  if (!areParsed || !find(a, b, "", &difference))
    return "plans differ: they have the same contents in different text on " +
           first + " and " + second;
  return "plans differ: " + difference.path + " is " + difference.first +
         " on " + first + ", but " + difference.second + " on " + second;
}
