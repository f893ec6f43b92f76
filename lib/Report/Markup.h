//===- Markup.h - text in pages ---------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What text becomes in HTML that is XML, too, and pictures out of bars.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_LIB_REPORT_MARKUP_H
#define DDPHOOK_LIB_REPORT_MARKUP_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

#include <string>
#include <vector>

namespace mlir::ddp {

/// `text` as contents or as a value in double quotes. Characters that no page
/// may have are shown as pictures of themselves.
std::string escape(llvm::StringRef text);

/// An interval of a lane, in parts of the lane.
struct LaneBar {
  double begin = 0, end = 0;
  /// Class names, which give it its colour.
  std::string style;
  /// Shown in it if there is room; shown where the pointer is.
  std::string label, title;
};

/// A line with bars, which may lie on each other: later ones are in front.
void writeLane(llvm::raw_ostream &os, llvm::StringRef name,
               const std::vector<LaneBar> &bars);

/// Distributes bars over lanes such that none lies on another, at most
/// `mostLanes` of them: what does not fit is left out, and counted.
std::vector<std::vector<LaneBar>> packLanes(std::vector<LaneBar> bars,
                                            size_t mostLanes, size_t *leftOut);

/// Marks below lanes, from 0 to `end`, as `format` prints them.
void writeAxis(llvm::raw_ostream &os, double end,
               std::string (*format)(double));

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_REPORT_MARKUP_H
