// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs jobs in the order in which they are started, on one thread. The order is
// the same on all ranks, so two collectives of a rank never wait for each
// other. The first failure is final.
//
// A job may also run on the thread that starts it if no earlier job is left.
// Ranks need not agree on this: take the first collective, in the common order,
// that has not ended on all ranks. Each of its ranks reaches it, wherever it
// runs it: until then it waits only for earlier collectives, which have ended.

#pragma once

#include "base/status.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace ddphook::host {

class CommThread {
public:
  using Job = std::function<Status()>;

  /// Where a started job runs: on the queue's thread, or, if no earlier job is
  /// left, on the caller's thread, so that it has ended when start() returns.
  enum class RunsOn { Thread, Caller };

  /// `onFailure` is called once, while no job is running, after the first
  /// failure or after abort(). `name` names the thread and is not copied.
  explicit CommThread(std::function<void()> onFailure,
                      const char *name = "ddphook-comm")
      : onFailure(std::move(onFailure)), name(name) {}
  ~CommThread();

  /// Runs `job` after all started jobs, on the calling thread if none is left.
  Status run(Job job);

  /// Runs or queues `job`; the thread is created for the first queued job. If
  /// the job runs here and fails, returns its failure and sets no ticket.
  Status start(Job job, RunsOn place, int64_t *ticket);

  Status wait(int64_t ticket);

  Status waitForAll();

  /// Makes all jobs that have not begun fail. Any thread may call it; it does
  /// not wait for a running job.
  void abort(const Status &reason);

private:
  void loop();
  Status runHere(std::unique_lock<std::mutex> &lock, const Job &job);
  Status finish(std::unique_lock<std::mutex> &lock, Status status);
  void notifyFailure(std::unique_lock<std::mutex> &lock);

  const std::function<void()> onFailure;
  const char *const name;
  std::thread thread;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> queue;
  /// True while a job, on any thread, or onFailure is running.
  bool isBusy = false;
  bool isEnding = false;
  bool hasNotified = false;
  int64_t started = 0;
  int64_t ended = 0;
  Status failure;
  /// The first ticket that failed.
  int64_t failedTicket = INT64_MAX;
};

} // namespace ddphook::host
