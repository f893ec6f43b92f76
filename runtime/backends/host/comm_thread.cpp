// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Implements the queue of collectives and its thread.

#include "comm_thread.h"

#include "base/floating_point.h"
#include "base/threads.h"
#include "trace/recorder.h"

using namespace ddphook;
using namespace ddphook::host;

CommThread::~CommThread() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    isEnding = true;
  }
  changed.notify_all();
  if (thread.joinable())
    thread.join();
}

/// Runs onFailure, which must not throw, once; `lock` is held around it.
void CommThread::notifyFailure(std::unique_lock<std::mutex> &lock) {
  if (hasNotified)
    return;
  hasNotified = true;
  isBusy = true;
  lock.unlock();
  onFailure();
  lock.lock();
  isBusy = false;
  changed.notify_all();
}

/// Records that a job ended with `status`; `lock` is held. If the job failed
/// after another failure was reported, returns that one, the likelier cause.
Status CommThread::finish(std::unique_lock<std::mutex> &lock, Status status) {
  isBusy = false;
  if (!status.isOk() && failure.isOk())
    failure = status;
  if (!status.isOk())
    status = failure;
  if (!failure.isOk())
    notifyFailure(lock);
  changed.notify_all();
  return status;
}

Status CommThread::run(Job job) {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return queue.empty() && !isBusy; });
  return failure.isOk() ? runHere(lock, job) : failure;
}

/// Runs a job on the calling thread; `lock` is held before and after.
Status CommThread::runHere(std::unique_lock<std::mutex> &lock, const Job &job) {
  isBusy = true;
  lock.unlock();
  Status status = withoutExceptions(job);
  lock.lock();
  return finish(lock, std::move(status));
}

Status CommThread::start(Job job, RunsOn place, int64_t *ticket) {
  std::unique_lock<std::mutex> lock(mutex);
  if (!failure.isOk())
    return failure;
  if (place == RunsOn::Caller && queue.empty() && !isBusy) {
    DDPHOOK_TRY(runHere(lock, job));
    *ticket = ended = ++started;
    return Status::ok();
  }
  if (!thread.joinable())
    DDPHOOK_TRY(startThread(
        name, &thread, [this] { loop(); },
        [this](const Status &status) {
          abort(status);
          return true;
        }));
  queue.push_back(std::move(job));
  *ticket = ++started;
  changed.notify_all();
  return Status::ok();
}

Status CommThread::wait(int64_t ticket) {
  std::unique_lock<std::mutex> lock(mutex);
  if (ticket < 1 || ticket > started)
    return invalid(
        concat("expected a ticket from 1 to ", started, ", but got ", ticket));
  changed.wait(lock, [&] { return ended >= ticket; });
  return ticket >= failedTicket ? failure : Status::ok();
}

Status CommThread::waitForAll() {
  std::unique_lock<std::mutex> lock(mutex);
  const int64_t last = started;
  changed.wait(lock, [&] { return ended >= last; });
  return last >= failedTicket ? failure : Status::ok();
}

void CommThread::abort(const Status &reason) {
  std::unique_lock<std::mutex> lock(mutex);
  if (failure.isOk())
    failure = reason;
  // A running job ends by itself; onFailure is called then.
  if (!isBusy)
    notifyFailure(lock);
  changed.notify_all();
}

void CommThread::loop() {
  DefaultFloatingPoint environment;
  trace::CommunicationThread recorded;
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return (isEnding || !queue.empty()) && !isBusy; });
    if (queue.empty())
      return;
    Status status = failure;
    if (status.isOk()) {
      Job job = std::move(queue.front());
      isBusy = true;
      lock.unlock();
      status = withoutExceptions(job);
      lock.lock();
    }
    // Stay in the queue until now, so that run() cannot overtake the job.
    queue.pop_front();
    ++ended;
    if (!status.isOk() && failedTicket == INT64_MAX)
      failedTicket = ended;
    finish(lock, std::move(status)).ignore();
  }
}
