// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does the work of one rank, and decides between starting ranks and being one.

#include "runner.h"

#include "file_pattern.h"
#include "files/atomic_file.h"
#include "job/bootstrap.h"
#include "local_job.h"
#include "numbers.h"
#include "rank_group.h"
#include "step_buffers.h"

#include "ddphook/runtime/runtime.h"

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <unistd.h>

using namespace ddphook;

namespace {

struct Job {
  const char *toolName;
  const ddphook_compiled_module_t &module;
  const RunOptions &options;
  EntrySignature signature;
  int32_t worldSize = 1;
  std::chrono::steady_clock::time_point start =
      std::chrono::steady_clock::now();
};

/// Shorter runs show no progress.
constexpr std::chrono::seconds firstPause(1);
constexpr std::chrono::milliseconds terminalPause(250);
constexpr std::chrono::seconds linePause(10);

/// Shows on standard error which step a run is in, how long a step takes and
/// how long the rest will take: on a terminal as one line that is overwritten,
/// elsewhere, if requested, as a line every ten seconds.
class Progress {
public:
  Progress(const char *toolName, const RunOptions &options)
      : toolName(toolName), steps(options.steps),
        isTerminal(::isatty(STDERR_FILENO) == 1),
        isShown(options.progress == ProgressMode::On ||
                (options.progress == ProgressMode::Auto && isTerminal &&
                 !options.isQuiet)),
        next(Clock::now() + firstPause) {}
  /// Removes the line from a terminal.
  ~Progress() {
    if (hasLine)
      std::fputs("\r\033[K", stderr);
  }
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  /// Must be called often: `step` has begun, or none if it is −1.
  void update(int64_t step) {
    if (!isShown)
      return;
    const Clock::time_point now = Clock::now();
    if (firstStep < 0 && step >= 0) {
      firstStep = step;
      firstTime = now;
    }
    // Until then the runtime says for whom it waits.
    if (now < next || step < 0)
      return;
    next = now + (isTerminal ? Clock::duration(terminalPause) : linePause);
    show(describe(step, now));
  }
  /// Says that all steps are done. On a terminal the summary follows.
  void finish() {
    if (isShown && !isTerminal)
      show(concat(steps, " of ", steps, " steps are done"));
  }

private:
  using Clock = std::chrono::steady_clock;

  void show(const std::string &text) {
    // On a terminal any other output replaces the line.
    std::fprintf(stderr, isTerminal ? "\r\033[K%s: %s\r" : "%s: %s\n", toolName,
                 text.c_str());
    hasLine = isTerminal;
    std::fflush(stderr);
  }

  /// Returns "step 7 of 9, 1.5 ms a step, 3 s left".
  std::string describe(int64_t step, Clock::time_point now) const {
    std::string text = concat("step ", step, " of ", steps);
    if (step <= firstStep)
      return text;
    const double seconds =
        std::chrono::duration<double>(now - firstTime).count() /
        static_cast<double>(step - firstStep);
    return text + ", " + printMilliseconds(seconds) + " a step, " +
           printDuration(seconds * static_cast<double>(steps - step)) + " left";
  }

  const char *const toolName;
  const int64_t steps;
  const bool isTerminal;
  const bool isShown;
  bool hasLine = false;
  /// The first step that was seen, or −1, and the time of that.
  int64_t firstStep = -1;
  Clock::time_point firstTime;
  Clock::time_point next;
};

} // namespace

int ddphook::reportError(const char *toolName, const Status &status,
                         bool isUsage) {
  std::string line = std::string(toolName) + ": error: " + status.message();
  for (char &c : line)
    if (static_cast<unsigned char>(c) < 0x20)
      c = ' ';
  if (isUsage)
    line += std::string(" (see ") + toolName + " --help)";
  std::fprintf(stderr, "%s\n", line.c_str());
  return isUsage ? 2 : 1;
}

static Status runStep(const Job &job, StepBuffers &buffers, int32_t rank,
                      int64_t step, StepTimes &times) {
  const RunOptions &options = job.options;
  if (options.randomSeed)
    buffers.drawArguments({*options.randomSeed, rank, step, 0});
  else if (!options.inputs.empty())
    DDPHOOK_TRY(
        buffers.readArguments(expandPattern(options.inputs, rank, step)));
  buffers.poisonResults();
  DDPHOOK_TRY(buffers.upload());
  DDPHOOK_TRY(fromRuntime(
      times.measure([&] { return job.signature.invoke(buffers.pointers()); }),
      "entry '" + options.entry + "' failed in " + nameStep(step)));
  if (options.outputs.empty())
    return Status::ok();
  DDPHOOK_TRY(buffers.download());
  return buffers.writeResults(expandPattern(options.outputs, rank, step));
}

