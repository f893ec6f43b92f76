//===- plan_reader.h - reads the plan's JSON --------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parts of the parser that its files share: bounds, a reader of checked
// values at a place in the text, and names. Not for use outside the parser.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_PLAN_PLAN_READER_H
#define DDPHOOK_RUNTIME_SRC_PLAN_PLAN_READER_H

#include "files/json.h"
#include "plan/plan.h"

#include <climits>
#include <map>

namespace ddphook::plan {

/// Bounds on sizes, far above what a machine has. Every sum of a few of them is
/// within 64 bits, and all that the compiler lets through is within them: 2^56
/// elements of eight bytes (DDP.h), and the arena of `ddp-plan-arena`.
constexpr int64_t maxBytes = int64_t(1) << 60;
constexpr int64_t maxAlignment = int64_t(1) << 21;
constexpr int64_t maxRanks = 1 << 24;

/// A place in the plan: reads values there and remembers the first error.
class Reader {
public:
  /// The whole of a text. `what`: what text that is.
  Reader(const Json &json, Status *failure, const char *what = "plan")
      : json(json), failure(failure), what(what) {}

  bool isOk() const { return failure->isOk(); }

  void fail(const std::string &expected) const {
    if (!isOk())
      return;
    std::string got = json.print();
    if (got.size() > 80)
      got = got.substr(0, 77) + "...";
    *failure = error(
        DDPHOOK_DATA_LOSS, "malformed %s: %s: expected %s, but got %s", what,
        around ? path().c_str() : "top level", expected.c_str(), got.c_str());
  }

  bool has(const char *key) const { return json.find(key) != nullptr; }

  /// Checks that this is an object with exactly these keys, and with one that
  /// it may have.
  bool expectKeys(std::initializer_list<const char *> keys,
                  const char *optionalKey = nullptr) const {
    if (!json.is(Json::Kind::Object)) {
      fail("an object");
      return false;
    }
    for (const char *key : keys)
      if (!json.find(key))
        return fail(std::string("a key '") + key + "'"), false;
    const size_t others = optionalKey && json.find(optionalKey) ? 1 : 0;
    if (json.keys.size() != keys.size() + others)
      fail("no unknown keys");
    return isOk();
  }

  /// The value under a key that expectKeys() or has() has seen; valid as long
  /// as this is.
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
    fail("a whole number from " + std::to_string(least) + " to " +
         std::to_string(most));
    return least;
  }

  Dtype dtype() const {
    if (std::optional<Dtype> dtype = parseDtype(text()))
      return *dtype;
    fail("one of \"f16\", \"bf16\", \"f32\", \"f64\"");
    return Dtype::F32;
  }

  std::optional<Dtype> optionalDtype() const {
    if (text().empty())
      return std::nullopt;
    return dtype();
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

  /// Put together only for an error: texts have places by the ten thousand.
  std::string path() const {
    if (!around)
      return "";
    const std::string before = around->path();
    if (!key)
      return before + "[" + std::to_string(index) + "]";
    return before.empty() ? key : before + "." + key;
  }

  const Json &json;
  /// What this is an element of, by its key or else by its index.
  const Reader *around = nullptr;
  const char *key = nullptr;
  size_t index = 0;
  Status *failure;
  const char *what;
};

/// Names that must be unique, and their numbers.
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

/// Shapes of arrays, and the bytes of all of them together.
std::vector<Shape> readShapes(const Reader &at, int64_t elementBytes,
                              int64_t *bytes);

/// A list of names that are not empty.
std::vector<std::string> readNames(const Reader &at);

/// What a state is: its name, type, shapes, role, method and placement. Gives
/// its bytes.
int64_t readDescription(const Reader &at, PlanState *state);

/// No two states have one role for one gradient.
void checkRoles(const Reader &at, const std::vector<PlanState> &states);

// One element of the lists of those names.
void readState(const Reader &at, Names *names, Plan *plan);
void readMatrixList(const Reader &at, const Names &buckets, Plan *plan);

/// The deal of `elements` elements that a list or a collective may have.
void readDeal(const Reader &at, const Names &buckets, const Plan &plan,
              int64_t elements, std::optional<PlanDeal> *deal);
/// Of a list: no part ends within a matrix or a piece, and the parts belong to
/// adjacent members.
void checkDeal(const Reader &at, const PlanMatrixList &list);

/// No two states share memory.
void checkOverlap(const Reader &at, const Plan &plan);

} // namespace ddphook::plan

#endif // DDPHOOK_RUNTIME_SRC_PLAN_PLAN_READER_H
