//===- sweep_options.cpp - command line of ddphook-bench sweep ------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See sweep_options.h.
//
//===----------------------------------------------------------------------===//
#include "sweep_options.h"

#include "options.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <sstream>

using namespace ddphook;
using namespace ddphook::bench;

static constexpr int64_t kMostBytes = int64_t(1) << 40;
static constexpr int64_t kMostSizes = 100000;

const char *bench::sweepHelp() {
  return "usage: ddphook-bench sweep [OPTIONS]\n"
         "\n"
         "Times all-reduces of buffers of growing size, checks every element, "
         "and prints\n"
         "algorithm and bus bandwidth as nccl-tests define them. Run it alone, "
         "and it starts\n"
         "its ranks on this machine; run it with torchrun, mpirun, srun or by "
         "hand with RANK,\n"
         "WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and each process is a "
         "rank.\n"
         "\n"
         "  -b, --min-bytes=SIZE     smallest buffer (default 8); K, M and G "
         "count in 1024s\n"
         "  -e, --max-bytes=SIZE     largest buffer (default 64M)\n"
         "  -f, --step-factor=N      from one size to the next (default 2)\n"
         "  -i, --step-bytes=SIZE    the same by addition, in place of a "
         "factor\n"
         "  -d, --datatype=LIST      f32, f64, f16, bf16, or all; also float, "
         "double, half,\n"
         "                           bfloat16 (default f32)\n"
         "      --hook=LIST          allreduce, fp16, bf16, or all: the type "
         "on the wire\n"
         "                           (default allreduce: the buffer's own)\n"
         "  -o, --op=OP              sum, or mean: divided first, as DDP does "
         "(default sum)\n"
         "  -n, --iters=N            runs in a measurement (default 20)\n"
         "  -w, --warmup-iters=N     runs before the first one (default 5)\n"
         "  -r, --rounds=N           measurements; their median counts "
         "(default 3)\n"
         "  -c, --check=0|1          check results (default 1)\n"
         "      --ranks=N            ranks to start on this machine (default "
         "2)\n"
         "      --csv=FILE, --json=FILE\n"
         "                           also write the results there, on rank 0; "
         "ddphook-report\n"
         "                           draws FILE.json\n"
         "\n"
         "The runtime's variables apply, DDPHOOK_TRANSPORT and DDPHOOK_BACKEND "
         "for example.\n";
}

static Status mismatch(const std::string &name, const char *wanted,
                       const std::string &value) {
  return error(DDPHOOK_INVALID_ARGUMENT, "expected %s to be %s, but got '%s'",
               name.c_str(), wanted, value.c_str());
}

/// Parses an integer with an optional suffix K, M or G.
static Status parseSize(const std::string &name, const std::string &text,
                        int64_t *value) {
  char *end = nullptr;
  errno = 0;
  const long long number = std::strtoll(text.c_str(), &end, 10);
  int shift = 0;
  if (end != text.c_str()) {
    static const std::string units = "KMG";
    const size_t unit =
        *end ? units.find(static_cast<char>(*end & ~0x20)) : std::string::npos;
    if (unit != std::string::npos) {
      shift = 10 * static_cast<int>(unit + 1);
      ++end;
    }
  }
  const bool isNumber = end != text.c_str() && *end == '\0' && errno == 0 &&
                        text[0] >= '0' && text[0] <= '9';
  if (!isNumber || number < 1 || number > (kMostBytes >> shift))
    return mismatch(name, "a size from 1 to 1024G, such as 8 or 64M", text);
  *value = static_cast<int64_t>(number) << shift;
  return Status::ok();
}

static Status parseCount(const std::string &name, const std::string &text,
                         int least, int most, int *value) {
  char *end = nullptr;
  errno = 0;
  const long number = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || errno != 0 || number < least ||
      number > most)
    return error(DDPHOOK_INVALID_ARGUMENT,
                 "expected %s to be a whole number from %d to %d, but got '%s'",
                 name.c_str(), least, most, text.c_str());
  *value = static_cast<int>(number);
  return Status::ok();
}