/// Reports states that did not get a saved value.
static void noteLoad(const Job &job, const ddphook_state_info_t &info,
                     int32_t worldSize) {
  std::vector<std::string> notes;
  auto count = [](int32_t number) { return std::to_string(number); };
  const bool isPart = info.missing > 0 || info.dropped > 0;
  if (isPart)
    notes.push_back(
        "lacks " + printCount(info.missing, "state") +
        " of gradients, which start from their initial values, and has " +
        count(info.dropped) + " that were dropped");
  // `zeroed` also counts states of which everything is missing.
  if (info.zeroed > 0 && (!isPart || info.world_size != worldSize))
    notes.push_back((info.world_size != worldSize
                         ? "is of " + printCount(info.world_size, "rank") + ": "
                         : "is of ranks on other nodes: ") +
                    printCount(info.zeroed, "state") +
                    (isPart ? " to start from initial values, "
                            : " of single ranks to start at zero, ") +
                    count(info.loaded) + " loaded");
  if (info.kept > 0)
    notes.push_back("lacks " + count(info.kept) + " of " +
                    count(info.kept + info.loaded) +
                    " states, which keep their initial values");
  for (const std::string &note : notes)
    std::fprintf(stderr, "%s: note: '%s' %s\n", job.toolName,
                 job.options.stateIn.c_str(), note.c_str());
}

static Status loadStates(const Job &job, const ddphook_context_t *context) {
  if (job.options.stateIn.empty())
    return Status::ok();
  ddphook_state_info_t info = {};
  info.struct_size = sizeof(info);
  const uint32_t flags =
      DDPHOOK_STATE_PLAIN |
      (job.options.isStateStrict ? uint32_t(DDPHOOK_STATE_STRICT) : 0) |
      (job.options.isStatePartial ? uint32_t(DDPHOOK_STATE_PARTIAL) : 0);
  DDPHOOK_TRY(
      fromRuntime(ddphook_state_load(&job.module, job.options.stateIn.c_str(),
                                     flags, &info),
                  "cannot load the states"));
  if (ddphook_context_rank(context) == 0)
    noteLoad(job, info, ddphook_context_world_size(context));
  return Status::ok();
}

static Status saveStates(const Job &job) {
  if (job.options.stateOut.empty())
    return Status::ok();
  // Like the outputs, it replaces existing files.
  return fromRuntime(ddphook_state_save(&job.module,
                                        job.options.stateOut.c_str(),
                                        DDPHOOK_STATE_REPLACE),
                     "cannot save the states");
}

/// Runs all steps as one rank, whose identity in the job is `place`. `onStep`
/// is called before each step and after the last.
static Status runRank(const Job &job, ddphook_options_t place,
                      const std::function<void(int64_t)> &onStep,
                      RankFigures &figures) {
  const std::string backend = chooseDevice(job.options);
  place.backend = backend.c_str();
  place.trace = job.options.trace.c_str();
  ddphook_context_t *context = nullptr;
  DDPHOOK_TRY(fromRuntime(ddphook_context_create(&place, &context),
                          "cannot join the job"));
  // This unloads the module, too.
  std::unique_ptr<ddphook_context_t, decltype(&ddphook_context_destroy)> owner(
      context, &ddphook_context_destroy);
  int32_t rank = ddphook_context_rank(context);
  // Load it first, because this explains why a module for another device fails.
  DDPHOOK_TRY(fromRuntime(ddphook_module_load(context, &job.module),
                          "cannot load the module"));
  StepBuffers buffers(job.signature, backend == "host" ? nullptr : context);
  DDPHOOK_TRY(buffers.allocate());
  DDPHOOK_TRY(loadStates(job, context));
  StepTimes times;
  for (int64_t step = 0; step < job.options.steps; ++step) {
    onStep(step);
    DDPHOOK_TRY(runStep(job, buffers, rank, step, times));
  }
  onStep(job.options.steps - 1);
  DDPHOOK_TRY(saveStates(job));
  figures.medianSeconds = times.median();
  figures.stats.struct_size = sizeof(figures.stats);
  DDPHOOK_TRY(fromRuntime(ddphook_module_stats(&job.module, &figures.stats),
                          "cannot read the counters"));
  return fromRuntime(ddphook_module_unload(&job.module),
                     "cannot unload the module");
}

static Status runStartedRank(const Job &job, int32_t rank, int32_t ranks,
                             const LocalJob &local, RankReport &report) {
  // Code in the module or in a backend may read the variables.
  local.enter(rank);
  ddphook_options_t place = {};
  place.struct_size = sizeof(place);
  place.rank = rank;
  place.local_rank = rank;
  place.world_size = ranks;
  place.master_addr = local.address().c_str();
  place.master_port = local.port();
  return runRank(
      job, place, [&](int64_t step) { report.progress(step); }, report.figures);
}

