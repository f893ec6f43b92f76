// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "run_options.h"

#include "base/suggestion.h"
#include "file_pattern.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

using namespace ddphook;

const char *const ddphook::runOptionsHelp =
    R"(  --entry=NAME       entry point to run
  --ranks=N          number of processes to start (default 1); in a job that a
                     launcher started, the world size
  --device=NAME      device of the steps: host (default), cuda, or another backend;
                     DDPHOOK_BACKEND does the same
  --steps=K          run steps 0 … K-1 (default 1)
  --inputs=PATTERN   safetensors files with the arguments, arg0, arg1, …;
                     {rank} and {step} are replaced by numbers
  --inputs=random:SEED
                     draw the arguments at random
  --outputs=PATTERN  safetensors files to write, with result0, result1, …
  --free-space=ignore
                     run even if the outputs are larger than the free space
  --progress=on|off  whether to report the current step on standard error;
                     default: only on a terminal
  --quiet            no progress and no summary
  --state-in=PATTERN initial states: a checkpoint, or safetensors files with
                     tensors that have the states' names
  --state-in=strict:PATTERN
                     the same, but fail unless every state of every rank gets
                     its saved value
  --state-in=partial:PATTERN
                     the same, but states that the checkpoint lacks get their
                     initial values, and parts that do not exist in the module
                     are dropped
  --state-out=PATTERN
                     save the states after the last step, as a checkpoint
  --trace=FILE       write a trace of all ranks, for Perfetto; DDPHOOK_TRACE does
                     the same
  --help, --version  print this, or versions
)";

/// Returns the flags with values, without their dashes.
static const std::vector<std::string_view> &flagNames() {
  static const std::vector<std::string_view> names = {
      "device", "entry",    "free-space", "inputs", "outputs", "progress",
      "ranks",  "state-in", "state-out",  "steps",  "trace"};
  return names;
}
static constexpr std::string_view quietFlag = "quiet";

/// Parses a decimal number without sign, spaces or any other characters.
template <typename Number>
static bool parseNumber(const std::string &text, Number &number) {
  const char *end = text.data() + text.size();
  auto [stop, errorCode] = std::from_chars(text.data(), end, number);
  return errorCode == std::errc() && stop == end && text[0] != '-';
}

static Status badValue(const std::string &flag, const std::string &expected,
                       const std::string &got) {
  return invalid("expected --" + flag + " to be " + expected + ", but got '" +
                 got + "'");
}

static Status setFlag(const std::string &flag, const std::string &value,
                      RunOptions &options) {
  if (value.empty())
    return invalid("--" + flag + " has an empty value");
  for (auto [name, option] : {std::pair("entry", &options.entry),
                              std::pair("device", &options.device),
                              std::pair("trace", &options.trace),
                              std::pair("outputs", &options.outputs),
                              std::pair("state-out", &options.stateOut)})
    if (flag == name) {
      *option = value;
      return Status::ok();
    }
  if (flag == "ranks") {
    int32_t ranks;
    if (!parseNumber(value, ranks) || ranks < 1 || ranks > maxLocalRanks)
      return badValue(
          flag, "a number from 1 to " + std::to_string(maxLocalRanks), value);
    options.ranks = ranks;
    return Status::ok();
  }
  if (flag == "steps") {
    if (!parseNumber(value, options.steps) || options.steps < 1)
      return badValue(flag, "a positive number", value);
    return Status::ok();
  }
  if (flag == "free-space") {
    if (value != "check" && value != "ignore")
      return badValue(flag, "check or ignore", value);
    options.checksFreeSpace = value == "check";
    return Status::ok();
  }
  if (flag == "progress") {
    if (value != "on" && value != "off")
      return badValue(flag, "on or off", value);
    options.progress = value == "on" ? ProgressMode::On : ProgressMode::Off;
    return Status::ok();
  }
  if (flag == "state-in") {
    options.stateIn = value;
    for (auto [prefix, isGiven] :
         {std::pair("strict:", &options.isStateStrict),
          std::pair("partial:", &options.isStatePartial)}) {
      *isGiven = value.rfind(prefix, 0) == 0;
      if (*isGiven)
        options.stateIn = value.substr(std::strlen(prefix));
      if (options.stateIn.empty())
        return invalid(std::string("--state-in=") + prefix +
                       " lacks a pattern of files");
    }
    return Status::ok();
  }
  constexpr char randomPrefix[] = "random:";
  const bool isRandom = value.rfind(randomPrefix, 0) == 0;
  // A file of that name would be the same for all ranks and steps.
  const bool lacksSeed = value == "random";
  if (!isRandom && !lacksSeed) {
    options.inputs = value;
    return Status::ok();
  }
  uint64_t seed;
  if (lacksSeed || !parseNumber(value.substr(sizeof(randomPrefix) - 1), seed))
    return invalid("expected --inputs=random:SEED with a seed from 0 to "
                   "2^64-1, but got '" +
                   value + "'");
  options.randomSeed = seed;
  return Status::ok();
}

