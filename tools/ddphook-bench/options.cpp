//===- options.cpp - command line of ddphook-bench ------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See options.h.
//
//===----------------------------------------------------------------------===//
#include "options.h"

#include "base/suggestion.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

using namespace ddphook;
using namespace ddphook::bench;

const char *bench::optionsHelp() {
  return "  --mib=SIZE      size of the f32 bucket in MiB (default 25)\n"
         "  --rounds=N      alternations between ours and PyTorch (default 3)\n"
         "  --threads=N     threads of powersgd's local work (default 1)\n"
         "  --ranks=LIST    group sizes of allreduce (default 2,4)\n"
         "  --python=PATH   interpreter with PyTorch, for the baseline; "
         "default:\n"
         "                  the environment variable DDPHOOK_TEST_PYTHON, "
         "else\n"
         "                  there is no baseline\n"
         "  --device=NAME   backend that the subcommand device measures "
         "(default cuda)\n"
         "  --json=FILE     also write the results there\n"
         "  --version       print versions\n";
}

static Status parseNumber(const std::string &name, const std::string &text,
                          double least, double most, double *value) {
  char *end = nullptr;
  *value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(*value >= least && *value <= most))
    return error(DDPHOOK_INVALID_ARGUMENT,
                 "expected --%s to be a number from %g to %g, but got '%s'",
                 name.c_str(), least, most, text.c_str());
  return Status::ok();
}

static Status parseInt(const std::string &name, const std::string &text,
                       int least, int most, int *value) {
  double number;
  DDPHOOK_RETURN_IF_ERROR(parseNumber(name, text, least, most, &number));
  *value = static_cast<int>(number);
  if (*value != number)
    return error(DDPHOOK_INVALID_ARGUMENT,
                 "expected --%s to be a whole number, but got '%s'",
                 name.c_str(), text.c_str());
  return Status::ok();
}

static Status parseRanks(const std::string &text, std::vector<int> *ranks) {
  ranks->clear();
  std::stringstream list(text);
  std::string item;
  while (std::getline(list, item, ',')) {
    int size;
    DDPHOOK_RETURN_IF_ERROR(parseInt("ranks", item, 2, 64, &size));
    ranks->push_back(size);
  }
  if (ranks->empty())
    return error(DDPHOOK_INVALID_ARGUMENT,
                 "expected --ranks to list group sizes, but got ''");
  return Status::ok();
}

std::string bench::didYouMean(std::string_view name,
                              const std::vector<std::string_view> &known,
                              const std::string &prefix) {
  const std::string_view meant = suggestName(name, known);
  return meant.empty() ? std::string()
                       : ", did you mean " + prefix + std::string(meant) + "?";
}

/// Reports an unknown flag, with or without a value.
static Status checkFlag(const std::string &argument, const std::string &name) {
  static const std::vector<std::string_view> known = {
      "mib",    "rounds", "threads", "ranks",  "python",
      "device", "json",   "help",    "version"};
  if (std::find(known.begin(), known.end(), name) != known.end())
    return Status::ok();
  return error(DDPHOOK_INVALID_ARGUMENT, "unknown flag '%s'%s",
               argument.c_str(), didYouMean(name, known, "--").c_str());
}

Status bench::parseOptions(int argc, char **argv,
                           const std::vector<std::string> &known,
                           Options *options, bool *helpWanted,
                           bool *versionWanted) {
  *helpWanted = *versionWanted = false;
  if (const char *python = std::getenv("DDPHOOK_TEST_PYTHON"))
    options->python = python;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      *helpWanted = true;
      return Status::ok();
    }
    if (argument == "--version") {
      *versionWanted = true;
      return Status::ok();
    }
    if (argument.compare(0, 2, "--") != 0) {
      if (std::find(known.begin(), known.end(), argument) == known.end())
        return error(
            DDPHOOK_INVALID_ARGUMENT, "unknown subcommand '%s'%s",
            argument.c_str(),
            didYouMean(argument, {known.begin(), known.end()}).c_str());
      options->commands.push_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals - 2);
    DDPHOOK_RETURN_IF_ERROR(checkFlag(argument, name));
    if (equals == std::string::npos)
      return error(DDPHOOK_INVALID_ARGUMENT,
                   "expected --%s=VALUE, but got '%s'", name.c_str(),
                   argument.c_str());
    const std::string value = argument.substr(equals + 1);
    if (name == "mib")
      DDPHOOK_RETURN_IF_ERROR(
          parseNumber(name, value, 1.0 / 1024, 4096, &options->mib));
    else if (name == "rounds")
      DDPHOOK_RETURN_IF_ERROR(parseInt(name, value, 1, 1000, &options->rounds));
    else if (name == "threads")
      DDPHOOK_RETURN_IF_ERROR(
          parseInt(name, value, 1, 1024, &options->threads));
    else if (name == "ranks")
      DDPHOOK_RETURN_IF_ERROR(parseRanks(value, &options->ranks));
    else if (name == "python")
      options->python = value;
    else if (name == "device")
      options->device = value;
    else if (name == "json")
      options->json = value;
    else
      return error(DDPHOOK_INVALID_ARGUMENT,
                   "expected no value after --%s, but got '%s'", name.c_str(),
                   value.c_str());
  }
  return Status::ok();
}
