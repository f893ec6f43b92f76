//===- Markup.h - text in pages ---------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Escapes text for HTML that is also XML, and draws pictures from bars.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_LIB_REPORT_MARKUP_H
#define DDPHOOK_LIB_REPORT_MARKUP_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

#include <string>
#include <vector>

namespace mlir::ddp {

/// Escapes `text` as contents or as a value in double quotes. Characters that
/// pages must not contain are shown as symbols.
std::string escape(llvm::StringRef text);

/// An interval of a lane, as fractions of the lane.
struct LaneBar {
  double begin = 0, end = 0;
  /// Class names, which give it its colour.
  std::string style;
  /// The label is shown if it fits; the title is a tooltip.
  std::string label, title;
};

/// Writes a lane with bars, which may overlap: later ones are in front.
void writeLane(llvm::raw_ostream &os, llvm::StringRef name,
               const std::vector<LaneBar> &bars);

/// Distributes bars over at most `mostLanes` lanes without overlap. Leaves out,
/// and counts, those that do not fit.
std::vector<std::vector<LaneBar>> packLanes(std::vector<LaneBar> bars,
                                            size_t mostLanes, size_t *leftOut);

/// Writes marks below lanes, from 0 to `end`, printed with `format`.
void writeAxis(llvm::raw_ostream &os, double end,
               std::string (*format)(double));

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_REPORT_MARKUP_H
