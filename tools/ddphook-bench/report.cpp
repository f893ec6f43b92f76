// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "report.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sys/mman.h>

using namespace ddphook;
using namespace ddphook::bench;

double bench::median(Samples samples) {
  if (samples.empty())
    return 0;
  auto middle = samples.begin() + static_cast<ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

Report::Report(std::string path)
    : path(std::move(path)), exchange(memfd_create("ddphook-bench", 0)) {
  root["checks"] = Json::array();
  root["sections"] = Json::array();
}

void Report::verified(const std::string &what, bool right) {
  root["checks"].push_back({{"what", what}, {"right", right}});
  std::printf("verified: %-60s %s\n", what.c_str(), right ? "right" : "WRONG");
  std::fflush(stdout);
}

bool Report::allRight() const {
  return std::all_of(
      root["checks"].begin(), root["checks"].end(),
      [](const Json &check) { return check.at("right") == true; });
}

static Json toJson(const Result &result) {
  const auto [least, most] =
      std::minmax_element(result.samples.begin(), result.samples.end());
  Json json = {{"name", result.name}};
  if (!result.caches.empty())
    json["caches"] = result.caches;
  json["bytes"] = result.bytes;
  json["samples"] = result.samples.size();
  json["median_ms"] = median(result.samples) * 1e3;
  json["min_ms"] = *least * 1e3;
  json["max_ms"] = *most * 1e3;
  for (const auto &[baseline, ratio] : result.ratios)
    if (baseline == "copy")
      json["of_best_copy"] = ratio;
    else
      json["times_as_fast_as"][baseline] = 1 / ratio;
  if (result.hostSeconds > 0)
    json["host_us"] = result.hostSeconds * 1e6;
  return json;
}

static void printTable(const std::string &title, const Json &results) {
  auto hasAny = [&](const char *key) {
    return std::any_of(results.begin(), results.end(), [=](const Json &result) {
      return result.contains(key);
    });
  };
  const bool hasCopy = hasAny("of_best_copy"), hasHost = hasAny("host_us");
  // The keys are the baselines of all results.
  Json baselines = Json::object();
  for (const Json &result : results)
    baselines.update(result.value("times_as_fast_as", Json::object()));
  std::printf("\n== %s\n%-36s %-5s %9s %9s %9s %7s", title.c_str(), "", "cache",
              "median ms", "min", "max", "GB/s");
  for (const auto &item : baselines.items())
    std::printf("  x %-8s", item.key().c_str());
  std::printf("%s%s\n", hasCopy ? "  of copy" : "", hasHost ? "  host us" : "");
  // Prints a number if there is one.
  auto cell = [](const Json &object, const std::string &key, int width) {
    if (object.contains(key))
      std::printf("  %*.2f", width, object[key].get<double>());
    else
      std::printf("  %*s", width, "");
  };
  for (const Json &result : results) {
    const double ms = result["median_ms"];
    std::printf("%-36s %-5s %9.3f %9.3f %9.3f",
                result["name"].get_ref<const std::string &>().c_str(),
                result.value("caches", "").c_str(), ms,
                result["min_ms"].get<double>(), result["max_ms"].get<double>());
    if (const double bytes = result["bytes"]; bytes > 0)
      std::printf(" %7.2f", bytes / ms * 1e-6);
    else
      std::printf(" %7s", "");
    for (const auto &item : baselines.items())
      cell(result.value("times_as_fast_as", Json()), item.key(), 10);
    if (hasCopy)
      cell(result, "of_best_copy", 7);
    if (hasHost)
      cell(result, "host_us", 7);
    std::printf("\n");
  }
  std::fflush(stdout);
}

Status Report::add(const std::string &title,
                   const std::vector<Result> &results) {
  Json list = Json::array();
  for (const Result &result : results)
    list.push_back(toJson(result));
  printTable(title, list);
  root["sections"].push_back({{"title", title}, {"results", std::move(list)}});
  return save();
}

Status Report::save() const {
  for (const std::string &name :
       {"/proc/self/fd/" + std::to_string(exchange), path}) {
    if (name.empty())
      continue;
    std::ofstream file(name);
    file << root.dump(2) << "\n";
    file.close();
    if (!file)
      return systemError(errno, "cannot write '%s'", name.c_str());
  }
  return Status::ok();
}

Status Report::load() {
  std::ifstream file("/proc/self/fd/" + std::to_string(exchange));
  Json written = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (written.is_discarded())
    return internalError("expected results, but got none");
  root = std::move(written);
  return Status::ok();
}
