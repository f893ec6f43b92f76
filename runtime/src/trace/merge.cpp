// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parts are read twice, so that only one is in memory at a time: first for the
// data that must be known of all ranks, then for their events.

#include "trace/merge.h"

#include "trace/clock.h"
#include "trace/rank_recording_file.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

using namespace ddphook;
using namespace ddphook::trace;

static constexpr char partInfix[] = ".rank", partSuffix[] = ".part";

std::string trace::partPath(const std::string &path, int rank) {
  return concat(path, partInfix, rank, partSuffix);
}

std::vector<std::string> trace::findParts(const std::string &path) {
  const std::string file = std::filesystem::path(path).filename();
  const std::string prefix = file + partInfix;
  std::map<int, std::string> found;
  std::error_code code;
  std::filesystem::directory_iterator entry(directoryOf(path), code), end;
  for (; !code && entry != end; entry.increment(code)) {
    const std::string name = entry->path().filename();
    if (name.compare(0, prefix.size(), prefix) != 0)
      continue;
    const auto rank = static_cast<int>(
        std::strtol(name.c_str() + prefix.size(), nullptr, 10));
    // Other files may have this prefix: copies, for example.
    if (name == partPath(file, rank))
      found.emplace(rank, partPath(path, rank));
  }
  std::vector<std::string> parts;
  for (auto &[rank, part] : found)
    parts.push_back(part);
  return parts;
}

/// True if a process of this machine exists and is not exiting, according to
/// /proc/PID/stat: see proc_pid_stat(5). The kernel closes the files of a
/// process, which tells others of its death, while its state is still that of a
/// running process; a flag shows from the start that it is exiting.
static bool isAlive(int64_t process) {
  constexpr uint32_t isExiting = 0x4; // The kernel's PF_EXITING.
  std::ifstream file(concat("/proc/", process, "/stat"));
  std::string line;
  std::getline(file, line);
  // The fields follow the name, which may contain any characters.
  const size_t name = line.rfind(')');
  if (name == std::string::npos)
    return false;
  std::istringstream fields(line.substr(name + 1));
  char state;
  int64_t parent, group, session, terminal, foreground;
  uint32_t flags;
  if (!(fields >> state >> parent >> group >> session >> terminal >>
        foreground >> flags))
    return false;
  return state != 'Z' && state != 'X' && (flags & isExiting) == 0;
}

static RankSummary summarize(const PartContents &part) {
  RankSummary summary;
  summary.identity = part.identity;
  summary.time = lastTime(part);
  for (const PartContents::Thread &thread : part.threads) {
    summary.events += thread.events.size() + thread.open.size();
    summary.lost += thread.lost;
  }
  switch (part.state) {
  case PartState::Closed:
    summary.state = "closed";
    break;
  case PartState::Failed:
    summary.state = "failed";
    summary.reason = part.failure;
    break;
  case PartState::Open:
    summary.state =
        part.identity.clock == clockIdentity() && isAlive(part.identity.process)
            ? "running"
            : "lost";
    break;
  }
  return summary;
}

/// Sets the job's failure for ranks that could not report it themselves: the
/// failure that the first of the others learned of.
static void explainLost(std::vector<RankSummary> *ranks) {
  const RankSummary *first = nullptr;
  for (const RankSummary &rank : *ranks)
    if (rank.state == "failed" && (!first || rank.time < first->time))
      first = &rank;
  const std::string cause = first ? first->reason : "";
  for (RankSummary &rank : *ranks) {
    if (rank.state == "lost")
      rank.reason =
          cause.empty() ? "the process ended without closing its trace" : cause;
    else if (rank.state == "running" && !cause.empty())
      rank.reason = "the process did not end with the job: " + cause;
  }
}

Status trace::mergeParts(const std::vector<std::string> &parts,
                         const std::string &runId, const std::string &path,
                         MergeResult *result) {
  *result = {};
  const NamedBy namedBy = runId.empty() ? NamedBy::User : NamedBy::Runtime;
  struct Readable {
    std::string path;
    PartIdentity identity;
    int64_t first, last;
    RankSummary summary;
  };
  std::vector<Readable> readable;
  for (const std::string &name : parts) {
    PartContents part;
    Status status = readPartFile(name, namedBy, &part);
    if (status.isOk())
      readable.push_back({name, part.identity, firstTime(part), lastTime(part),
                          summarize(part)});
    else
      result->problems.push_back(status.message());
  }
  result->runId = runId;
  if (runId.empty() && !readable.empty())
    result->runId = std::max_element(readable.begin(), readable.end(),
                                     [](const auto &a, const auto &b) {
                                       return a.last < b.last;
                                     })
                        ->identity.runId;
  std::vector<Readable> own;
  for (Readable &part : readable) {
    if (part.identity.runId == result->runId)
      own.push_back(std::move(part));
    else
      result->problems.push_back(
          "'" + part.path + "' belongs to another run, " + part.identity.runId +
          ", not of " + result->runId);
  }
  if (own.empty())
    return dataLoss("no part of the trace '%s' can be read%s%s", path.c_str(),
                    result->problems.empty() ? "" : ": ",
                    result->problems.empty() ? ""
                                             : result->problems[0].c_str());

  const int worldSize = own.front().identity.worldSize;
  result->ranks.resize(worldSize);
  int64_t origin = INT64_MAX;
  for (int rank = 0; rank < worldSize; ++rank) {
    RankSummary &summary = result->ranks[rank];
    summary.identity.rank = rank;
    summary.state = "missing";
    summary.reason = "the rank left no readable part";
  }
  for (const Readable &part : own) {
    const auto rank = static_cast<size_t>(part.identity.rank);
    if (rank >= result->ranks.size())
      continue;
    result->ranks[rank] = part.summary;
    origin = std::min(origin, part.first);
  }
  explainLost(&result->ranks);
  if (origin == INT64_MAX)
    origin = own.front().last;

  TraceWriter writer(path, origin);
  DDPHOOK_TRY(writer.begin());
  for (const Readable &part : own) {
    PartContents contents;
    DDPHOOK_TRY(readPartFile(part.path, namedBy, &contents));
    const auto rank = static_cast<size_t>(part.identity.rank);
    if (rank >= result->ranks.size())
      continue;
    DDPHOOK_TRY(writer.add(contents, result->ranks[rank]));
    result->merged.push_back(part.path);
  }
  return writer.finish(result->runId, worldSize, result->ranks);
}

Status trace::writePart(const RankRecording &part, uint64_t mostEvents,
                        const std::string &path) {
  PartContents contents;
  DDPHOOK_TRY(readPart(part.bytes(), &contents, mostEvents));
  const int64_t first = firstTime(contents);
  const RankSummary summary = summarize(contents);
  TraceWriter writer(path, first == INT64_MAX ? 0 : first);
  DDPHOOK_TRY(writer.begin());
  DDPHOOK_TRY(writer.add(contents, summary));
  return writer.finish(contents.identity.runId, contents.identity.worldSize,
                       {summary});
}
