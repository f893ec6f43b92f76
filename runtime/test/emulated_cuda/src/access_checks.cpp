// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A cell of the shadow holds the last store and two loads of four bytes, as in
// FastTrack (Flanagan, Freund 2009): a thread's clock counts the barriers that
// it has passed, and two accesses of a block are ordered if the clocks differ.
// A cell keeps two loads, so a third one between two barriers replaces one.

#include "access_checks.h"

#include "cuda_runtime.h"
#include "memory.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>

using namespace emulated_cuda;

static int checksOfEnvironment() {
  const char *text = std::getenv("EMULATED_CUDA_CHECKS");
  const std::string name = text ? text : "none";
  if (name == "none" || name == "memory")
    return name == "memory";
  if (name == "races")
    return 2;
  std::fprintf(stderr,
               "emulated CUDA: EMULATED_CUDA_CHECKS: expected none, memory or "
               "races, but got '%s'\n",
               text);
  std::abort();
}

static uint32_t threadNumber() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

static const char *nameOf(ptx::Block::Access access) {
  switch (access) {
  case ptx::Block::Access::Load:
    return "load";
  case ptx::Block::Access::Store:
    return "store";
  case ptx::Block::Access::Atomic:
    return "atomic operation";
  }
  return "";
}

/// Cells by address, in pages.
struct AccessChecks::Shadow {
  static constexpr uint64_t kCells = 1024;
  struct Page {
    Cell cells[kCells];
  };

  Cell &at(uint64_t cell) {
    const uint64_t number = cell / kCells;
    if (number != lastNumber) {
      std::unique_ptr<Page> &page = pages[number];
      if (!page)
        page = std::make_unique<Page>();
      last = page.get();
      lastNumber = number;
    }
    return last->cells[cell % kCells];
  }

  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages;
  uint64_t lastNumber = ~0ull;
  Page *last = nullptr;
};

AccessChecks::AccessChecks(const ptx::Module &module, const ptx::Kernel &kernel)
    : module(module), kernel(kernel), level([] {
        static const int level = checksOfEnvironment();
        return level;
      }()) {
  if (level == 2)
    shadow = std::make_unique<Shadow>();
}

AccessChecks::~AccessChecks() = default;

void AccessChecks::beginBlock(const void *shared, size_t bytes) {
  sharedBegin = reinterpret_cast<uint64_t>(shared);
  sharedBytes = bytes;
  block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  if (shadow)
    clocks.assign(size_t(blockDim.x) * blockDim.y * blockDim.z, {});
}

void AccessChecks::passBarrier() {
  if (shadow)
    ++clocks[threadNumber()].barriers;
}

void AccessChecks::passWarpBarrier() {
  if (shadow)
    ++clocks[threadNumber()].warpBarriers;
}

void AccessChecks::findMemory(uint64_t address, unsigned bytes, int line) {
  auto holds = [&](uint64_t begin, uint64_t size) {
    if (address < begin || address - begin + bytes > size)
      return false;
    knownBegin = begin, knownBytes = size;
    return true;
  };
  Allocation allocation;
  if (findAllocation(reinterpret_cast<const void *>(address), &allocation) &&
      holds(reinterpret_cast<uint64_t>(allocation.begin), allocation.bytes))
    return;
  for (unsigned i = 0; i < module.variableCount; ++i)
    if (holds(reinterpret_cast<uint64_t>(module.variables[i].begin),
              module.variables[i].bytes))
      return;
  fail("line %d accesses %u bytes at 0x%llx, in no memory of the device nor of "
       "the block",
       line, bytes, static_cast<unsigned long long>(address));
}

bool AccessChecks::isRace(const Event &before, const Event &now,
                          bool isShared) const {
  if (!(before.bytes & now.bytes) || (before.isAtomic && now.isAtomic))
    return false;
  if (before.block != now.block)
    return !isShared;
  if (before.thread == now.thread || before.barriers != now.barriers)
    return false;
  return before.thread / 32 != now.thread / 32 ||
         before.warpBarriers == now.warpBarriers;
}

void AccessChecks::checkOrder(uint64_t address, unsigned bytes, Access access,
                              int line) {
  const uint32_t thread = threadNumber();
  const bool isInShared = isShared(address);
  Event now = {};
  now.isAtomic = access == Access::Atomic;
  now.thread = thread & 1023;
  now.line = static_cast<uint32_t>(line) & 0x1ffff;
  now.block = block;
  now.barriers = clocks[thread].barriers;
  now.warpBarriers = clocks[thread].warpBarriers;
  for (uint64_t at = address; at < address + bytes; at = (at / 4 + 1) * 4) {
    Cell &cell = shadow->at(at / 4);
    const uint64_t end = std::min((at / 4 + 1) * 4, address + bytes);
    now.bytes = (((1u << (end - at)) - 1) << at % 4) & 15;
    if (isInShared && cell.block != block + 1) {
      cell = {};
      cell.block = block + 1;
    }
    if (isRace(cell.store, now, isInShared))
      failRace(nameOf(access), cell.store, now, isInShared);
    if (access == Access::Load) {
      Event &first = cell.loads[0];
      const bool isFree = !first.bytes || (first.block == now.block &&
                                           first.thread == now.thread);
      cell.loads[!isFree] = now;
      continue;
    }
    for (Event &load : cell.loads) {
      if (isRace(load, now, isInShared))
        failRace(nameOf(access), load, now, isInShared);
      load.bytes &= ~now.bytes & 15;
    }
    // Stores of one thread to parts of a cell count as one.
    const Event &last = cell.store;
    if (last.block == now.block && last.thread == now.thread &&
        last.barriers == now.barriers &&
        last.warpBarriers == now.warpBarriers && last.isAtomic == now.isAtomic)
      now.bytes |= last.bytes;
    cell.store = now;
  }
}

void AccessChecks::failAlignment(uint64_t address, unsigned bytes, int line) {
  fail("line %d accesses %u bytes at 0x%llx, which is no multiple of that",
       line, bytes, static_cast<unsigned long long>(address));
}

void AccessChecks::failRace(const char *what, const Event &before,
                            const Event &now, bool isShared) {
  fail("race in %s memory between %s: the %s of line %d, by thread %u of block "
       "%u, is not ordered after line %d, by thread %u of block %u",
       isShared ? "shared" : "global",
       before.block != now.block               ? "blocks"
       : before.thread / 32 == now.thread / 32 ? "lanes"
                                               : "warps",
       what, now.line, now.thread, now.block, before.line, before.thread,
       before.block);
}

void AccessChecks::fail(const char *format, ...) {
  std::fprintf(stderr,
               "emulated CUDA: kernel %s, thread %u of block %u: ", kernel.name,
               threadNumber(), block);
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, " (lines of %s)\n", module.file);
  std::abort();
}
