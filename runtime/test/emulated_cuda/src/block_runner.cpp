// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Barriers and warp operations count the threads that have not ended, as the
// hardware does. A result stays where it is until the last of those that it is
// for has read it: none of them can be in the next barrier, or under the same
// mask, before.

#include "block_runner.h"

#include "cuda_pipeline_primitives.h"
#include "module_shared.h"
#include "race_detector.h"

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace emulated_cuda;

__thread uint3 threadIdx = {0, 0, 0};
__thread uint3 blockIdx = {0, 0, 0};
__thread dim3 blockDim(1, 1, 1);
__thread dim3 gridDim(1, 1, 1);

BlockRunner &BlockRunner::ofThisThread() {
  static thread_local BlockRunner runner;
  return runner;
}

BlockRunner::~BlockRunner() {
  race_detector::Ignore ignore;
  isStopping = true;
  for (std::unique_ptr<Worker> &worker : workers)
    worker->fiber->enter();
  workers.clear();
}

uint3 BlockRunner::positionOf(unsigned index) const {
  return {index % blockDim.x, index / blockDim.x % blockDim.y,
          index / (blockDim.x * blockDim.y)};
}

void BlockRunner::run(const Kernel &launched, dim3 grid, dim3 block,
                      size_t dynamicBytes, bool reverse) {
  race_detector::Ignore ignore;
  kernel = &launched;
  ++launches;
  isReversed = reverse;
  gridDim = grid;
  blockDim = block;
  threads = block.x * block.y * block.z;
  // Of exactly that size, so that ASan sees a kernel that leaves it.
  void *memory = nullptr;
  if (dynamicBytes > 0 && posix_memalign(&memory, 128, dynamicBytes) != 0)
    fail("no memory for %zu bytes of shared memory", dynamicBytes);
  shared.reset(memory);
  sharedBytes = dynamicBytes;
  const size_t count = static_cast<size_t>(grid.x) * grid.y * grid.z;
  for (size_t i = 0; i < count; ++i) {
    size_t number = reverse ? count - 1 - i : i;
    blockIdx = {static_cast<unsigned>(number % grid.x),
                static_cast<unsigned>(number / grid.x % grid.y),
                static_cast<unsigned>(number / grid.x / grid.y)};
    poisonShared(launched);
    race_detector::release(&blockBegin);
    runBlock();
    race_detector::acquire(&blockEnd);
  }
  kernel = nullptr;
  shared.reset();
}

void BlockRunner::poisonShared(const Kernel &launched) {
  poisonModuleShared(launched.sharedBegin, launched.sharedEnd);
  if (shared)
    std::memset(shared.get(), 0xff, sharedBytes);
}

void BlockRunner::runBlock() {
  ++blocks;
  begun = 0;
  living = threads;
  warps.resize((threads + 31) / 32);
  for (size_t i = 0; i < warps.size(); ++i) {
    unsigned lanes = std::min(32u, threads - static_cast<unsigned>(i) * 32);
    warps[i].living = lanes == 32 ? ~0u : (1u << lanes) - 1;
    warps[i].meetings.clear();
  }
  inBarrier.clear();
  barrierTrue = 0;

  while (living > 0) {
    Worker *worker;
    if (!ready.empty()) {
      worker = isReversed ? ready.back() : ready.front();
      isReversed ? ready.pop_back() : ready.pop_front();
    } else if (begun < threads) {
      worker = takeWorker();
    } else {
      failDeadlock();
    }
    current = worker;
    threadIdx = worker->position;
    worker->fiber->enter();
  }
}

BlockRunner::Worker *BlockRunner::takeWorker() {
  // Each thread is one to TSan as well.
  if (race_detector::isOn && begun < workers.size())
    return workers[begun].get();
  if (idle.empty()) {
    workers.push_back(std::make_unique<Worker>());
    Worker *worker = workers.back().get();
    worker->fiber = std::make_unique<Fiber>([this, worker] {
      race_detector::Ignore ignore;
      while (!isStopping)
        runThreads(worker);
    });
    return worker;
  }
  Worker *worker = idle.back();
  idle.pop_back();
  return worker;
}

void BlockRunner::runThreads(Worker *worker) {
  while (begun < threads) {
    unsigned number = begun++;
    worker->index = isReversed ? threads - 1 - number : number;
    worker->position = positionOf(worker->index);
    current = worker;
    threadIdx = worker->position;
    race_detector::acquire(&blockBegin);
    race_detector::ignoreEnd();
    kernel->body();
    race_detector::ignoreBegin();
    race_detector::release(&blockEnd);
    endThread();
    // Those whom this thread's end lets go on come first.
    if (!ready.empty() || race_detector::isOn)
      break;
  }
  if (!race_detector::isOn)
    idle.push_back(worker);
  worker->fiber->suspend();
}

