// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks with a module that has PowerSGD's states, whose values can be told from
// each other.

#pragma once

#include "base/random.h"
#include "exec/exec_test_util.h"
#include "module/state_test_util.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace ddphook::test {

class StateModule : public TestModule {
public:
  explicit StateModule(int rank, std::vector<TestState> list = powersgdStates())
      : states(std::move(list)), rank(rank) {
    setStates(*this, states);
  }

  /// The bytes that state `number` has after fill(salt): any pattern of bits,
  /// the same on all ranks where it has to be.
  std::string bytes(size_t number, int salt) const {
    const TestState &state = states[number];
    std::string result(static_cast<size_t>(state.bytes()), '\0');
    if (state.init == "mt19937") {
      seedGenerator(static_cast<uint32_t>(salt),
                    reinterpret_cast<int32_t *>(result.data()));
      return result;
    }
    std::mt19937 random(
        static_cast<unsigned>(salt * 100 + static_cast<int>(number) * 7 +
                              (state.isPerRank ? 1 + rank : 0)));
    for (char &byte : result)
      byte = static_cast<char>(random());
    return result;
  }

  int rankNumber() const { return rank; }
  /// Of the job that loaded the module.
  ddphook_context_t *contextHandle() const { return context; }
  void setContext(ddphook_context_t *handle) { context = handle; }

  void fill(int salt) {
    last = salt;
    forEachState([&](size_t i, char *memory, size_t size) {
      std::memcpy(memory, bytes(i, salt).data(), size);
    });
  }

  /// The salt of all states: the last one, or one from 0 to 99. With zeros for
  /// states of single ranks, "… without errors".
  std::string describe() {
    for (int salt = -1; salt < 100; ++salt) {
      const int tried = salt < 0 ? last : salt;
      bool isEqual = true, isZero = true;
      forEachState([&](size_t i, char *memory, size_t size) {
        const bool isSame = std::string(memory, size) == bytes(i, tried);
        if (!states[i].isPerRank)
          isEqual &= isSame;
        isZero &= !states[i].isPerRank ||
                  std::all_of(memory, memory + size,
                              [](char byte) { return byte == 0; });
      });
      if (!isEqual)
        continue;
      if (isZero)
        return std::to_string(tried) + " without errors";
      forEachState([&](size_t i, char *memory, size_t size) {
        isEqual &= std::string(memory, size) == bytes(i, tried);
      });
      if (isEqual)
        return std::to_string(tried);
    }
    return "no value that was ever there";
  }

  template <typename Function>
  void forEachState(Function &&function) {
    (void)ddphook_rt_enter(handle, 0);
    for (size_t i = 0; i < states.size(); ++i)
      function(i,
               static_cast<char *>(
                   ddphook_rt_state(handle, static_cast<int32_t>(i))),
               static_cast<size_t>(states[i].bytes()));
    (void)ddphook_rt_leave(handle);
  }

  const std::vector<TestState> states;

private:
  const int rank;
  int last = 0;
  ddphook_context_t *context = nullptr;
};

/// Joins a job as one rank, loads a module, and gives what `body` returns.
inline std::string inJob(int rank, int world, int port,
                         const std::vector<TestState> &states,
                         const std::function<std::string(StateModule &)> &body,
                         double timeout = patientDeadline) {
  ddphook_options_t options = jobOptions(rank, world, port, "auto", timeout);
  ddphook_context_t *context = nullptr;
  ddphook_status_t status = ddphook_context_create(&options, &context);
  if (status != DDPHOOK_OK)
    return "create " + show(status);
  std::string result;
  {
    StateModule module(rank, states);
    module.setContext(context);
    status = ddphook_module_load(context, &module.compiled);
    result = status == DDPHOOK_OK ? body(module) : "load " + show(status);
  }
  ddphook_context_destroy(context);
  return result;
}

/// The same on all ranks of a job, each in a process of its own.
inline std::vector<std::string>
runJob(int world, const std::function<std::string(StateModule &)> &body,
       const std::vector<TestState> &states = powersgdStates()) {
  const int port = freePort();
  std::vector<std::string> texts;
  for (const RankResult &result : runRanks(world, [&](int rank) {
         return inJob(rank, world, port, states, body);
       }))
    texts.push_back(result.isHung ? "hung" : result.text);
  return texts;
}

} // namespace ddphook::test
