// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints Highway's number for the best instruction set that this machine has
// and the kernels are compiled for. It is not part of the library: CMake runs
// it for DDPHOOK_INSTRUCTION_SETS=MACHINE.

#include "hwy/targets.h"

#include <cstdio>

int main() {
  // No build uses SSSE3, and no whole build SVE: see CMakeLists.txt.
  const long long sets = HWY_TARGETS & ~(HWY_SSSE3 | HWY_SVE | HWY_SVE2 |
                                         HWY_SVE_256 | HWY_SVE2_128);
  const long long usable = (hwy::SupportedTargets() & sets) | HWY_STATIC_TARGET;
  // The lower the bit, the better the set.
  std::printf("%lld", usable & -usable);
  return 0;
}
