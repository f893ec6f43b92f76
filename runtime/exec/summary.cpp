// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "summary.h"

#include "numbers.h"

#include <algorithm>
#include <sys/stat.h>

using namespace ddphook;

/// The number of step times that are kept.
static constexpr size_t maxTimes = size_t(1) << 20;

void StepTimes::add(double seconds) {
  if (times.size() < maxTimes) {
    times.push_back(static_cast<float>(seconds));
    return;
  }
  times[next] = static_cast<float>(seconds);
  next = (next + 1) % maxTimes;
}

double StepTimes::median() const {
  if (times.empty())
    return 0;
  std::vector<float> sorted = times;
  auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  if (sorted.size() % 2 == 1)
    return *middle;
  return (double(*middle) + *std::max_element(sorted.begin(), middle)) / 2;
}

/// Returns "2.00", or the meaning of a quotient by zero.
static std::string printRatio(uint64_t before, uint64_t after) {
  if (after == 0)
    return before == 0 ? "1.00" : "infinite";
  return formatText("%.2f", static_cast<double>(before) / after);
}

static std::string describeWire(const ddphook_stats_t &stats) {
  if (stats.collectives == 0)
    return "no collectives";
  std::string text =
      printBytes(static_cast<double>(stats.wire_bytes)) + " a rank in " +
      printCount(stats.collectives, "collective") + ", uncompressed " +
      printBytes(static_cast<double>(stats.uncompressed_bytes)) + ", ratio " +
      printRatio(stats.uncompressed_bytes, stats.wire_bytes);
  // The numbers of PyTorch's PowerSGDState.compression_stats().
  if (stats.elements_before_compression > 0)
    text += concat("; compression_stats: rate ",
                   printRatio(stats.elements_before_compression,
                              stats.elements_after_compression),
                   ", numel ", stats.elements_before_compression, " before, ",
                   stats.elements_after_compression, " after");
  return text;
}

/// Replaces an estimated size by that on disk, unless files are elsewhere.
static PlannedFiles lookAt(PlannedFiles files) {
  double bytes = 0;
  for (int32_t rank = 0; rank < files.set.ranks; ++rank) {
    struct stat attributes;
    if (::stat(expandPattern(files.set.pattern, rank, 0).c_str(),
               &attributes) != 0)
      return files;
    bytes += static_cast<double>(attributes.st_size);
  }
  files.fileBytes = bytes / files.count();
  return files;
}

std::string ddphook::describeRun(const Summary &summary) {
  const RunOptions &options = summary.options;
  const EntrySignature &signature = summary.signature;
  const std::string begin = std::string(summary.toolName) + ": ";
  std::string text = concat(
      begin, "steps: ", options.steps, " of '", options.entry, "' on ",
      printCount(summary.worldSize, "rank"), " in ",
      printDuration(summary.seconds), ", ",
      printMilliseconds(summary.figures.medianSeconds), " each (median)\n");
  text += begin + "wire: " + describeWire(summary.figures.stats) + "\n";
  if (signature.stateCount > 0)
    text += concat(begin, "states: ", signature.stateCount, " of ",
                   printBytes(signature.stateBytes), " a rank\n");
  for (const PlannedFiles &planned :
       planFiles(options, signature, summary.worldSize)) {
    const bool isCheckpoint = !planned.makesRoom;
    text += begin + "files: " +
            describeFiles(isCheckpoint ? lookAt(planned) : planned) +
            (isCheckpoint ? ", and a manifest\n" : "\n");
  }
  return text;
}
