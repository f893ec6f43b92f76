// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses a plan's memory that outlives a step, and the matrices in buckets.
// Lists of matrices can be long, so every check takes time proportional to
// their length, except for sorting.

#include "base/random.h"
#include "files/safetensors.h"
#include "plan/plan_reader.h"

#include <algorithm>
#include <map>
#include <unordered_set>

using namespace ddphook;
using namespace ddphook::plan;

static constexpr int64_t maxElements = maxBytes / 8;

static StateDtype readStateDtype(const Reader &at) {
  const std::string name = at.text();
  for (const StateType &type : stateTypes)
    if (name == type.name)
      return type.dtype;
  at.fail(R"(one of "f16", "bf16", "f32", "f64", "i32", "i64")");
  return StateDtype::F32;
}

static void readInit(const Reader &at, const Names &names, const Plan &plan,
                     PlanState *state) {
  const std::string init = at["init"].text();
  if (init == "zero")
    state->init = StateInit::Zero;
  else if (init == "mt19937")
    state->init = StateInit::Mt19937;
  else if (init == "normal")
    state->init = StateInit::Normal;
  else
    return at["init"].fail(R"("zero", "mt19937" or "normal")");

  const bool isGenerator = state->init == StateInit::Mt19937;
  const bool isDrawn = state->init == StateInit::Normal;
  state->seed = at["seed"].integer(0, isGenerator ? int64_t(UINT32_MAX) : 0);
  if (isGenerator && (state->dtype != StateDtype::I32 ||
                      state->shapes != std::vector<Shape>{{generatorElements}}))
    at["shapes"].fail("a generator's 625 elements of type i32");

  int64_t drawn = 0;
  at["draws"].forEach([&](const Reader &draw) {
    state->draws.push_back(draw.integer(0, maxElements));
    drawn += state->draws.back();
    if (drawn > maxElements)
      at["draws"].fail(concat("at most ", maxElements, " numbers"));
  });
  if (!at.isOk())
    return;
  if (!isDrawn) {
    if (!state->draws.empty())
      at["draws"].fail("no draws for this init");
    if (!at["generator"].text().empty())
      at["generator"].fail("no generator for this init");
    return;
  }
  if (!floatDtype(state->dtype))
    at["dtype"].fail("a floating-point type for random numbers");
  const int64_t elements = state->bytes / stateDtypeSize(state->dtype);
  if (drawn != elements)
    at["draws"].fail("as many numbers as the state has elements, " +
                     std::to_string(elements));
  state->generator = names.find(at["generator"]);
  if (at.isOk() && plan.states[*state->generator].init != StateInit::Mt19937)
    at["generator"].fail("the name of a random generator");
}

std::vector<std::string> plan::readNames(const Reader &at) {
  std::vector<std::string> names;
  at.forEach([&](const Reader &name) {
    names.push_back(name.text());
    if (names.back().empty())
      name.fail("a nonempty name");
  });
  return names;
}

int64_t plan::readDescription(const Reader &at, PlanState *state) {
  state->name = at["name"].text();
  if (state->name == metadataName)
    at["name"].fail("a valid name of a tensor in a file");
  state->dtype = readStateDtype(at["dtype"]);
  int64_t bytes = 0;
  state->shapes =
      readShapes(at["shapes"], stateDtypeSize(state->dtype), &bytes);
  state->role = at["role"].text();
  at["gradients"].forEach([&](const Reader &list) {
    state->gradients.push_back(readNames(list));
    if (state->gradients.back().empty())
      list.fail("at least one name");
  });
  const size_t lists = state->gradients.size();
  if (state->role.empty() && lists != 0)
    at["gradients"].fail("no gradients without a role");
  if (!state->role.empty() && lists != 1 &&
      (state->isShared() || lists != state->shapes.size()))
    at["gradients"].fail(state->isShared()
                             ? "one list"
                             : "one list, or " +
                                   std::to_string(state->shapes.size()));
  state->method = at["method"].text();
  std::string placement = at["placement"].text();
  if (placement != "replicated" && placement != "per_rank")
    at["placement"].fail(R"("replicated" or "per_rank")");
  state->placement = placement == "replicated" ? StatePlacement::Replicated
                                               : StatePlacement::PerRank;
  return bytes;
}

void plan::checkRoles(const Reader &at, const std::vector<PlanState> &states) {
  std::map<std::string_view, std::unordered_set<std::string_view>> seen;
  for (const PlanState &state : states)
    for (const std::vector<std::string> &list : state.gradients)
      for (const std::string &gradient : list)
        if (!seen[state.role].insert(gradient).second)
          return at.fail("one state of role '" + state.role +
                         "' for gradient '" + gradient + "'");
}

