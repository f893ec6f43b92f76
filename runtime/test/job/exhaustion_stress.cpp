// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   ddphook-exhaustion_stress --fail=allocation|thread|system
//                             --transport=shm|gloo [--rounds=N|all]
//                             [--function=NAME] [--only=RANK,INDEX,LENGTH]…
//                             [--seed=N] [--share=I/N]
//
// Runs a short job of two ranks, which join, load a module, make steps, meet,
// broadcast, save and load their states, and leave. In each round one
// allocation, thread or system call of one rank fails, or all from one on. No
// rank may crash, hang, or wait for the deadline; if a failure is final on one
// rank it is on both, stays the same, and one of them names the reason. `all`
// tries every call of both ranks in turn, `--function` only those of one
// function. Rounds mostly wait, so N programs may each run a share of them at
// the same time. `--only` runs the rounds that it names; it counts the calls of
// the function named before it, and length 0 means all calls from there on.
// Prints how the rounds ended; the exit status is 1 if a rank broke the rule.

#include "base/failing_calls.h"
#include "exec/exec_test_util.h"
#include "job/job_test_util.h"
#include "module/state_test_util.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <random>
#include <signal.h>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>
#include <vector>

using namespace ddphook;
using namespace ddphook::test;

namespace {

/// Nobody may wait so long.
constexpr double deadline = 20;
constexpr long forever = 1L << 40;

/// Set by a rank that has failed before it told anybody that it is there: the
/// other one can only wait for its deadline, and need not do so here.
std::atomic<bool> *isAlone;

void endIfAlone(int) {
  if (*isAlone)
    ::_exit(0);
}

/// Has the calling process look every 50 ms whether it is alone.
void watchForOther(bool isOn) {
  ::signal(SIGALRM, endIfAlone);
  const itimerval interval = {{0, isOn ? 50000 : 0}, {0, isOn ? 50000 : 0}};
  ::setitimer(ITIMER_REAL, &interval, nullptr);
}

struct Options {
  CallKind kind = CallKind::Allocation;
  std::string transport = "shm";
  bool isComplete = false;
  int rounds = 20;
  /// Empty: all of that kind.
  std::string function;
  unsigned seed = 1;
  /// Of every `shares` calls the one of this number, from 0.
  int share = 0, shares = 1;
};

/// What fails in a round.
struct Fault {
  int rank = -1; ///< -1: nothing.
  long first = 0;
  long length = 1;
  /// Whose calls are counted; empty: all of the kind.
  std::string function;
};

/// The calls of a job, in their order.
const char *const callNames[] = {"create", "load",      "step", "started",
                                 "meet",   "broadcast", "save", "load states"};
constexpr int callCount = 8;

/// How a rank fared. It is made while there may be no memory.
struct Report {
  ddphook_status_t statuses[callCount] = {};
  /// The call that failed for good; callCount: none.
  int final = callCount;
  /// The failure there, and of the call that failed first.
  char text[300] = "", first[300] = "";
  const char *fault = nullptr;
  long counted = 0;
  double seconds = 0;

  std::string encode() const {
    std::ostringstream out;
    for (ddphook_status_t status : statuses)
      out << status << ' ';
    out << final << ' ' << counted << ' ' << seconds << ' '
        << (*failedCall() ? failedCall() : "none") << '\n'
        << text << '\n'
        << first << '\n'
        << (*failedCall() ? failedReason() : "") << '\n'
        << (fault ? fault : "");
    return out.str();
  }
};

/// One rank of the job. Nothing here allocates.
class Rank {
public:
  Rank(const ddphook_options_t &options, TestModule &module,
       const std::string &pattern, std::vector<float> &data)
      : options(options), module(module), pattern(pattern), data(data) {}

  void run();

  Report report;

private:
  bool call(int number);
  bool isFinal(int number);
  ddphook_status_t make(int number);
  ddphook_status_t step(bool isStarted);

  const ddphook_options_t &options;
  TestModule &module;
  const std::string &pattern;
  std::vector<float> &data;
  ddphook_context_t *context = nullptr;
};

} // namespace

