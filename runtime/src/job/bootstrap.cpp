// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads options and launch variables. If several launchers left variables,
// these must agree: a process that believes one of two contradicting ranks
// would train on wrong data, or hang.

#include "job/bootstrap.h"

#include "base/log.h"
#include "store/socket.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

using namespace ddphook;

namespace {

/// A number and the variable that it came from.
struct Setting {
  const char *variable = nullptr;
  int value = 0;
};

/// The ranks and sizes that one launcher sets.
struct Launch {
  Setting rank;
  Setting worldSize;
  std::optional<Setting> localRank;
  std::optional<Setting> localSize;
  /// The numbers of the job and of the step as which Slurm started it.
  std::optional<std::pair<unsigned long long, unsigned long long>> slurmStep;
};

/// The names of one launcher's variables; null for those it does not have.
struct LaunchVariables {
  const char *rank;
  const char *worldSize;
  const char *localRank;
  const char *localSize;
};

constexpr LaunchVariables torchrun = {"RANK", "WORLD_SIZE", "LOCAL_RANK",
                                      "LOCAL_WORLD_SIZE"};
constexpr LaunchVariables openMpi = {
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr LaunchVariables pmi = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                                 "MPI_LOCALNRANKS"};
constexpr int defaultPort = 29500;
/// A larger number is a mistake in the variable.
constexpr int maxThreads = 4096;
/// This many take 2 GiB per thread.
constexpr int mostTraceEvents = 1 << 26;
/// Anyone who records a handshake can try any number of secrets offline.
constexpr size_t minSecretSize = 16;
/// The size that callers from before `store` was added pass.
constexpr size_t leastOptionsSize = offsetof(ddphook_options_t, store);

/// Reads variables and keeps the first error.
class VariableReader {
public:
  explicit VariableReader(const Environment &environment)
      : environment(environment) {}

  const char *text(const char *name) const { return environment(name); }

  std::optional<int> number(const char *name, int least, int most) {
    const char *value = environment(name);
    if (!value)
      return std::nullopt;
    char *end = nullptr;
    errno = 0;
    long parsed = std::strtol(value, &end, 10);
    bool isNumber = end != value && *end == '\0' && errno == 0 &&
                    !std::isspace(static_cast<unsigned char>(*value));
    if (isNumber && parsed >= least && parsed <= most)
      return static_cast<int>(parsed);
    if (most == INT_MAX)
      refuse("expected ", name, " to be a number of at least ", least,
             ", but got '", value, "'");
    else
      refuse("expected ", name, " to be a number from ", least, " to ", most,
             ", but got '", value, "'");
    return std::nullopt;
  }

  std::optional<Setting> setting(const char *name, int least) {
    std::optional<int> value = number(name, least, INT_MAX);
    if (!value)
      return std::nullopt;
    return Setting{name, *value};
  }

  /// Chooses a text from the option, else from the environment, else leaves it.
  void choose(const char *option, const char *name, std::string *value) const {
    if (option && *option)
      *value = option;
    else if (const char *set = text(name))
      *value = set;
  }

  /// Fails with BAD_ENVIRONMENT and this message.
  template <typename... Parts>
  void refuse(const Parts &...message) {
    if (failure.isOk())
      failure = badEnvironment(concat(message...));
  }

  const Status &status() const { return failure; }

private:
  const Environment &environment;
  Status failure;
};

} // namespace

/// Reads one launcher's variables, or returns nullopt if it set none.
static std::optional<Launch> readLaunch(VariableReader &reader,
                                        const LaunchVariables &names) {
  bool hasRank = reader.text(names.rank) != nullptr;
  bool hasWorldSize = reader.text(names.worldSize) != nullptr;
  if (!hasRank && !hasWorldSize)
    return std::nullopt;
  if (hasRank != hasWorldSize) {
    reader.refuse("expected ", names.rank, " and ", names.worldSize,
                  " together, but only ",
                  hasRank ? names.rank : names.worldSize, " is set");
    return std::nullopt;
  }
  std::optional<Setting> rank = reader.setting(names.rank, 0);
  std::optional<Setting> worldSize = reader.setting(names.worldSize, 1);
  if (!rank || !worldSize)
    return std::nullopt;
  Launch launch;
  launch.rank = *rank;
  launch.worldSize = *worldSize;
  if (names.localRank)
    launch.localRank = reader.setting(names.localRank, 0);
  if (names.localSize)
    launch.localSize = reader.setting(names.localSize, 1);
  auto expectBelow = [&](const Setting &number, const Setting &count) {
    if (number.value >= count.value)
      reader.refuse("expected ", number.variable, " to be below ",
                    count.variable, ", but got ", number.value, " and ",
                    count.value);
  };
  expectBelow(launch.rank, launch.worldSize);
  if (launch.localRank && launch.localSize)
    expectBelow(*launch.localRank, *launch.localSize);
  return launch;
}

