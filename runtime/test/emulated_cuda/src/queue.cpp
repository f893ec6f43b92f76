// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The thread is detached and holds its queue: an operation that never ends
// does not keep the destruction of a stream waiting, and the end of the process
// for a second only.

#include "queue.h"

#include "race_detector.h"

#include <atomic>
#include <chrono>
#include <thread>

using namespace emulated_cuda;

// These two count in a Hide's scope; not where scopes are nested.
static void acquireAt(void *point) {
  race_detector::Show show;
  race_detector::acquire(point);
}
static void releaseAt(void *point) {
  race_detector::Show show;
  race_detector::release(point);
}

namespace {

/// How many threads have been told to end and have not. Relaxed, so that TSan
/// sees no order in it.
std::atomic<int64_t> endingCount = 0;

/// The first thread-local object of a queue's thread, so that its destructor
/// is the last to run.
struct ThreadEnd {
  ~ThreadEnd() { endingCount.fetch_sub(1, std::memory_order_relaxed); }
};

/// The end of the process waits a second for threads that are ending. One that
/// is just giving back its fibers is on a fiber's stack, and LeakSanitizer,
/// which does not see its own stack then, would report what that refers to.
struct ProcessEnd {
  ~ProcessEnd() {
    for (int i = 0; i < 1000 && endingCount.load(std::memory_order_relaxed) > 0;
         ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
} processEnd;

} // namespace

bool Mark::isReached() const { return queue->isReached(number); }
void Mark::wait() const { queue->wait(number); }

std::shared_ptr<Queue> Queue::create() {
  auto queue = std::make_shared<Queue>();
  std::thread([queue] {
    thread_local ThreadEnd threadEnd;
    static_cast<void>(&threadEnd); // It is made when it is first named.
    queue->run();
  }).detach();
  return queue;
}

void Queue::close() {
  race_detector::Hide hide;
  std::lock_guard<std::mutex> lock(mutex);
  if (!isClosed)
    endingCount.fetch_add(1, std::memory_order_relaxed);
  isClosed = true;
  pushed.notify_all();
}

Mark Queue::push(std::vector<Mark> marks, Operation operation) {
  // The lock's order counts for nothing: it would order this call after
  // operations that nobody has waited for.
  race_detector::Hide hide;
  std::lock_guard<std::mutex> lock(mutex);
  entries.push_back({std::move(marks), std::move(operation)});
  ++pushedCount;
  releaseAt(&pushPoints[pushedCount % pointCount]);
  pushed.notify_all();
  return {shared_from_this(), pushedCount};
}

Mark Queue::end() {
  race_detector::Hide hide;
  std::lock_guard<std::mutex> lock(mutex);
  return {shared_from_this(), pushedCount};
}

bool Queue::isReached(uint64_t number) {
  race_detector::Hide hide;
  std::lock_guard<std::mutex> lock(mutex);
  if (doneCount < number)
    return false;
  acquireAt(&donePoints[number % pointCount]);
  return true;
}

void Queue::wait(uint64_t number) {
  race_detector::Hide hide;
  std::unique_lock<std::mutex> lock(mutex);
  done.wait(lock, [&] { return doneCount >= number; });
  acquireAt(&donePoints[number % pointCount]);
}

void Queue::run() {
  while (runNext()) {
  }
}

bool Queue::runNext() {
  race_detector::Hide hide;
  std::unique_lock<std::mutex> lock(mutex);
  pushed.wait(lock, [&] { return isClosed || !entries.empty(); });
  if (entries.empty())
    return false;
  Entry entry = std::move(entries.front());
  entries.pop_front();
  const size_t point = (doneCount + 1) % pointCount;
  lock.unlock();
  acquireAt(&pushPoints[point]);
  {
    race_detector::Show show;
    for (const Mark &mark : entry.marks)
      mark.wait();
    entry.operation();
  }
  // What the operation holds is given back before anybody hears of its end.
  entry = {};
  releaseAt(&donePoints[point]);
  lock.lock();
  ++doneCount;
  done.notify_all();
  return true;
}
