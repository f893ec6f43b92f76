//===- ReportPage.cpp - reports as pages ----------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the page's frame, buckets and tables; ReportPictures.cpp draws. A page
// has no script and may load nothing (its content security policy), so names
// can only be shown. Browsers lay out only what is visible, so pages with
// thousands of gradients scroll well.
//
//===----------------------------------------------------------------------===//

#include "ReportPictures.h"

#include "Markup.h"
#include "PageStyle.h"
#include "ReportWords.h"
#include "ddphook/Report/ReportWriter.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir::ddp;
using llvm::StringRef;

/// Gradients, and buckets, that are laid out together.
static constexpr size_t kChunk = 100;

/// The most rows of copies and remarks; a program may have thousands that are
/// alike.
static constexpr size_t kMostRows = 1000;

namespace {
class PageWriter {
public:
  PageWriter(llvm::raw_ostream &os, const PlanReport &report)
      : os(os), report(report), colours(report) {}
  void write();

private:
  void writeHead();
  void writeTile(StringRef what, StringRef value, StringRef detail);
  void writeTiles();
  void writeBuckets();
  void writeBucket(const ReportBucket &bucket, int64_t mostBytes);
  void writeFacts(const ReportBucket &bucket);
  void writeGradients(const ReportBucket &bucket);
  void
  writeCollectives(const std::vector<const ReportCollective *> &collectives);
  void writeMeasured(const TraceSummary &summary);
  void writeMemory();
  void writeNotes();
  /// Writes how many of `count` rows are not shown.
  void writeNotShown(size_t count) {
    if (count > kMostRows)
      os << "<p class=\"dim\">" << count - kMostRows
         << " more are in the report's JSON.</p>\n";
  }
  void beginSection(StringRef title, StringRef text);
  void endSection() { os << "</section>\n"; }
  /// Writes a row of a table; cells are text.
  void writeRow(std::initializer_list<std::string> cells, StringRef style = "");
  void writeTableHead(std::initializer_list<StringRef> titles);

  llvm::raw_ostream &os;
  const PlanReport &report;
  HookColours colours;
  llvm::StringMap<std::vector<const ReportCollective *>> collectives;
  llvm::StringMap<std::vector<const ReportRemark *>> remarks;
  llvm::DenseMap<int64_t, const MeasuredCollective *> measured;
};
} // namespace

void PageWriter::beginSection(StringRef title, StringRef text) {
  os << "<section><h2>" << title << "</h2>\n<p class=\"dim\">" << text
     << "</p>\n";
}

/// Returns true if a cell is a number with a unit, to align on the right.
static bool isQuantity(StringRef cell) {
  return !cell.empty() && llvm::isDigit(cell.front()) &&
         cell.take_until([](char c) {
               return c == ' ';
             }).find_first_not_of("0123456789.") == StringRef::npos &&
         cell.count(' ') <= 1;
}

void PageWriter::writeRow(std::initializer_list<std::string> cells,
                          StringRef style) {
  os << "<tr" << (style.empty() ? "" : " class=\"" + style.str() + "\"") << ">";
  for (const std::string &cell : cells)
    os << (isQuantity(cell) ? "<td class=\"num\">" : "<td>") << escape(cell)
       << "</td>";
  os << "</tr>\n";
}

/// Titles that begin with '>' are above numbers.
void PageWriter::writeTableHead(std::initializer_list<StringRef> titles) {
  os << "<table><tr>";
  for (StringRef title : titles) {
    bool isNumber = title.consume_front(">");
    os << (isNumber ? "<th class=\"num\">" : "<th>") << title << "</th>";
  }
  os << "</tr>\n";
}

void PageWriter::writeHead() {
  std::string title =
      report.module.empty() ? "Plan" : "Plan of " + report.module;
  os << "<!DOCTYPE html>\n"
        "<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\"><head>\n"
        "<meta charset=\"utf-8\"/>\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
        "'none'; style-src 'unsafe-inline'\"/>\n"
        "<meta name=\"viewport\" content=\"width=device-width\"/>\n"
        "<title>"
     << escape(title) << "</title>\n<style>" << kPageStyle
     << "</style></head>\n<body><main>\n<h1>" << escape(title)
     << "</h1>\n<p class=\"dim\">";
  os << (report.entries.size() == 1 ? "Entry point " : "Entry points ");
  llvm::interleaveComma(report.entries, os, [&](const std::string &entry) {
    os << "<code>" << escape(entry) << "</code>";
  });
  for (const ReportGroup &group : report.groups)
    os << " · <code>@" << escape(group.name)
       << "</code>: " << escape(describeGroup(group));
  os << " · arrays in memory of the " << escape(report.memory) << "</p>\n";
}

