//===- main.cpp - ddphook-bench -------------------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Benchmarks of the runtime: `sweep` for the user's machines and networks,
// `torch` for the Python package. All other subcommands verify their results,
// then measure them against named baselines of the same run.
//
//===----------------------------------------------------------------------===//
#include "benches.h"

#include "kernels.h"
#include "tool_version.h"

#include <cstdio>
#include <thread>

using namespace ddphook;
using namespace ddphook::bench;

namespace {

struct Command {
  const char *name, *help;
  BenchFunction run;
  /// Runs when no subcommand is named.
  bool isDefault = true;
};

constexpr Command kCommands[] = {
    {"cast", "casts and a hook's local work, one thread", benchCast},
    {"encode", "codes of int8, int4 and fp8, and local work, one thread",
     benchEncode},
    {"allreduce", "all-reduce over shared memory and Gloo", benchAllReduce},
    {"hooks", "whole allreduce, fp16, bf16 and PowerSGD hooks on 2 ranks",
     benchHooks},
    {"powersgd", "PowerSGD's local work, one thread", benchPowerSgd},
    {"device", "kernels and hooks' local work on a device", benchDevice,
     /*isDefault=*/false},
#ifdef DDPHOOK_BENCH_HAS_COMPILER
    {"compile", "the compiler's passes on 1000 to 100000 gradients",
     benchCompile},
#endif
};

int fail(const Status &status) {
  std::fprintf(stderr, "ddphook-bench: %s\n", status.message().c_str());
  return 1;
}

} // namespace

int main(int argc, char **argv) {
  if (argc > 1 && std::string(argv[1]) == "sweep")
    return benchSweep({argv + 2, argv + argc});
  if (argc > 1 && std::string(argv[1]) == "torch")
    return benchTorch({argv + 2, argv + argc});
  Options options;
  std::vector<std::string> names = {"sweep", "torch"};
  for (const Command &command : kCommands)
    names.push_back(command.name);
  bool helpWanted, versionWanted;
  Status status =
      parseOptions(argc, argv, names, &options, &helpWanted, &versionWanted);
  if (!status.isOk()) {
    std::fprintf(stderr, "ddphook-bench: %s (see ddphook-bench --help)\n",
                 status.message().c_str());
    return 2;
  }
  if (versionWanted) {
    std::printf("%s", describeVersion("ddphook-bench").c_str());
    return 0;
  }
  if (helpWanted) {
    std::printf("usage: ddphook-bench sweep [OPTIONS]\n"
                "       ddphook-bench torch [OPTIONS]\n"
                "       ddphook-bench [SUBCOMMAND…] [OPTIONS]\n"
                "\n"
                "  sweep           all-reduces of growing buffers, on the "
                "ranks of any launcher;\n"
                "                  ddphook-bench sweep --help\n"
                "  torch           hooks in PyTorch's DistributedDataParallel, "
                "by the Python package;\n"
                "                  ddphook-bench torch --help\n"
                "\n"
                "Self-checks against PyTorch; without a subcommand, all of "
                "these except device run:\n");
    for (const Command &command : kCommands)
      std::printf("  %-15s %s\n", command.name, command.help);
    std::printf("\n%s", optionsHelp());
    return 0;
  }

  if (options.commands.empty())
    for (const Command &command : kCommands)
      if (command.isDefault)
        options.commands.emplace_back(command.name);

  Report report(options);
  std::unique_ptr<TorchProcess> torch;
  status = TorchProcess::start(options, &torch);
  if (!status.isOk())
    return fail(status);
  std::printf("bucket: %lld f32 elements (%g MiB); kernels: %s; processors: "
              "%u\n",
              static_cast<long long>(options.elements()), options.mib,
              host::kernelTargetName(), std::thread::hardware_concurrency());
  if (torch) {
    std::printf("baseline: PyTorch %s, measured alternately with ours\n",
                torch->version().c_str());
    report.setTorchVersion(torch->version());
  } else {
    std::printf("NO PyTorch baseline in this run: name an interpreter with "
                "--python or DDPHOOK_TEST_PYTHON\n");
  }
  for (const std::string &name : options.commands)
    for (const Command &command : kCommands)
      if (name == command.name) {
        status = withContext(command.run(options, torch.get(), report), name);
        if (!status.isOk())
          return fail(status);
      }
  status = report.writeJson();
  if (!status.isOk())
    return fail(status);
  return report.allRight()
             ? 0
             : fail(Status(DDPHOOK_INTERNAL, "a result is wrong, see above"));
}
