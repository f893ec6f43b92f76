// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The common code of the parser's files: bounds, a reader of checked values at
// a path in the text, and names. Not for use outside the parser.

#pragma once

#include "files/json.h"
#include "plan/plan.h"

#include <map>

namespace ddphook::plan {

/// Bounds on sizes, far above any machine's. The sum of a few of them fits into
/// 64 bits, and everything that the compiler accepts is within them: 2^56
/// elements of eight bytes (DDP.h), and the arena of `ddp-plan-arena`.
constexpr int64_t maxBytes = int64_t(1) << 60;
constexpr int64_t maxAlignment = int64_t(1) << 21;
constexpr int64_t maxRanks = 1 << 24;

/// A node of the plan: reads values there and remembers the first error.
class Reader {
public:
  /// Reads a whole text; `what` names it in messages.
  Reader(const Json &json, Status *failure, const char *what = "plan")
      : json(json), failure(failure), what(what) {}

  bool isOk() const { return failure->isOk(); }

  void fail(const std::string &expected) const {
    if (!isOk())
      return;
    std::string got = json.print();
    if (got.size() > 80)
      got = got.substr(0, 77) + "...";
    *failure = dataLoss("malformed %s: %s: expected %s, but got %s", what,
                        around ? path().c_str() : "top level", expected.c_str(),
                        got.c_str());
  }

  bool has(const char *key) const { return json.find(key) != nullptr; }

  /// Checks that this is an object with exactly these keys.
  bool expectKeys(const std::vector<const char *> &keys) const {
    if (!json.is(Json::Kind::Object)) {
      fail("an object");
      return false;
    }
    for (const char *key : keys)
      if (!json.find(key))
        return fail(std::string("a key '") + key + "'"), false;
    if (json.keys.size() != keys.size())
      fail("no unknown keys");
    return isOk();
  }

  /// Checks that this is an object with the fields of `object` in
  /// plan_fields.inc. Those that are optional may be missing.
  bool expectFields(std::string_view object) const {
    std::vector<const char *> keys;
    auto add = [&](std::string_view owner, std::string_view role,
                   const char *key) {
      if (owner == object && (role.rfind("Optional", 0) != 0 || has(key)))
        keys.push_back(key);
    };
#define DDPHOOK_PLAN_FIELD(Object, Role, key, Name, text)                      \
  add(#Object, #Role, #key);
#include "ddphook/runtime/plan_fields.inc"
    return expectKeys(keys);
  }

  /// Returns the value of a checked key; valid as long as this object is.
  Reader operator[](const char *key) const {
    return Reader(*json.find(key), *this, key, 0);
  }

  std::string text() const {
    if (!json.is(Json::Kind::String))
      fail("a string");
    return json.string();
  }

  bool boolean() const {
    if (!json.is(Json::Kind::Boolean))
      fail("true or false");
    return json.boolean;
  }

  int64_t integer(int64_t least, int64_t most) const {
    if (json.is(Json::Kind::Integer) && json.integer >= least &&
        json.integer <= most)
      return json.integer;
    fail(concat("a whole number from ", least, " to ", most));
    return least;
  }

  Dtype dtype() const {
    if (std::optional<Dtype> dtype = parseDtype(text()))
      return *dtype;
    fail("one of \"f16\", \"bf16\", \"f32\", \"f64\"");
    return Dtype::F32;
  }

  template <typename Function>
  void forEach(Function &&function) const {
    if (!json.is(Json::Kind::List))
      return fail("a list");
    for (size_t i = 0; i < json.elements.size() && isOk(); ++i)
      function(Reader(json.elements[i], *this, nullptr, i));
  }

private:
  Reader(const Json &json, const Reader &around, const char *key, size_t index)
      : json(json), around(&around), key(key), index(index),
        failure(around.failure), what(around.what) {}

  /// Built only for an error, because texts have tens of thousands of nodes.
  std::string path() const {
    if (!around)
      return "";
    const std::string before = around->path();
    if (!key)
      return concat(before, "[", index, "]");
    return before.empty() ? key : before + "." + key;
  }

  const Json &json;
  /// The parent, and the key or else the index in it.
  const Reader *around = nullptr;
  const char *key = nullptr;
  size_t index = 0;
  Status *failure;
  const char *what;
};

/// Unique names and their numbers.
class Names {
public:
  void add(const Reader &at, const std::string &name) {
    if (name.empty() || !numbers.emplace(name, numbers.size()).second)
      at.fail("a name that is not empty and not used before");
  }
  size_t find(const Reader &at) const {
    auto found = numbers.find(at.text());
    if (found != numbers.end())
      return found->second;
    at.fail("a name that is declared earlier in the plan");
    return 0;
  }
  bool contains(const std::string &name) const { return numbers.count(name); }

private:
  std::map<std::string, size_t> numbers;
};

/// Reads shapes of arrays, and sums up the bytes of all of them.
std::vector<Shape> readShapes(const Reader &at, int64_t elementBytes,
                              int64_t *bytes);

/// Reads a list of non-empty names.
std::vector<std::string> readNames(const Reader &at);

/// Reads a state's name, type, shapes, role and so on; returns its bytes.
int64_t readDescription(const Reader &at, PlanState *state);

/// Checks that no two states have the same role for a gradient.
void checkRoles(const Reader &at, const std::vector<PlanState> &states);

// Each reads one element of the list with that name.
void readState(const Reader &at, Names *names, Plan *plan);
void readMatrixList(const Reader &at, const Names &buckets, Plan *plan);

/// Reads the optional assignment of `elements` elements of a list or operand.
void readAssignment(const Reader &at, const Names &buckets, const Plan &plan,
                    int64_t elements,
                    std::optional<PlanAssignment> *assignment);
/// Checks that no part of a list ends within a matrix or a piece, and that the
/// parts belong to adjacent members.
void checkAssignment(const Reader &at, const PlanMatrixList &list);

/// Checks that no two states share memory.
void checkOverlap(const Reader &at, const Plan &plan);

} // namespace ddphook::plan
