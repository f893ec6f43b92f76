// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Forks the ranks and waits for them. Signals are taken synchronously with
// sigtimedwait(2), so there is no signal handler and no race with fork().

#include "rank_group.h"

#include "trace/ring.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <new>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace ddphook;
using trace::now;

static int64_t nanoseconds(double seconds) {
  return static_cast<int64_t>(std::min(seconds, 1e9) * 1e9);
}

void RankReport::progress(int64_t newStep) {
  step.store(newStep);
  progressTime.store(now());
}

namespace {

/// The signals with which users and launchers end a program.
constexpr int endingSignals[] = {SIGINT, SIGTERM, SIGHUP};

/// Blocks SIGCHLD and the ending signals during its lifetime.
class SignalScope {
public:
  SignalScope() {
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (int signal : endingSignals) {
      struct sigaction action;
      // A signal that was ignored (by nohup, for example) must stay ignored: if
      // it were blocked, sigtimedwait() would receive it anyway.
      if (::sigaction(signal, nullptr, &action) == 0 &&
          action.sa_handler != SIG_IGN)
        sigaddset(&set, signal);
    }
    // An inherited SIG_IGN would make the kernel reap the children itself.
    struct sigaction childAction = {};
    childAction.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &childAction, &oldChildAction);
    ::sigprocmask(SIG_BLOCK, &set, &oldMask);
  }
  ~SignalScope() { restore(); }
  SignalScope(const SignalScope &) = delete;
  SignalScope &operator=(const SignalScope &) = delete;

  /// Restores the previous state; for children.
  void restore() {
    ::sigprocmask(SIG_SETMASK, &oldMask, nullptr);
    ::sigaction(SIGCHLD, &oldChildAction, nullptr);
  }

  /// Returns the next signal, or 0 after a tenth of a second without one.
  int wait() {
    timespec timeout = {0, 100000000};
    int signal = ::sigtimedwait(&set, nullptr, &timeout);
    return signal > 0 ? signal : 0;
  }

private:
  sigset_t set;
  sigset_t oldMask;
  struct sigaction oldChildAction;
};

struct Child {
  pid_t process = -1;
  bool running = false;
  /// True if the group ended it, so that its death is not a failure.
  bool ended = false;
  RankReport *report = nullptr;
};

struct Failure {
  Status status;
  int64_t time;
};

class RankGroup {
public:
  explicit RankGroup(const RankGroupOptions &options)
      : options(options), children(static_cast<size_t>(options.ranks)) {}
  ~RankGroup();

  RankGroupResult run();

private:
  Status start();
  [[noreturn]] void runChild(int32_t rank, pid_t parent);
  void reap();
  void recordEnd(int32_t rank, int waitStatus);
  void fail(int32_t rank, ddphook_status_t code, std::string what,
            int64_t time);
  bool anyFailed() const;
  void showProgress();
  void killStalled();
  void signalAll(int signal);
  Status firstCause() const;
  std::string place(int32_t rank) const;

  const RankGroupOptions &options;
  SignalScope signals;
  std::vector<Child> children;
  int32_t running = 0;
  std::vector<Failure> failures;
  void *reports = MAP_FAILED;
  size_t reportBytes = 0;
};

} // namespace

RankGroup::~RankGroup() {
  if (reports != MAP_FAILED)
    ::munmap(reports, reportBytes);
}

