// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses plans, except for states and matrix lists (plan_state.cpp). A plan
// comes from a file, so nothing in it is trusted: types, ranges, sums and
// references are checked, and no arithmetic overflows.

#include "files/safetensors.h"
#include "plan/plan_reader.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <limits>
#include <map>
#include <set>

using namespace ddphook;
using namespace ddphook::plan;

static Shape readShape(const Reader &at) {
  Shape shape;
  at.forEach(
      [&](const Reader &size) { shape.push_back(size.integer(0, maxBytes)); });
  return shape;
}

/// Returns the bytes of an array, or fails if they exceed the bounds.
static int64_t shapeBytes(const Reader &at, const Shape &shape,
                          int64_t elementBytes) {
  uint64_t bytes = 0;
  if (tensorBytes(shape, elementBytes, bytes) && bytes <= uint64_t(maxBytes))
    return bytes;
  at.fail(concat("an array of at most ", maxBytes, " bytes"));
  return 0;
}

std::vector<Shape> plan::readShapes(const Reader &at, int64_t elementBytes,
                                    int64_t *bytes) {
  std::vector<Shape> shapes;
  *bytes = 0;
  at.forEach([&](const Reader &shape) {
    shapes.push_back(readShape(shape));
    *bytes += shapeBytes(shape, shapes.back(), elementBytes);
    if (*bytes > maxBytes)
      at.fail(concat("arrays of at most ", maxBytes, " bytes"));
  });
  return shapes;
}

/// Reads lists that contain each rank of 0 … n - 1 exactly once.
static void readPartition(const Reader &at,
                          std::vector<std::vector<int>> *ranks) {
  std::set<int> seen;
  at.forEach([&](const Reader &list) {
    ranks->emplace_back();
    list.forEach([&](const Reader &rank) {
      int value = static_cast<int>(rank.integer(0, maxRanks));
      if (!seen.insert(value).second)
        rank.fail("each rank only once");
      ranks->back().push_back(value);
    });
    if (ranks->back().empty())
      list.fail("at least one rank");
  });
  if (!seen.empty() && *seen.rbegin() != static_cast<int>(seen.size()) - 1)
    at.fail("all ranks from 0 to the largest one");
}

static void readProcessGroup(const Reader &at, Names *names, Plan *plan) {
  if (!at.expectFields("Group"))
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
    at["placement"].fail("no placement together with a list of ranks");
  std::string topology = at["topology"].text();
  group.isHierarchical = topology == "hierarchical";
  if (!group.isHierarchical && topology != "flat")
    at["topology"].fail(R"("flat" or "hierarchical")");
  if (group.isHierarchical && !placement.empty())
    at["topology"].fail("no placement together with a hierarchical topology");
  plan->processGroups.push_back(std::move(group));
}

// Each reads a field of a backend's struct, as plan_fields.inc says.
static void readKind(const Reader &at, const char *key, int32_t *value) {
  const std::string name = at[key].text();
  for (CollectiveKind kind : allCollectiveKinds)
    if (name == collectiveName(kind)) {
      *value = static_cast<int32_t>(kind);
      return;
    }
  at[key].fail("a kind of collective");
}
static void readType(const Reader &at, const char *key, int32_t *value) {
  *value = static_cast<int32_t>(at[key].dtype());
}
static void readWireType(const Reader &at, const char *key, int32_t *value) {
  *value = -1;
  if (!at[key].text().empty())
    readType(at, key, value);
}
static void readCode(const Reader &at, const char *key, int32_t *value) {
  *value = 0;
  if (const std::string name = at[key].text(); !name.empty()) {
    if (const std::optional<Code> code = parseCode(name))
      *value = static_cast<int32_t>(*code);
    else
      at[key].fail("the name of an encoding");
  }
}
static void readFlag(const Reader &at, const char *key, int32_t *value) {
  *value = at[key].boolean();
}
static constexpr auto readNumber = [](const Reader &at, const char *key,
                                      auto *value) {
  using T = std::remove_pointer_t<decltype(value)>;
  constexpr int64_t most = std::numeric_limits<T>::max();
  *value = static_cast<T>(at[key].integer(0, std::min(maxBytes / 8, most)));
};
[[maybe_unused]] static constexpr auto readOptionalNumber = readNumber;
[[maybe_unused]] static constexpr auto readOptionalFlag = readFlag;

