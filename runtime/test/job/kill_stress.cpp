// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   ddphook-kill_stress --phase=gloo|shm|store --signal=kill|stop
//                       [--rounds=N] [--timeout=SECONDS] [--seed=N]
//
// Starts job after job of two to four ranks that do nothing but come together:
// they connect process groups over TCP or shared memory again and again, or
// join the job. At a random moment a random rank is killed or stopped. No other
// rank may outlive that by more than the deadline and two seconds, crash, or
// end as if nothing had happened. Time in which a rank wanted to run and got no
// processor does not count, nor does time in which this program, which only
// waits, did not run either: then the machine stood still. Prints how the ranks
// ended and the slowest end; the exit status is 1 when a rank broke the rule.

#include "job/job_test_util.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <poll.h>
#include <random>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ddphook::test;

namespace {

/// The signal comes so many seconds after the start, at most.
constexpr double latestSignal = 0.5;
/// What a rank may take beyond the deadline.
constexpr double allowance = 2;
/// This program looks at the ranks every millisecond. When it comes to that so
/// late, nobody ran.
constexpr double standstill = 0.5;
/// Between passing its allowance and being killed, a rank is only late.
constexpr double patience = 20;

struct Options {
  std::string phase = "gloo";
  std::string signal = "kill";
  int rounds = 20;
  double timeout = 4;
  unsigned seed = 1;
};

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void sleepSeconds(double seconds) {
  ::usleep(static_cast<useconds_t>(std::max(seconds, 0.0) * 1e6));
}

/// How long this thread wanted to run and got no processor, in seconds; 0 where
/// the kernel does not tell.
double starvation() {
  double running = 0, waiting = 0;
  if (FILE *file = std::fopen("/proc/thread-self/schedstat", "r")) {
    if (std::fscanf(file, "%lf %lf", &running, &waiting) != 2)
      waiting = 0;
    std::fclose(file);
  }
  return waiting / 1e9;
}

/// Three groups: everybody, pairs, and everybody again.
std::string groupsOf(int world) {
  std::string pairs;
  for (int first = 0; first < world; first += 2)
    pairs += (first == 0 ? "[" : ",[") + std::to_string(first) +
             (first + 1 < world ? "," + std::to_string(first + 1) : "") + "]";
  const char *everybody =
      R"({"name":"%","size":0,"ranks":[],"placement":"","parent":"","topology":"flat"})";
  std::string a = everybody, c = everybody;
  a[a.find('%')] = 'a';
  c[c.find('%')] = 'c';
  return "[" + a + R"(,{"name":"dp","size":0,"ranks":[)" + pairs +
         R"(],"placement":"","parent":"","topology":"flat"},)" + c + "]";
}

/// Connects groups until something fails.
std::string connectForever(ddphook_context_t *context, int world) {
  for (;;) {
    TestModule module(Collectives{{8, "f32", "", false, 0},
                                  {8, "f32", "", false, 1},
                                  {8, "f32", "", false, 2}},
                      0, groupsOf(world));
    ddphook_status_t status = ddphook_module_load(context, &module.compiled);
    if (status != DDPHOOK_OK)
      return "load " + show(status);
    status = ddphook_module_unload(&module.compiled);
    if (status != DDPHOOK_OK)
      return "unload " + show(status);
  }
}

/// One rank; what it returns begins with the call that ended it.
std::string runRank(const Options &options, int rank, int world, int port,
                    double delay) {
  bool isStore = options.phase == "store";
  // Ranks that come one after the other are long at it.
  sleepSeconds(isStore ? delay : 0);
  ddphook_options_t place =
      jobOptions(rank, world, port, isStore ? "auto" : options.phase.c_str(),
                 options.timeout);
  ddphook_context_t *context = nullptr;
  ddphook_status_t status = ddphook_context_create(&place, &context);
  if (status != DDPHOOK_OK)
    return "create " + show(status);
  std::string result;
  if (isStore) {
    // Until the victim is gone, whenever that is.
    while ((status = ddphook_barrier(context)) == DDPHOOK_OK)
      sleepSeconds(0.001);
    result = "barrier " + show(status);
  } else {
    result = connectForever(context, world);
  }
  ddphook_context_destroy(context);
  return result;
}

/// One rank's process, and where it writes its result.
struct Rank {
  pid_t process = -1;
  int output = -1;
};

class Job {
public:
  Job(const Options &options, std::mt19937 &random) : options(options) {
    world = 2 + static_cast<int>(random() % 3);
    victim = static_cast<int>(random() % static_cast<unsigned>(world));
    signalTime = latestSignal * draw(random);
    for (int rank = 0; rank < world; ++rank)
      delays.push_back(0.6 * latestSignal * draw(random));
  }

  /// Runs it to its end; false when a rank broke the rule.
  bool run(std::map<std::string, int> &endings, double &slowest);

private:
  static double draw(std::mt19937 &random) {
    return static_cast<double>(random()) / 4294967296.0;
  }
  void start();
  bool judge(int rank, const std::string &text, int status, double seconds);

  const Options &options;
  int world, victim;
  double signalTime;
  std::vector<double> delays;
  std::vector<Rank> ranks;
};

} // namespace

