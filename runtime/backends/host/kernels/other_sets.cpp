//===- other_sets.cpp - the instruction sets a machine does without -------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints the number for HWY_DISABLED_TARGETS that leaves two sets: the best one
// of this machine, and the one that any processor has. No part of the library:
// CMake runs it for DDPHOOK_INSTRUCTION_SETS=MACHINE.
//
//===----------------------------------------------------------------------===//

#include "hwy/targets.h"

#include <cstdio>

int main() {
  // Without SSSE3 in every build: CMakeLists.txt.
  const long long sets = HWY_TARGETS & ~HWY_SSSE3;
  const long long usable = (hwy::SupportedTargets() & sets) | HWY_STATIC_TARGET;
  // The lower the bit, the better the set.
  const long long best = usable & -usable;
  const long long others = sets & ~best & ~HWY_STATIC_TARGET;
  std::printf("%lld", others | HWY_SSSE3);
  return 0;
}