/// Checks how elements are sent: as they are, in another type, or encoded.
static void checkWire(const Reader &at, const CollectiveOperation &operation) {
  const std::optional<Encoding> encoding = operation.codes();
  if (!encoding && operation.block != 0)
    at["block"].fail("0 without an encoding");
  if (encoding && operation.wire())
    at["wire_dtype"].fail("no wire type together with an encoding");
  if (encoding && !isBlockOf(encoding->code, encoding->block))
    at["block"].fail(std::string("the size of a block of ") +
                     codeName(encoding->code));
}

static void readBucket(const Reader &at, const Names &groups, Names *names,
                       Plan *plan) {
  if (!at.expectFields("Bucket"))
    return;
  PlanBucket bucket;
  bucket.name = at["name"].text();
  names->add(at["name"], bucket.name);
  bucket.group = groups.find(at["group"]);
  std::string reduction = at["reduction"].text();
  if (reduction != "mean" && reduction != "sum")
    at["reduction"].fail(R"("mean" or "sum")");
  bucket.dtype = at["dtype"].dtype();
  int64_t bytes;
  bucket.shapes = readShapes(at["shapes"], dtypeSize(bucket.dtype), &bytes);
  bucket.gradients = readNames(at["gradients"]);
  if (!bucket.gradients.empty() &&
      bucket.gradients.size() != bucket.shapes.size())
    at["gradients"].fail(
        concat("a name for each of ", bucket.shapes.size(), " shapes"));
  at["hook"].text();
  CollectiveOperation wire;
  readWireType(at, "wire_dtype", &wire.wire_dtype);
  readCode(at, "encoding", &wire.encoding);
  readNumber(at, "block", &wire.block);
  checkWire(at, wire);
  at["wire_bytes"].integer(0, maxBytes);
  at["state_bytes"].integer(0, maxBytes);
  plan->buckets.push_back(std::move(bucket));
}

/// Returns a group's size if the plan defines it; else 0.
static int64_t sizeOf(const PlanProcessGroup &group) {
  if (group.size != 0 || group.ranks.empty())
    return group.size;
  const size_t size = group.ranks.front().size();
  for (const std::vector<int> &ranks : group.ranks)
    if (ranks.size() != size)
      return 0;
  return static_cast<int64_t>(size);
}

/// Checks that a collective has no attributes that its kind does not use, and
/// that the group's size is known if arrays depend on it.
static void checkKind(const Reader &at, const PlanCollective &collective,
                      int64_t ranks) {
  const CollectiveKind kind = collective.collectiveKind();
  const std::string name = collectiveName(kind);
  if (collective.encoding && !mayHaveWireType(kind))
    at["encoding"].fail("no encoding for " + name);
  if (collective.isAffine() && kind != CollectiveKind::AllReduce)
    at["encoding"].fail("an encoding without a zero point for " + name);
  if (collective.wire() && !mayHaveWireType(kind))
    at["wire_dtype"].fail("no wire type for " + name);
  if (collective.divide && !isReduction(kind))
    at["divide"].fail("no division in " + name);
  if (collective.root != 0 && kind != CollectiveKind::Broadcast)
    at["root"].fail("0 in " + name);
  if (!mayBeInPlace(kind) && ranks == 0)
    at["group"].fail("a group whose size the plan defines, for " + name);
  if (ranks == 0)
    return;
  if (collective.root >= ranks)
    at["root"].fail(concat("one of ", ranks, " ranks"));
  if (kind == CollectiveKind::AllToAll && collective.count % ranks != 0)
    at["count"].fail(concat("as many elements for each of ", ranks, " ranks"));
}

