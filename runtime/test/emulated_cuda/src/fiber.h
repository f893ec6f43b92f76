// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Boost.Context's switch between stacks, told to the sanitizers: without that
// ASan takes a fiber's stack for a wild pointer, and TSan takes two fibers for
// one thread.

#pragma once

#include "race_detector.h"

#include <boost/context/fiber.hpp>

#include <cstddef>
#include <functional>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATED_CUDA_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(EMULATED_CUDA_ASAN)
#define EMULATED_CUDA_ASAN 1
#endif

namespace emulated_cuda {

/// Runs `main` on its own stack, between enter() and suspend(). All calls of a
/// fiber come from one operating system thread.
class Fiber {
public:
  explicit Fiber(std::function<void()> main);
  /// `main` has returned, or was never entered.
  ~Fiber();

  /// From outside: runs until the fiber suspends itself, or `main` returns.
  void enter();
  /// From `main`: goes back to enter()'s caller.
  void suspend();

  Fiber(const Fiber &) = delete;
  Fiber &operator=(const Fiber &) = delete;

private:
  void run();

  std::function<void()> main;
  void *mapping;
  boost::context::fiber inside;
  boost::context::fiber outside;
#ifdef EMULATED_CUDA_ASAN
  void *insideFakeStack = nullptr;
  const void *outsideStack = nullptr;
  size_t outsideStackSize = 0;
#endif
#ifdef EMULATED_CUDA_TSAN
  void *insideTsan;
  void *outsideTsan = nullptr;
#endif
};

} // namespace emulated_cuda