Status ddphook::parseRunOptions(const std::vector<std::string> &arguments,
                                RunOptions &options,
                                std::vector<std::string> &rest) {
  const std::vector<std::string_view> &known = flagNames();
  std::set<std::string> given;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string &argument = arguments[i];
    size_t equals = argument.find('=');
    std::string flag = argument.substr(0, equals);
    const bool isFlag = flag.rfind("--", 0) == 0;
    if (isFlag)
      flag.erase(0, 2);
    if (isFlag && flag == quietFlag) {
      if (equals != std::string::npos)
        return invalid("--quiet takes no value, but got '" + argument + "'");
      options.isQuiet = true;
      continue;
    }
    if (!isFlag || std::find(known.begin(), known.end(), flag) == known.end()) {
      rest.push_back(argument);
      continue;
    }
    if (!given.insert(flag).second)
      return invalid("--" + flag + " is given twice");
    if (equals == std::string::npos && i + 1 == arguments.size())
      return invalid("--" + flag + " needs a value");
    DDPHOOK_TRY(setFlag(flag,
                        equals == std::string::npos
                            ? arguments[++i]
                            : argument.substr(equals + 1),
                        options));
  }
  if (!given.count("entry"))
    return invalid("--entry=NAME is missing");
  return Status::ok();
}

Status ddphook::unknownFlag(const std::string &argument,
                            const std::vector<std::string_view> &others) {
  std::vector<std::string_view> known = flagNames();
  known.insert(known.end(), others.begin(), others.end());
  known.insert(known.end(), {quietFlag, "help", "version"});
  std::string_view name = argument;
  name = name.substr(0, name.find('='));
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  const std::string_view meant = suggestName(name, known);
  std::string text = "unknown flag '" + argument + "'";
  if (!meant.empty())
    text.append(", did you mean --").append(meant).append("?");
  return invalid(text);
}

std::string ddphook::chooseDevice(const RunOptions &options) {
  if (!options.device.empty())
    return options.device;
  const char *variable = std::getenv("DDPHOOK_BACKEND");
  return variable && *variable ? variable : "host";
}

/// Refuses it if `writer` replaces a file that `other` names. Both are patterns
/// of files that every rank uses once, or in every step.
static Status checkOverwriting(const char *flag, const FileSet &writer,
                               const char *otherFlag, const FileSet &other) {
  if (writer.pattern.empty() || other.pattern.empty())
    return Status::ok();
  std::optional<Collision> found = findCollision(writer, other);
  if (!found)
    return Status::ok();
  return invalid(
      std::string(flag) + " would overwrite " + otherFlag + " '" +
      expandPattern(other.pattern, found->second.rank, found->second.step) +
      "'");
}

static std::string print(const FilePlace &place) {
  return concat("rank ", place.rank, " in step ", place.step);
}

/// Refuses several ranks or steps, `count` of `what`, that share a file.
static Status checkPlaceholder(const char *flag, const std::string &pattern,
                               const std::string &what, int64_t count) {
  const std::string placeholder = "{" + what + "}";
  if (count <= 1 || pattern.find(placeholder) != std::string::npos)
    return Status::ok();
  return invalid(concat("expected ", placeholder, " in ", flag, " with ", count,
                        " ", what, "s, but got '", pattern, "'"));
}

static Status checkOutputs(const RunOptions &options, int32_t worldSize) {
  const std::string &outputs = options.outputs;
  if (outputs.empty())
    return Status::ok();
  DDPHOOK_TRY(checkPlaceholder("--outputs", outputs, "rank", worldSize));
  DDPHOOK_TRY(checkPlaceholder("--outputs", outputs, "step", options.steps));
  const FileSet written = {outputs, worldSize, options.steps};
  if (std::optional<Collision> found = findCollision(written))
    return invalid(
        "expected --outputs to give every file its own name, but with '" +
        outputs + "' " + print(found->first) + " and " + print(found->second) +
        " both write '" +
        expandPattern(outputs, found->first.rank, found->first.step) + "'");
  DDPHOOK_TRY(checkOverwriting("--outputs", written, "--inputs",
                               {options.inputs, worldSize, options.steps}));
  return checkOverwriting("--outputs", written, "--state-in",
                          {options.stateIn, worldSize, 1});
}

/// States are read once and written once, whatever the number of steps.
static Status checkStates(const RunOptions &options, int32_t worldSize) {
  for (const auto &[flag, pattern] :
       {std::pair("--state-in", options.stateIn),
        std::pair("--state-out", options.stateOut)})
    if (pattern.find("{step}") != std::string::npos)
      return invalid(std::string("expected no {step} in ") + flag +
                     ", but got '" + pattern + "'");
  const std::string &out = options.stateOut;
  if (out.empty())
    return Status::ok();
  DDPHOOK_TRY(checkPlaceholder("--state-out", out, "rank", worldSize));
  const FileSet saved = {out, worldSize, 1};
  for (const std::string &other : {options.inputs, options.outputs})
    DDPHOOK_TRY(checkOverwriting("--state-out", saved,
                                 "other files of the run,",
                                 {other, worldSize, options.steps}));
  return Status::ok();
}

Status ddphook::checkPatterns(const RunOptions &options, int32_t worldSize) {
  DDPHOOK_TRY(checkOutputs(options, worldSize));
  return checkStates(options, worldSize);
}