void BlockRunner::suspend(Worker *worker, const SourceLocation &place) {
  worker->place = place;
  worker->fiber->suspend();
  worker->place = {};
}

void BlockRunner::makeReady(Worker *worker) {
  worker->isInBarrier = false;
  ready.push_back(worker);
}

void BlockRunner::endThread() {
  if (!current->copies.empty())
    fail("thread %u ends, but has not waited for %zu of its asynchronous "
         "copies",
         current->index, current->copies.size());
  current->groups = 0;
  --living;
  Warp &warp = warps[current->index / 32];
  warp.living &= ~(1u << current->index % 32);
  for (Meeting &meeting : warp.meetings)
    if (meeting.arrived)
      completeIfAllCame(warp, meeting);
  completeBarrierIfAllCame();
}

int BlockRunner::waitForBlock(BarrierKind kind, int predicate,
                              const SourceLocation &place) {
  race_detector::Ignore ignore;
  if (!kernel)
    fail("%s at %s:%d is called by host code", place.call, place.file,
         place.line);
  race_detector::release(&inBarrier);
  if (inBarrier.empty()) {
    barrierKind = kind;
    barrierPlace = place;
  } else if (kind != barrierKind || place.line != barrierPlace.line ||
             std::strcmp(place.file, barrierPlace.file) != 0) {
    fail("thread %u is in %s at %s:%d, but another one of its block in %s at "
         "%s:%d",
         current->index, place.call, place.file, place.line, barrierPlace.call,
         barrierPlace.file, barrierPlace.line);
  }
  barrierTrue += predicate != 0;
  Worker *worker = current;
  worker->isInBarrier = true;
  inBarrier.push_back(worker);
  completeBarrierIfAllCame();
  if (worker->isInBarrier)
    suspend(worker, place);
  race_detector::acquire(&inBarrier);
  return barrierResult;
}

void BlockRunner::completeBarrierIfAllCame() {
  if (inBarrier.empty() || inBarrier.size() < living)
    return;
  switch (barrierKind) {
  case BarrierKind::Plain:
    break;
  case BarrierKind::Or:
    barrierResult = barrierTrue > 0;
    break;
  case BarrierKind::And:
    barrierResult = barrierTrue == inBarrier.size();
    break;
  case BarrierKind::Count:
    barrierResult = static_cast<int>(barrierTrue);
    break;
  }
  barrierTrue = 0;
  for (Worker *worker : inBarrier) {
    // The last one to come need not wait.
    if (worker->place.line == 0)
      worker->isInBarrier = false;
    else
      makeReady(worker);
  }
  inBarrier.clear();
}

const WarpValues &BlockRunner::waitForWarp(unsigned mask,
                                           unsigned long long value,
                                           const SourceLocation &place) {
  race_detector::Ignore ignore;
  if (!kernel)
    fail("%s at %s:%d is called by host code", place.call, place.file,
         place.line);
  Worker *worker = current;
  Warp &warp = warps[worker->index / 32];
  const unsigned bit = 1u << worker->index % 32;
  if (!(mask & bit))
    fail("thread %u calls %s at %s:%d with mask 0x%08x, which lacks its own "
         "lane %u",
         worker->index, place.call, place.file, place.line, mask,
         worker->index % 32);

  size_t number = 0;
  while (number < warp.meetings.size() && warp.meetings[number].mask != mask)
    ++number;
  if (number == warp.meetings.size()) {
    // At once room for every mask that lanes can hold at a time: references
    // stay valid.
    warp.meetings.reserve(64);
    if (number == 64)
      fail("%s at %s:%d: expected at most 64 masks in a block's warp",
           place.call, place.file, place.line);
    warp.meetings.emplace_back();
    warp.meetings.back().mask = mask;
  }
  Meeting &meeting = warp.meetings[number];
  if (!meeting.arrived) {
    meeting.place = place;
  } else if (std::strcmp(place.call, meeting.place.call) != 0) {
    fail("thread %u calls %s at %s:%d, but another lane under mask 0x%08x "
         "calls %s at %s:%d",
         worker->index, place.call, place.file, place.line, mask,
         meeting.place.call, meeting.place.file, meeting.place.line);
  }
  race_detector::release(&meeting);
  meeting.arrived |= bit;
  meeting.next.values[worker->index % 32] = value;
  meeting.waiting.push_back(worker);
  completeIfAllCame(warp, meeting);
  if (meeting.arrived & bit)
    suspend(worker, place);
  race_detector::acquire(&meeting);
  return meeting.last;
}

