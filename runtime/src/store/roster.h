//===- roster.h - which ranks of a job are here -----------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decides who may join a job. Lives of a job overlap: processes of the last one
// may still come while the next one gathers, and those of the next one while
// the last one ends. So until all ranks have joined, the place of a rank that
// is lost stays open for a moment, and a rank that contradicts the others may
// try again for as long before that counts as a mistake. Once all have joined,
// everybody else belongs to another job.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_STORE_ROSTER_H
#define DDPHOOK_RUNTIME_SRC_STORE_ROSTER_H

#include "base/deadline.h"
#include "base/status.h"
#include "store/store_protocol.h"

#include <map>
#include <set>
#include <string>

namespace ddphook {

class Roster {
public:
  using Time = Deadline::Clock::time_point;

  Roster(int worldSize, std::string runId);

  /// What becomes of a rank that introduces itself.
  struct Decision {
    /// OK: it may join.
    Status refusal;
    /// Trying again may help.
    bool mayRetry = true;
    /// The job cannot become complete, and would only wait for its deadline.
    bool endsJob = false;
  };
  Decision decide(const wire::Hello &hello, Time now = Deadline::Clock::now());

  void join(int rank);
  /// The rank has ended; nobody takes its place.
  void leave(int rank) { gone.insert(rank); }
  /// The rank was lost. Returns false if another process cannot take its place.
  bool vacate(int rank, const std::string &reason,
              Time now = Deadline::Clock::now());
  /// True while a place is open for a successor.
  bool hasVacancies() const { return !vacancies.empty(); }
  /// PEER_LOST if nobody has taken the place of a rank in time; then no place
  /// is open any more.
  Status findMissing(Time now = Deadline::Clock::now());

  /// All ranks have joined, though some may be gone again.
  bool isComplete() const {
    return static_cast<int>(joined.size()) == worldSize;
  }
  bool haveAllLeft() const {
    return static_cast<int>(gone.size()) == worldSize;
  }

private:
  /// A place that was left open, and why.
  struct Vacancy {
    Time since;
    std::string reason;
  };

  const int worldSize;
  const std::string runId;
  /// Ranks that joined, and those of them that left or were lost.
  std::set<int> joined, gone;
  std::map<int, Vacancy> vacancies;
  /// When ranks that contradict the job began to come, and came last.
  Time firstContest, lastContest;
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_STORE_ROSTER_H
