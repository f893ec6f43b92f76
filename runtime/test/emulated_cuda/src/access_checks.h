// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks a kernel's accesses of memory. Every access of a kernel in PTX comes
// here; a fault ends the process, with a message that names the kernel and its
// lines. EMULATED_CUDA_CHECKS chooses the checks:
//
//   - none: only that accesses are aligned, which is always checked.
//   - memory: also that they stay in the allocations of the device, in pinned
//     memory, in the module's variables or in the block's shared memory.
//   - races: also that a barrier orders two accesses of a launch if one of them
//     is a store.
//
// Only barriers of the block and of the warp order accesses: shuffles, votes
// and atomic operations do not. Two atomic operations are no race. A load of
// shared memory that was never stored is no fault, because kernels load numbers
// that they do not use; shared memory is poisoned instead.

#pragma once

#include "../ptx/ptx.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace emulated_cuda {

class AccessChecks {
public:
  /// Checks a launch of `kernel`.
  AccessChecks(const ptx::Module &module, const ptx::Kernel &kernel);
  ~AccessChecks();

  /// Call this when a block begins, with its dynamic shared memory.
  void beginBlock(const void *shared, size_t bytes);
  /// Call these when the running thread has left a barrier.
  void passBarrier();
  void passWarpBarrier();
  /// True if `address` is in the block's dynamic shared memory.
  bool isShared(uint64_t address) const {
    return address - sharedBegin < sharedBytes;
  }
  /// Checks an access by the running thread, before it happens.
  void check(uint64_t address, unsigned bytes, ptx::Block::Access access,
             int line) {
    if (address % bytes != 0)
      failAlignment(address, bytes, line);
    if (level == 0)
      return;
    if (isShared(address)
            ? address - sharedBegin + bytes > sharedBytes
            : address - knownBegin + bytes > knownBytes || address < knownBegin)
      findMemory(address, bytes, line);
    if (level == 2)
      checkOrder(address, bytes, access, line);
  }

private:
  using Access = ptx::Block::Access;
  /// An earlier access of some bytes of a cell.
  struct Event {
    uint32_t bytes : 4, isAtomic : 1, thread : 10, line : 17;
    uint32_t block;
    /// Barriers that the thread had passed.
    uint16_t barriers, warpBarriers;
  };
  /// Four bytes of memory.
  struct Cell {
    Event store = {}, loads[2] = {};
    /// One more than the block, for shared memory.
    uint32_t block = 0;
  };
  struct Shadow;
  struct ThreadClock {
    uint16_t barriers = 0, warpBarriers = 0;
  };

  void findMemory(uint64_t address, unsigned bytes, int line);
  void checkOrder(uint64_t address, unsigned bytes, Access access, int line);
  bool isRace(const Event &before, const Event &now, bool isShared) const;
  [[noreturn]] void failAlignment(uint64_t address, unsigned bytes, int line);
  [[noreturn]] void failRace(const char *what, const Event &before,
                             const Event &now, bool isShared);
  [[noreturn]] void fail(const char *format, ...)
      __attribute__((format(printf, 2, 3)));

  const ptx::Module &module;
  const ptx::Kernel &kernel;
  const int level;
  /// The allocation of the last access.
  uint64_t knownBegin = 0, knownBytes = 0;
  uint64_t sharedBegin = 0, sharedBytes = 0;
  uint32_t block = 0;
  std::vector<ThreadClock> clocks;
  std::unique_ptr<Shadow> shadow;
};

} // namespace emulated_cuda
