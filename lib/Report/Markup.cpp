//===- Markup.cpp - text in pages -----------------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See Markup.h. Pictures are boxes positioned in percent, which stay sharp and
// fit any window; PageStyle.h gives them their colours.
//
//===----------------------------------------------------------------------===//

#include "Markup.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ConvertUTF.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

#include <cmath>

using namespace mlir::ddp;
using llvm::StringRef;

std::string mlir::ddp::escape(StringRef text) {
  std::string fixed;
  if (!llvm::json::isUTF8(text)) {
    fixed = llvm::json::fixUTF8(text);
    text = fixed;
  }
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '&')
      result += "&amp;";
    else if (byte == '<')
      result += "&lt;";
    else if (byte == '>')
      result += "&gt;";
    else if (byte == '"')
      result += "&quot;";
    else if (byte < 0x20) // its symbol, from U+2400
      result += {'\xe2', '\x90', static_cast<char>(0x80 + byte)};
    else if (byte == 0x7f)
      result += "\xe2\x90\xa1";
    else if (text.substr(i).starts_with("\xef\xbf\xbe") ||
             text.substr(i).starts_with("\xef\xbf\xbf")) {
      result += "\xef\xbf\xbd"; // not characters: U+FFFE and U+FFFF
      i += 2;
    } else
      result += text[i];
  }
  return result;
}

static std::string percent(double part) {
  return llvm::formatv("{0:f2}%", 100 * part);
}

void mlir::ddp::writeLane(llvm::raw_ostream &os, StringRef name,
                          const std::vector<LaneBar> &bars) {
  os << "<div class=\"lane\"><b>" << escape(name) << "</b><div>";
  for (const LaneBar &bar : bars) {
    os << "<i class=\"" << bar.style << "\" style=\"left:" << percent(bar.begin)
       << ";width:" << percent(bar.end - bar.begin) << "\"";
    if (!bar.title.empty())
      os << " title=\"" << escape(bar.title) << "\"";
    // The approximate width of a character, as a fraction of the lane.
    bool hasRoom = bar.end - bar.begin > 0.009 * (bar.label.size() + 1);
    os << ">" << (hasRoom ? escape(bar.label) : "") << "</i>";
  }
  os << "</div></div>\n";
}

std::vector<std::vector<LaneBar>>
mlir::ddp::packLanes(std::vector<LaneBar> bars, size_t mostLanes,
                     size_t *leftOut) {
  llvm::stable_sort(bars, [](const LaneBar &a, const LaneBar &b) {
    return a.begin < b.begin;
  });
  std::vector<std::vector<LaneBar>> lanes;
  *leftOut = 0;
  for (LaneBar &bar : bars) {
    auto free = llvm::find_if(lanes, [&](const std::vector<LaneBar> &lane) {
      return lane.back().end <= bar.begin;
    });
    if (free != lanes.end())
      free->push_back(std::move(bar));
    else if (lanes.size() < mostLanes)
      lanes.push_back({std::move(bar)});
    else
      ++*leftOut;
  }
  return lanes;
}

void mlir::ddp::writeAxis(llvm::raw_ostream &os, double end,
                          std::string (*format)(double)) {
  // No time or size is smaller, and steps between marks would underflow.
  if (!(end >= 1e-6))
    return;
  // Marks at 1, 2 or 5 times a power of ten, about six of them.
  double step = std::pow(10, std::floor(std::log10(end / 6)));
  for (double factor : {2.0, 2.5, 2.0}) // 1 → 2 → 5 → 10
    if (end / step > 8)
      step *= factor;
  os << "<div class=\"lane axis\"><b></b><div>";
  for (int mark = 0; mark * step <= end * (1 + 1e-9); ++mark)
    os << "<u style=\"left:" << percent(mark * step / end) << "\">"
       << format(mark * step) << "</u>";
  os << "</div></div>\n";
}