/// Reads the state with the collective's error, if it has error feedback.
static void readError(const Reader &at, const Names &states, const Plan &plan,
                      PlanCollective *collective) {
  if (at["error"].text().empty())
    return;
  if (!collective->is(CollectiveKind::AllReduce) || !collective->encoding ||
      collective->isAffine())
    return at["error"].fail(
        "error feedback only for an all_reduce with a scaled encoding");
  collective->errorState = states.find(at["error"]);
  if (!at.isOk())
    return;
  const PlanState &state = plan.states[*collective->errorState];
  if (floatDtype(state.dtype) != collective->type() ||
      state.bytes != collective->bytesOf(collective->count))
    at["error"].fail(
        "a state with the element count and type of the collective");
  if (plan.processGroups[collective->group].isHierarchical &&
      !state.isShareError())
    at["error"].fail(
        "a state of kind share_error, over a hierarchical process group");
}

/// True if a group consists of the ranks of `whole` on each node.
static bool isWithinNodes(const PlanProcessGroup &group, size_t whole) {
  return group.placement == GroupPlacement::IntraNode && group.parent == whole;
}

/// Reads the assignment of parts of an all-reduce's operand, if there is one.
static void readAssignment(const Reader &at, const Names &buckets,
                           const Plan &plan, PlanCollective *collective) {
  readAssignment(at, buckets, plan, collective->count, &collective->assignment);
  if (!collective->assignment)
    return;
  const PlanAssignment &assignment = *collective->assignment;
  const size_t whole = plan.buckets[assignment.bucket].group;
  const bool isWithin =
      isWithinNodes(plan.processGroups[collective->group], whole);
  if (collective->group != whole && !isWithin)
    return at["assignment"].fail(
        "a bucket of the collective's process group or of its parent");
  if (!collective->is(CollectiveKind::AllReduce) || collective->wire() ||
      collective->encoding || (collective->divide && !isWithin))
    return at["assignment"].fail(
        "assigned parts only for an all_reduce without an "
        "encoding, which divides only within nodes");
  if (isWithin && !assignment.isOfOneGroup())
    at["assignment"]["members"].fail("adjacent members of one group");
}

