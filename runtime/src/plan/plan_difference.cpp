//===- plan_difference.cpp - where two plans differ -----------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the first difference of two plans in the order in which they are
// written, so that all ranks name the same one.
//
//===----------------------------------------------------------------------===//
#include "plan/plan.h"

#include <nlohmann/json.hpp>

using namespace ddphook;
using Json = nlohmann::ordered_json;

namespace {
struct Difference {
  std::string path;
  std::string first;
  std::string second;
};
} // namespace

static std::string show(const Json &json) {
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= 100 ? text : text.substr(0, 97) + "...";
}

static bool find(const Json &a, const Json &b, const std::string &path,
                 Difference *result) {
  if (a == b)
    return false;
  if (a.is_object() && b.is_object()) {
    for (const auto &[key, value] : a.items()) {
      std::string inner = path.empty() ? key : path + "." + key;
      if (!b.contains(key)) {
        *result = {inner, show(value), "absent"};
        return true;
      }
      if (find(value, b[key], inner, result))
        return true;
    }
    for (const auto &[key, value] : b.items())
      if (!a.contains(key)) {
        *result = {path.empty() ? key : path + "." + key, "absent",
                   show(value)};
        return true;
      }
    return false;
  }
  if (a.is_array() && b.is_array()) {
    size_t common = std::min(a.size(), b.size());
    for (size_t i = 0; i < common; ++i)
      if (find(a[i], b[i], path + "[" + std::to_string(i) + "]", result))
        return true;
    if (a.size() == b.size())
      return false;
    *result = {"the length of " + path, std::to_string(a.size()),
               std::to_string(b.size())};
    return true;
  }
  *result = {path.empty() ? "the whole plan" : path, show(a), show(b)};
  return true;
}

std::string ddphook::describeDifference(std::string_view firstText,
                                        const std::string &first,
                                        std::string_view secondText,
                                        const std::string &second) {
  // Bounds the depth of the recursions above, whatever a rank sent.
  auto isShallow = [](int depth, Json::parse_event_t, Json &) {
    return depth < 16;
  };
  Json a = Json::parse(firstText.begin(), firstText.end(), isShallow, false);
  Json b = Json::parse(secondText.begin(), secondText.end(), isShallow, false);
  Difference difference;
  if (a.is_discarded() || b.is_discarded() || !find(a, b, "", &difference))
    return "plans differ: they have the same contents in different text on " +
           first + " and " + second;
  return "plans differ: " + difference.path + " is " + difference.first +
         " on " + first + ", but " + difference.second + " on " + second;
}
