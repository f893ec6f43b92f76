// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collects results as JSON, and prints them as tables.

#pragma once

#include "base/status.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace ddphook::bench {

using Json = nlohmann::ordered_json;

/// Seconds of repeated measurements.
using Samples = std::vector<double>;

/// Returns the upper median, or 0 if there is none.
double median(Samples samples);

/// One line of a table.
struct Result {
  std::string name;
  std::string caches;
  /// Bytes for GB/s, as the section's title says; 0: no GB/s.
  int64_t bytes = 0;
  Samples samples;
  /// The median over that of named baselines in the same run.
  std::vector<std::pair<std::string, double>> ratios = {};
  /// Seconds until an asynchronous call returned; 0 if not measured.
  double hostSeconds = 0;
};

class Report {
public:
  /// `path` may be empty.
  explicit Report(std::string path);

  Json &json() { return root; }

  /// Records whether a result was as expected, and prints it.
  void verified(const std::string &what, bool right);
  bool allRight() const;

  /// Adds a section, prints it, and writes the file, for interrupted runs.
  Status add(const std::string &title, const std::vector<Result> &results);

  /// A measuring process writes the results to a file; its parent reads them.
  Status save() const;
  Status load();

private:
  const std::string path;
  int exchange; ///< A file without a name, which child processes share.
  Json root;
};

} // namespace ddphook::bench