static void readCollective(const Reader &at, const Names &buckets,
                           const Names &states, Plan *plan) {
  if (!at.expectFields("Collective"))
    return;
  PlanCollective collective;
#define DDPHOOK_COLLECTIVE_FIELD(Role, key, Name, type, text)                  \
  if (at.has(#key))                                                            \
    read##Role(at, #key, &collective.key);
#include "ddphook/runtime/plan_fields.inc"
  checkWire(at, collective);
  collective.bucket = at["bucket"].text();
  if (!collective.bucket.empty() && !buckets.contains(collective.bucket))
    at["bucket"].fail("the name of a bucket");
  int64_t groups = static_cast<int64_t>(plan->processGroups.size());
  if (groups == 0)
    return at.fail("no collective in a plan without process groups");
  collective.group = static_cast<size_t>(at["group"].integer(0, groups - 1));
  collective.stream = at["stream"].integer(-1, INT64_MAX);
  if (collective.stream >= 0 &&
      (!isReduction(collective.collectiveKind()) || !collective.encoding ||
       collective.codes()->kind() != CodeKind::SCALED))
    at["stream"].fail("-1 without codes that have a scale for each block");
  if (at.isOk())
    readError(at, states, *plan, &collective);
  if (at.isOk())
    readAssignment(at, buckets, *plan, &collective);
  if (at.isOk())
    checkKind(at, collective, sizeOf(plan->processGroups[collective.group]));
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

/// Reads an Argument or a Result.
static PlanValue readValue(const Reader &at, const char *object) {
  static const std::map<std::string, int64_t> sizes = {
#define DDPHOOK_ENTRY_TYPE(NAME, name, bytes, c_type, file) {#name, bytes},
#include "ddphook/runtime/element_types.inc"
  };
  PlanValue value;
  if (!at.expectFields(object))
    return value;
  value.dtype = at["dtype"].text();
  auto found = sizes.find(value.dtype);
  if (found == sizes.end()) {
    at["dtype"].fail("an element type");
    return value;
  }
  value.shape = readShape(at["shape"]);
  shapeBytes(at["shape"], value.shape, found->second);
  return value;
}

static void readEntry(const Reader &at, Names *names, Plan *plan) {
  if (!at.expectKeys({"name", "arguments", "results"}))
    return;
  PlanEntry entry;
  entry.name = at["name"].text();
  names->add(at["name"], entry.name);
  at["arguments"].forEach([&](const Reader &argument) {
    PlanValue value = readValue(argument, "Argument");
    if (argument.isOk()) {
      value.isScalar = argument["scalar"].boolean();
      value.isInout = argument["inout"].boolean();
      if (value.isScalar && (value.isInout || !value.shape.empty()))
        argument["scalar"].fail(
            "false for an argument that has a shape or is updated in place");
    }
    entry.arguments.push_back(std::move(value));
  });
  at["results"].forEach([&](const Reader &result) {
    PlanValue value = readValue(result, "Result");
    if (!result.isOk())
      return;
    int64_t last = static_cast<int64_t>(entry.arguments.size()) - 1;
    value.argument = result["argument"].integer(-1, last);
    if (result.isOk() && value.argument >= 0) {
      const PlanValue &same = entry.arguments[value.argument];
      if (!same.isInout || same.dtype != value.dtype ||
          same.shape != value.shape)
        result["argument"].fail("an inout argument of the same type");
    }
    entry.results.push_back(std::move(value));
  });
  plan->entries.push_back(std::move(entry));
}

uint64_t ddphook::hashPlan(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

Status ddphook::parsePlan(std::string_view text, Plan *plan) {
  Json json;
  const Json::Result parsed = Json::parse(text, &json);
  if (parsed == Json::Result::Refused)
    return dataLoss(
        "malformed plan: an object has the same key twice, the nesting "
        "is too deep, or there is a zero byte");
  if (parsed == Json::Result::NotJson)
    return dataLoss("malformed plan: it is not JSON text");
  // Check the version first: other versions may have other keys.
  const Json *const version = json.find("abi");
  if (!version || !version->is(Json::Kind::Integer))
    return dataLoss("malformed plan: it has no ABI version");
  if (version->integer != DDPHOOK_ABI_VERSION)
    return unsupported("expected a plan for ABI version %d, but got one for %s",
                       DDPHOOK_ABI_VERSION, version->text.c_str());

  Status failure;
  Reader top(json, &failure);
  if (!top.expectKeys({"abi", "memory", "kernels", "process_groups", "buckets",
                       "states", "matrix_lists", "collectives", "arena",
                       "state_arena", "entries"}))
    return failure;
  Plan result;
  Names groups, buckets, states, entries, kernels;
  const std::string memory = top["memory"].text();
  if (memory != "host" && memory != "device")
    top["memory"].fail("\"host\" or \"device\"");
  result.needsHostMemory = memory == "host";
  top["kernels"].forEach([&](const Reader &at) {
    kernels.add(at, at.text());
    result.kernels.push_back(at.text());
  });
  if (result.needsHostMemory && !result.kernels.empty())
    top["kernels"].fail("no kernels in a plan for the host's memory");
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
  if (failure.isOk())
    checkRoles(top["states"], result.states);
  top["matrix_lists"].forEach(
      [&](const Reader &at) { readMatrixList(at, buckets, &result); });
  top["collectives"].forEach(
      [&](const Reader &at) { readCollective(at, buckets, states, &result); });
  top["entries"].forEach(
      [&](const Reader &at) { readEntry(at, &entries, &result); });
  if (failure.isOk())
    *plan = std::move(result);
  return failure;
}