void BlockRunner::completeIfAllCame(Warp &warp, Meeting &meeting) {
  // Lanes that have ended, or that the block never had, are not waited for.
  if (meeting.mask & warp.living & ~meeting.arrived)
    return;
  meeting.last = meeting.next;
  meeting.last.lanes = meeting.arrived;
  meeting.arrived = 0;
  for (Worker *worker : meeting.waiting)
    if (worker->place.line != 0)
      makeReady(worker);
  meeting.waiting.clear();
}

void BlockRunner::copyAsync(void *to, const void *from, size_t size,
                            size_t zeros) {
  {
    race_detector::Ignore ignore;
    const auto begin = reinterpret_cast<uintptr_t>(shared.get());
    const auto target = reinterpret_cast<uintptr_t>(to);
    if (!kernel || target < begin || target + size > begin + sharedBytes)
      fail("expected the target %p of an asynchronous copy in dynamic shared "
           "memory",
           to);
    if ((size != 4 && size != 8 && size != 16) || zeros > size ||
        target % size != 0 || reinterpret_cast<uintptr_t>(from) % size != 0)
      fail("expected an asynchronous copy of 4, 8 or 16 bytes between "
           "multiples of that, but got %zu bytes from %p to %p",
           size, from, to);
    current->copies.push_back({to, from, size, zeros, current->groups});
    if (runningTraffic)
      runningTraffic->loads.add(size - zeros);
  }
  std::memset(to, 0xff, size);
}

void BlockRunner::commitCopies() {
  race_detector::Ignore ignore;
  ++current->groups;
}

void BlockRunner::waitForCopies(size_t prior) {
  std::vector<Copy> arriving;
  {
    race_detector::Ignore ignore;
    const size_t groups = current->groups;
    auto isLater = [&](const Copy &copy) {
      return copy.group + prior >= groups;
    };
    std::vector<Copy> &copies = current->copies;
    auto end = std::find_if(copies.begin(), copies.end(), isLater);
    arriving.assign(copies.begin(), end);
    copies.erase(copies.begin(), end);
  }
  for (const Copy &copy : arriving) {
    std::memcpy(copy.to, copy.from, copy.size - copy.zeros);
    std::memset(static_cast<char *>(copy.to) + copy.size - copy.zeros, 0,
                copy.zeros);
  }
}

void BlockRunner::failDeadlock() {
  std::fprintf(stderr,
               "emulated CUDA: deadlock in block (%u, %u, %u) of (%u, %u, "
               "%u) with %u threads: %u have ended, the others wait:\n",
               blockIdx.x, blockIdx.y, blockIdx.z, gridDim.x, gridDim.y,
               gridDim.z, threads, threads - living);
  int lines = 0;
  for (const std::unique_ptr<Worker> &worker : workers)
    if (worker->place.line != 0 && lines++ < 8)
      std::fprintf(stderr, "  thread %u in %s at %s:%d\n", worker->index,
                   worker->place.call, worker->place.file, worker->place.line);
  std::abort();
}

void BlockRunner::fail(const char *format, ...) {
  std::fprintf(stderr, "emulated CUDA: block (%u, %u, %u): ", blockIdx.x,
               blockIdx.y, blockIdx.z);
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
  std::abort();
}

int emulated_cuda::waitForBlock(BarrierKind kind, int predicate,
                                const SourceLocation &place) {
  return BlockRunner::ofThisThread().waitForBlock(kind, predicate, place);
}

const WarpValues &emulated_cuda::waitForWarp(unsigned mask,
                                             unsigned long long value,
                                             const SourceLocation &place) {
  return BlockRunner::ofThisThread().waitForWarp(mask, value, place);
}

void emulated_cuda::copyAsync(void *shared, const void *global, size_t size,
                              size_t zeros) {
  BlockRunner::ofThisThread().copyAsync(shared, global, size, zeros);
}

void emulated_cuda::commitCopies() {
  BlockRunner::ofThisThread().commitCopies();
}

void emulated_cuda::waitForCopies(size_t prior) {
  BlockRunner::ofThisThread().waitForCopies(prior);
}

unsigned emulated_cuda::laneId() {
  return BlockRunner::ofThisThread().laneId();
}

void *emulated_cuda::dynamicShared() {
  return BlockRunner::ofThisThread().dynamicShared();
}
