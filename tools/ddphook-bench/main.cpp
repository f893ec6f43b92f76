// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Benchmarks of the runtime: `sweep` for the user's machines and networks. All
// other subcommands verify their results, then measure them against baselines.

#include "bench.h"

#include "kernels.h"
#include "local_job.h"
#include "tool_version.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>

using namespace ddphook;
using namespace ddphook::bench;

namespace {

struct Command {
  const char *name, *help;
  Status (*run)(Rank &rank);
  /// Sizes of jobs to run it in.
  std::vector<int> ranks;
};

const std::vector<Command> kCommands = {
    {"cast",
     "casts, and fp16 and bf16 hooks in a group of one",
     benchCast,
     {1}},
    {"encode", "int8, int4 and fp8 hooks in a group of one", benchEncode, {1}},
    {"topk", "the topk hook in a group of one", benchTopK, {1}},
    {"powersgd", "PowerSGD's local work", benchPowerSgd, {1}},
    {"allreduce",
     "all-reduces over shared memory and Gloo",
     benchAllReduce,
     {2, 4}},
    {"hooks", "whole hooks over shared memory and Gloo", benchHooks, {2}},
    {"start", "the host's time to start a collective", benchStart, {2}},
    {"join", "joining and leaving a job", benchJoin, {2, 4}},
    {"steps", "steps of one all-reduce", benchSteps, {2, 4}},
    {"save", "saving and loading checkpoints", benchSave, {1, 2}},
};

/// Runs a benchmark in a job of new processes.
Status run(const Command &command, int ranks, const Options &options,
           Report &report) {
  LocalJob job;
  DDPHOOK_TRY(LocalJob::prepare(ranks, &job));
  RankGroupOptions group;
  group.ranks = ranks;
  group.body = [&](int32_t number, RankReport &alive) {
    job.enter(number);
    if (options.device != "host") {
      // Ranks of different hosts may use one GPU.
      ::setenv("NCCL_HOSTID", ("host " + std::to_string(number)).c_str(), 1);
      ::setenv("NCCL_SOCKET_IFNAME", "lo", /*overwrite=*/0);
    }
    Rank rank(options, ranks, report, alive);
    DDPHOOK_TRY(rank.join());
    Status status = command.run(rank);
    if (!status.isOk())
      return rank.fail(std::move(status));
    return rank.isFirst() ? report.save() : Status::ok();
  };
  DDPHOOK_TRY(runRankGroup(group).status);
  return report.load();
}

} // namespace

int main(int argc, char **argv) {
  Arguments arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments[0] == "sweep")
    return benchSweep({arguments.begin() + 1, arguments.end()});
  Options options;
  if (const char *python = std::getenv("DDPHOOK_TEST_PYTHON"))
    options.python = python;
  bool helpWanted = false, versionWanted = false;
  const std::vector<Flag> flags = {
      {0, "mib", "SIZE", "size of the f32 bucket in MiB (default 25)",
       toNumber(&options.mib, 1.0 / 1024, 4096)},
      {0, "rounds", "N", "alternations between works (default 3)",
       toInt(&options.rounds, 1, 1000)},
      {0, "threads", "N", "threads that a rank computes with (default 1)",
       toInt(&options.threads, 1, 1024)},
      {0, "ranks", "LIST", "sizes of the jobs, in place of those above",
       toList(&options.ranks,
              [&](const std::string &flag, const std::string &item) {
                return toInt(&options.ranks.emplace_back(), 1, 64)(flag, item);
              })},
      {0, "device", "NAME", "backend to measure (default host)",
       toText(&options.device, "the name of a backend")},
      {0, "python", "PATH",
       "interpreter with PyTorch, for a baseline (default: the environment "
       "variable DDPHOOK_TEST_PYTHON, else there is none)",
       toText(&options.python)},
      {0, "directory", "DIR", "directory for checkpoints (default /tmp)",
       toText(&options.directory, "the name of a directory")},
      {0, "json", "FILE", "also write the results there",
       toText(&options.json)},
      {0, "help", "", "print this", toTrue(&helpWanted)},
      {0, "version", "", "print versions", toTrue(&versionWanted)}};
  std::vector<const Command *> commands;
  Status status = parseFlags(arguments, flags, [&](const std::string &word) {
    std::vector<std::string_view> known = {"sweep"};
    for (const Command &command : kCommands) {
      if (word == command.name) {
        commands.push_back(&command);
        return Status::ok();
      }
      known.emplace_back(command.name);
    }
    return invalid("unknown subcommand '%s'%s", word.c_str(),
                   didYouMean(word, known).c_str());
  });
  if (!status.isOk())
    return fail(status, "ddphook-bench --help");
  if (versionWanted) {
    std::printf("%s", describeVersion("ddphook-bench").c_str());
    return 0;
  }
  if (helpWanted) {
    std::printf(
        "usage: ddphook-bench sweep [OPTIONS]\n"
        "       ddphook-bench SUBCOMMAND… [OPTIONS]\n"
        "\n"
        "  sweep           all-reduces of growing buffers, on the "
        "ranks of any launcher;\n"
        "                  ddphook-bench sweep --help\n"
        "\n"
        "On this machine, next to copies and PyTorch; by default all of "
        "these:\n");
    for (const Command &command : kCommands)
      std::printf("  %-15s %s\n", command.name, command.help);
    std::printf("\n%s", helpOf(flags).c_str());
    return 0;
  }

  if (commands.empty())
    for (const Command &command : kCommands)
      commands.push_back(&command);
  Report report(options.json);
  Json &json = report.json();
  json["command"] = "ddphook-bench";
  for (const std::string &argument : arguments)
    if (argument.rfind("--json", 0) != 0 && argument.rfind("--python", 0) != 0)
      json["command"].get_ref<std::string &>() += " " + argument;
  char date[16] = "";
  const std::time_t today = std::time(nullptr);
  std::strftime(date, sizeof(date), "%Y-%m-%d", std::localtime(&today));
  json["date"] = date;
  double load = 0;
  (void)getloadavg(&load, 1);
  json["load"] = load;
  json["mib"] = options.mib;
  json["rounds"] = options.rounds;
  json["threads"] = options.threads;
  json["device"] = options.device;
  json["processors"] = std::thread::hardware_concurrency();
  json["kernels"] = host::kernelTargetName();
  std::printf("bucket: %g MiB of f32; kernels: %s; processors: %u\n%s",
              options.mib, host::kernelTargetName(),
              std::thread::hardware_concurrency(),
              options.python.empty()
                  ? "NO PyTorch baseline in this run: name an interpreter with "
                    "--python or DDPHOOK_TEST_PYTHON\n"
                  : "");
  for (const Command *command : commands)
    for (int ranks : options.ranks.empty() ? command->ranks : options.ranks) {
      status =
          withContext(run(*command, ranks, options, report), command->name);
      if (!status.isOk())
        return fail(status);
    }
  return report.allRight()
             ? 0
             : fail(internalError("a result is wrong, see above"));
}
