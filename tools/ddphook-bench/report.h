//===- report.h - results of ddphook-bench ----------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collects samples, prints them as a table and writes them as JSON.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_REPORT_H
#define DDPHOOK_BENCH_REPORT_H

#include "base/status.h"
#include "measure.h"
#include "options.h"

#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace ddphook::bench {

/// Seconds of repeated measurements.
struct Samples {
  std::vector<double> seconds;

  void add(const std::vector<double> &more) {
    seconds.insert(seconds.end(), more.begin(), more.end());
  }
  double median() const;
  double min() const;
  double max() const;
};

/// One line of a table.
struct Result {
  std::string name;
  Caches caches;
  /// Bytes for GB/s: of memory traffic or of payload, as the section says.
  int64_t bytes;
  Samples samples;
  /// Named baselines in the same run: "x as fast as PyTorch" has the key
  /// "PyTorch".
  std::vector<std::pair<std::string, double>> speedups;
  /// Time relative to the best copy of as many bytes; 0 if not compared.
  double ofBestCopy = 0;
  /// Time until an asynchronous call returned; 0 if not measured.
  double hostSeconds = 0;
};

struct Section {
  std::string title;
  /// Names of the columns in `speedups` that this section may have.
  std::vector<std::string> baselines;
  std::deque<Result> results;

  Result &add(std::string name, Caches caches, int64_t bytes);
};

class Report {
public:
  explicit Report(const Options &options) : options(options) {}

  /// Returns a section that is valid as long as the report.
  Section &addSection(std::string title, std::vector<std::string> baselines);

  /// Records that a result was compared with the expected one, and prints it.
  void verified(const std::string &what, bool right);
  bool allRight() const { return wrong == 0; }

  void setTorchVersion(std::string version) {
    torchVersion = std::move(version);
  }

  void print(const Section &section) const;
  /// Writes the file that --json names, if any.
  Status writeJson() const;

private:
  const Options &options;
  std::deque<Section> sections;
  std::vector<std::pair<std::string, bool>> checks;
  int wrong = 0;
  std::string torchVersion;
};

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_REPORT_H
