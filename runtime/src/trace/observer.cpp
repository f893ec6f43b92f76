// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "trace/observer.h"

#include "base/log.h"
#include "base/packed_texts.h"
#include "store/hmac.h"
#include "store/store_server.h"
#include "trace/merge.h"
#include "trace/rank_recording_file.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::trace;

/// Requests to rank 0 for its time; some of so many are answered without delay.
static constexpr int clockQuestions = 32;

static void warn(const std::string &text) { log(LogLevel::Warn, text); }

/// Returns how many contexts of the process have used `file`; each has its own.
static int countUse(const std::string &file) {
  static std::mutex mutex;
  static std::map<std::string, int> uses;
  std::lock_guard<std::mutex> lock(mutex);
  return uses[file]++;
}

/// Returns `path` as an absolute path.
static std::string placeOf(const std::string &path) {
  std::error_code ignored;
  const std::filesystem::path place = std::filesystem::absolute(path, ignored);
  return place.empty() ? path : place.string();
}

/// Returns `path` for context number `number` of the process, from 0: after the
/// first one, ".N" precedes the extension.
static std::string numberPath(const std::string &path, int number) {
  if (number == 0)
    return path;
  std::filesystem::path place = path;
  place.replace_filename(concat(place.stem().string(), ".", number + 1,
                                place.extension().string()));
  return place.string();
}

/// Returns the file of one rank. If the pattern has no {rank}, appends the
/// rank's number, before the extension that Prometheus needs.
static std::string expandRank(std::string pattern, int rank) {
  constexpr std::string_view placeholder = "{rank}";
  const std::string number = std::to_string(rank);
  if (pattern.find(placeholder) != std::string::npos)
    return replaceAll(pattern, placeholder, number);
  return pattern.insert(
      pattern.size() - (isForPrometheus(pattern) ? prometheusSuffix.size() : 0),
      ".rank" + number);
}

/// Returns the absolute path of a file of one rank that no context of this
/// process has used. *number is how many have used the one of `pattern`.
static std::string takeFile(const std::string &pattern, int rank, int *number) {
  const std::string place = placeOf(pattern);
  *number = countUse(expandRank(place, rank));
  return expandRank(numberPath(place, *number), rank);
}

/// Draws an identity, which also distinguishes the runs of a job.
static std::string drawToken() {
  std::string bytes;
  drawSecret(16, &bytes).ignore();
  return toHex(bytes);
}

std::string Observer::introduce() {
  if (!wanted.trace.empty()) {
    const std::string place = placeOf(wanted.trace);
    path = numberPath(place, countUse(partPath(place, rank)));
  }
  char host[256] = "";
  ::gethostname(host, sizeof(host) - 1);
  return packTexts({clockIdentity(), drawToken(), host,
                    path.empty() ? "" : partPath(path, rank)});
}

Observer::Introduction Observer::parse(const std::string &text) {
  const std::vector<std::string> texts = unpackTexts(text);
  if (texts.size() != 4)
    return {};
  return {texts[0], texts[1], texts[2], texts[3]};
}

void Observer::begin(const std::vector<std::string> &introductions,
                     const std::string &launchId,
                     const std::function<Status(int64_t *)> &askTime) {
  if (!isRecording())
    return;
  for (const std::string &text : introductions)
    parts.push_back(parse(text).part);
  const Introduction first = parse(introductions[0]);
  const Introduction own = parse(introductions[rank]);
  runId = launchId.empty() ? first.token : launchId + "-" + first.token;
  PartIdentity identity = {runId,      rank,     worldSize,
                           ::getpid(), own.host, own.clock};
  isOnMachineOfRankZero = own.clock == first.clock;
  if (!path.empty() && !isOnMachineOfRankZero) {
    ClockOffset clock;
    Status status =
        measureClock(askTime, [] { return now(); }, clockQuestions, &clock);
    if (!status.isOk())
      warn("the clock of rank 0 cannot be read, times of " + self +
           " in the trace are not comparable: " + status.message());
    identity.clockOffset = clock.offset;
    identity.clockUncertainty = clock.uncertainty;
  }
  // Ranks on one machine use the same directories, so one of them checks.
  if (rank == 0 || !isOnMachineOfRankZero)
    for (const std::string &file :
         {path, wanted.flightRecorder, wanted.metrics})
      if (!file.empty())
        warnOfOtherWriters(directoryOf(file), "what is recorded");
  int number = 0;
  if (!wanted.flightRecorder.empty())
    flightFile = takeFile(wanted.flightRecorder, rank, &number);
  openPart(identity);
  if (!wanted.metrics.empty()) {
    std::string file = takeFile(wanted.metrics, rank, &number);
    metrics.open(std::move(file), runId, rank, number);
  }
  if (!path.empty() && rank != 0 && first.part.empty())
    warn("rank 0 writes no trace: the part of " + self + " stays at '" +
         parts[rank] + "'");
}