ddphook_status_t Rank::step(bool isStarted) {
  const ddphook_status_t entered = ddphook_rt_enter(module.handle, 0);
  if (entered != DDPHOOK_OK)
    return entered;
  if (isStarted)
    ddphook_rt_wait(module.handle,
                    ddphook_rt_collective_start(module.handle, 0, data.data(),
                                                data.data(), /*step=*/0));
  else
    ddphook_rt_collective(module.handle, 0, data.data(), data.data(),
                          /*step=*/0);
  return ddphook_rt_leave(module.handle);
}

ddphook_status_t Rank::make(int number) {
  switch (number) {
  case 0:
    return ddphook_context_create(&options, &context);
  case 1:
    return ddphook_module_load(context, &module.compiled);
  case 2:
    return step(/*isStarted=*/false);
  case 3:
    return step(/*isStarted=*/true);
  case 4:
    return ddphook_barrier(context);
  case 5:
    return ddphook_broadcast(context, data.data(), data.size() * 4, 1);
  case 6:
    return ddphook_state_save(&module.compiled, pattern.c_str(), 0);
  default:
    return ddphook_state_load(&module.compiled, pattern.c_str(), 0, nullptr);
  }
}

/// Whether the call that has just failed was the end: then every later one
/// fails in the same way.
bool Rank::isFinal(int number) {
  if (number == 0)
    return true;
  ddphook_status_t status = ddphook_barrier(context);
  if (status == DDPHOOK_OK)
    return false;
  // A load or save that fails leaves the context unharmed, so that what comes
  // next may be the first failure that is final.
  const bool isSame = status == report.statuses[number] &&
                      std::strncmp(report.text, ddphook_last_error(),
                                   sizeof(report.text) - 1) == 0;
  if (!isSame && number != 1 && number < 6)
    report.fault = "the context did not stay failed";
  std::snprintf(report.text, sizeof(report.text), "%s", ddphook_last_error());
  const auto begin = std::chrono::steady_clock::now();
  if (ddphook_barrier(context) != status ||
      std::strncmp(report.text, ddphook_last_error(),
                   sizeof(report.text) - 1) != 0)
    report.fault = "the failure changed";
  if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(5))
    report.fault = "a later call waited";
  return true;
}

bool Rank::call(int number) {
  const ddphook_status_t status = make(number);
  report.statuses[number] = status;
  if (status == DDPHOOK_OK)
    return true;
  std::snprintf(report.text, sizeof(report.text), "%s", ddphook_last_error());
  if (!*report.first)
    std::snprintf(report.first, sizeof(report.first), "%s in %s: %s",
                  ddphook_status_name(status), callNames[number], report.text);
  if (!*report.text)
    report.fault = "a failure without a message";
  if (!isFinal(number))
    return number != 1; // Without a module nothing else can be called.
  report.final = number;
  return false;
}

void Rank::run() {
  const auto begin = std::chrono::steady_clock::now();
  for (int number = 0; number < callCount && call(number);)
    ++number;
  ddphook_context_destroy(context);
  report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
          .count();
}

namespace {

/// A report as the parent sees it.
struct Ending {
  std::vector<int> statuses = std::vector<int>(callCount);
  int final = callCount;
  long counted = 0;
  double seconds = 0;
  std::string failedCall, text, first, reason, fault;

  static Ending decode(const std::string &text) {
    Ending ending;
    std::istringstream in(text);
    for (int &status : ending.statuses)
      in >> status;
    in >> ending.final >> ending.counted >> ending.seconds >> ending.failedCall;
    in.ignore();
    for (std::string *line :
         {&ending.text, &ending.first, &ending.reason, &ending.fault})
      std::getline(in, *line);
    return ending;
  }
  bool hasFailed() const { return !first.empty(); }
};

class Stress {
public:
  explicit Stress(const Options &options) : options(options) {}

  /// Runs a job; false if a rank broke the rule.
  bool round(const Fault &fault);
  /// Calls of each rank in a job in which nothing fails; empty if it failed.
  std::vector<long> countCalls();

  void print() const {
    for (const auto &[ending, count] : endings)
      std::printf("%6d rounds: %s\n", count, ending.c_str());
  }

private:
  std::string runRank(int rank, const Fault &fault, int port,
                      const std::string &pattern) const;
  const char *judge(const Fault &fault, const std::vector<RankResult> &results,
                    const std::vector<Ending> &ranks) const;
  static std::string classify(const Fault &fault,
                              const std::vector<Ending> &ranks);

