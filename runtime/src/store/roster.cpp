// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "store/roster.h"

#include "ddphook/runtime/compiled.h"

using namespace ddphook;

/// How long a lost rank may be replaced, and how long a rank that contradicts
/// the job may try again. Processes of another life of the job end sooner.
static constexpr std::chrono::seconds succession(2);
/// Ranks that try again do so within this time.
static constexpr std::chrono::seconds longestPause(5);

Roster::Roster(int worldSize, std::string runId)
    : worldSize(worldSize), runId(std::move(runId)) {}

/// Returns how `hello` contradicts the ranks that have joined, or OK.
static Status compare(const wire::Hello &hello, int worldSize, bool isHere) {
  if (hello.abiVersion != DDPHOOK_ABI_VERSION)
    return unsupported(
        "rank %u uses version %u of the runtime's ABI, but rank 0 "
        "version %d",
        hello.rank, hello.abiVersion, DDPHOOK_ABI_VERSION);
  if (hello.worldSize != static_cast<uint32_t>(worldSize))
    return badEnvironment(
        "rank %u was started with a world size of %u, but rank 0 "
        "with %d",
        hello.rank, hello.worldSize, worldSize);
  if (hello.rank >= hello.worldSize)
    return badEnvironment("expected a rank below %u, but got %u",
                          hello.worldSize, hello.rank);
  if (isHere)
    return badEnvironment(
        "rank %u joined twice: two processes were started with the "
        "same rank",
        hello.rank);
  return Status::ok();
}

Roster::Decision Roster::decide(const wire::Hello &hello, Time now) {
  const int rank = static_cast<int>(hello.rank);
  if (hello.runId != wire::hashRunId(runId))
    return {badEnvironment(
        "rank 0 at this address belongs to another job (its run id "
        "is '%s')",
        runId.c_str())};
  // A rank that comes back before the others have left waits for them until its
  // deadline, as it does for a rank 0 that has not started yet.
  if (gone.count(rank))
    return {peerLost("the job that rank %d has left has not ended yet", rank)};
  if (isComplete())
    return {badEnvironment(
        "rank 0 at this address belongs to another job, whose ranks have all "
        "joined; two jobs use the same port, or two processes have rank %d",
        rank)};
  Decision decision = {compare(hello, worldSize, joined.count(rank) != 0)};
  // There is only one rank 0, because only one process can listen.
  if (decision.refusal.isOk() || rank == 0)
    return decision;
  if (now - lastContest > longestPause)
    firstContest = now;
  lastContest = now;
  decision.endsJob = now - firstContest >= succession;
  decision.mayRetry = !decision.endsJob;
  return decision;
}

void Roster::join(int rank) {
  joined.insert(rank);
  vacancies.erase(rank);
  if (isComplete())
    vacancies.clear();
}

bool Roster::vacate(int rank, const std::string &reason, Time now) {
  if (isComplete() || rank == 0)
    return false;
  joined.erase(rank);
  vacancies.insert_or_assign(rank, Vacancy{now, reason});
  return true;
}

Status Roster::findMissing(Time now) {
  for (const auto &[rank, vacancy] : vacancies) {
    if (now - vacancy.since < succession)
      continue;
    Status missing =
        peerLost("rank %d was lost: %s", rank, vacancy.reason.c_str());
    vacancies.clear();
    return missing;
  }
  return Status::ok();
}
