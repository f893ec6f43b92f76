// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// CUDA's headers bring host versions of the device's conversions.

#include "interface_list.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

Conversions CONVERSIONS_NAME() {
  return {
      [](float x) { return __half_as_ushort(__float2half_rn(x)); },
      [](double x) { return __half_as_ushort(__double2half(x)); },
      [](unsigned short x) { return __half2float(__ushort_as_half(x)); },
      [](float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); },
      [](double x) { return __bfloat16_as_ushort(__double2bfloat16(x)); },
      [](unsigned short x) {
        return __bfloat162float(__ushort_as_bfloat16(x));
      },
  };
}