Status RankGroup::start() {
  reportBytes = children.size() * sizeof(RankReport);
  reports = ::mmap(nullptr, reportBytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (reports == MAP_FAILED)
    return systemError(errno, "cannot share memory with the ranks");
  RankReport *report = static_cast<RankReport *>(reports);
  for (Child &child : children) {
    child.report = new (report++) RankReport();
    child.report->progress(-1);
  }

  // Otherwise every child would write the buffered output again.
  std::fflush(nullptr);
  pid_t parent = ::getpid();
  for (int32_t rank = 0; rank < options.ranks; ++rank) {
    pid_t process = ::fork();
    if (process < 0)
      return systemError(errno, "cannot start a process for rank %d", rank);
    if (process == 0)
      runChild(rank, parent);
    Child &child = children[rank];
    child.process = process;
    child.running = true;
    ++running;
  }
  return Status::ok();
}

void RankGroup::runChild(int32_t rank, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before that call.
  if (::getppid() != parent)
    ::_exit(1);
  signals.restore();

  RankReport &report = *children[rank].report;
  const Status status =
      withoutExceptions([&] { return options.body(rank, report); });
  if (!status.isOk()) {
    report.code = status.code();
    report.failureTime = now();
    std::snprintf(report.message, sizeof(report.message), "%s",
                  status.message().c_str());
  }
  report.state.store(status.isOk() ? RankReport::State::Done
                                   : RankReport::State::Failed);
  std::fflush(nullptr);
  ::_exit(status.isOk() ? 0 : 1);
}

std::string ddphook::nameStep(int64_t step) {
  return "step " + std::to_string(step + 1);
}

/// Returns " in step 4", or where else the rank was.
std::string RankGroup::place(int32_t rank) const {
  int64_t step = children[rank].report->step.load();
  return step < 0 ? std::string(" before the first step")
                  : " in " + nameStep(step);
}

void RankGroup::fail(int32_t rank, ddphook_status_t code, std::string what,
                     int64_t time) {
  failures.push_back({Status(code, concat("rank ", rank, ": ", what)), time});
}

void RankGroup::recordEnd(int32_t rank, int waitStatus) {
  const Child &child = children[rank];
  const RankReport &report = *child.report;
  RankReport::State state = report.state.load();
  if (state == RankReport::State::Failed) {
    fail(rank, report.code, report.message, report.failureTime);
  } else if (child.ended) {
    return;
  } else if (WIFSIGNALED(waitStatus)) {
    int signal = WTERMSIG(waitStatus);
    fail(rank, DDPHOOK_INTERNAL,
         concat("was killed by signal ", signal, " (", ::strsignal(signal), ")",
                place(rank)),
         now());
  } else if (state != RankReport::State::Done) {
    fail(rank, DDPHOOK_INTERNAL,
         concat("exited with status ", WEXITSTATUS(waitStatus), place(rank)),
         now());
  }
}

void RankGroup::reap() {
  for (int32_t rank = 0; rank < options.ranks; ++rank) {
    Child &child = children[rank];
    int waitStatus = 0;
    if (!child.running || ::waitpid(child.process, &waitStatus, WNOHANG) == 0)
      continue;
    child.running = false;
    --running;
    recordEnd(rank, waitStatus);
    if (options.cleanUp &&
        child.report->state.load() != RankReport::State::Done)
      options.cleanUp(rank, child.process, child.report->step.load());
  }
}

bool RankGroup::anyFailed() const {
  // A rank that reported its failure may still hang during clean-up.
  return !failures.empty() ||
         std::any_of(children.begin(), children.end(), [](const Child &child) {
           return child.report->state.load() == RankReport::State::Failed;
         });
}

void RankGroup::signalAll(int signal) {
  for (Child &child : children) {
    if (!child.running)
      continue;
    child.ended = true;
    ::kill(child.process, signal);
  }
}

void RankGroup::showProgress() {
  if (!options.onProgress)
    return;
  int64_t slowest = children[0].report->step.load();
  for (const Child &child : children)
    slowest = std::min(slowest, child.report->step.load());
  options.onProgress(slowest);
}

void RankGroup::killStalled() {
  int64_t limit = now() - nanoseconds(options.stallSeconds);
  for (int32_t rank = 0; rank < options.ranks; ++rank) {
    Child &child = children[rank];
    if (!child.running || child.report->progressTime.load() > limit)
      continue;
    fail(rank, DDPHOOK_DEADLINE_EXCEEDED,
         concat("made no progress for ", std::llround(options.stallSeconds),
                " s", place(rank), " and was killed"),
         now());
    child.ended = true;
    ::kill(child.process, SIGKILL);
  }
}

/// Returns how likely a failure is a consequence of another one. ABORTED always
/// is; a rank that ends faster may report it before its cause is reported.
static int distanceFromCause(ddphook_status_t code) {
  switch (code) {
  case DDPHOOK_ABORTED:
    return 2;
  case DDPHOOK_PEER_LOST:
  case DDPHOOK_DEADLINE_EXCEEDED:
    return 1;
  default:
    return 0;
  }
}

Status RankGroup::firstCause() const {
  auto key = [](const Failure &failure) {
    return std::pair(distanceFromCause(failure.status.code()), failure.time);
  };
  auto first = std::min_element(
      failures.begin(), failures.end(),
      [&](const Failure &a, const Failure &b) { return key(a) < key(b); });
  return first == failures.end() ? Status::ok() : first->status;
}

RankGroupResult RankGroup::run() {
  RankGroupResult result;
  Status started = start();
  if (!started.isOk())
    signalAll(SIGKILL);
  int64_t killTime = 0; // 0: nothing has failed yet
  while (running > 0) {
    int signal = signals.wait();
    if (signal != 0 && signal != SIGCHLD && result.signal == 0) {
      result.signal = signal;
      signalAll(SIGTERM);
    }
    reap();
    showProgress();
    if (killTime == 0)
      killStalled();
    if (killTime == 0 && (result.signal != 0 || anyFailed()))
      killTime = now() + nanoseconds(options.graceSeconds);
    if (killTime != 0 && now() >= killTime)
      signalAll(SIGKILL);
  }
  if (!started.isOk())
    result.status = started;
  else if (result.signal != 0)
    result.status =
        Status(DDPHOOK_ABORTED, concat("interrupted by signal ", result.signal,
                                       " (", ::strsignal(result.signal), ")"));
  else
    result.status = firstCause();
  if (result.status.isOk())
    result.figures = children[0].report->figures;
  return result;
}

RankGroupResult ddphook::runRankGroup(const RankGroupOptions &options) {
  return RankGroup(options).run();
}
