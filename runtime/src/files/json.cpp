// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds trees from the events of the JSON library's parser, and writes text.

#include "files/json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <utility>

using namespace ddphook;

/// A plan has nine levels.
static constexpr size_t maxDepth = 12;

namespace {

/// Builds a tree, and stops at input that is refused.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
public:
  explicit TreeBuilder(Json *root) : root(root) {}

  bool isRefused = false;

  bool start_object(size_t) override { return descend(Json::Kind::Object); }
  bool key(std::string &text) override {
    isRefused |= !open.back().keys.insert(text).second;
    open.back().value->keys.push_back(std::move(text));
    return !isRefused;
  }
  bool end_object() override { return ascend(); }
  bool start_array(size_t) override { return descend(Json::Kind::List); }
  bool end_array() override { return ascend(); }
  bool null() override { return add(Json::Kind::Null), true; }
  bool boolean(bool value) override {
    add(Json::Kind::Boolean).boolean = value;
    return true;
  }
  bool number_integer(int64_t value) override {
    Json &json = add(Json::Kind::Integer);
    json.integer = value;
    json.text = std::to_string(value);
    return true;
  }
  bool number_unsigned(uint64_t value) override {
    if (value <= uint64_t(INT64_MAX))
      return number_integer(static_cast<int64_t>(value));
    add(Json::Kind::Number).text = std::to_string(value);
    return true;
  }
  bool number_float(double, const std::string &text) override {
    add(Json::Kind::Number).text = text;
    return true;
  }
  bool string(std::string &text) override {
    add(Json::Kind::String).text = std::move(text);
    return true;
  }
  bool binary(binary_t &) override { return false; }
  bool parse_error(size_t, const std::string &,
                   const nlohmann::json::exception &) override {
    return false;
  }

private:
  /// A list or an object that has not ended.
  struct Level {
    Json *value;
    std::set<std::string> keys;
  };

  Json &add(Json::Kind kind) {
    Json &json =
        open.empty() ? *root : open.back().value->elements.emplace_back();
    json.kind = kind;
    return json;
  }
  bool descend(Json::Kind kind) {
    isRefused |= open.size() == maxDepth;
    if (!isRefused)
      open.push_back({&add(kind), {}});
    return !isRefused;
  }
  bool ascend() {
    open.pop_back();
    return true;
  }

  Json *root;
  std::vector<Level> open;
};

} // namespace

Json::Result Json::parse(std::string_view text, Json *value) {
  *value = Json();
  if (text.find('\0') != std::string_view::npos)
    return Result::Refused;
  TreeBuilder builder(value);
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &builder))
    return Result::Parsed;
  return builder.isRefused ? Result::Refused : Result::NotJson;
}

const Json *Json::find(std::string_view key) const {
  const auto found = std::find(keys.begin(), keys.end(), key);
  return found == keys.end() ? nullptr : &elements[found - keys.begin()];
}

const std::string &Json::string() const {
  static const std::string none;
  return kind == Kind::String ? text : none;
}

/// The JSON library always processes texts byte by byte. Nearly all texts are
/// printable ASCII, which this copies.
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

static void append(std::string *out, const Json &json) {
  switch (json.kind) {
  case Json::Kind::Null:
    *out += "null";
    return;
  case Json::Kind::Boolean:
    *out += json.boolean ? "true" : "false";
    return;
  case Json::Kind::Integer:
  case Json::Kind::Number:
    *out += json.text;
    return;
  case Json::Kind::String:
    return appendJsonText(out, json.text, /*isRepaired=*/true);
  case Json::Kind::List:
  case Json::Kind::Object:
    break;
  }
  const bool isObject = json.is(Json::Kind::Object);
  *out += isObject ? '{' : '[';
  for (size_t i = 0; i < json.elements.size(); ++i) {
    if (i > 0)
      *out += ',';
    if (isObject) {
      appendJsonText(out, json.keys[i], /*isRepaired=*/true);
      *out += ':';
    }
    append(out, json.elements[i]);
  }
  *out += isObject ? '}' : ']';
}

std::string Json::print() const {
  std::string text;
  append(&text, *this);
  return text;
}
