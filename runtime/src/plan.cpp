//===- plan.cpp - what a compiled module needs ----------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses plans. A plan comes from a file, so nothing in it is believed: types,
// ranges, sums and references are checked, and no arithmetic overflows.
//
//===----------------------------------------------------------------------===//
#include "plan.h"

#include <nlohmann/json.hpp>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <climits>
#include <map>
#include <set>

using namespace ddphook;
using Json = nlohmann::ordered_json;

/// Bounds on sizes, far above what a machine holds, that keep every sum and
/// product of a few of them within 64 bits.
static constexpr int64_t maxBytes = int64_t(1) << 48;
static constexpr int64_t maxAlignment = int64_t(1) << 21;
static constexpr int64_t maxRanks = 1 << 24;
/// Twice the depth of a plan that is as it should be.
static constexpr int maxDepth = 12;

namespace {

/// A place in the plan: reads values there and remembers the first error.
class Reader {
public:
  Reader(const Json &json, std::string path, Status *failure)
      : json(json), path(std::move(path)), failure(failure) {}

  bool isOk() const { return failure->isOk(); }

  void fail(const std::string &expected) const {
    if (!isOk())
      return;
    std::string got = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (got.size() > 80)
      got = got.substr(0, 77) + "...";
    *failure =
        error(DDPHOOK_DATA_LOSS, "malformed plan: %s: expected %s, but got %s",
              path.empty() ? "the whole" : path.c_str(), expected.c_str(),
              got.c_str());
  }

  /// Checks that this is an object with exactly these keys.
  bool expectKeys(std::initializer_list<const char *> keys) const {
    if (!json.is_object()) {
      fail("an object");
      return false;
    }
    for (const char *key : keys)
      if (!json.contains(key))
        return fail(std::string("a key '") + key + "'"), false;
    if (json.size() != keys.size())
      fail("no other keys than the known ones");
    return isOk();
  }

  /// The value under a key that expectKeys() has seen.
  Reader operator[](const char *key) const {
    return Reader(json.at(key), path.empty() ? key : path + "." + key, failure);
  }

  std::string text() const {
    if (json.is_string())
      return json.get<std::string>();
    fail("a text");
    return "";
  }

  bool boolean() const {
    if (json.is_boolean())
      return json.get<bool>();
    fail("true or false");
    return false;
  }

