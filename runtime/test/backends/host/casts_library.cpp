// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Casts on every instruction set that this machine has, called from Python.

#include "kernels.h"

#include "hwy/targets.h"

#include <algorithm>
#include <iterator>
#include <vector>

using namespace ddphook;
using namespace ddphook::host;

extern "C" {
/// Name in plans and size of the type of that number; null behind the last.
__attribute__((visibility("default"))) const char *
ddphook_test_cast_type(int32_t number, int64_t *bytes);
/// Chooses the instruction set of that number; null behind the last.
__attribute__((visibility("default"))) const char *
ddphook_test_choose_target(int32_t number);
__attribute__((visibility("default"))) void
ddphook_test_cast(const void *in, int32_t inType, void *out, int32_t outType,
                  int64_t n);
}

const char *ddphook_test_cast_type(int32_t number, int64_t *bytes) {
  const std::optional<CastDtype> type = castDtypeFromAbi(number);
  if (!type)
    return nullptr;
  *bytes = dtypeSize(*type);
  return dtypeName(*type);
}

const char *ddphook_test_choose_target(int32_t number) {
  std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  // The fallback is always there, whatever the packaged library reports.
  if (std::find(targets.begin(), targets.end(), HWY_STATIC_TARGET) ==
      targets.end())
    targets.push_back(HWY_STATIC_TARGET);
  hwy::GetChosenTarget().DeInit();
  if (static_cast<size_t>(number) >= targets.size())
    return nullptr;
  hwy::GetChosenTarget().Update(targets[static_cast<size_t>(number)]);
  return kernelTargetName();
}

void ddphook_test_cast(const void *in, int32_t inType, void *out,
                       int32_t outType, int64_t n) {
  castArray(in, *castDtypeFromAbi(inType), out, *castDtypeFromAbi(outType), n);
}
