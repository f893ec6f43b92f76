//===- ReportText.cpp - reports as text -----------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes a report for terminals, and the phrases that it shares with pages.
//
//===----------------------------------------------------------------------===//

#include "ReportWords.h"
#include "ddphook/Report/ReportWriter.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

using namespace mlir::ddp;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// Phrases
//===----------------------------------------------------------------------===//

std::string mlir::ddp::countNoun(int64_t count, StringRef noun) {
  return (llvm::Twine(count) + " " + noun + (count == 1 ? "" : "s")).str();
}

std::string mlir::ddp::formatTime(double microseconds) {
  if (microseconds < 999.5)
    return llvm::formatv("{0:f1} µs", microseconds);
  if (microseconds < 999.5e3)
    return llvm::formatv("{0:f2} ms", microseconds / 1e3);
  return llvm::formatv("{0:f2} s", microseconds / 1e6);
}

std::string mlir::ddp::describeCollective(const ReportCollective &collective) {
  std::string text = collective.kind;
  if (collective.reduction)
    text += " " + *collective.reduction;
  text += " of " + std::to_string(collective.count) + " " + collective.dtype;
  if (collective.wire != collective.dtype)
    text += " as " + collective.wire;
  text += collective.others.value_or("");
  if (!collective.within.empty())
    text += ", within " + collective.within;
  return text;
}

std::string mlir::ddp::describeOverlap(const ReportCollective &collective) {
  if (collective.function.empty())
    return "";
  if (collective.wait == collective.start)
    return "the step waits for it";
  if (collective.beside.empty())
    return "in flight, with nothing alongside it";
  return "in flight alongside " +
         llvm::join(llvm::map_range(collective.beside,
                                    [](const ReportWork &work) {
                                      return std::to_string(work.count) + " " +
                                             work.what;
                                    }),
                    ", ");
}

std::string mlir::ddp::describeChange(int64_t before, int64_t after) {
  std::string from = formatBytes(before), to = formatBytes(after);
  if (from == to) { // but not to the byte
    from = std::to_string(before) + " B";
    to = std::to_string(after) + " B";
  }
  std::string text = from + " → " + to;
  if (before != 0) {
    double percent = 100.0 * static_cast<double>(after - before) /
                     static_cast<double>(before);
    text += llvm::formatv(" ({0}{1:f1} %)", percent < 0 ? "−" : "+",
                          std::abs(percent));
  }
  return text;
}

std::string mlir::ddp::describeMeasured(const MeasuredCollective &collective) {
  if (collective.number < 0)
    return collective.name;
  return std::to_string(collective.number) + "  " + collective.name;
}

std::string mlir::ddp::describeReduction(const ReportBucket &bucket) {
  std::string text =
      bucket.reduction + " over @" + bucket.group + ", " + bucket.dtype;
  if (bucket.wire != bucket.dtype)
    text += " as " + bucket.wire;
  return text + " on the wire";
}

std::string mlir::ddp::describeGroup(const ReportGroup &group) {
  std::string text;
  if (group.placement == "intra_node")
    text = "the ranks of a node";
  else if (group.placement == "inter_node")
    text = "ranks at the same position on their nodes";
  else if (!group.ranks.empty())
    text = "ranks " + group.ranks;
  else if (group.size != 0)
    text = std::to_string(group.size) + " ranks";
  else
    text = "all ranks";
  if (!group.parent.empty())
    text += " of @" + group.parent;
  if (group.topology == "hierarchical")
    text += ", hierarchical";
  return text;
}

StringRef mlir::ddp::getHookName(StringRef hook) {
  hook.consume_front("#");
  return hook.take_until([](char c) { return c == '<'; });
}

//===----------------------------------------------------------------------===//
// The text
//===----------------------------------------------------------------------===//

/// Returns the columns: UTF-8 characters without continuation bytes.
static size_t getWidth(StringRef text) {
  return llvm::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
}

static std::string pad(std::string text, size_t width) {
  size_t own = getWidth(text);
  return text.append(width - std::min(own, width), ' ');
}

namespace {
class TextWriter {
public:
  TextWriter(llvm::raw_ostream &os, const PlanReport &report)
      : os(os), report(report) {}
  void write();

private:
  void writeHead();
  void writeBucket(const ReportBucket &bucket);
  void writeCollective(const ReportCollective &collective);
  void writeMemory();
  void writeRemarks();
  void writeMeasured(const TraceSummary &measured);
  /// Ends a line, with the source if it is known.
  void writeSource(StringRef source) {
    if (!source.empty())
      os << "  " << printable(source);
    os << "\n";
  }

  llvm::raw_ostream &os;
  const PlanReport &report;
  llvm::StringMap<std::vector<const ReportCollective *>> collectives;
};
} // namespace

void TextWriter::writeHead() {
  os << "plan" << (report.module.empty() ? "" : " of ")
     << printable(report.module) << ": "
     << countNoun(report.buckets.size(), "bucket") << ", "
     << countNoun(report.getNumGradients(), "gradient") << ", "
     << countNoun(report.collectives.size(), "collective") << "\n";
  os << "  gradients " << formatBytes(report.getGradientBytes())
     << ", on the wire " << formatBytes(report.getWireBytes())
     << " per rank and step";
  auto others = llvm::count_if(report.collectives,
                               [](const auto &c) { return c.bucket.empty(); });
  if (others != 0)
    os << ", without " << countNoun(others, "collective") << " outside buckets";
  if (report.getGradientBytes() != 0)
    os << ", compression "
       << formatRatio(report.getGradientBytes(), report.getWireBytes());
  os << "\n  states " << formatBytes(report.getStateBytes()) << ", arena "
     << formatBytes(report.arenaBytes) << ", memory of the "
     << printable(report.memory) << "\n";
  for (const ReportGroup &group : report.groups)
    os << "  @" << printable(group.name) << ": "
       << printable(describeGroup(group)) << "\n";
}

