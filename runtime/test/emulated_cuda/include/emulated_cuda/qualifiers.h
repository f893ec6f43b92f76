// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What nvcc understands as words of its own. Here all code is host code. Not
// among them: __noinline__, a word that headers of the C++ library use.
//
// A __shared__ variable is one per operating system thread: the blocks of a
// launch run one after the other on its stream's thread. Clang can collect
// these variables in a section, so that every block finds them poisoned; with
// GCC a block finds what the one before it has left.

#pragma once

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) alignas(n)

#ifdef __clang__
#define __shared__                                                             \
  static thread_local __attribute__((section("emulated_cuda_shared")))
#else
#define __shared__ static thread_local
#endif