void PageWriter::writeTile(StringRef what, StringRef value, StringRef detail) {
  os << "<div><span>" << what << "</span><b>" << value << "</b><small>"
     << detail << "</small></div>\n";
}

void PageWriter::writeTiles() {
  int64_t gradientBytes = report.getGradientBytes();
  int64_t wireBytes = report.getWireBytes();
  auto inFlight = llvm::count_if(
      report.collectives, [](const auto &c) { return c.wait > c.start; });
  os << "<div class=\"tiles\">\n";
  writeTile("Gradients", formatBytes(gradientBytes),
            countNoun(report.getNumGradients(), "array") + " in " +
                countNoun(report.buckets.size(), "bucket"));
  auto others = llvm::count_if(report.collectives,
                               [](const auto &c) { return c.bucket.empty(); });
  writeTile("On the wire", formatBytes(wireBytes),
            others == 0 ? "per rank and step"
                        : "without " + countNoun(others, "collective") +
                              " outside buckets");
  writeTile("Compression",
            gradientBytes == 0 ? "–"
            : wireBytes == 0   ? "∞"
                               : formatRatio(gradientBytes, wireBytes) + " ×",
            wireBytes != 0 ? "gradients to wire"
            : others == 0  ? "nothing is sent"
                           : "no bucket is sent");
  writeTile("Collectives", std::to_string(report.collectives.size()),
            std::to_string(inFlight) + " alongside computation");
  writeTile("States", formatBytes(report.getStateBytes()),
            "kept from step to step");
  writeTile("Arena", formatBytes(report.arenaBytes), "buffers of a step");
  os << "</div>\n";
}

//===----------------------------------------------------------------------===//
// Buckets
//===----------------------------------------------------------------------===//

void PageWriter::writeFacts(const ReportBucket &bucket) {
  auto writeFact = [&](StringRef what, const std::string &text) {
    if (!text.empty())
      os << "<dt>" << what << "</dt><dd>" << escape(text) << "</dd>";
  };
  os << "<dl>";
  os << "<dt>Hook</dt><dd><code>" << escape(bucket.hook) << "</code>";
  if (!bucket.hookFrom.empty())
    os << " from " << escape(bucket.hookFrom);
  os << "</dd>";
  writeFact("Reduction", describeReduction(bucket));
  if (bucket.stateBytes != 0)
    writeFact("States", formatBytes(bucket.stateBytes));
  const auto &list = collectives[bucket.name];
  if (list.size() == 1) {
    std::string text = describeCollective(*list.front());
    if (std::string overlap = describeOverlap(*list.front()); !overlap.empty())
      text += "; " + overlap;
    if (const MeasuredCollective *time = measured.lookup(list.front()->number))
      text += "; measured: " + formatTime(time->total);
    writeFact("Collective", text);
  }
  for (const ReportRemark *remark : remarks.lookup(bucket.name))
    if (remark->kind == "missed")
      writeFact("Copied", remark->text);
  os << "</dl>\n";
}

void PageWriter::writeGradients(const ReportBucket &bucket) {
  os << "<h3>" << countNoun(bucket.gradients.size(), "gradient") << "</h3>\n";
  for (size_t i = 0; i < bucket.gradients.size(); ++i) {
    const ReportGradient &gradient = bucket.gradients[i];
    if (i % kChunk == 0)
      os << (i == 0 ? "<ol class=\"g\">" : "</ol>\n<ol class=\"g\">");
    os << "<li><b>" << escape(gradient.name) << "</b><i>"
       << formatShape(gradient.shape) << "</i><i>"
       << formatBytes(gradient.bytes) << "</i><i>" << escape(gradient.source)
       << "</i></li>";
  }
  if (!bucket.gradients.empty())
    os << "</ol>\n";
}