void TextWriter::writeCollective(const ReportCollective &collective) {
  os << "    " << collective.number << "  "
     << printable(describeCollective(collective));
  if (std::string overlap = describeOverlap(collective); !overlap.empty())
    os << "; " << printable(overlap);
  os << "\n";
}

void TextWriter::writeBucket(const ReportBucket &bucket) {
  os << "\nbucket " << printable(bucket.name) << ": "
     << printable(describeReduction(bucket)) << "\n";
  os << "  hook " << printable(bucket.hook);
  if (!bucket.hookFrom.empty())
    os << ", from " << printable(bucket.hookFrom);
  os << "\n  " << formatBytes(bucket.gradientBytes) << " of gradients, "
     << formatBytes(bucket.wireBytes) << " on the wire, compression "
     << formatRatio(bucket.gradientBytes, bucket.wireBytes) << ", states "
     << formatBytes(bucket.stateBytes) << "\n";
  size_t width = 0, shapeWidth = 0;
  for (const ReportGradient &gradient : bucket.gradients) {
    width = std::max(width, getWidth(printable(gradient.name)));
    shapeWidth = std::max(shapeWidth, getWidth(formatShape(gradient.shape)));
  }
  os << "  gradients\n";
  for (const ReportGradient &gradient : bucket.gradients) {
    os << "    " << pad(printable(gradient.name), width) << "  "
       << pad(formatShape(gradient.shape), shapeWidth) << "  "
       << llvm::right_justify(formatBytes(gradient.bytes), 8);
    writeSource(gradient.source);
  }
  auto found = collectives.find(bucket.name);
  if (found == collectives.end())
    return;
  os << "  collectives\n";
  for (const ReportCollective *collective : found->second)
    writeCollective(*collective);
}

void TextWriter::writeMemory() {
  if (!report.states.empty())
    os << "\nstates\n";
  for (const ReportState &state : report.states)
    os << "    at " << state.offset << ": " << printable(state.name) << ", "
       << printable(state.dtype) << ", " << formatBytes(state.bytes) << ", "
       << printable(state.placement) << "\n";
  if (!report.buffers.empty())
    os << "\narena\n";
  for (const ReportBuffer &buffer : report.buffers) {
    os << "    at " << buffer.offset << ": " << printable(buffer.type) << ", "
       << formatBytes(buffer.bytes);
    if (!buffer.bucket.empty())
      os << ", bucket " << printable(buffer.bucket);
    os << ", in '" << printable(buffer.function) << "'";
    writeSource(buffer.source);
  }
  if (!report.copies.empty())
    os << "\nremaining copies\n";
  else if (report.hasProgram)
    os << "\nnothing is copied\n";
  for (const ReportCopy &copy : report.copies) {
    os << "    " << printable(copy.type) << ", " << formatBytes(copy.bytes)
       << ", in '" << printable(copy.function) << "'";
    writeSource(copy.source);
  }
}

void TextWriter::writeRemarks() {
  if (!report.remarks.empty())
    os << "\nremarks\n";
  for (const ReportRemark &remark : report.remarks) {
    os << "    " << printable(remark.pass) << ", " << remark.kind << ": "
       << printable(remark.text);
    writeSource(remark.source);
  }
}

void TextWriter::writeMeasured(const TraceSummary &measured) {
  os << "\nmeasured, medians of means over "
     << countNoun(measured.worldSize, "rank");
  if (measured.numLost != 0)
    os << "; " << countNoun(measured.numLost, "event") << " lost";
  os << "\n";
  for (const std::string &failure : measured.failures)
    os << "    " << printable(failure) << "\n";
  for (const MeasuredStep &step : measured.steps)
    os << "    " << printable(step.name) << ": " << formatTime(step.total)
       << ", of which communicating " << formatTime(step.communicating)
       << ", stalled " << formatTime(step.exposed) << " ("
       << countNoun(step.runs, "run") << ")\n";
  for (const MeasuredCollective &collective : measured.collectives)
    os << "    " << printable(describeMeasured(collective)) << ": "
       << formatTime(collective.total) << ", waiting for other ranks "
       << formatTime(collective.waiting) << ", moving "
       << formatTime(collective.moving) << ", not hidden "
       << formatTime(collective.exposed) << " ("
       << countNoun(collective.runs, "run") << ")\n";
}

void TextWriter::write() {
  for (const ReportCollective &collective : report.collectives)
    collectives[collective.bucket].push_back(&collective);
  writeHead();
  llvm::for_each(report.buckets,
                 [&](const ReportBucket &bucket) { writeBucket(bucket); });
  auto found = collectives.find("");
  if (found != collectives.end())
    os << "\ncollectives outside buckets\n";
  if (found != collectives.end())
    for (const ReportCollective *collective : found->second)
      writeCollective(*collective);
  writeMemory();
  writeRemarks();
  if (report.measured)
    writeMeasured(*report.measured);
}

std::string mlir::ddp::writeReportText(const PlanReport &report) {
  std::string text;
  llvm::raw_string_ostream os(text);
  TextWriter(os, report).write();
  return text;
}