static void summarize(const Job &job, const RankFigures &figures) {
  if (job.options.isQuiet)
    return;
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - job.start;
  const std::string text =
      describeRun({job.toolName, job.options, job.signature, job.worldSize,
                   time.count(), figures});
  std::fputs(text.c_str(), stderr);
}

static int startRanks(const char *toolName, const Job &job,
                      double timeoutSeconds) {
  const RunOptions &options = job.options;
  RankGroupOptions group;
  group.ranks = options.ranks.value_or(1);
  // Ranks that wait for each other notice a passed deadline themselves. This is
  // for ranks that hang elsewhere, so it must come later.
  group.stallSeconds = timeoutSeconds * 1.1 + 5;
  LocalJob local;
  Status status = LocalJob::prepare(group.ranks, &local);
  if (!status.isOk())
    return reportError(toolName, status);
  group.body = [&](int32_t rank, RankReport &report) {
    return runStartedRank(job, rank, group.ranks, local, report);
  };
  group.cleanUp = [&](int32_t rank, pid_t process, int64_t step) {
    if (!options.outputs.empty() && step >= 0)
      ::unlink(partialPath(expandPattern(options.outputs, rank, step), process)
                   .c_str());
  };
  RankGroupResult result;
  {
    Progress progress(toolName, options);
    group.onProgress = [&](int64_t step) { progress.update(step); };
    result = runRankGroup(group);
    if (result.status.isOk())
      progress.finish();
  }
  if (result.status.isOk()) {
    summarize(job, result.figures);
    return 0;
  }
  int exitStatus = reportError(toolName, result.status);
  return result.signal != 0 ? 128 + result.signal : exitStatus;
}

/// Compares the files to be written with the free space. Prints their size on a
/// terminal, and elsewhere if it is a large part of that space.
static Status checkFiles(const Job &job, const Bootstrap &place) {
  constexpr double goodPart = 0.1;
  const RunOptions &options = job.options;
  // In a launched job it is unknown which ranks share a disk.
  const std::vector<PlannedFiles> files =
      planFiles(options, job.signature, place.isLaunched ? 1 : job.worldSize);
  const FreeSpace space = compareWithFreeSpace(files);
  if (options.checksFreeSpace)
    DDPHOOK_TRY(space.status);
  const bool isWanted = ::isatty(STDERR_FILENO) == 1 ||
                        options.progress == ProgressMode::On ||
                        space.share > goodPart;
  if (files.empty() || options.isQuiet || !isWanted || place.rank != 0)
    return Status::ok();
  std::string text;
  for (const PlannedFiles &planned : files)
    text += (text.empty() ? "" : ", and ") + describeFiles(planned);
  std::fprintf(stderr, "%s: will write %s%s%s\n", job.toolName, text.c_str(),
               place.isLaunched ? " on each rank" : "", space.text.c_str());
  return Status::ok();
}

static Status prepare(Job &job, const Bootstrap &place) {
  const RunOptions &options = job.options;
  if (place.isLaunched && options.ranks && *options.ranks != place.worldSize)
    return invalid(
        concat("expected --ranks to be the world size of the launched job, ",
               place.worldSize, ", but got ", *options.ranks));
  job.worldSize =
      place.isLaunched ? place.worldSize : options.ranks.value_or(1);
  DDPHOOK_TRY(checkPatterns(options, job.worldSize));
  DDPHOOK_TRY(findEntry(job.module, options.entry, job.signature));
  if (!job.signature.arguments.empty() && options.inputs.empty() &&
      !options.randomSeed)
    return invalid("--inputs is missing, but entry '" + options.entry +
                   "' has arguments");
  return checkFiles(job, place);
}

int ddphook::runModule(const char *toolName,
                       const ddphook_compiled_module_t &module,
                       const RunOptions &options) try {
  Job job = {toolName, module, options, {}};
  Bootstrap place;
  Status status = findPlace(nullptr, processEnvironment(), &place);
  if (status.isOk())
    status = prepare(job, place);
  if (!status.isOk())
    return reportError(toolName, status);
  if (!place.isLaunched)
    return startRanks(toolName, job, place.timeoutSeconds);
  // The launch variables define its identity.
  ddphook_options_t launched = {};
  launched.struct_size = sizeof(launched);
  RankFigures figures;
  {
    RunOptions shown = options;
    if (place.rank != 0)
      shown.progress = ProgressMode::Off;
    Progress progress(toolName, shown);
    status = runRank(
        job, launched, [&](int64_t step) { progress.update(step); }, figures);
    if (status.isOk())
      progress.finish();
  }
  if (status.isOk()) {
    if (place.rank == 0)
      summarize(job, figures);
    return 0;
  }
  return reportError(
      toolName,
      withContext(std::move(status), "rank " + std::to_string(place.rank)));
} catch (const std::exception &exception) {
  return reportError(toolName, Status(DDPHOOK_INTERNAL, exception.what()));
}
