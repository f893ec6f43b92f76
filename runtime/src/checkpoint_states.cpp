//===- checkpoint_states.cpp - what states a checkpoint has ---------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints and parses the description of states. Its keys are those of the plan's
// states, but for what loading does not need.
//
//===----------------------------------------------------------------------===//
#include "checkpoint_states.h"

#include "plan_reader.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

using namespace ddphook;
using namespace ddphook::plan;

/// A list of what `print` makes of elements.
template <typename T, typename Function>
static std::string printList(const std::vector<T> &list, Function &&print) {
  std::string text = "[";
  for (const T &element : list)
    text += (text.size() > 1 ? "," : "") + print(element);
  return text + "]";
}

static std::string printText(const std::string &text) {
  return Json(text).dump();
}

static std::string printState(const PlanState &state) {
  auto printShape = [](const Shape &shape) {
    return printList(shape, [](int64_t size) { return std::to_string(size); });
  };
  auto printNames = [](const std::vector<std::string> &names) {
    return printList(names, printText);
  };
  return "{\"name\":" + printText(state.name) + ",\"dtype\":\"" +
         stateDtypeName(state.dtype) +
         "\",\"shapes\":" + printList(state.shapes, printShape) +
         ",\"role\":" + printText(state.role) +
         ",\"gradients\":" + printList(state.gradients, printNames) +
         ",\"method\":" + printText(state.method) + ",\"placement\":\"" +
         (state.placement == StatePlacement::Replicated ? "replicated"
                                                        : "per_rank") +
         "\",\"seed\":" + std::to_string(state.seed) + "}";
}

std::string ddphook::printStates(const std::vector<PlanState> &states) {
  return printList(states, printState);
}

Status ddphook::parseStates(std::string_view text,
                            std::vector<PlanState> *states) {
  bool isRefused = false;
  Json json = parseStrictly(text, &isRefused);
  if (isRefused || json.is_discarded())
    return error(DDPHOOK_DATA_LOSS,
                 "malformed description of states: it is no JSON text");
  Status failure;
  Reader top(json, "", &failure, "description of states");
  states->clear();
  Names names;
  int64_t end = 0;
  top.forEach([&](const Reader &at) {
    if (!at.expectKeys({"name", "dtype", "shapes", "role", "gradients",
                        "method", "placement", "seed"}))
      return;
    PlanState state;
    state.bytes = readDescription(at, &state);
    names.add(at["name"], state.name);
    state.seed =
        static_cast<uint32_t>(at["seed"].integer(0, int64_t(UINT32_MAX)));
    state.offset = end;
    if (state.bytes > maxBytes - end)
      at["shapes"].fail("states of at most " + std::to_string(maxBytes) +
                        " bytes together");
    end += state.bytes;
    states->push_back(std::move(state));
  });
  if (failure.isOk())
    checkRoles(top, *states);
  return failure;
}

uint64_t ddphook::hashProgram(const std::vector<PlanState> &states) {
  std::vector<std::string> lines;
  for (const PlanState &state : states) {
    // Names hold no zero byte that would make two lines one.
    std::string common = state.role + '\0' + stateDtypeName(state.dtype) +
                         '\0' + state.method + '\0' +
                         std::to_string(state.seed) + '\0';
    for (const std::vector<std::string> &list : state.gradients)
      for (const std::string &gradient : list)
        lines.push_back(common + gradient);
    if (state.role.empty())
      lines.push_back(common + printState(state));
  }
  std::sort(lines.begin(), lines.end());
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  for (const std::string &line : lines)
    XXH3_64bits_update(&hash, line.c_str(), line.size() + 1);
  return XXH3_64bits_digest(&hash);
}