  const Options &options;
  std::vector<Ending> last;
  std::map<std::string, int> endings;
};

} // namespace

std::string Stress::runRank(int rank, const Fault &fault, int port,
                            const std::string &pattern) const {
  ddphook_options_t place =
      jobOptions(rank, 2, port, options.transport.c_str(), deadline);
  place.backend_options = "async_progress=always";
  TestModule module(Collectives{{1000, "f32"}});
  setStates(module, powersgdStates());
  std::vector<float> data(1000, 1.0f);
  Rank self(place, module, pattern, data);
  const bool hasFault = rank == fault.rank;
  watchForOther(!hasFault);
  failCalls(options.kind, hasFault ? fault.first : forever, fault.length,
            fault.function.c_str());
  self.run();
  allowCalls();
  watchForOther(false);
  if (hasFault && self.report.final == 0 && !hasSent())
    *isAlone = true;
  self.report.counted = countedCalls();
  return self.report.encode();
}

/// What is wrong with a round; null: nothing.
const char *Stress::judge(const Fault &fault,
                          const std::vector<RankResult> &results,
                          const std::vector<Ending> &ranks) const {
  for (int rank = 0; rank < 2; ++rank) {
    const Ending &ending = ranks[rank];
    if (results[rank].isHung)
      return "a rank hangs";
    if (results[rank].signal != 0)
      return "a rank crashed";
    if (results[rank].text.empty() && !*isAlone)
      return "a rank said nothing";
    if (!ending.fault.empty())
      return "a rule of one rank is broken";
  }
  if (fault.rank < 0)
    return ranks[0].hasFailed() || ranks[1].hasFailed() ? "it failed" : nullptr;
  const Ending &one = ranks[fault.rank], &other = ranks[1 - fault.rank];
  // Rank 0 cannot tell a rank that it had no memory to let in.
  const bool isOutside =
      one.final == 0 &&
      other.first.find("could not join rank 0") != std::string::npos;
  if (*isAlone || isOutside)
    return nullptr;
  // A network may come back: a rank tries until its deadline to connect.
  for (const Ending &ending : ranks)
    for (int status : ending.statuses)
      if (status == DDPHOOK_DEADLINE_EXCEEDED && one.failedCall != "connect")
        return "a rank waited for its deadline";
  // A rank that cannot start a thread can still say so.
  if (options.kind == CallKind::Thread)
    for (int status : other.statuses)
      if (status == DDPHOOK_PEER_LOST)
        return "a rank was lost and did not say why";
  const int earliest = std::min(one.final, other.final);
  if (one.final != other.final && earliest < callCount - 1 &&
      (one.final == callCount || other.final == callCount))
    return "a failure is final on one rank only";
  if (one.hasFailed() != other.hasFailed() && earliest < callCount - 1)
    return "only one rank has failed";
  // What a rank cannot do any more when it has left, nobody hears of.
  if (!one.hasFailed() && other.final >= callCount - 1)
    return nullptr;
  const std::string all = one.first + one.text + other.first + other.text;
  if ((one.hasFailed() || other.hasFailed()) &&
      all.find(one.reason) == std::string::npos &&
      all.find("out of memory") == std::string::npos &&
      all.find("cannot start a thread") == std::string::npos)
    return "nobody named the reason";
  return nullptr;
}

std::string Stress::classify(const Fault &fault,
                             const std::vector<Ending> &ranks) {
  const Ending &one = ranks[fault.rank], &other = ranks[1 - fault.rank];
  if (*isAlone)
    return "one that did not come as far as to join";
  if (!one.hasFailed() && !other.hasFailed())
    return one.failedCall == "none" ? "nothing failed" : "recovered";
  auto name = [](const Ending &ending) {
    return ending.hasFailed() ? ending.first.substr(0, ending.first.find(':'))
                              : std::string("OK");
  };
  return "rank with the fault: " + name(one) + "; other: " + name(other);
}

