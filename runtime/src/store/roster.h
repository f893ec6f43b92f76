// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decides who may join a job. Lives of a job overlap: while the next life
// gathers, processes of the last one may still arrive, and vice versa. So until
// all ranks have joined, a lost rank may be replaced for a short time, and a
// rank that contradicts the others may try again for as long before that counts
// as a mistake. Once all have joined, everybody else belongs to another job.

#pragma once

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

  /// The decision about a rank that introduces itself.
  struct Decision {
    /// OK if it may join.
    Status refusal;
    /// True if trying again may help.
    bool mayRetry = true;
    /// True if the job cannot complete and would wait for its deadline.
    bool endsJob = false;
  };
  Decision decide(const wire::Hello &hello, Time now = Deadline::Clock::now());

  void join(int rank);
  /// Records that the rank has ended; nobody may replace it.
  void leave(int rank) { gone.insert(rank); }
  /// Records that the rank was lost. Returns false if it cannot be replaced.
  bool vacate(int rank, const std::string &reason,
              Time now = Deadline::Clock::now());
  /// True while a lost rank may still be replaced.
  bool hasVacancies() const { return !vacancies.empty(); }
  /// PEER_LOST if a lost rank was not replaced in time; then none may be.
  Status findMissing(Time now = Deadline::Clock::now());

  /// True if all ranks have joined, even if some have gone since.
  bool isComplete() const {
    return static_cast<int>(joined.size()) == worldSize;
  }
  bool haveAllLeft() const {
    return static_cast<int>(gone.size()) == worldSize;
  }

private:
  /// A lost rank that may be replaced, and why it was lost.
  struct Vacancy {
    Time since;
    std::string reason;
  };

  const int worldSize;
  const std::string runId;
  /// The ranks that joined, and those of them that left or were lost.
  std::set<int> joined, gone;
  std::map<int, Vacancy> vacancies;
  /// The first and the last time that a rank contradicted the job.
  Time firstContest, lastContest;
};

} // namespace ddphook