void plan::readState(const Reader &at, Names *names, Plan *plan) {
  if (!at.expectFields("State"))
    return;
  PlanState state;
  const int64_t bytes = readDescription(at, &state);
  if (at.has("kind"))
    state.kind = at["kind"].text();
  if (state.isError() && !floatDtype(state.dtype))
    at["kind"].fail("errors of floating-point type");
  const int64_t elementBytes = stateDtypeSize(state.dtype);
  state.offset = at["offset"].integer(0, plan->stateArena.bytes);
  if (state.offset % elementBytes != 0)
    at["offset"].fail("a multiple of the element's size");
  state.bytes = at["bytes"].integer(0, maxBytes);
  if (state.bytes != bytes)
    at["bytes"].fail(concat("the ", bytes, " bytes of the shapes"));
  if (state.bytes > plan->stateArena.bytes - state.offset)
    at["bytes"].fail("an end within the state arena");
  readInit(at, *names, *plan, &state);
  // Add the name last, so that a state is not its own generator.
  names->add(at["name"], state.name);
  plan->states.push_back(std::move(state));
}

void plan::checkOverlap(const Reader &at, const Plan &plan) {
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
      at.fail("no overlap between the states '" + order[i - 1]->name +
              "' and '" + order[i]->name + "'");
}

namespace {
/// Elements of an array that an item of a matrix list occupies.
struct Range {
  int64_t begin;
  int64_t count;
};

/// The ranges in one array.
class Ranges {
public:
  void add(int64_t begin, int64_t count) {
    if (count > 0)
      ranges.push_back({begin, count});
  }

  /// areApart() checks that no two ranges overlap; fill() also checks that they
  /// fill the array from `begin` to `end` without gaps.
  bool areApart() {
    sort();
    for (size_t i = 1; i < ranges.size(); ++i)
      if (ranges[i - 1].begin + ranges[i - 1].count > ranges[i].begin)
        return false;
    return true;
  }
  bool fill(int64_t begin, int64_t end) {
    sort();
    for (const Range &range : ranges) {
      if (range.begin != begin)
        return false;
      begin += range.count;
    }
    return begin == end;
  }

private:
  void sort() {
    std::sort(ranges.begin(), ranges.end(),
              [](const Range &a, const Range &b) { return a.begin < b.begin; });
  }
  std::vector<Range> ranges;
};
} // namespace

static bool readSizes(const Reader &at, size_t count, int64_t *sizes) {
  size_t number = 0;
  at.forEach([&](const Reader &size) {
    int64_t value = size.integer(0, maxElements);
    if (number < count)
      sizes[number] = value;
    ++number;
  });
  if (at.isOk() && number != count)
    at.fail(std::to_string(count) + " numbers");
  return at.isOk();
}

static int64_t product(const Reader &at, int64_t a, int64_t b) {
  if (b != 0 && a > maxElements / b) {
    at.fail(concat("a matrix of at most ", maxElements, " elements"));
    return 0;
  }
  return a * b;
}

void plan::readMatrixList(const Reader &at, const Names &buckets, Plan *plan) {
  if (!at.expectFields("MatrixList"))
    return;
  PlanMatrixList list;
  list.dtype = at["dtype"].dtype();
  list.begin = at["begin"].integer(0, maxElements);
  list.end = at["end"].integer(list.begin, maxElements);
  Ranges bucket, p, q, rest;
  at["matrices"].forEach([&](const Reader &matrix) {
    int64_t sizes[6];
    if (!readSizes(matrix, 6, sizes))
      return;
    const ddphook_matrix_t m = {sizes[0], sizes[1], sizes[2],
                                sizes[3], sizes[4], sizes[5]};
    bucket.add(m.offset, product(matrix, m.rows, m.columns));
    p.add(m.p_offset, product(matrix, m.rows, m.rank));
    q.add(m.q_offset, product(matrix, m.columns, m.rank));
    list.matrices.push_back(m);
  });
  at["pieces"].forEach([&](const Reader &piece) {
    int64_t sizes[3];
    if (!readSizes(piece, 3, sizes))
      return;
    bucket.add(sizes[0], sizes[2]);
    rest.add(sizes[1], sizes[2]);
    list.pieces.push_back({sizes[0], sizes[1], sizes[2]});
  });
  if (!at.isOk())
    return;
  if (!bucket.fill(list.begin, list.end))
    at.fail(concat("matrices and pieces that cover the elements from ",
                   list.begin, " to ", list.end, " without gap or overlap"));
  if (!p.areApart())
    at["matrices"].fail("factors P that do not overlap");
  if (!q.areApart())
    at["matrices"].fail("factors Q that do not overlap");
  if (!rest.areApart())
    at["pieces"].fail("pieces that do not overlap in the rest");
  readAssignment(at, buckets, *plan, list.end - list.begin, &list.assignment);
  if (list.assignment && at.isOk())
    checkAssignment(at, list);
  plan->matrixLists.push_back(std::move(list));
}
