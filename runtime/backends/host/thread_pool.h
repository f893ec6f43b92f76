// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the parts of a loop on the cores of a rank. Every thread starts with its
// own parts, which are the same in each loop of equally many parts, so that it
// finds its data in its caches; then it takes parts of other threads. Any
// thread may do any part, and results must not depend on it: parts write to
// disjoint memory, and the code that cuts a loop into parts ensures that the
// cut does not affect the order of additions.
//
// The calling thread takes parts like all others and waits only for parts that
// another thread has begun. It never waits for a thread that the system has not
// woken yet, and does everything itself if there is no other thread.

#pragma once

#include <cstdint>
#include <memory>
#include <sys/types.h>

namespace ddphook::host {

class ThreadPool {
public:
  /// `threads`, at least 1, includes the calling thread. The others start with
  /// the first loop and inherit the processors of its calling thread.
  explicit ThreadPool(int threads);
  /// Ends the threads; no loop may be running.
  ~ThreadPool();

  int threads() const { return count; }

  /// The order in which a thread goes through its parts.
  enum class Order { Forwards, Backwards };

  static constexpr int64_t kMaxParts = 65535;

  /// Calls body(part, slot) for all parts from 0 to parts - 1, and returns when
  /// all are done. `slot` is below threads() and unique among concurrent calls.
  /// `body` must not run loops. If it throws, so does this function, after all
  /// calls of `body` have ended. Only one thread at a time may call this.
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
  /// The process that owns the threads; a forked child has none of them.
  pid_t process = 0;
};

} // namespace ddphook::host