void Job::start() {
  int port = freePort();
  for (int rank = 0; rank < world; ++rank) {
    int ends[2];
    if (::pipe(ends) != 0)
      std::abort();
    Rank started;
    started.output = ends[0];
    started.process = ::fork();
    if (started.process == 0) {
      // When the shell that started this program ends, the kernel may continue
      // what is stopped in its process group. And nobody stays behind.
      ::setpgid(0, 0);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::string text = runRank(options, rank, world, port,
                                 delays[static_cast<size_t>(rank)]);
      text = std::to_string(starvation()) + " " + text;
      ssize_t written = ::write(ends[1], text.data(), text.size());
      ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
    }
    ::close(ends[1]);
    ranks.push_back(started);
  }
}

bool Job::judge(int rank, const std::string &text, int status, double seconds) {
  const char *fault = nullptr;
  if (seconds > options.timeout + allowance)
    fault = "was late";
  else if (!WIFEXITED(status))
    fault = "crashed";
  else if (text.empty())
    fault = "said nothing";
  if (fault)
    std::printf("rank %d of %d %s: %.2f s after rank %d got its signal at "
                "%.3f s: %s\n",
                rank, world, fault, seconds, victim, signalTime, text.c_str());
  return !fault;
}

bool Job::run(std::map<std::string, int> &endings, double &slowest) {
  auto begin = Clock::now();
  start();
  sleepSeconds(signalTime - secondsSince(begin));
  auto signalled = Clock::now();
  pid_t victimProcess = ranks[static_cast<size_t>(victim)].process;
  ::kill(victimProcess, options.signal == "stop" ? SIGSTOP : SIGKILL);

  bool isGood = true;
  std::vector<bool> isGone(ranks.size());
  double stoodStill = 0;
  auto lastLook = Clock::now();
  for (int left = world - 1; left > 0;) {
    double sinceLastLook = secondsSince(lastLook);
    if (sinceLastLook > standstill) {
      stoodStill += sinceLastLook;
      std::printf("the machine stood still for %.2f s\n", sinceLastLook);
    }
    lastLook = Clock::now();
    for (int rank = 0; rank < world; ++rank) {
      size_t index = static_cast<size_t>(rank);
      if (rank == victim || isGone[index])
        continue;
      int status = 0;
      double seconds = secondsSince(signalled) - stoodStill;
      if (seconds > options.timeout + allowance + patience)
        ::kill(ranks[index].process, SIGKILL);
      if (::waitpid(ranks[index].process, &status, WNOHANG) == 0)
        continue;
      std::string text;
      char buffer[4096];
      ssize_t size;
      while ((size = ::read(ranks[index].output, buffer, sizeof(buffer))) > 0)
        text.append(buffer, static_cast<size_t>(size));
      isGone[index] = true;
      --left;
      size_t space = text.find(' ');
      double starved = space == std::string::npos ? 0 : std::atof(text.c_str());
      text.erase(0, space == std::string::npos ? text.size() : space + 1);
      if (starved > standstill)
        std::printf("rank %d had no processor for %.2f s\n", rank, starved);
      seconds = std::max(0.0, seconds - starved);
      slowest = std::max(slowest, seconds);
      isGood &= judge(rank, text, status, seconds);
      ++endings[text.substr(0, text.find(':'))];
    }
    ::usleep(1000);
  }
  ::kill(victimProcess, SIGKILL);
  ::waitpid(victimProcess, nullptr, 0);
  for (const Rank &rank : ranks)
    ::close(rank.output);
  return isGood;
}

int main(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    size_t equals = argument.find('=');
    std::string name = argument.substr(0, equals);
    std::string value =
        equals == std::string::npos ? "" : argument.substr(equals + 1);
    bool isPhase = value == "gloo" || value == "shm" || value == "store";
    bool isSignal = value == "kill" || value == "stop";
    if (name == "--phase" && isPhase) {
      options.phase = value;
    } else if (name == "--signal" && isSignal) {
      options.signal = value;
    } else if (name == "--rounds") {
      options.rounds = std::atoi(value.c_str());
    } else if (name == "--timeout") {
      options.timeout = std::atof(value.c_str());
    } else if (name == "--seed") {
      options.seed = static_cast<unsigned>(std::atoi(value.c_str()));
    } else {
      std::fprintf(stderr, "kill_stress: unknown argument '%s'\n", argv[i]);
      return 2;
    }
  }
  std::mt19937 random(options.seed);
  std::map<std::string, int> endings;
  double slowest = 0;
  int faults = 0;
  for (int round = 0; round < options.rounds; ++round)
    faults += !Job(options, random).run(endings, slowest);
  std::printf("%s, %s: %d rounds with seed %u and a deadline of %g s; %d broke "
              "the rule; slowest end %.2f s after the signal\n",
              options.phase.c_str(), options.signal.c_str(), options.rounds,
              options.seed, options.timeout, faults, slowest);
  for (const auto &[ending, count] : endings)
    std::printf("%6d ranks: %s\n", count, ending.c_str());
  return faults == 0 && options.rounds > 0 ? 0 : 1;
}