static std::vector<std::string> split(const std::string &text) {
  std::vector<std::string> items;
  std::stringstream list(text);
  for (std::string item; std::getline(list, item, ',');)
    items.push_back(item);
  if (text.empty() || text.back() == ',')
    items.emplace_back();
  return items;
}

static Status parseDtypes(const std::string &name, const std::string &text,
                          std::vector<Dtype> *dtypes) {
  dtypes->clear();
  for (const std::string &item : split(text)) {
    if (item == "all") {
      dtypes->assign(std::begin(allDtypes), std::end(allDtypes));
      continue;
    }
    const std::string known = item == "float"      ? "f32"
                              : item == "double"   ? "f64"
                              : item == "half"     ? "f16"
                              : item == "bfloat16" ? "bf16"
                                                   : item;
    const std::optional<Dtype> dtype = parseDtype(known);
    if (!dtype)
      return mismatch(name, "a list of f32, f64, f16 and bf16, or all", item);
    dtypes->push_back(*dtype);
  }
  return Status::ok();
}

static Status parseHooks(const std::string &name, const std::string &text,
                         std::vector<SweepHook> *hooks) {
  static const std::vector<SweepHook> known = {
      {"allreduce", std::nullopt}, {"fp16", Dtype::F16}, {"bf16", Dtype::BF16}};
  hooks->clear();
  for (const std::string &item : split(text)) {
    if (item == "all") {
      *hooks = known;
      continue;
    }
    auto found =
        std::find_if(known.begin(), known.end(),
                     [&](const SweepHook &hook) { return hook.name == item; });
    if (found == known.end())
      return mismatch(name, "a list of allreduce, fp16 and bf16, or all", item);
    hooks->push_back(*found);
  }
  return Status::ok();
}

namespace {

/// Sets an option to its value; `name` is as the user wrote it.
using Setter = std::function<Status(
    const std::string &name, const std::string &value, SweepOptions *options)>;

struct SweepFlag {
  const char *longName;
  char shortName; // 0: none
  Setter set;
};

} // namespace

static Setter size(int64_t SweepOptions::*field) {
  return [=](const std::string &name, const std::string &value,
             SweepOptions *options) {
    return parseSize(name, value, &(options->*field));
  };
}

static Setter count(int SweepOptions::*field, int least) {
  return [=](const std::string &name, const std::string &value,
             SweepOptions *options) {
    return parseCount(name, value, least, 1000000, &(options->*field));
  };
}

static Setter file(std::string SweepOptions::*field) {
  return [=](const std::string &name, const std::string &value,
             SweepOptions *options) {
    options->*field = value;
    return value.empty() ? mismatch(name, "the name of a file", value)
                         : Status::ok();
  };
}

static const std::vector<SweepFlag> &sweepFlags() {
  using Text = const std::string &;
  static const std::vector<SweepFlag> flags = {
      {"min-bytes", 'b', size(&SweepOptions::minBytes)},
      {"max-bytes", 'e', size(&SweepOptions::maxBytes)},
      {"step-bytes", 'i', size(&SweepOptions::stepBytes)},
      {"step-factor", 'f',
       [](Text name, Text value, SweepOptions *options) {
         int factor = 0;
         Status status = parseCount(name, value, 2, 1 << 20, &factor);
         options->factor = factor;
         return status;
       }},
      {"datatype", 'd',
       [](Text name, Text value, SweepOptions *options) {
         return parseDtypes(name, value, &options->dtypes);
       }},
      {"hook", 0,
       [](Text name, Text value, SweepOptions *options) {
         return parseHooks(name, value, &options->hooks);
       }},
      {"op", 'o',
       [](Text name, Text value, SweepOptions *options) {
         options->isMean = value == "mean" || value == "avg";
         return options->isMean || value == "sum"
                    ? Status::ok()
                    : mismatch(name, "sum or mean", value);
       }},
      {"iters", 'n', count(&SweepOptions::iterations, 1)},
      {"warmup-iters", 'w', count(&SweepOptions::warmup, 0)},
      {"rounds", 'r', count(&SweepOptions::rounds, 1)},
      {"check", 'c',
       [](Text name, Text value, SweepOptions *options) {
         options->checks = value == "1";
         return value == "0" || value == "1" ? Status::ok()
                                             : mismatch(name, "0 or 1", value);
       }},
      {"ranks", 0,
       [](Text name, Text value, SweepOptions *options) {
         return parseCount(name, value, 1, 4096, &options->ranks.emplace());
       }},
      {"csv", 0, file(&SweepOptions::csv)},
      {"json", 0, file(&SweepOptions::json)}};
  return flags;
}

