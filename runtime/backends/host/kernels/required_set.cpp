//===- required_set.cpp - processors that cannot run the kernels ----------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels that are compiled for one instruction set have nothing to fall back
// on. A processor without it has to be told before the first of them runs.
//
//===----------------------------------------------------------------------===//

#include "kernels.h"

#include "hwy/targets.h"

const char *ddphook::host::missingInstructionSet() {
  constexpr int64_t anyProcessor = HWY_EMU128 | HWY_SCALAR;
  if (HWY_TARGETS & (anyProcessor | hwy::SupportedTargets()))
    return nullptr;
  return hwy::TargetName(HWY_STATIC_TARGET);
}
