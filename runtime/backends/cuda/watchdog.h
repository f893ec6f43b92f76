// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A thread that monitors collectives in flight and their communicators. The
// first failure, whoever finds it, makes it abort all communicators: kernels
// that wait for a peer then end, and streams drain.

#pragma once

#include "base/deadline.h"
#include "failure_latch.h"
#include "in_flight.h"
#include "nccl_communicator.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

namespace ddphook::cuda {

class Watchdog {
public:
  /// `failure` and `inFlight` must outlive the watchdog.
  Watchdog(FailureLatch &failure, InFlight &inFlight)
      : failure(failure), inFlight(inFlight) {}
  /// Ends the thread.
  ~Watchdog();

  /// Starts the thread, which checks every `interval`.
  Status start(int device, double timeoutSeconds,
               std::chrono::milliseconds interval);

  /// Add and remove a communicator to check and to abort.
  void add(NcclCommunicator *communicator);
  void remove(NcclCommunicator *communicator);

  /// Signals that something was started or the failure was set. Any thread.
  void wake();

  /// Has communicators checked during its lifetime, even if no collective is
  /// known to be in flight: those of a graph are not known.
  class Watch {
  public:
    explicit Watch(Watchdog &watchdog) : watchdog(watchdog) {
      watchdog.changeWatches(1);
    }
    ~Watch() { watchdog.changeWatches(-1); }
    Watch(const Watch &) = delete;
    Watch &operator=(const Watch &) = delete;

  private:
    Watchdog &watchdog;
  };

  /// Waits, after a failure, until NCCL was told to abort all communicators.
  void waitForAbort(const Deadline &deadline);
  /// Waits until NCCL has done so; logs a line if it has not.
  void waitForAbortsEnd(const Deadline &deadline);

private:
  void loop(int device);
  void look();
  void abortAll(int device);
  void changeWatches(int change);

  FailureLatch &failure;
  InFlight &inFlight;
  double timeoutSeconds = 0;
  std::chrono::milliseconds interval{0};
  std::thread thread;

  std::mutex communicatorMutex;
  std::set<NcclCommunicator *> communicators;

  std::mutex mutex;
  std::condition_variable changed;
  bool isEnding = false;
  bool hasAborted = false;
  /// Empty if there was no communicator. Written before `hasAborted`.
  std::optional<NcclAbort> aborted;
  bool isCaptured = false;
  bool hasWork = false;
  int watches = 0;
};

} // namespace ddphook::cuda