  int64_t integer(int64_t least, int64_t most) const {
    bool fits = json.is_number_unsigned()
                    ? json.get<uint64_t>() <= uint64_t(INT64_MAX)
                    : json.is_number_integer();
    if (fits) {
      int64_t value = json.get<int64_t>();
      if (value >= least && value <= most)
        return value;
    }
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

  template <typename Function> void forEach(Function &&function) const {
    if (!json.is_array())
      return fail("a list");
    for (size_t i = 0; i < json.size() && isOk(); ++i)
      function(Reader(json[i], path + "[" + std::to_string(i) + "]", failure));
  }

private:
  const Json &json;
  const std::string path;
  Status *failure;
};

/// Names that must be unique, and their numbers.
class Names {
public:
  void add(const Reader &at, const std::string &name) {
    if (name.empty() || !numbers.emplace(name, numbers.size()).second)
      at.fail("a name of its own");
  }
  size_t find(const Reader &at) const {
    auto found = numbers.find(at.text());
    if (found != numbers.end())
      return found->second;
    at.fail("a name from earlier in the plan");
    return 0;
  }
  bool contains(const std::string &name) const { return numbers.count(name); }

private:
  std::map<std::string, size_t> numbers;
};

} // namespace

static Shape readShape(const Reader &at) {
  Shape shape;
  at.forEach(
      [&](const Reader &size) { shape.push_back(size.integer(0, maxBytes)); });
  return shape;
}

/// Bytes of an array, or an error when they are beyond all bounds.
static int64_t shapeBytes(const Reader &at, const Shape &shape,
                          int64_t elementBytes) {
  int64_t bytes = elementBytes;
  for (int64_t size : shape)
    if (size == 0)
      return 0;
  for (int64_t size : shape) {
    if (bytes > maxBytes / size) {
      at.fail("an array of at most " + std::to_string(maxBytes) + " bytes");
      return 0;
    }
    bytes *= size;
  }
  return bytes;
}

static std::vector<Shape> readShapes(const Reader &at, Dtype dtype,
                                     int64_t *bytes) {
  std::vector<Shape> shapes;
  *bytes = 0;
  at.forEach([&](const Reader &shape) {
    shapes.push_back(readShape(shape));
    *bytes += shapeBytes(shape, shapes.back(), dtypeSize(dtype));
    if (*bytes > maxBytes)
      at.fail("arrays of at most " + std::to_string(maxBytes) + " bytes");
  });
  return shapes;
}

/// Each rank of 0 … n - 1 exactly once.
static void readPartition(const Reader &at,
                          std::vector<std::vector<int>> *ranks) {
  std::set<int> seen;
  at.forEach([&](const Reader &list) {
    ranks->emplace_back();
    list.forEach([&](const Reader &rank) {
      int value = static_cast<int>(rank.integer(0, maxRanks));
      if (!seen.insert(value).second)
        rank.fail("every rank once");
      ranks->back().push_back(value);
    });
    if (ranks->back().empty())
      list.fail("at least one rank");
  });
  if (!seen.empty() && *seen.rbegin() != static_cast<int>(seen.size()) - 1)
    at.fail("all ranks from 0 on");
}

static void readProcessGroup(const Reader &at, Names *names, Plan *plan) {
  if (!at.expectKeys({"name", "size", "ranks", "placement", "parent"}))
    return;
  PlanProcessGroup group;
  if (!at["parent"].text().empty())
    group.parent = names->find(at["parent"]);
  group.name = at["name"].text();
  names->add(at["name"], group.name);
  group.size = at["size"].integer(0, maxRanks);
  readPartition(at["ranks"], &group.ranks);
  std::string placement = at["placement"].text();
  if (placement == "intra_node")
    group.placement = GroupPlacement::IntraNode;
  else if (placement == "inter_node")
    group.placement = GroupPlacement::InterNode;
  else if (!placement.empty())
    at["placement"].fail(R"("", "intra_node" or "inter_node")");
  if (!placement.empty() && !group.ranks.empty())
    at["placement"].fail("no placement beside a list of ranks");
  plan->processGroups.push_back(std::move(group));
}

static void readBucket(const Reader &at, const Names &groups, Names *names,
                       Plan *plan) {
  if (!at.expectKeys({"name", "group", "reduction", "dtype", "shapes", "hook",
                      "wire_dtype", "wire_bytes", "state_bytes"}))
    return;
  PlanBucket bucket;
  bucket.name = at["name"].text();
  names->add(at["name"], bucket.name);
  bucket.group = groups.find(at["group"]);
  std::string reduction = at["reduction"].text();
  if (reduction != "mean" && reduction != "sum")
    at["reduction"].fail(R"("mean" or "sum")");
  bucket.isMean = reduction == "mean";
  bucket.dtype = at["dtype"].dtype();
  int64_t bytes;
  bucket.shapes = readShapes(at["shapes"], bucket.dtype, &bytes);
  bucket.hook = at["hook"].text();
  bucket.wireDtype = at["wire_dtype"].optionalDtype();
  bucket.wireBytes = at["wire_bytes"].integer(0, maxBytes);
  bucket.stateBytes = at["state_bytes"].integer(0, maxBytes);
  plan->buckets.push_back(std::move(bucket));
}

static void readState(const Reader &at, Names *names, Plan *plan) {
  if (!at.expectKeys(
          {"name", "dtype", "shapes", "placement", "init", "offset", "bytes"}))
    return;
  PlanState state;
  state.name = at["name"].text();
  names->add(at["name"], state.name);
  state.dtype = at["dtype"].dtype();
  int64_t bytes = 0;
  state.shapes = readShapes(at["shapes"], state.dtype, &bytes);
  std::string placement = at["placement"].text();
  if (placement != "replicated" && placement != "per_rank")
    at["placement"].fail(R"("replicated" or "per_rank")");
  state.placement = placement == "replicated" ? StatePlacement::Replicated
                                              : StatePlacement::PerRank;
  std::string init = at["init"].text();
  if (init != "zero" && init != "normal")
    at["init"].fail(R"("zero" or "normal")");
  state.init = init == "zero" ? StateInit::Zero : StateInit::Normal;
  state.offset = at["offset"].integer(0, plan->stateArena.bytes);
  if (state.offset % dtypeSize(state.dtype) != 0)
    at["offset"].fail("a multiple of the element's size");
  state.bytes = at["bytes"].integer(0, maxBytes);
  if (state.bytes != bytes)
    at["bytes"].fail("the shapes' " + std::to_string(bytes) + " bytes");
  if (state.bytes > plan->stateArena.bytes - state.offset)
    at["bytes"].fail("an end within the state arena");
  plan->states.push_back(std::move(state));
}

static void checkOverlap(const Reader &at, const Plan &plan) {
  std::vector<const PlanState *> order;
  for (const PlanState &state : plan.states)
    if (state.bytes > 0)
      order.push_back(&state);
  std::sort(order.begin(), order.end(),
            [](const PlanState *a, const PlanState *b) {
              return a->offset < b->offset;
            });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset)
      at.fail("states apart from each other, not '" + order[i - 1]->name +
              "' over '" + order[i]->name + "'");
}

