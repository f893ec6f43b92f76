// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Copying is the same as saving some modules and loading the checkpoint into
// others, but without files. The modules of each side count as one.

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_mapping.h"
#include "job/context.h"

#include <algorithm>
#include <set>

using namespace ddphook;

namespace {

/// The states of several modules in one list.
class StateList {
public:
  explicit StateList(const std::vector<ddphook_module *> &modules) {
    for (ddphook_module *module : modules)
      for (size_t i = 0; i < module->plan.states.size(); ++i) {
        states.push_back(module->plan.states[i]);
        places.push_back({module, i});
      }
  }

  /// States are identified by role and gradient, so these must be unique.
  Status checkUnique() const {
    std::set<std::pair<std::string, std::string>> known;
    for (const PlanState &state : states) {
      std::vector<std::string> names;
      if (state.role.empty())
        names.push_back(state.name);
      for (const std::vector<std::string> &list : state.gradients)
        names.insert(names.end(), list.begin(), list.end());
      for (const std::string &name : names)
        if (!known.insert({state.role, name}).second)
          return invalid("expected modules for different gradients, but two of "
                         "them have a state '%s' of '%s'",
                         state.role.c_str(), name.c_str());
    }
    return Status::ok();
  }

  Status read(size_t number, std::vector<char> *bytes) const {
    bytes->resize(states[number].bytes);
    return readState(*places[number].module, places[number].state, 0,
                     bytes->data(), states[number].bytes);
  }

  Status write(size_t number, const std::vector<char> &bytes) const {
    return writeState(*places[number].module, places[number].state, 0,
                      bytes.data(), states[number].bytes);
  }

  std::vector<PlanState> states;

private:
  struct StateOfModule {
    ddphook_module *module;
    size_t state; // in that module
  };
  std::vector<StateOfModule> places;
};

} // namespace

static Status checkCall(const std::vector<ddphook_module *> &from,
                        const std::vector<ddphook_module *> &to,
                        uint32_t flags) {
  if (flags & ~uint32_t(DDPHOOK_STATE_PARTIAL))
    return invalid("expected no flags except DDPHOOK_STATE_PARTIAL, but got %u",
                   flags);
  for (const ddphook_module *module : to)
    if (std::find(from.begin(), from.end(), module) != from.end())
      return invalid("expected different modules as source and destination");
  for (const auto *side : {&from, &to})
    for (const ddphook_module *module : *side) {
      if (&module->context != &to.front()->context)
        return invalid("expected modules of one context");
      if (module->isRunning())
        return failedPrecondition("an entry point is running");
    }
  return to.front()->context.failure();
}

/// Reads the new values of the states of `to` into `images`.
static Status readImages(const StateList &from, const StateList &to,
                         const CheckpointMapping &mapping,
                         std::vector<std::vector<char>> *images) {
  images->resize(to.states.size());
  for (size_t i = 0; i < to.states.size(); ++i)
    DDPHOOK_TRY(to.read(i, &(*images)[i]));
  std::map<size_t, std::vector<char>> shared;
  for (size_t i = 0; i < from.states.size(); ++i) {
    if (from.states[i].isShared()) {
      DDPHOOK_TRY(from.read(i, &shared[i]));
      continue;
    }
    std::vector<char> bytes;
    DDPHOOK_TRY(from.read(i, &bytes));
    auto position = bytes.cbegin();
    for (const SavedRun &run : mapping.runs[i]) {
      if (run.state)
        std::copy_n(position, run.bytes,
                    (*images)[*run.state].begin() + run.offset);
      position += run.bytes;
    }
  }
  return placeShared(mapping, to.states, shared,
                     [&](size_t number, const std::vector<char> &value) {
                       (*images)[number] = value;
                     });
}

Status ddphook::copyStates(const std::vector<ddphook_module *> &from,
                           const std::vector<ddphook_module *> &to,
                           uint32_t flags, ddphook_state_info_t *info) {
  DDPHOOK_TRY(checkCall(from, to, flags));
  Context &context = to.front()->context;
  const StateList source(from), destination(to);
  DDPHOOK_TRY(source.checkUnique());
  DDPHOOK_TRY(destination.checkUnique());
  DDPHOOK_TRY(context.synchronize());

  CheckpointMapping mapping;
  std::vector<std::vector<char>> images;
  Status status = mapStates(source.states, destination.states,
                            (flags & DDPHOOK_STATE_PARTIAL) != 0, &mapping);
  if (status.isOk())
    status = readImages(source, destination, mapping, &images);
  DDPHOOK_TRY(withContext(status, "the source does not fit the destination"));

  std::string report;
  for (size_t i = 0; i < images.size(); ++i) {
    Status written = destination.write(i, images[i]);
    if (!written.isOk())
      return context.fail(std::move(written));
    if (!mapping.lacksPart[i] && !mapping.lacksAll[i]) {
      ++info->loaded;
      continue;
    }
    ++info->kept;
    report += "state '" + destination.states[i].name + "' is " +
              (mapping.lacksAll[i] ? "unchanged\n" : "unchanged in parts\n");
  }
  info->world_size = context.worldSize();
  info->missing = static_cast<int32_t>(mapping.missing.size());
  info->dropped = static_cast<int32_t>(mapping.dropped.size());
  to.front()->stateReport = report;
  info->report = to.front()->stateReport.c_str();
  return Status::ok();
}