void PageWriter::writeCollectives(
    const std::vector<const ReportCollective *> &list) {
  os << "<h3>" << countNoun(list.size(), "collective") << "</h3>\n";
  if (report.measured)
    writeTableHead({">No.", "What", "Where the step waits", ">Measured"});
  else
    writeTableHead({">No.", "What", "Where the step waits"});
  for (const ReportCollective *collective : list) {
    std::string number = std::to_string(collective->number);
    std::string what = describeCollective(*collective);
    std::string overlap = describeOverlap(*collective);
    const MeasuredCollective *time = measured.lookup(collective->number);
    if (report.measured)
      writeRow({number, what, overlap, time ? formatTime(time->total) : ""});
    else
      writeRow({number, what, overlap});
  }
  os << "</table>\n";
}

void PageWriter::writeBucket(const ReportBucket &bucket, int64_t mostBytes) {
  auto part = [&](int64_t bytes) -> std::string {
    return llvm::formatv("{0:f1}%", 100.0 * static_cast<double>(bytes) /
                                        static_cast<double>(mostBytes));
  };
  os << "<details><summary class=\"" << colours.getStyle(bucket.hook)
     << "\"><span class=\"name\">" << escape(bucket.name)
     << "</span><span class=\"chip\">" << escape(getHookName(bucket.hook))
     << "</span><span class=\"bar\" style=\"--a:" << part(bucket.gradientBytes)
     << ";--w:" << part(bucket.wireBytes) << "\"></span><span class=\"num\">"
     << formatBytes(bucket.gradientBytes) << " → "
     << formatBytes(bucket.wireBytes) << "</span><span class=\"num\">"
     << (bucket.wireBytes == 0
             ? "–"
             : formatRatio(bucket.gradientBytes, bucket.wireBytes) + " ×")
     << "</span></summary><div class=\"body\">\n";
  writeFacts(bucket);
  writeGradients(bucket);
  if (const auto &list = collectives[bucket.name]; list.size() > 1)
    writeCollectives(list);
  os << "</div></details>\n";
}

void PageWriter::writeBuckets() {
  beginSection("Buckets", "In the order of the step. Open a bucket to see its "
                          "gradients, its hook and its collectives.");
  if (report.buckets.empty())
    os << "<div class=\"card\">The step reduces no gradient.</div>\n";
  int64_t mostBytes = 1;
  for (const ReportBucket &bucket : report.buckets)
    mostBytes = std::max({mostBytes, bucket.gradientBytes, bucket.wireBytes});
  if (!report.buckets.empty()) {
    colours.writeLegend(os);
    os << "<div class=\"list\">\n";
    for (size_t i = 0; i < report.buckets.size(); ++i) {
      if (i % kChunk == 0)
        os << (i == 0 ? "<div>" : "</div><div>");
      writeBucket(report.buckets[i], mostBytes);
    }
    os << "</div></div>\n";
  }
  auto found = collectives.find("");
  if (found != collectives.end()) {
    os << "<h3>In no bucket</h3><div class=\"card\">\n";
    writeCollectives(found->second);
    os << "</div>\n";
  }
  endSection();
}

//===----------------------------------------------------------------------===//
// Measurements, memory, remarks
//===----------------------------------------------------------------------===//

void PageWriter::writeMeasured(const TraceSummary &summary) {
  beginSection("As measured",
               "Medians over all steps of a run, of means over ranks. Waiting "
               "is for other "
               "ranks; moving is the rest of a collective. What is not hidden "
               "is time in which the step itself stalled.");
  if (summary.numLost != 0)
    os << "<p>" << countNoun(summary.numLost, "event")
       << " did not fit and are missing.</p>\n";
  for (const std::string &failure : summary.failures)
    os << "<p>" << escape(failure) << "</p>\n";
  writeTimeLine(os, summary, colours);
  os << "<h3>Steps</h3><div class=\"card\">\n";
  writeTableHead(
      {"Entry point", ">Runs", ">Time", ">Communicating", ">Not hidden"});
  for (const MeasuredStep &step : summary.steps)
    writeRow({step.name, std::to_string(step.runs), formatTime(step.total),
              formatTime(step.communicating), formatTime(step.exposed)});
  os << "</table></div>\n<h3>Collectives</h3><div class=\"card\">\n";
  writeTableHead({">No.", "Collective", ">Runs", ">Time", ">Waiting", ">Moving",
                  ">Not hidden"});
  for (const MeasuredCollective &collective : summary.collectives)
    writeRow({collective.number < 0 ? "" : std::to_string(collective.number),
              collective.name, std::to_string(collective.runs),
              formatTime(collective.total), formatTime(collective.waiting),
              formatTime(collective.moving), formatTime(collective.exposed)});
  os << "</table></div>\n";
  endSection();
}