static void readCollective(const Reader &at, const Names &buckets, Plan *plan) {
  if (!at.expectKeys(
          {"bucket", "group", "count", "dtype", "wire_dtype", "divide"}))
    return;
  PlanCollective collective;
  collective.bucket = at["bucket"].text();
  if (!collective.bucket.empty() && !buckets.contains(collective.bucket))
    at["bucket"].fail("the name of a bucket");
  int64_t groups = static_cast<int64_t>(plan->processGroups.size());
  if (groups == 0)
    return at.fail("no collective in a plan without process groups");
  collective.group = static_cast<size_t>(at["group"].integer(0, groups - 1));
  collective.count = at["count"].integer(0, maxBytes / 8);
  collective.dtype = at["dtype"].dtype();
  collective.wireDtype = at["wire_dtype"].optionalDtype();
  collective.divide = at["divide"].boolean();
  plan->collectives.push_back(std::move(collective));
}

static PlanArena readArena(const Reader &at) {
  PlanArena arena;
  if (!at.expectKeys({"bytes", "alignment"}))
    return arena;
  arena.bytes = at["bytes"].integer(0, maxBytes);
  arena.alignment = at["alignment"].integer(1, maxAlignment);
  if (arena.alignment & (arena.alignment - 1))
    at["alignment"].fail("a power of two");
  return arena;
}

static PlanValue readValue(const Reader &at, const char *lastKey) {
  static const std::map<std::string, int64_t> sizes = {
      {"f16", 2}, {"bf16", 2}, {"f32", 4}, {"f64", 8}, {"i1", 1},
      {"i8", 1},  {"i16", 2},  {"i32", 4}, {"i64", 8}, {"index", 8}};
  PlanValue value;
  if (!at.expectKeys({"dtype", "shape", lastKey}))
    return value;
  value.dtype = at["dtype"].text();
  auto found = sizes.find(value.dtype);
  if (found == sizes.end()) {
    at["dtype"].fail("an element type");
    return value;
  }
  value.elementBytes = found->second;
  value.shape = readShape(at["shape"]);
  shapeBytes(at["shape"], value.shape, value.elementBytes);
  return value;
}

