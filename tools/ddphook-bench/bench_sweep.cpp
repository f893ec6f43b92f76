//===- bench_sweep.cpp - ddphook-bench sweep ------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduces of growing buffers. Starts ranks on this machine, or is one of
// the ranks that a launcher has started on any machines; prints and writes the
// measurements.
//
//===----------------------------------------------------------------------===//
#include "benches.h"

#include "files/atomic_file.h"
#include "local_job.h"
#include "rank_group.h"
#include "sweep_rank.h"

#include <cstdio>

using namespace ddphook;
using namespace ddphook::bench;

static int fail(const Status &status, bool isUsage) {
  std::fprintf(stderr, "ddphook-bench: %s%s\n", status.message().c_str(),
               isUsage ? " (see ddphook-bench sweep --help)" : "");
  return isUsage ? 2 : 1;
}

namespace {

/// A file for the results, opened before measuring: an invalid name must not
/// cost an hour.
class ResultFile {
public:
  explicit ResultFile(const std::string &path)
      : isWanted(!path.empty()), file(path) {}

  Status open() { return isWanted ? file.open() : Status::ok(); }
  Status write(const std::string &text) {
    if (!isWanted)
      return Status::ok();
    DDPHOOK_RETURN_IF_ERROR(file.write(text.data(), text.size()));
    return file.commit();
  }

private:
  const bool isWanted;
  AtomicFile file;
};

} // namespace

static void show(const std::string &text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

/// Measures as the rank at `place`; rank 0 prints and writes. Calls
/// `onProgress` after every row.
static Status runRank(const SweepOptions &options, const Bootstrap &place,
                      const std::function<void(int64_t)> &onProgress) {
  const bool isFirst = place.rank == 0;
  SweepResult result;
  ResultFile csv(options.csv), json(options.json);
  DDPHOOK_RETURN_IF_ERROR(runSweepRank(
      options, place,
      [&](const SweepResult &begun) -> Status {
        if (!isFirst)
          return Status::ok();
        for (ResultFile *file : {&csv, &json})
          DDPHOOK_RETURN_IF_ERROR(file->open());
        show(sweepHeader(begun));
        return Status::ok();
      },
      [&](const SweepResult &soFar) {
        onProgress(static_cast<int64_t>(soFar.rows.size()));
        if (isFirst)
          show(sweepLine(soFar, soFar.rows.back()));
      },
      &result));
  if (isFirst) {
    show(sweepFooter(result));
    DDPHOOK_RETURN_IF_ERROR(csv.write(sweepCsv(result)));
    DDPHOOK_RETURN_IF_ERROR(json.write(sweepJson(result)));
    const int64_t wrong = result.wrong().value_or(0);
    if (wrong > 0)
      return error(DDPHOOK_DATA_LOSS,
                   "expected no wrong elements, but got %lld",
                   static_cast<long long>(wrong));
  }
  return Status::ok();
}

static int startRanks(const SweepOptions &options, double timeoutSeconds) {
  RankGroupOptions group;
  group.ranks = options.ranks.value_or(2);
  // A large buffer on a slow link may take many deadlines of one collective.
  group.stallSeconds = timeoutSeconds * 1.1 + 5;
  group.stallSeconds *=
      options.warmup + static_cast<double>(options.iterations) * options.rounds;
  LocalJob job;
  Status status = LocalJob::prepare(group.ranks, &job);
  if (!status.isOk())
    return fail(status, /*isUsage=*/false);
  group.body = [&](int32_t rank, RankReport &report) {
    job.enter(rank);
    Bootstrap place;
    DDPHOOK_RETURN_IF_ERROR(findPlace(nullptr, processEnvironment(), &place));
    return runRank(options, place, [&](int64_t row) { report.progress(row); });
  };
  const RankGroupResult result = runRankGroup(group);
  if (result.status.isOk())
    return 0;
  const int exitStatus = fail(result.status, /*isUsage=*/false);
  return result.signal != 0 ? 128 + result.signal : exitStatus;
}

int bench::benchSweep(const std::vector<std::string> &arguments) {
  SweepOptions options;
  Status status = parseSweepOptions(arguments, &options);
  if (!status.isOk())
    return fail(status, /*isUsage=*/true);
  if (options.wantsHelp) {
    show(sweepHelp());
    return 0;
  }
  Bootstrap place;
  status = findPlace(nullptr, processEnvironment(), &place);
  if (!status.isOk())
    return fail(status, /*isUsage=*/false);
  if (!place.isLaunched)
    return startRanks(options, place.timeoutSeconds);
  if (options.ranks && *options.ranks != place.worldSize)
    return fail(error(DDPHOOK_INVALID_ARGUMENT,
                      "expected --ranks to be the world size of the launched "
                      "job, %d, but got %d",
                      place.worldSize, *options.ranks),
                /*isUsage=*/true);
  status = runRank(options, place, [](int64_t) {});
  return status.isOk() ? 0
                       : fail(withContext(std::move(status),
                                          "rank " + std::to_string(place.rank)),
                              /*isUsage=*/false);
}
