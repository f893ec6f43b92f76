//===- comm_thread.h - runs collectives in order ----------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A queue of jobs and the thread that runs them one after another, in the order
// in which they are started: that order is the same on all ranks, and two
// collectives of one rank never wait for each other. The first failure is
// final.
//
// A job may also run on the thread that starts it, if no earlier one is left.
// Ranks need not decide this alike. Consider the first collective, in the order
// that is the same everywhere, that has not ended on all ranks: wherever they
// run it, its ranks reach it, because before it they wait for nothing but
// earlier collectives, which have ended.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_COMM_THREAD_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_COMM_THREAD_H

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

  /// Where a job runs that is started: on the thread, or, if no earlier one is
  /// left, on the caller's, so that it has ended when start() returns.
  enum class Place { Thread, Caller };

  /// `onFailure` is called once, when no job is running, after the first
  /// failure or after abort(). The thread gets the name, which is not copied.
  explicit CommThread(std::function<void()> onFailure,
                      const char *name = "ddphook-comm")
      : onFailure(std::move(onFailure)), name(name) {}
  ~CommThread();

  /// Runs `job` after all that were started, on the calling thread when there
  /// are none.
  Status run(Job job);

  /// Runs or queues `job`; the thread starts with the first one that is queued.
  /// Returns the failure of a job that ran; then there is no ticket.
  Status start(Job job, Place place, int64_t *ticket);

  /// Waits until that job has ended.
  Status wait(int64_t ticket);

  /// Waits until every job has ended that was started.
  Status waitForAll();

  /// Makes all jobs fail that have not begun. Any thread may call it; it does
  /// not wait for a job that runs.
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
  /// A job is running, on whichever thread, or onFailure is.
  bool isBusy = false;
  bool isEnding = false;
  bool hasNotified = false;
  int64_t started = 0;
  int64_t ended = 0;
  Status failure;
  /// The first ticket that did not end well.
  int64_t failedTicket = INT64_MAX;
};

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_COMM_THREAD_H
