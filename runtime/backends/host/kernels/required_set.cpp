// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels compiled for one instruction set have no fallback. A processor
// without it must be rejected before the first kernel runs.

#include "kernels.h"

#include "hwy/targets.h"

const char *ddphook::host::missingInstructionSet() {
  constexpr int64_t anyProcessor = HWY_EMU128 | HWY_SCALAR;
  if (HWY_TARGETS & (anyProcessor | hwy::SupportedTargets()))
    return nullptr;
  return hwy::TargetName(HWY_STATIC_TARGET);
}