bool Stress::round(const Fault &fault) {
  TemporaryDirectory directory;
  const std::string pattern = directory.path("state.{rank}");
  *isAlone = false;
  const int port = freePort();
  const std::vector<RankResult> results = runRanks(
      2, [&](int rank) { return runRank(rank, fault, port, pattern); },
      /*patience=*/deadline + 60);
  last.clear();
  for (const RankResult &result : results)
    last.push_back(Ending::decode(result.text));
  const char *wrong = judge(fault, results, last);
  if (!wrong) {
    if (fault.rank >= 0)
      ++endings[classify(fault, last)];
    return true;
  }
  ++endings[std::string("BROKEN: ") + wrong];
  std::printf("--function=%s --only=%d,%ld,%ld: %s; it was %s\n",
              fault.function.c_str(), fault.rank, fault.first, fault.length,
              wrong,
              fault.rank < 0 ? "nothing" : last[fault.rank].failedCall.c_str());
  for (int rank = 0; rank < 2; ++rank)
    std::printf("  rank %d: signal %d, hung %d, %.2f s, final %d; %s; %s; %s\n",
                rank, results[rank].signal, results[rank].isHung,
                results[rank].seconds, last[rank].final,
                last[rank].first.c_str(), last[rank].text.c_str(),
                last[rank].fault.c_str());
  std::fflush(stdout);
  return false;
}

std::vector<long> Stress::countCalls() {
  Fault none;
  none.function = options.function;
  if (!round(none))
    return {};
  return {last[0].counted, last[1].counted};
}

static int fail(const char *argument) {
  std::fprintf(stderr, "exhaustion_stress: unknown argument '%s'\n", argument);
  return 2;
}

int main(int argc, char **argv) {
  const std::map<std::string, CallKind> kinds = {
      {"allocation", CallKind::Allocation},
      {"thread", CallKind::Thread},
      {"system", CallKind::System}};
  Options options;
  std::vector<Fault> only;
  Fault named;
  std::string kind = "allocation";
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const std::string value =
        equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (name == "--fail" && kinds.count(value)) {
      kind = value;
      options.kind = kinds.at(value);
    } else if (name == "--transport" && (value == "shm" || value == "gloo")) {
      options.transport = value;
    } else if (name == "--rounds") {
      options.isComplete = value == "all";
      options.rounds = std::atoi(value.c_str());
    } else if (name == "--function") {
      options.function = value;
    } else if (name == "--seed") {
      options.seed = static_cast<unsigned>(std::atoi(value.c_str()));
    } else if (name == "--share" &&
               std::sscanf(value.c_str(), "%d/%d", &options.share,
                           &options.shares) == 2 &&
               options.shares > 0) {
      continue;
    } else if (name == "--only" &&
               std::sscanf(value.c_str(), "%d,%ld,%ld", &named.rank,
                           &named.first, &named.length) == 3) {
      named.length = named.length == 0 ? forever : named.length;
      named.function = options.function;
      only.push_back(named);
    } else {
      return fail(argv[i]);
    }
  }
  void *shared = ::mmap(nullptr, sizeof(*isAlone), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  isAlone = new (shared) std::atomic<bool>(false);
  // A rank that waits for its rank 0 must not join the job of another program
  // that has taken the port since.
  ::setenv("DDPHOOK_RUN_ID", std::to_string(::getpid()).c_str(), 1);
  Stress stress(options);
  int rounds = 0, faults = 0;
  auto run = [&](const Fault &fault) {
    if (fault.first % options.shares != options.share)
      return;
    ++rounds;
    faults += !stress.round(fault);
  };
  const std::vector<long> counts = stress.countCalls();
  if (counts.empty())
    return 1;
  if (!only.empty()) {
    for (const Fault &fault : only)
      run(fault);
  } else if (options.isComplete) {
    for (long length : {1L, forever})
      for (int rank = 0; rank < 2; ++rank)
        for (long first = 0; first < counts[rank]; ++first)
          run({rank, first, length, options.function});
  } else {
    std::mt19937 random(options.seed);
    for (int i = 0; i < options.rounds; ++i) {
      const int rank = static_cast<int>(random() % 2);
      if (counts[rank] == 0)
        continue;
      const long first = static_cast<long>(
          random() % static_cast<unsigned long>(counts[rank]));
      run({rank, first, random() % 2 == 0 ? 1 : forever, options.function});
    }
  }
  std::printf("%s, %s: %ld and %ld calls; %d rounds with seed %u; %d broke the "
              "rule\n",
              kind.c_str(), options.transport.c_str(), counts[0], counts[1],
              rounds, options.seed, faults);
  stress.print();
  return faults == 0 ? 0 : 1;
}
