// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The lists are compiled twice: with the emulated headers and with those of a
// CUDA toolkit.

#pragma once

#include <map>
#include <string>

/// Names of constants, functions and members, with a number, a mangled type or
/// an offset.
using Interface = std::map<std::string, std::string>;
Interface emulatedInterface();
Interface realInterface();
Interface emulatedRuntimeInterface();
Interface realRuntimeInterface();

/// The bits that the headers' conversions give.
struct Conversions {
  unsigned short (*floatToHalf)(float);
  unsigned short (*doubleToHalf)(double);
  float (*halfToFloat)(unsigned short);
  unsigned short (*floatToBfloat16)(float);
  unsigned short (*doubleToBfloat16)(double);
  float (*bfloat16ToFloat)(unsigned short);
};
Conversions emulatedConversions();
Conversions realConversions();
