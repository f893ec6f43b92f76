// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lends memory to all devices of a random job, each call later than the runtime
// would like: memory is poisoned in the order of its stream, after a while.
// What comes back is poisoned at once and stays here, so that a later write
// shows.

#pragma once

#include "ddphook/runtime/allocator.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>

namespace ddphook::test {

class RandomAllocator {
public:
  /// The allocation of number `failAt`, from 1, gives nothing; 0: none.
  RandomAllocator(uint64_t seed, int64_t failAt);
  ~RandomAllocator();
  RandomAllocator(const RandomAllocator &) = delete;
  RandomAllocator &operator=(const RandomAllocator &) = delete;

  const ddphook_allocator_t *get() const { return &table; }
  /// The first promise of allocator.h that was not kept, or nothing. When all
  /// devices are closed; then all memory has to be back if `isAll`.
  std::string complaint(bool isAll);

private:
  struct Block {
    size_t bytes;
    int32_t device;
    void *stream;
    bool isOut;
  };

  /// What a stream does with new memory.
  struct Poison {
    void *memory;
    size_t bytes;
    int microseconds;
  };

  static void poison(void *work);
  void *allocate(size_t bytes, int32_t device, void *stream);
  void release(void *memory, size_t bytes, int32_t device, void *stream);
  void enter(int32_t device, void *stream);
  void leave(void *stream);
  void complain(const std::string &text);
  int draw(int below);

  ddphook_allocator_t table = {};
  const int64_t failAt;
  std::mutex mutex;
  uint64_t random;
  int64_t allocations = 0;
  std::map<char *, Block> blocks;
  std::deque<Poison> poisons;
  /// Streams whose context is in a call.
  std::map<void *, int> inCall;
  std::string first;
};

} // namespace ddphook::test
