// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The thread sleeps while nothing is in flight.

#include "watchdog.h"

#include "base/threads.h"
#include "detached_call.h"

using namespace ddphook;
using namespace ddphook::cuda;

Watchdog::~Watchdog() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    isEnding = true;
  }
  changed.notify_all();
  if (thread.joinable())
    thread.join();
}

Status Watchdog::start(int device, double newTimeoutSeconds,
                       std::chrono::milliseconds newInterval) {
  timeoutSeconds = newTimeoutSeconds;
  interval = newInterval;
  return startThread(
      "ddphook-watch", &thread, [this, device] { loop(device); },
      [this](const Status &status) {
        failure.set(status).ignore();
        return true;
      });
}

void Watchdog::add(NcclCommunicator *communicator) {
  std::lock_guard<std::mutex> lock(communicatorMutex);
  communicators.insert(communicator);
}

void Watchdog::remove(NcclCommunicator *communicator) {
  std::lock_guard<std::mutex> lock(communicatorMutex);
  communicators.erase(communicator);
}

void Watchdog::wake() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    hasWork = true;
  }
  changed.notify_all();
}

void Watchdog::changeWatches(int change) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    watches += change;
  }
  if (change > 0)
    changed.notify_all();
}

void Watchdog::waitForAbort(const Deadline &deadline) {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait_until(lock, deadline.time(), [&] { return hasAborted; });
}

void Watchdog::waitForAbortsEnd(const Deadline &deadline) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!hasAborted || !aborted)
      return;
  }
  if (!hasEnded(aborted->ended, deadline))
    logUnended("aborting communicators", isCaptured);
}

void Watchdog::abortAll(int device) {
  std::vector<NcclHandle> handles;
  {
    std::lock_guard<std::mutex> lock(communicatorMutex);
    handles.reserve(communicators.size());
    for (NcclCommunicator *communicator : communicators) {
      isCaptured = isCaptured || communicator->isCaptured();
      if (NcclHandle handle = communicator->release(); handle.communicator)
        handles.push_back(std::move(handle));
    }
  }
  if (handles.empty())
    return;
  aborted = abortTogether(handles, device);
  (void)hasEnded(aborted->requested, Deadline::after(abortSeconds));
}

void Watchdog::look() {
  Status status = inFlight.poll(timeoutSeconds);
  if (status.isOk()) {
    std::lock_guard<std::mutex> lock(communicatorMutex);
    for (NcclCommunicator *communicator : communicators)
      if (status.isOk())
        status = communicator->asyncError();
  }
  if (!status.isOk())
    failure.set(status).ignore();
}

void Watchdog::loop(int device) {
  enterDevice(device);
  std::unique_lock<std::mutex> lock(mutex);
  while (!isEnding) {
    if (failure.isSet() && !hasAborted) {
      lock.unlock();
      // If memory is exhausted, the communicators remain.
      ignoreExceptions([&] { abortAll(device); });
      lock.lock();
      hasAborted = true;
      changed.notify_all();
      continue;
    }
    if (hasAborted) {
      changed.wait(lock, [&] { return isEnding; });
      continue;
    }
    if (!hasWork && watches == 0) {
      changed.wait(lock, [&] {
        return isEnding || hasWork || watches > 0 || failure.isSet();
      });
      continue;
    }
    // wake() also signals a failure, which cannot wait for the interval.
    changed.wait_for(lock, interval,
                     [&] { return isEnding || failure.isSet(); });
    if (isEnding || failure.isSet())
      continue;
    hasWork = false;
    lock.unlock();
    look();
    bool isBusy = !inFlight.isEmpty();
    lock.lock();
    hasWork = hasWork || isBusy;
  }
}