/// Reads Slurm's variables. They count only in a job step of several tasks in
/// which no other launcher runs. Batch scripts, interactive shells and the
/// helper tasks with which torchrun and mpirun reach their nodes also have
/// them, but there they describe something else.
static std::optional<Launch> readSlurm(VariableReader &reader) {
  if (!reader.text("SLURM_PROCID"))
    return std::nullopt;
  const char *step = reader.text("SLURM_STEP_ID");
  if (reader.text("SLURM_JOB_ID") && !step)
    return std::nullopt;
  // Slurm numbers batch scripts and its other special steps from the top.
  if (step && std::strtoull(step, nullptr, 10) >= 0xfffffff0ULL)
    return std::nullopt;
  LaunchVariables names = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
                           "SLURM_LOCALID", nullptr};
  if (!reader.text(names.worldSize))
    names.worldSize = "SLURM_NTASKS";
  std::optional<Launch> launch = readLaunch(reader, names);
  if (!launch || launch->worldSize.value == 1)
    return std::nullopt;
  for (const char *nodes : {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"})
    if (reader.text(nodes)) {
      std::optional<int> count = reader.number(nodes, 1, INT_MAX);
      if (count && *count == 1)
        launch->localSize = Setting{nodes, launch->worldSize.value};
      break;
    }
  if (const char *job = reader.text("SLURM_JOB_ID"))
    launch->slurmStep = {std::strtoull(job, nullptr, 10),
                         std::strtoull(step, nullptr, 10)};
  return launch;
}

/// True if the tasks of a Slurm step have PMI's variables from Slurm itself
/// (`srun --mpi=pmi2`), not from an mpiexec that runs inside the step.
static bool isSlurmsPmi(const VariableReader &reader) {
  auto text = [&](const char *name) -> std::string {
    const char *value = reader.text(name);
    return value ? value : "";
  };
  return text("PMI_JOBID") ==
             text("SLURM_JOB_ID") + "." + text("SLURM_STEP_ID") &&
         text("PMI_RANK") == text("SLURM_PROCID") &&
         text("PMI_SIZE") == text("SLURM_STEP_NUM_TASKS");
}

static void checkEqual(VariableReader &reader, const Setting &a,
                       const Setting &b) {
  if (a.value != b.value)
    reader.refuse("launch variables contradict each other: ", a.variable,
                  " is ", a.value, ", but ", b.variable, " is ", b.value);
}

static std::optional<Launch> readLaunchers(VariableReader &reader) {
  std::vector<Launch> launches;
  for (const LaunchVariables &names : {torchrun, openMpi, pmi})
    if (std::optional<Launch> launch = readLaunch(reader, names))
      launches.push_back(*launch);
  bool isStartedByMpi = reader.text(openMpi.rank) ||
                        (reader.text(pmi.rank) && !isSlurmsPmi(reader));
  if (!isStartedByMpi && !reader.text("TORCHELASTIC_RUN_ID"))
    if (std::optional<Launch> launch = readSlurm(reader))
      launches.push_back(*launch);
  if (launches.empty())
    return std::nullopt;

  Launch merged = launches.front();
  for (const Launch &other : launches) {
    checkEqual(reader, merged.rank, other.rank);
    checkEqual(reader, merged.worldSize, other.worldSize);
    if (merged.localRank && other.localRank)
      checkEqual(reader, *merged.localRank, *other.localRank);
    if (!merged.localRank)
      merged.localRank = other.localRank;
    if (!merged.localSize)
      merged.localSize = other.localSize;
    if (!merged.slurmStep)
      merged.slurmStep = other.slurmStep;
  }
  return merged;
}

static Status checkOptions(const ddphook_options_t &options) {
  if (options.struct_size < leastOptionsSize)
    return invalid(
        "expected options.struct_size to be at least %zu, but got %zu",
        leastOptionsSize, options.struct_size);
  if (!std::isfinite(options.timeout_s) || options.timeout_s < 0)
    return invalid("expected options.timeout_s to be at least 0, but got %g",
                   options.timeout_s);
  if (options.world_size < 0)
    return invalid("expected options.world_size to be at least 0, but got %d",
                   options.world_size);
  int ranks = options.world_size == 0 ? 1 : options.world_size;
  if (options.rank < 0 || options.rank >= ranks)
    return invalid("expected options.rank to be from 0 to %d, but got %d",
                   ranks - 1, options.rank);
  if (options.local_rank < 0)
    return invalid("expected options.local_rank to be at least 0, but got %d",
                   options.local_rank);
  if (options.master_port < 0 || options.master_port > 65535)
    return invalid(
        "expected options.master_port to be from 0 to 65535, but got %d",
        options.master_port);
  return Status::ok();
}

static Status checkHostStore(const ddphook_options_t &options) {
  const ddphook_store_t &store = *options.store;
  if (store.struct_size < sizeof(store))
    return invalid(
        "expected options.store->struct_size to be at least %zu, but got %zu",
        sizeof(store), store.struct_size);
  if (!store.set || !store.get)
    return invalid("expected options.store to have both functions, but %s is "
                   "null",
                   store.set ? "get" : "set");
  if (options.world_size == 0)
    return invalid("expected options.world_size to be set together with "
                   "options.store, but got 0");
  return Status::ok();
}

static Status checkAllocator(const ddphook_allocator_t &allocator) {
  if (allocator.struct_size < sizeof(allocator))
    return invalid(
        "expected options.allocator->struct_size to be at least %zu, "
        "but got %zu",
        sizeof(allocator), allocator.struct_size);
  if (!allocator.alloc || !allocator.free)
    return invalid(
        "expected options.allocator to have both functions, but %s is "
        "null",
        allocator.alloc ? "free" : "alloc");
  return Status::ok();
}

std::string ddphook::firstHostOf(std::string_view list) {
  std::string host;
  // The result is the text before the first comma outside brackets, with each
  // bracket replaced by its first number, as written.
  while (!list.empty() && list[0] != ',') {
    if (list[0] != '[') {
      host += list[0];
      list.remove_prefix(1);
      continue;
    }
    const size_t close = list.find(']');
    const size_t end = std::min(list.find_first_of("-,]", 1), close);
    if (close == std::string_view::npos || end == 1 ||
        list.substr(1, end - 1).find_first_not_of("0123456789") !=
            std::string_view::npos)
      return "";
    host += list.substr(1, end - 1);
    list.remove_prefix(close + 1);
  }
  return host.find(']') == std::string::npos ? host : "";
}

int ddphook::portOfStep(unsigned long long job, unsigned long long step) {
  // A prime number of ports, and the factor that separates 300 jobs best.
  constexpr unsigned long long ports = 16381, factor = 12898;
  constexpr int first = 12000;
  return first +
         static_cast<int>((job % ports * factor + step % ports) % ports);
}

/// Finds the machine of rank 0 in a step of Slurm: tasks are numbered from the
/// first node on, unless they are distributed by hand. SLURM_LAUNCH_NODE_IPADDR
/// does not help, because srun itself may run anywhere.
static Status findSlurmHost(VariableReader &reader, const Bootstrap &place,
                            std::string *host) {
  const char *name = "SLURM_STEP_NODELIST";
  for (const char *older : {"SLURM_JOB_NODELIST", "SLURM_NODELIST"})
    if (!reader.text(name))
      name = older;
  const char *list = reader.text(name);
  if (!list)
    return Status::ok();
  *host = firstHostOf(list);
  if (host->empty())
    return badEnvironment("expected %s to be a list of nodes, but got '%s'",
                          name, list);
  if (place.rank == 0 && reader.number("SLURM_NODEID", 0, INT_MAX).value_or(0))
    return badEnvironment(
        "expected rank 0 to run on the first node of %s, %s, but it "
        "runs on another one; set MASTER_ADDR to the node of rank 0",
        name, host->c_str());
  return Status::ok();
}

/// Finds the address at which the store of a job with several ranks listens.
static Status findMaster(const ddphook_options_t &options,
                         VariableReader &reader, bool isOneMachine,
                         const std::optional<Launch> &launch,
                         Bootstrap *result) {
  const bool isSlurm = launch && launch->slurmStep;
  if (options.master_addr && *options.master_addr)
    result->masterAddress = options.master_addr;
  else if (const char *address = reader.text("MASTER_ADDR"))
    result->masterAddress = address;
  else if (isOneMachine)
    result->masterAddress = loopbackAddress();
  else if (isSlurm)
    DDPHOOK_TRY(findSlurmHost(reader, *result, &result->masterAddress));
  if (result->masterAddress.empty())
    return badEnvironment(
        "expected MASTER_ADDR to name the machine of rank 0 in a job "
        "of %d ranks, but it is not set",
        result->worldSize);
  // No other machine may reach the store, whatever the launcher calls this one.
  if (isOneMachine && !isLoopbackAddress(result->masterAddress) &&
      isOwnAddress(result->masterAddress))
    result->masterAddress = loopbackAddress();

  if (options.master_port != 0) {
    result->masterPort = options.master_port;
    return Status::ok();
  }
  std::optional<int> own = reader.number("DDPHOOK_PORT", 1, 65535);
  std::optional<int> launcher = reader.number("MASTER_PORT", 1, 65535);
  if (own) {
    result->masterPort = *own;
    return Status::ok();
  }
  const int port =
      isSlurm ? portOfStep(launch->slurmStep->first, launch->slurmStep->second)
              : defaultPort;
  result->masterPort = launcher.value_or(port);
  const char *agentStore = reader.text("TORCHELASTIC_USE_AGENT_STORE");
  // The launcher's own store listens on MASTER_PORT itself.
  if (agentStore && std::strcmp(agentStore, "True") == 0)
    ++result->masterPort;
  if (result->masterPort > 65535)
    return badEnvironment(
        "expected MASTER_PORT to be below 65535, because the store "
        "takes the next port; set DDPHOOK_PORT");
  return Status::ok();
}

/// Chooses the transport. Only the host backend's variable is checked here,
/// because other backends have other transports.
static void chooseTransport(const char *option, VariableReader &reader,
                            const std::string &backend,
                            std::string *transport) {
  const char *variable = "DDPHOOK_TRANSPORT";
  reader.choose(option, variable, transport);
  if (!(option && *option) && backend == "host" && *transport != "auto" &&
      *transport != "shm" && *transport != "gloo")
    reader.refuse("expected ", variable, " to be auto, shm or gloo, but got '",
                  *transport, "'");
}

static void checkLogLevel(VariableReader &reader) {
  const char *value = reader.text("DDPHOOK_LOG");
  if (value && !parseLogLevel(value))
    reader.refuse("expected DDPHOOK_LOG to be error, warn or info, but got '",
                  value, "'");
}

static void chooseSecret(VariableReader &reader, std::string *secret) {
  reader.choose(nullptr, "DDPHOOK_JOB_SECRET", secret);
  if (!secret->empty() && secret->size() < minSecretSize)
    reader.refuse("expected DDPHOOK_JOB_SECRET to have at least ",
                  minSecretSize, " characters, but got ", secret->size());
}

/// Chooses the node name, which errors, logs and traces print.
static void chooseNode(VariableReader &reader, std::string *name) {
  reader.choose(nullptr, "DDPHOOK_NODE", name);
  if (std::any_of(name->begin(), name->end(),
                  [](unsigned char c) { return std::iscntrl(c); }))
    reader.refuse("expected DDPHOOK_NODE to be a name without line feeds and "
                  "other control characters");
}

static void chooseTimeout(double option, VariableReader &reader,
                          double *seconds) {
  const char *text = reader.text("DDPHOOK_TIMEOUT_S");
  if (option > 0)
    *seconds = option;
  if (option > 0 || !text)
    return;
  char *end = nullptr;
  *seconds = std::strtod(text, &end);
  // White space, hexadecimal digits and words are not allowed.
  if (std::strspn(text, "0123456789.eE+-") != std::strlen(text) ||
      end == text || *end != '\0' || !std::isfinite(*seconds) || *seconds <= 0)
    reader.refuse("expected DDPHOOK_TIMEOUT_S to be a number of seconds above "
                  "0, but got '",
                  text, "'");
}

/// Reads our own variable, or else OpenMP's, a list with one number for each
/// nesting level. We do not report errors in OpenMP's variable.
static void chooseThreads(VariableReader &reader, int *threads) {
  if (reader.text("DDPHOOK_NUM_THREADS")) {
    *threads = reader.number("DDPHOOK_NUM_THREADS", 1, maxThreads).value_or(1);
    return;
  }
  const char *text = reader.text("OMP_NUM_THREADS");
  if (!text)
    return;
  char *end = nullptr;
  long value = std::strtol(text, &end, 10);
  while (std::isspace(static_cast<unsigned char>(*end)))
    ++end;
  if (end != text && (*end == '\0' || *end == ',') && value >= 1)
    *threads = static_cast<int>(std::min<long>(value, maxThreads));
}

static void chooseObservation(const ddphook_options_t &options,
                              VariableReader &reader,
                              trace::RecordingOptions *observation) {
  reader.choose(options.trace, "DDPHOOK_TRACE", &observation->trace);
  observation->traceEvents =
      reader.number("DDPHOOK_TRACE_EVENTS", 1, mostTraceEvents)
          .value_or(observation->traceEvents);
  reader.choose(nullptr, "DDPHOOK_FLIGHT_RECORDER",
                &observation->flightRecorder);
  if (observation->flightRecorder == "0") {
    observation->isRecording = false;
    observation->flightRecorder.clear();
  }
  reader.choose(nullptr, "DDPHOOK_METRICS", &observation->metrics);
  observation->metricsInterval =
      reader.number("DDPHOOK_METRICS_INTERVAL", 1, INT_MAX)
          .value_or(observation->metricsInterval);
  observation->measuresErrors =
      reader.number("DDPHOOK_METRICS_ERRORS", 0, 1).value_or(0) != 0;
  observation->findsNonFinite =
      reader.number("DDPHOOK_METRICS_NON_FINITE", 0, 1).value_or(0) != 0;
}

Environment ddphook::processEnvironment() {
  return [](const char *name) -> const char * {
    const char *value = std::getenv(name);
    return value && *value ? value : nullptr;
  };
}

Status ddphook::findPlace(const ddphook_options_t *givenOptions,
                          const Environment &environment, Bootstrap *result) {
  ddphook_options_t options = {};
  options.struct_size = sizeof(options);
  if (givenOptions) {
    std::memcpy(&options, givenOptions,
                std::min(givenOptions->struct_size, sizeof(options)));
    DDPHOOK_TRY(checkOptions(options));
    if (options.store)
      DDPHOOK_TRY(checkHostStore(options));
    if (options.allocator) {
      DDPHOOK_TRY(checkAllocator(*options.allocator));
      result->allocator = *options.allocator;
    }
  }
  VariableReader reader(environment);
  reader.choose(options.backend, "DDPHOOK_BACKEND", &result->backend);
  checkLogLevel(reader);
  chooseTransport(options.transport, reader, result->backend,
                  &result->transport);
  reader.choose(options.backend_options, "DDPHOOK_BACKEND_OPTIONS",
                &result->backendOptions);
  chooseNode(reader, &result->nodeOverride);
  for (const char *variable : {"SLURM_JOB_ID", "PMIX_NAMESPACE",
                               "TORCHELASTIC_RUN_ID", "DDPHOOK_RUN_ID"})
    reader.choose(nullptr, variable, &result->runId);
  chooseSecret(reader, &result->secret);
  chooseTimeout(options.timeout_s, reader, &result->timeoutSeconds);
  chooseThreads(reader, &result->threads);
  chooseObservation(options, reader, &result->observation);

  bool isOneMachine = false;
  std::optional<Launch> launch;
  if (options.world_size != 0) {
    result->rank = options.rank;
    result->worldSize = options.world_size;
    result->localRank = options.local_rank;
  } else if ((launch = readLaunchers(reader))) {
    result->isLaunched = true;
    result->rank = launch->rank.value;
    result->worldSize = launch->worldSize.value;
    if (launch->localRank)
      result->localRank = launch->localRank->value;
    isOneMachine =
        launch->localSize && launch->localSize->value == result->worldSize;
    // Several steps of one job may run at the same time.
    const char *job = reader.text("SLURM_JOB_ID");
    if (launch->slurmStep && result->runId == job)
      result->runId += "." + std::to_string(launch->slurmStep->second);
  }
  DDPHOOK_TRY(reader.status());
  if (options.store) {
    result->hostStore = *options.store;
    result->masterAddress = options.master_addr ? options.master_addr : "";
    result->masterPort = options.master_port;
  } else if (result->worldSize > 1) {
    DDPHOOK_TRY(findMaster(options, reader, isOneMachine, launch, result));
  }
  return reader.status();
}
