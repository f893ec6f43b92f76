// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An idle thread looks for work for some microseconds, because the loops of a
// step follow each other closely, and then sleeps.

#include "thread_pool.h"

#include "base/floating_point.h"
#include "base/pause.h"
#include "base/threads.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace ddphook;
using namespace ddphook::host;

/// Checks before sleeping: 10 to 50 microseconds, by the length of a pause.
static constexpr int kSpins = 1000;

/// All threads except the calling one, and the state that they share with it.
class ThreadPool::Workers {
public:
  explicit Workers(int count) : shares(static_cast<size_t>(count + 1)) {
    threads.reserve(static_cast<size_t>(count));
    for (int slot = 1; slot <= count; ++slot) {
      std::thread thread;
      // If the system refuses more threads, the existing ones do all parts.
      if (!startThread(
               "ddphook-worker", &thread, [this, slot] { loop(slot); },
               [](const Status &) { return true; })
               .isOk())
        return;
      threads.push_back(std::move(thread));
    }
  }

  ~Workers() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      isEnding = true;
    }
    loopBegun.notify_all();
    for (std::thread &thread : threads)
      thread.join();
  }

  void run(int64_t parts, Order newOrder, Call function, const void *argument) {
    call = function;
    context = argument;
    order = newOrder;
    done = 0;
    const uint64_t next = number + 1;
    const auto slots = static_cast<int64_t>(shares.size());
    for (int64_t slot = 0; slot < slots; ++slot)
      shares[slot].state =
          Share::pack(next, parts * slot / slots, parts * (slot + 1) / slots);
    number = next;
    if (sleepers > 0) {
      std::lock_guard<std::mutex> lock(mutex);
      loopBegun.notify_all();
    }
    while (doPart(/*slot=*/0)) {
    }
    awaitDone(parts);
    if (hasThrown.exchange(false))
      throw std::bad_alloc();
  }

private:
  /// The untaken parts of a loop that are assigned to a slot. A thread takes a
  /// part by changing `state`. The loop cannot end before that part is done, so
  /// the loop's data stays valid until then.
  struct alignas(128) Share {
    static uint64_t pack(uint64_t number, int64_t begin, int64_t end) {
      return number << 32 | static_cast<uint64_t>(begin) << 16 |
             static_cast<uint64_t>(end);
    }

    /// The low half of the loop's number, the first part, one past the last.
    std::atomic<uint64_t> state{0};
  };

  void loop(int slot) {
    DefaultFloatingPoint environment;
    for (uint64_t seen = 0; awaitLoop(seen);) {
      seen = number;
      while (doPart(slot)) {
      }
    }
  }

  /// Waits for a loop after number `seen`; returns false at shutdown.
  bool awaitLoop(uint64_t seen) {
    for (int i = 0; i < kSpins; ++i) {
      if (number != seen)
        return true;
      pauseProcessor();
    }
    std::unique_lock<std::mutex> lock(mutex);
    ++sleepers;
    loopBegun.wait(lock, [&] { return number != seen || isEnding; });
    --sleepers;
    return !isEnding;
  }

  bool takePart(Share &share, bool fromFront, int64_t *part) {
    uint64_t state = share.state, rest;
    do {
      const auto begin = static_cast<int64_t>(state >> 16 & 0xffff);
      const auto end = static_cast<int64_t>(state & 0xffff);
      if (begin == end)
        return false;
      *part = fromFront ? begin : end - 1;
      rest = Share::pack(state >> 32, begin + fromFront, end - !fromFront);
    } while (!share.state.compare_exchange_weak(state, rest));
    return true;
  }

  /// Takes and does one of this thread's own parts. If none is left, takes the
  /// part that another thread would reach last.
  bool doPart(int slot) {
    const bool isForwards = order == Order::Forwards;
    const size_t own = static_cast<size_t>(slot);
    int64_t part = 0;
    bool isTaken = takePart(shares[own], isForwards, &part);
    for (size_t i = 1; i < shares.size() && !isTaken; ++i)
      isTaken = takePart(shares[(own + i) % shares.size()], !isForwards, &part);
    if (!isTaken)
      return false;
    try {
      call.load()(context, part, slot);
    } catch (const abi::__forced_unwind &) {
      throw; // As in withoutExceptions().
    } catch (...) {
      hasThrown = true;
    }
    ++done;
    if (callerSleeps) {
      std::lock_guard<std::mutex> lock(mutex);
      partsDone.notify_one();
    }
    return true;
  }

  void awaitDone(int64_t parts) {
    for (int i = 0; i < kSpins; ++i) {
      if (done == parts)
        return;
      pauseProcessor();
    }
    std::unique_lock<std::mutex> lock(mutex);
    callerSleeps = true;
    partsDone.wait(lock, [&] { return done == parts; });
    callerSleeps = false;
  }

  std::vector<Share> shares;
  std::atomic<Call> call{nullptr};
  std::atomic<const void *> context{nullptr};
  std::atomic<Order> order{Order::Forwards};
  std::atomic<int64_t> done{0};
  /// True if a part of the loop has thrown an exception.
  std::atomic<bool> hasThrown{false};
  /// Counts loops; incremented when a loop can begin.
  std::atomic<uint64_t> number{0};

  /// For sleeping threads. A thread announces that it will sleep and then
  /// checks its condition once more; a thread that changes the condition checks
  /// for sleepers afterwards.
  std::mutex mutex;
  std::condition_variable loopBegun, partsDone;
  std::atomic<int> sleepers{0};
  std::atomic<bool> callerSleeps{false};
  bool isEnding = false;

  std::vector<std::thread> threads;
};

ThreadPool::ThreadPool(int threads) : count(threads) {}

ThreadPool::~ThreadPool() {
  // A forked child has no threads to join, and its locks may be in any state.
  if (workers && process != ::getpid())
    (void)workers.release();
}

/// Tries only once.
void ThreadPool::startWorkers() {
  if (process != 0)
    return;
  process = ::getpid();
  try {
    workers = std::make_unique<Workers>(count - 1);
  } catch (const std::bad_alloc &) {
    // The calling thread does all parts.
  }
}

void ThreadPool::runParts(int64_t parts, Order order, Call call,
                          const void *context) {
  if (count > 1 && parts > 1) {
    startWorkers();
    if (workers && process == ::getpid())
      return workers->run(parts, order, call, context);
  }
  for (int64_t i = 0; i < parts; ++i)
    call(context, order == Order::Forwards ? i : parts - 1 - i, /*slot=*/0);
}
