// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The page below every stack cannot be touched: a kernel whose arrays are too
// large dies there instead of writing over its neighbour.

#include "fiber.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

#ifdef EMULATED_CUDA_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

using namespace emulated_cuda;

static const size_t guardBytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
#if defined(EMULATED_CUDA_ASAN) || defined(EMULATED_CUDA_TSAN)
static constexpr size_t stackBytes = 512 << 10;
#else
static constexpr size_t stackBytes = 128 << 10;
#endif

namespace {
/// The stack belongs to the Fiber, which outlives what runs on it.
struct Unowned {
  void deallocate(boost::context::stack_context &) noexcept {}
};
} // namespace

Fiber::Fiber(std::function<void()> main) : main(std::move(main)) {
  mapping = mmap(nullptr, guardBytes + stackBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED || mprotect(mapping, guardBytes, PROT_NONE) != 0) {
    std::fprintf(stderr, "emulated CUDA: no memory for a thread's stack\n");
    std::abort();
  }
  // Mappings begin at pages: without this the used ends of all stacks would
  // share few sets of the cache.
  static std::atomic<size_t> made{0};
  const size_t unused = made.fetch_add(1, std::memory_order_relaxed) % 61 * 64;
  boost::context::stack_context stack;
  stack.size = stackBytes - unused;
  stack.sp = static_cast<char *>(mapping) + guardBytes + stack.size;
  inside = boost::context::fiber(
      std::allocator_arg,
      boost::context::preallocated(stack.sp, stack.size, stack), Unowned(),
      [this](boost::context::fiber &&caller) {
        outside = std::move(caller);
        run();
        return std::move(outside);
      });
#ifdef EMULATED_CUDA_TSAN
  insideTsan = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef EMULATED_CUDA_TSAN
  __tsan_destroy_fiber(insideTsan);
#endif
#ifdef EMULATED_CUDA_ASAN
  // The next stack at this place begins without this one's poison.
  ASAN_UNPOISON_MEMORY_REGION(static_cast<char *>(mapping) + guardBytes,
                              stackBytes);
#endif
  munmap(mapping, guardBytes + stackBytes);
}

void Fiber::run() {
#ifdef EMULATED_CUDA_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &outsideStack, &outsideStackSize);
#endif
  main();
#ifdef EMULATED_CUDA_ASAN
  // Null: this stack is not coming back.
  __sanitizer_start_switch_fiber(nullptr, outsideStack, outsideStackSize);
#endif
#ifdef EMULATED_CUDA_TSAN
  __tsan_switch_to_fiber(outsideTsan, __tsan_switch_to_fiber_no_sync);
#endif
}

void Fiber::enter() {
#ifdef EMULATED_CUDA_ASAN
  void *fakeStack = nullptr;
  __sanitizer_start_switch_fiber(
      &fakeStack, static_cast<char *>(mapping) + guardBytes, stackBytes);
#endif
#ifdef EMULATED_CUDA_TSAN
  outsideTsan = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(insideTsan, __tsan_switch_to_fiber_no_sync);
#endif
  inside = std::move(inside).resume();
#ifdef EMULATED_CUDA_ASAN
  __sanitizer_finish_switch_fiber(fakeStack, nullptr, nullptr);
#endif
}

void Fiber::suspend() {
#ifdef EMULATED_CUDA_ASAN
  __sanitizer_start_switch_fiber(&insideFakeStack, outsideStack,
                                 outsideStackSize);
#endif
#ifdef EMULATED_CUDA_TSAN
  __tsan_switch_to_fiber(outsideTsan, __tsan_switch_to_fiber_no_sync);
#endif
  outside = std::move(outside).resume();
#ifdef EMULATED_CUDA_ASAN
  __sanitizer_finish_switch_fiber(insideFakeStack, &outsideStack,
                                  &outsideStackSize);
#endif
}
