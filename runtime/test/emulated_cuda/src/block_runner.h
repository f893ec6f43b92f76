// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One of these belongs to each operating system thread that runs kernels. It
// takes a launch's blocks one after the other. A block's threads are spread
// over fibers: a fiber runs threads from their beginning to their end, until
// one has to wait; then the next ready fiber goes on, or a further one takes
// the threads that have not begun. A block without barriers needs one fiber.

#pragma once

#include "cuda_runtime.h"
#include "fiber.h"

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

namespace emulated_cuda {

class BlockRunner {
public:
  /// The calling thread's.
  static BlockRunner &ofThisThread();
  ~BlockRunner();

  /// Runs all blocks. `reverse`: from the last to the first, and so the threads
  /// of a block that could run.
  void run(const Kernel &kernel, dim3 grid, dim3 block, size_t dynamicBytes,
           bool reverse);

  // For the thread that is running.
  int waitForBlock(BarrierKind kind, int predicate,
                   const SourceLocation &place);
  const WarpValues &waitForWarp(unsigned mask, unsigned long long value,
                                const SourceLocation &place);
  unsigned laneId() const { return current->index % 32; }
  void *dynamicShared() const { return shared.get(); }
  size_t dynamicBytes() const { return sharedBytes; }
  /// Different for each launch, and for each block, of this thread; not 0.
  uint64_t launchNumber() const { return launches; }
  uint64_t blockNumber() const { return blocks; }
  void copyAsync(void *to, const void *from, size_t size, size_t zeros);
  void commitCopies();
  void waitForCopies(size_t prior);

private:
  /// From global to shared memory.
  struct Copy {
    void *to;
    const void *from;
    size_t size;
    size_t zeros;
    /// Groups that its thread had committed before.
    size_t group;
  };
  /// A fiber with the thread that it is running.
  struct Worker {
    std::unique_ptr<Fiber> fiber;
    unsigned index = 0;
    uint3 position = {};
    /// Where the thread waits; line 0: it does not.
    SourceLocation place = {};
    bool isInBarrier = false;
    /// The thread's copies that have not arrived, and its groups of them.
    std::vector<Copy> copies;
    size_t groups = 0;
  };
  /// Lanes that meet under one mask.
  struct Meeting {
    unsigned mask;
    unsigned arrived = 0;
    SourceLocation place = {};
    WarpValues next;
    WarpValues last;
    std::vector<Worker *> waiting;
  };
  struct Warp {
    /// Lanes that have not ended.
    unsigned living = 0;
    std::vector<Meeting> meetings;
  };

  void runBlock();
  void runThreads(Worker *worker);
  Worker *takeWorker();
  void suspend(Worker *worker, const SourceLocation &place);
  void endThread();
  void completeBarrierIfAllCame();
  void completeIfAllCame(Warp &warp, Meeting &meeting);
  void makeReady(Worker *worker);
  [[noreturn]] void failDeadlock();
  [[noreturn]] void fail(const char *format, ...)
      __attribute__((format(printf, 2, 3)));
  void poisonShared(const Kernel &kernel);
  uint3 positionOf(unsigned index) const;

  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<Worker *> idle;
  std::deque<Worker *> ready;
  Worker *current = nullptr;
  const Kernel *kernel = nullptr;
  uint64_t launches = 0, blocks = 0;
  bool isReversed = false;
  bool isStopping = false;

  // Of the block that is running.
  unsigned threads = 0;
  unsigned begun = 0;
  unsigned living = 0;
  std::vector<Warp> warps;
  std::vector<Worker *> inBarrier;
  BarrierKind barrierKind = BarrierKind::Plain;
  SourceLocation barrierPlace = {};
  unsigned barrierTrue = 0;
  int barrierResult = 0;

  /// Where all threads of a block begin and end, for TSan.
  char blockBegin = 0;
  char blockEnd = 0;

  struct Free {
    void operator()(void *memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> shared;
  size_t sharedBytes = 0;
};

} // namespace emulated_cuda
