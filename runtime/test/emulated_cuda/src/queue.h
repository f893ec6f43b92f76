// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a stream is made of. An operation may have to wait for operations of
// other queues; nothing else orders queues among each other.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace emulated_cuda {

class Queue;

/// A point in a queue: after its first `number` operations.
struct Mark {
  std::shared_ptr<Queue> queue;
  uint64_t number = 0;

  bool isReached() const;
  void wait() const;
};

class Queue : public std::enable_shared_from_this<Queue> {
public:
  using Operation = std::function<void()>;

  /// Starts the thread, which ends after close() when nothing is left to do.
  static std::shared_ptr<Queue> create();
  void close();

  /// Runs `operation` after all that was pushed before and after `marks`.
  Mark push(std::vector<Mark> marks, Operation operation);
  /// After all that was pushed until now.
  Mark end();

  bool isReached(uint64_t number);
  void wait(uint64_t number);

private:
  struct Entry {
    std::vector<Mark> marks;
    Operation operation;
  };

  void run();
  bool runNext();

  /// For TSan: where the call that pushes an operation meets it, and where it
  /// meets those who wait for it. After so many operations they are used again.
  static constexpr size_t pointCount = 256;
  uint64_t pushPoints[pointCount];
  uint64_t donePoints[pointCount];

  std::mutex mutex;
  std::condition_variable pushed;
  std::condition_variable done;
  std::deque<Entry> entries;
  uint64_t pushedCount = 0;
  uint64_t doneCount = 0;
  bool isClosed = false;
};

} // namespace emulated_cuda