void Observer::openPart(const PartIdentity &identity) {
  std::unique_ptr<RankRecording> part;
  if (!path.empty()) {
    Status status = RankRecording::create(identity, wanted.traceEvents,
                                          partPath(path, rank), &part);
    if (!status.isOk())
      warn(self + " writes no trace: " + status.message());
  }
  if (!part) {
    path.clear();
    if (!isRecording())
      return;
    Status status =
        RankRecording::create(identity, flightEvents, /*path=*/"", &part);
    if (!status.isOk())
      return warn(self + " records nothing: " + status.message());
  }
  events.open(std::move(part));
}

void Observer::write(const std::function<MetricsSample()> &sample) {
  // If memory is exhausted, the sample is missing.
  ignoreExceptions([&] { metrics.write(sample()); });
}

void Observer::fail(const std::string &message) {
  // If memory is exhausted, the reason or the file is missing.
  std::call_once(hasFailed, [&] { ignoreExceptions([&] { keep(message); }); });
}

void Observer::keep(const std::string &message) {
  RankRecording *part = events.part();
  if (!part)
    return;
  events.stop();
  part->fail(message);
  if (flightFile.empty())
    return;
  Status status = withoutExceptions(
      [&] { return writePart(*part, flightEvents, flightFile); });
  warn("the last events of " + self +
       (status.isOk() ? " are in '" + flightFile + "'"
                      : " cannot be written: " + status.message()));
}

void Observer::close() {
  events.stop();
  if (RankRecording *part = events.part())
    part->close(!path.empty() && !isOnMachineOfRankZero);
}

/// True if rank 0 can be expected to read this rank's part: then it has its own
/// part in the same directory, or has merged and removed both.
static bool isForRankZero(const std::string &part,
                          const std::string &ofRankZero,
                          const std::string &runId) {
  auto directory = [](const std::string &file) {
    return file.substr(0, file.rfind('/'));
  };
  return (directory(part) == directory(ofRankZero) &&
          runOfPart(ofRankZero) == runId) ||
         runOfPart(part) != runId;
}

std::string Observer::pack() const {
  const RankRecording *part = events.part();
  if (rank == 0 || path.empty() || !part || parts[0].empty() ||
      isForRankZero(parts[rank], parts[0], runId))
    return {};
  // Rank 0 has the same capacity for every rank.
  return part->pack(std::min<uint64_t>(
      wire::Frame::maxValueSize,
      Mailbox::mostBytes / static_cast<uint64_t>(worldSize - 1)));
}

void Observer::deliver(const Status &status) {
  const std::string &part = parts[rank];
  if (status.isOk())
    ::unlink(part.c_str());
  else
    warn("rank 0 did not get the part of " + self + ", which stays at '" +
         part + "': " + status.message());
}

bool Observer::lacksParts() const {
  bool isAnyAway = false;
  ignoreExceptions([&] {
    isAnyAway =
        rank == 0 && !path.empty() &&
        std::any_of(parts.begin(), parts.end(), [&](const std::string &part) {
          return !part.empty() && runOfPart(part) != runId;
        });
  });
  return isAnyAway;
}

std::string
Observer::whyThereIsNone(const std::vector<std::string> &present) const {
  const bool isTaken =
      !present.empty() &&
      std::all_of(present.begin(), present.end(), [&](const std::string &part) {
        const std::string run = runOfPart(part);
        return !run.empty() && run != runId;
      });
  return isTaken ? "the trace '" + path +
                       "' is lost, because another job writes its trace there: "
                 : "the trace cannot be written, its parts stay: ";
}

void Observer::merge(const std::map<int, std::string> &delivered) {
  if (rank != 0 || path.empty())
    return;
  for (const auto &part : delivered) {
    const int sender = part.first;
    if (sender < 0 || sender >= worldSize)
      continue;
    const std::string place = partPath(path, sender);
    Status status =
        withoutExceptions([&] { return savePart(part.second, place); });
    if (status.isOk())
      parts[sender] = place;
    else
      warn(concat("the part of rank ", sender,
                  " cannot be kept: ", status.message()));
  }
  MergeResult result;
  std::vector<std::string> present;
  for (const std::string &part : parts)
    if (!part.empty())
      present.push_back(part);
  Status status = withoutExceptions(
      [&] { return mergeParts(present, runId, path, &result); });
  if (!status.isOk())
    return warn(whyThereIsNone(present) + status.message());
  for (const std::string &part : result.merged)
    ::unlink(part.c_str());
  if (result.problems.empty())
    return;
  std::string text;
  for (const std::string &problem : result.problems)
    text += (text.empty() ? "" : "; ") + problem;
  warn("the trace '" + path + "' is not complete: " + text);
}
