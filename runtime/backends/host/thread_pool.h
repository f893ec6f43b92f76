//===- thread_pool.h - threads that share the work of a loop ----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the parts of a loop on the cores that a rank was given. Every thread
// begins with parts of its own, the same ones in each loop of as many parts, so
// that it finds in its caches what it left there; then it takes parts of
// others. So which thread does a part is left to chance, and results must not
// depend on it: parts write to memory of their own, and whoever cuts a loop
// into parts sees to it that the order of additions does not depend on the cut.
//
// The calling thread takes parts like all others, and waits only for parts that
// another thread has begun. So it does not wait for a thread that the system
// has not woken yet, and does everything itself where there is no other thread.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_THREAD_POOL_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_THREAD_POOL_H

#include <cstdint>
#include <memory>
#include <sys/types.h>

namespace ddphook::host {

class ThreadPool {
public:
  /// `threads` counts the calling one; at least 1. The others start with the
  /// first loop, and may use the processors that its thread may use.
  explicit ThreadPool(int threads);
  /// No loop is running. Ends the threads.
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  int threads() const { return count; }

  /// The order in which a thread goes through its parts.
  enum class Order { Forwards, Backwards };

  static constexpr int64_t kMaxParts = 65535;

  /// Calls body(part, slot) for all parts from 0 to parts - 1, and returns when
  /// all are done. No two calls have the same slot, a number below threads(),
  /// at the same time. `body` runs no loops. If it throws anything, so does
  /// this, when no thread calls `body` any more. One thread at a time calls
  /// this.
  template <class Body>
  void run(int64_t parts, const Body &body, Order order = Order::Forwards) {
    runParts(
        parts, order,
        [](const void *context, int64_t part, int slot) {
          (*static_cast<const Body *>(context))(part, slot);
        },
        &body);
  }

private:
  using Call = void (*)(const void *context, int64_t part, int slot);
  class Workers;

  void startWorkers();
  void runParts(int64_t parts, Order order, Call call, const void *context);

  const int count;
  std::unique_ptr<Workers> workers;
  /// The process that has the threads: a forked child has none of them.
  pid_t process = 0;
};

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_THREAD_POOL_H