void PageWriter::writeMemory() {
  if (report.buffers.empty() && report.states.empty())
    return;
  beginSection("Memory",
               "Buffers of the arena are adjacent, or overlap if they are "
               "never needed at the same time. States are kept from "
               "step to step.");
  writeArena(os, report, colours);
  writeStateArena(os, report);
  if (!report.states.empty()) {
    os << "<h3>" << countNoun(report.states.size(), "state")
       << "</h3><div class=\"card\">\n";
    writeTableHead({"State", "Type", "Of", ">At byte", ">Size"});
    for (const ReportState &state : report.states)
      writeRow(
          {state.name, state.dtype,
           state.placement == "per_rank" ? "each rank its own" : "all ranks",
           std::to_string(state.offset), formatBytes(state.bytes)});
    os << "</table></div>\n";
  }
  endSection();
}

void PageWriter::writeNotes() {
  if (!report.hasProgram && report.remarks.empty())
    return;
  beginSection(
      "Copies and remarks",
      "Copies of memory that are left in the step, and what passes reported "
      "about their work. A dot marks what they could not do.");
  if (report.copies.empty()) {
    os << "<div class=\"card\">Nothing is copied.</div>\n";
  } else {
    os << "<div class=\"card\">\n";
    writeTableHead({"Copied", ">Size", "In", "Source"});
    for (const ReportCopy &copy :
         llvm::ArrayRef(report.copies).take_front(kMostRows))
      writeRow(
          {copy.type, formatBytes(copy.bytes), copy.function, copy.source});
    os << "</table></div>\n";
    writeNotShown(report.copies.size());
  }
  if (!report.remarks.empty()) {
    os << "<h3>" << countNoun(report.remarks.size(), "remark")
       << "</h3><div class=\"card remarks\">\n";
    writeTableHead({"Pass", "Remark", "Source"});
    size_t numRows = 0;
    auto writeAll = [&](bool isMissed) {
      for (const ReportRemark &remark : report.remarks)
        if ((remark.kind == "missed") == isMissed && numRows++ < kMostRows)
          writeRow({remark.pass, remark.text, remark.source},
                   isMissed ? "missed" : "");
    };
    writeAll(true);
    writeAll(false);
    os << "</table></div>\n";
    writeNotShown(report.remarks.size());
  }
  endSection();
}

void PageWriter::write() {
  for (const ReportCollective &collective : report.collectives)
    collectives[collective.bucket].push_back(&collective);
  for (const ReportRemark &remark : report.remarks)
    remarks[remark.bucket].push_back(&remark);
  if (report.measured)
    for (const MeasuredCollective &collective : report.measured->collectives)
      measured[collective.number] = &collective;
  writeHead();
  writeTiles();
  writeBuckets();
  if (llvm::any_of(report.functions, [](const ReportFunction &function) {
        return function.numOperations != 0;
      })) {
    beginSection(
        "As compiled",
        "Operations of the step from left to right, in the order of "
        "the program, and the collectives that are in flight alongside them. "
        "The step waits for a collective that is in the step itself. This is "
        "an order, not a time.");
    writeSchedule(os, report, colours);
    endSection();
  }
  if (report.measured)
    writeMeasured(*report.measured);
  writeMemory();
  writeNotes();
  os << "<footer>Plan version " << report.abi
     << ". Sizes are in units of 1000 bytes, of one rank and one step."
        "</footer>\n</main></body></html>\n";
}

std::string mlir::ddp::writeReportPage(const PlanReport &report) {
  std::string text;
  llvm::raw_string_ostream os(text);
  PageWriter(os, report).write();
  return text;
}
