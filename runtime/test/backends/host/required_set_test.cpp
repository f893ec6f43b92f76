// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// required_set.cpp, compiled as it is where DDPHOOK_INSTRUCTION_SETS is MACHINE
// and that machine's best set is AVX2, on processors that say they have this or
// that.

#include "kernels.h"

#include "hwy/targets.h"
#include "gtest/gtest.h"

using ddphook::host::missingInstructionSet;

TEST(RequiredSet, NamesWhatAProcessorLacks) {
  hwy::SetSupportedTargetsForTest(HWY_SSE4);
  EXPECT_STREQ(missingInstructionSet(), "AVX2");
  hwy::SetSupportedTargetsForTest(HWY_AVX3 | HWY_SSE4);
  EXPECT_STREQ(missingInstructionSet(), "AVX2");
}

TEST(RequiredSet, AcceptsAProcessorThatHasIt) {
  hwy::SetSupportedTargetsForTest(HWY_AVX2);
  EXPECT_EQ(missingInstructionSet(), nullptr);
  hwy::SetSupportedTargetsForTest(HWY_AVX3 | HWY_AVX2 | HWY_SSE4);
  EXPECT_EQ(missingInstructionSet(), nullptr);
}
