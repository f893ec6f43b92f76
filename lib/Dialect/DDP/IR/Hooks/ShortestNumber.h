// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers in the errors of hooks.

#pragma once

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

namespace mlir::ddp {

/// Returns the shortest text that parses as exactly this number.
inline std::string getShortestText(double number) {
  std::string text;
  for (int digits = 1; digits <= std::numeric_limits<double>::max_digits10;
       ++digits) {
    text.clear();
    llvm::raw_string_ostream(text) << llvm::format("%.*g", digits, number);
    if (std::isnan(number) || std::strtod(text.c_str(), nullptr) == number)
      break;
  }
  return text;
}

} // namespace mlir::ddp
