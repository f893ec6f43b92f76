// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints and parses the description of states. Its keys are those of the plan's
// states, except for those that loading does not need.

#include "checkpoint/checkpoint_states.h"

#include "files/json_text.h"
#include "plan/plan_reader.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <deque>

using namespace ddphook;
using namespace ddphook::plan;

/// Appends a list; `append` appends each element.
template <typename T, typename Function>
static void appendList(std::string *text, const std::vector<T> &list,
                       Function &&append) {
  *text += '[';
  for (const T &element : list) {
    if (&element != list.data())
      *text += ',';
    append(element);
  }
  *text += ']';
}

static void appendState(std::string *text, const PlanState &state) {
  auto appendName = [&](const std::string &name) {
    appendJsonText(text, name);
  };
  *text += "{\"name\":";
  appendName(state.name);
  *text += ",\"dtype\":\"";
  *text += stateDtypeName(state.dtype);
  *text += "\",\"shapes\":";
  appendList(text, state.shapes, [&](const Shape &shape) {
    appendList(text, shape,
               [&](int64_t size) { *text += std::to_string(size); });
  });
  *text += ",\"role\":";
  appendName(state.role);
  *text += ",\"gradients\":";
  appendList(text, state.gradients, [&](const std::vector<std::string> &names) {
    appendList(text, names, appendName);
  });
  *text += ",\"method\":";
  appendName(state.method);
  *text += ",\"placement\":\"";
  *text +=
      state.placement == StatePlacement::Replicated ? "replicated" : "per_rank";
  *text += "\",\"seed\":" + std::to_string(state.seed) + "}";
}

std::string ddphook::printStates(const std::vector<PlanState> &states) {
  std::string text;
  appendList(&text, states,
             [&](const PlanState &state) { appendState(&text, state); });
  return text;
}

Status ddphook::parseStates(std::string_view text,
                            std::vector<PlanState> *states) {
  Json json;
  if (Json::parse(text, &json) != Json::Result::Parsed)
    return error(DDPHOOK_DATA_LOSS,
                 "malformed description of states: it is not JSON text");
  Status failure;
  Reader top(json, &failure, "description of states");
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
  // Groups the lines by their common beginning. Names contain no zero byte, so
  // different lines cannot become equal.
  std::map<std::string, std::vector<std::string_view>> lines;
  std::deque<std::string> printed;
  for (const PlanState &state : states) {
    std::vector<std::string_view> &rest =
        lines[state.role + '\0' + stateDtypeName(state.dtype) + '\0' +
              state.method + '\0' + std::to_string(state.seed) + '\0'];
    for (const std::vector<std::string> &list : state.gradients)
      rest.insert(rest.end(), list.begin(), list.end());
    if (state.role.empty()) {
      appendState(&printed.emplace_back(), state);
      rest.push_back(printed.back());
    }
  }
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  for (auto &[begin, rest] : lines) {
    std::sort(rest.begin(), rest.end());
    for (std::string_view end : rest) {
      XXH3_64bits_update(&hash, begin.data(), begin.size());
      XXH3_64bits_update(&hash, end.data(), end.size());
      XXH3_64bits_update(&hash, "", 1);
    }
  }
  return XXH3_64bits_digest(&hash);
}