/// Finds the flag of `--name=value`, `-n value` or `-n20`, and splits it into a
/// name and an optional value.
static const SweepFlag *findFlag(const std::string &argument, std::string *name,
                                 std::optional<std::string> *value) {
  const bool isLong = argument.compare(0, 2, "--") == 0;
  const size_t end = isLong ? std::min(argument.find('='), argument.size()) : 2;
  *name = argument.substr(0, end);
  value->reset();
  if (end < argument.size())
    *value = argument.substr(isLong ? end + 1 : end);
  for (const SweepFlag &flag : sweepFlags())
    if (isLong ? *name == std::string("--") + flag.longName
               : flag.shortName && *name == std::string("-") + flag.shortName)
      return &flag;
  return nullptr;
}

static Status unknownFlag(const std::string &name) {
  std::vector<std::string_view> known = {"help"};
  for (const SweepFlag &flag : sweepFlags())
    known.push_back(flag.longName);
  std::string_view bare = name;
  bare.remove_prefix(std::min(bare.find_first_not_of('-'), bare.size()));
  // A single letter resembles any other.
  return error(DDPHOOK_INVALID_ARGUMENT, "unknown flag '%s'%s", name.c_str(),
               bare.size() < 2 ? "" : didYouMean(bare, known, "--").c_str());
}

Status bench::parseSweepOptions(const std::vector<std::string> &arguments,
                                SweepOptions *options) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string &argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      options->wantsHelp = true;
      return Status::ok();
    }
    if (argument.size() < 2 || argument[0] != '-')
      return error(DDPHOOK_INVALID_ARGUMENT,
                   "expected an option of sweep, but got '%s'",
                   argument.c_str());
    std::string name;
    std::optional<std::string> value;
    const SweepFlag *flag = findFlag(argument, &name, &value);
    if (!flag)
      return unknownFlag(name);
    if (!value) {
      if (++i == arguments.size())
        return error(DDPHOOK_INVALID_ARGUMENT,
                     "expected a value after %s, but got nothing",
                     name.c_str());
      value = arguments[i];
    }
    DDPHOOK_RETURN_IF_ERROR(flag->set(name, *value, options));
  }
  if (options->minBytes > options->maxBytes)
    return error(DDPHOOK_INVALID_ARGUMENT,
                 "expected --min-bytes to be at most --max-bytes, but got %lld "
                 "and %lld",
                 static_cast<long long>(options->minBytes),
                 static_cast<long long>(options->maxBytes));
  if (options->stepBytes > 0 &&
      (options->maxBytes - options->minBytes) / options->stepBytes >=
          kMostSizes)
    return error(DDPHOOK_INVALID_ARGUMENT,
                 "expected at most %lld sizes, but got --step-bytes=%lld",
                 static_cast<long long>(kMostSizes),
                 static_cast<long long>(options->stepBytes));
  return Status::ok();
}

std::vector<int64_t> SweepOptions::sizes() const {
  std::vector<int64_t> result;
  for (int64_t size = minBytes; size <= maxBytes;
       size = stepBytes > 0 ? size + stepBytes : size * factor)
    result.push_back(size);
  return result;
}

std::string SweepOptions::fingerprint() const {
  std::ostringstream text;
  text << "bytes " << minBytes << " to " << maxBytes << " by factor " << factor
       << " or step " << stepBytes << ", " << (isMean ? "mean" : "sum")
       << ", iterations " << iterations << ", warm-up " << warmup << ", rounds "
       << rounds << ", check " << checks << ", types";
  for (Dtype dtype : dtypes)
    text << ' ' << dtypeName(dtype);
  text << ", hooks";
  for (const SweepHook &hook : hooks)
    text << ' ' << hook.name;
  return text.str();
}
