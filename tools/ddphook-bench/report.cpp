//===- report.cpp - results of ddphook-bench ------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See report.h.
//
//===----------------------------------------------------------------------===//
#include "report.h"

#include "kernels.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <thread>

using namespace ddphook;
using namespace ddphook::bench;

double Samples::median() const {
  if (seconds.empty())
    return 0;
  std::vector<double> sorted = seconds;
  auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

double Samples::min() const {
  return seconds.empty() ? 0
                         : *std::min_element(seconds.begin(), seconds.end());
}

double Samples::max() const {
  return seconds.empty() ? 0
                         : *std::max_element(seconds.begin(), seconds.end());
}

Result &Section::add(std::string name, Caches caches, int64_t bytes) {
  Result result;
  result.name = std::move(name);
  result.caches = caches;
  result.bytes = bytes;
  results.push_back(std::move(result));
  return results.back();
}

Section &Report::addSection(std::string title,
                            std::vector<std::string> baselines) {
  sections.push_back({std::move(title), std::move(baselines), {}});
  return sections.back();
}

void Report::verified(const std::string &what, bool right) {
  checks.emplace_back(what, right);
  wrong += !right;
  std::printf("verified: %-56s %s\n", what.c_str(), right ? "right" : "WRONG");
  std::fflush(stdout);
}

void Report::print(const Section &section) const {
  const bool hasCopy =
      std::any_of(section.results.begin(), section.results.end(),
                  [](const Result &r) { return r.ofBestCopy > 0; });
  const bool hasHost =
      std::any_of(section.results.begin(), section.results.end(),
                  [](const Result &r) { return r.hostSeconds > 0; });
  std::printf("\n== %s\n%-34s %-5s %9s %9s %9s %7s", section.title.c_str(), "",
              "cache", "median ms", "min", "max", "GB/s");
  for (const std::string &baseline : section.baselines)
    std::printf("  x %-8s", baseline.c_str());
  std::printf("%s%s\n", hasHost ? "   host us" : "",
              hasCopy ? "  of best copy  % of roofline" : "");
  for (const Result &result : section.results) {
    const double median = result.samples.median();
    std::printf("%-34s %-5s %9.3f %9.3f %9.3f %7.2f", result.name.c_str(),
                cachesName(result.caches), median * 1e3,
                result.samples.min() * 1e3, result.samples.max() * 1e3,
                static_cast<double>(result.bytes) / median * 1e-9);
    for (const std::string &baseline : section.baselines) {
      auto found = std::find_if(
          result.speedups.begin(), result.speedups.end(),
          [&](const auto &speedup) { return speedup.first == baseline; });
      if (found == result.speedups.end())
        std::printf("  %10s", "");
      else
        std::printf("  %10.2f", found->second);
    }
    if (result.hostSeconds > 0)
      std::printf(" %9.2f", result.hostSeconds * 1e6);
    if (result.ofBestCopy > 0)
      std::printf("  %12.2f  %13.0f", result.ofBestCopy,
                  100 / result.ofBestCopy);
    std::printf("\n");
  }
  std::fflush(stdout);
}

Status Report::writeJson() const {
  if (options.json.empty())
    return Status::ok();
  nlohmann::ordered_json root;
  root["mib"] = options.mib;
  root["elements"] = options.elements();
  root["processors"] = std::thread::hardware_concurrency();
  root["kernels"] = host::kernelTargetName();
  if (torchVersion.empty())
    root["torch"] = nullptr;
  else
    root["torch"] = torchVersion;
  for (const auto &[what, right] : checks)
    root["checks"].push_back({{"what", what}, {"right", right}});
  for (const Section &section : sections) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Result &result : section.results) {
      nlohmann::ordered_json entry;
      entry["name"] = result.name;
      entry["caches"] = cachesName(result.caches);
      entry["bytes"] = result.bytes;
      entry["samples"] = result.samples.seconds.size();
      entry["median_ms"] = result.samples.median() * 1e3;
      entry["min_ms"] = result.samples.min() * 1e3;
      entry["max_ms"] = result.samples.max() * 1e3;
      for (const auto &[baseline, speedup] : result.speedups)
        entry["times_as_fast_as"][baseline] = speedup;
      if (result.ofBestCopy > 0) {
        entry["of_best_copy"] = result.ofBestCopy;
        entry["of_roofline"] = 1 / result.ofBestCopy;
      }
      if (result.hostSeconds > 0)
        entry["host_us"] = result.hostSeconds * 1e6;
      list.push_back(std::move(entry));
    }
    root["sections"].push_back(
        {{"title", section.title}, {"results", std::move(list)}});
  }
  std::ofstream file(options.json);
  file << root.dump(2) << "\n";
  file.close();
  if (!file)
    return systemError(errno, "cannot write '%s'", options.json.c_str());
  return Status::ok();
}
