//===- sweep_result.cpp - a sweep as a table, CSV and JSON ----------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See sweep_result.h.
//
//===----------------------------------------------------------------------===//
#include "sweep_result.h"

#include <nlohmann/json.hpp>

#include <cstdarg>
#include <cstdio>

using namespace ddphook;
using namespace ddphook::bench;

static std::string print(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

static std::string print(const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

double SweepResult::meanBusBandwidth() const {
  double sum = 0;
  for (const SweepRow &row : rows)
    sum += busBandwidth(row, row.outOfPlace) + busBandwidth(row, row.inPlace);
  return rows.empty() ? 0 : sum / (2 * static_cast<double>(rows.size()));
}

std::optional<int64_t> SweepResult::wrong() const {
  std::optional<int64_t> sum;
  for (const SweepRow &row : rows)
    for (const SweepTiming *timing : {&row.outOfPlace, &row.inPlace})
      if (timing->wrong)
        sum = sum.value_or(0) + *timing->wrong;
  return sum;
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

std::string bench::sweepHeader(const SweepResult &result) {
  std::string text = print(
      "# all-reduce, %s; ranks: %d, machines: %d, backend: %s, transport: %s\n"
      "# time of the slowest rank; algbw = size / time, busbw = bytes on the "
      "wire * 2(n-1)/n / time\n#\n",
      result.isMean ? "mean" : "sum", result.worldSize, result.machines,
      result.backend.c_str(), result.transport.c_str());
  text += print("# %-40s %-33s  %s\n", "", "out-of-place", "in-place");
  text += print("# %10s %12s %9s %5s", "size", "count", "hook", "type");
  for (int i = 0; i < 2; ++i)
    text += print(" %9s %7s %7s %7s", "time", "algbw", "busbw", "#wrong");
  text += print("\n# %10s %12s %15s", "(B)", "(elements)", "");
  for (int i = 0; i < 2; ++i)
    text += print(" %9s %7s %7s%s", "(us)", "(GB/s)", "(GB/s)",
                  i == 0 ? "        " : "\n");
  return text;
}

/// Formats a time with as many digits as fit.
static std::string microseconds(double seconds) {
  const double value = seconds * 1e6;
  return print(value < 100 ? "%.2f" : value < 10000 ? "%.1f" : "%.0f", value);
}

/// Formats GB/s; three digits are enough, on slow links too.
static std::string bandwidth(double value) {
  return print(value < 10 ? "%.3f" : value < 100 ? "%.2f" : "%.1f", value);
}

static std::string wrongText(const SweepTiming &timing) {
  return timing.wrong ? std::to_string(*timing.wrong) : "N/A";
}

std::string bench::sweepLine(const SweepResult &result, const SweepRow &row) {
  std::string text =
      print("  %10lld %12lld %9s %5s", static_cast<long long>(row.bytes()),
            static_cast<long long>(row.count), row.hook.c_str(),
            dtypeName(row.dtype));
  for (const SweepTiming *timing : {&row.outOfPlace, &row.inPlace})
    text += print(" %9s %7s %7s %7s", microseconds(timing->seconds()).c_str(),
                  bandwidth(result.algorithmBandwidth(row, *timing)).c_str(),
                  bandwidth(result.busBandwidth(row, *timing)).c_str(),
                  wrongText(*timing).c_str());
  return text + "\n";
}

std::string bench::sweepFooter(const SweepResult &result) {
  const std::optional<int64_t> wrong = result.wrong();
  return print("# wrong elements: %s\n# average bus bandwidth: %.3f GB/s\n",
               wrong ? std::to_string(*wrong).c_str() : "N/A",
               result.meanBusBandwidth());
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

std::string bench::sweepCsv(const SweepResult &result) {
  std::string text = "ranks,machines,backend,transport,op,hook,datatype,"
                     "wire_datatype,size_bytes,count,wire_bytes,in_place,"
                     "time_us,min_us,max_us,algbw_gbs,busbw_gbs,wrong\n";
  for (const SweepRow &row : result.rows)
    for (const SweepTiming *timing : {&row.outOfPlace, &row.inPlace})
      text += print(
          "%d,%d,%s,%s,%s,%s,%s,%s,%lld,%lld,%lld,%d,%.3f,%.3f,%.3f,%.6g,%.6g,"
          "%s\n",
          result.worldSize, result.machines, result.backend.c_str(),
          result.transport.c_str(), result.isMean ? "mean" : "sum",
          row.hook.c_str(), dtypeName(row.dtype), dtypeName(row.wire),
          static_cast<long long>(row.bytes()),
          static_cast<long long>(row.count),
          static_cast<long long>(row.wireBytes()), timing == &row.inPlace,
          timing->seconds() * 1e6, timing->samples.min() * 1e6,
          timing->samples.max() * 1e6, result.algorithmBandwidth(row, *timing),
          result.busBandwidth(row, *timing),
          timing->wrong ? wrongText(*timing).c_str() : "");
  return text;
}

static nlohmann::ordered_json timingJson(const SweepResult &result,
                                         const SweepRow &row,
                                         const SweepTiming &timing) {
  nlohmann::ordered_json json = {
      {"time_us", timing.seconds() * 1e6},
      {"min_us", timing.samples.min() * 1e6},
      {"max_us", timing.samples.max() * 1e6},
      {"algbw_gbs", result.algorithmBandwidth(row, timing)},
      {"busbw_gbs", result.busBandwidth(row, timing)},
      {"wrong", nullptr}};
  if (timing.wrong)
    json["wrong"] = *timing.wrong;
  return json;
}

std::string bench::sweepJson(const SweepResult &result) {
  nlohmann::ordered_json root = {
      {"ranks", result.worldSize},
      {"machines", result.machines},
      {"backend", result.backend},
      {"transport", result.transport},
      {"op", result.isMean ? "mean" : "sum"},
      {"average_busbw_gbs", result.meanBusBandwidth()},
      {"wrong", nullptr},
      {"results", nlohmann::ordered_json::array()}};
  if (const std::optional<int64_t> wrong = result.wrong())
    root["wrong"] = *wrong;
  for (const SweepRow &row : result.rows)
    root["results"].push_back(
        {{"hook", row.hook},
         {"datatype", dtypeName(row.dtype)},
         {"wire_datatype", dtypeName(row.wire)},
         {"size_bytes", row.bytes()},
         {"count", row.count},
         {"wire_bytes", row.wireBytes()},
         {"out_of_place", timingJson(result, row, row.outOfPlace)},
         {"in_place", timingJson(result, row, row.inPlace)}});
  return root.dump(2) + "\n";
}
