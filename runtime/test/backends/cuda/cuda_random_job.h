// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A job is a list of steps, each for some ranks, and with every step that reads
// comes what has to be read: this model runs the whole job, array by array, in
// numbers that every order of additions gives. It knows no backend.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddphook::test {

using Array = std::vector<float>;

struct RandomStep {
  enum class Kind {
    Write,      // values -> a
    Read,       // a gives values
    Scale,      // b = 2 a
    Add,        // c = a + b
    Collective, // b = the collective of a
    Start,      // the same, begun
    Wait,       // for what was begun
    Synchronize,
    SetStream,    // to number `stream`
    Delay,        // the stream sleeps
    BeginCapture, // the caller's stream records a graph
    EndCapture,
    Replay, // `graph`
    DropGraph,
    Leave,    // `group`, and join it again
    Allocate, // an array, which becomes 2 a, and is given back
    Error     // the caller leaves an error unread until the next such step
  };
  Kind kind;
  /// Who takes it, as bits.
  unsigned ranks = 0;
  int a = 0, b = 0, c = 0;
  /// Of a collective.
  int group = 0, collective = 0, root = 0;
  bool asHalf = false;
  int stream = 0;
  int graph = 0;
  int microseconds = 0;
  /// For each rank.
  std::vector<Array> values = {};
};

struct RandomJob {
  static constexpr int arrayCount = 4;
  /// The caller's streams: null, two of its own, and CUDA's default ones.
  static constexpr int streamCount = 5;

  int ranks = 1;
  /// Elements of an array: a multiple of every group's size.
  int64_t count = 0;
  /// Members of each group, in order.
  std::vector<std::vector<int>> groups;
  int graphs = 0;
  std::vector<RandomStep> steps;
};

RandomJob makeRandomJob(uint64_t seed);

} // namespace ddphook::test