static void readEntry(const Reader &at, Names *names, Plan *plan) {
  if (!at.expectKeys({"name", "arguments", "results"}))
    return;
  PlanEntry entry;
  entry.name = at["name"].text();
  names->add(at["name"], entry.name);
  at["arguments"].forEach([&](const Reader &argument) {
    entry.arguments.push_back(readValue(argument, "inout"));
    if (argument.isOk())
      entry.arguments.back().isInout = argument["inout"].boolean();
  });
  at["results"].forEach([&](const Reader &result) {
    PlanValue value = readValue(result, "argument");
    if (!result.isOk())
      return;
    int64_t last = static_cast<int64_t>(entry.arguments.size()) - 1;
    value.argument = result["argument"].integer(-1, last);
    if (result.isOk() && value.argument >= 0) {
      const PlanValue &same =
          entry.arguments[static_cast<size_t>(value.argument)];
      if (!same.isInout || same.dtype != value.dtype ||
          same.shape != value.shape)
        result["argument"].fail("an inout argument of the same type");
    }
    entry.results.push_back(std::move(value));
  });
  plan->entries.push_back(std::move(entry));
}

/// Parses JSON, refusing what the library tolerates: an object that has a key
/// twice, and depths at which it would use up the stack later on.
static Json parseStrictly(std::string_view text, bool *isRefused) {
  std::vector<std::set<std::string>> open;
  auto onEvent = [&](int depth, Json::parse_event_t event, Json &parsed) {
    if (depth > maxDepth) {
      *isRefused = true;
      return false;
    }
    if (event == Json::parse_event_t::object_start)
      open.emplace_back();
    else if (event == Json::parse_event_t::object_end)
      open.pop_back();
    else if (event == Json::parse_event_t::key)
      *isRefused |=
          !open.back().insert(parsed.get_ref<const std::string &>()).second;
    return true;
  };
  return Json::parse(text.begin(), text.end(), onEvent,
                     /*allow_exceptions=*/false);
}

uint64_t ddphook::hashPlan(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

Status ddphook::parsePlan(std::string_view text, Plan *plan) {
  bool isRefused = false;
  Json json = parseStrictly(text, &isRefused);
  if (isRefused)
    return error(DDPHOOK_DATA_LOSS,
                 "malformed plan: an object has a key twice, or it is nested "
                 "too deeply");
  if (json.is_discarded())
    return error(DDPHOOK_DATA_LOSS, "malformed plan: it is no JSON text");
  // The version first: another one may have other keys.
  if (!json.is_object() || !json.contains("abi") ||
      !json["abi"].is_number_integer())
    return error(DDPHOOK_DATA_LOSS, "malformed plan: it names no ABI version");
  if (json["abi"] != DDPHOOK_ABI_VERSION)
    return error(DDPHOOK_UNSUPPORTED,
                 "expected a plan for ABI version %d, but got one for %s",
                 DDPHOOK_ABI_VERSION, json["abi"].dump().c_str());

  Status failure;
  Reader top(json, "", &failure);
  if (!top.expectKeys({"abi", "process_groups", "buckets", "states",
                       "collectives", "arena", "state_arena", "entries"}))
    return failure;
  Plan result;
  Names groups, buckets, states, entries;
  result.arena = readArena(top["arena"]);
  result.stateArena = readArena(top["state_arena"]);
  top["process_groups"].forEach(
      [&](const Reader &at) { readProcessGroup(at, &groups, &result); });
  top["buckets"].forEach(
      [&](const Reader &at) { readBucket(at, groups, &buckets, &result); });
  top["states"].forEach(
      [&](const Reader &at) { readState(at, &states, &result); });
  if (failure.isOk())
    checkOverlap(top["states"], result);
  top["collectives"].forEach(
      [&](const Reader &at) { readCollective(at, buckets, &result); });
  top["entries"].forEach(
      [&](const Reader &at) { readEntry(at, &entries, &result); });
  if (failure.isOk())
    *plan = std::move(result);
  return failure;
}
