//===- torch_process.h - PyTorch as the baseline ----------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Talks to torch_hooks.py, which runs PyTorch's hooks on two ranks and waits
// idle in between, so that its measurements alternate with ours.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_TORCH_PROCESS_H
#define DDPHOOK_BENCH_TORCH_PROCESS_H

#include "base/status.h"
#include "measure.h"
#include "options.h"

#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

namespace ddphook::bench {

/// What one command gave.
struct TorchAnswer {
  std::vector<double> seconds;
  uint64_t checksum = 0;
  /// What a job that cannot be compared bit by bit says about its result.
  std::vector<double> values;
};

class TorchProcess {
public:
  /// Starts torch_hooks.py with the interpreter that `options` names. When
  /// there is none, *process stays empty.
  static Status start(const Options &options,
                      std::unique_ptr<TorchProcess> *process);
  /// The same with another script beside it, which speaks as it does.
  static Status start(const Options &options, const std::string &script,
                      const std::vector<std::string> &arguments,
                      std::unique_ptr<TorchProcess> *process);
  ~TorchProcess();

  const std::string &version() const { return torchVersion; }

  /// Runs `job` on `kind` (see torch_hooks.py) and gives the bits of its result
  /// and, per repetition, the time of the slowest rank.
  Status run(const std::string &job, const std::string &kind, Caches caches,
             int repetitions, TorchAnswer *answer);

private:
  TorchProcess() = default;
  Status ask(const std::string &line, std::string *reply);

  pid_t pid = -1;
  int toChild = -1, fromChild = -1;
  std::string received, torchVersion;
};

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_TORCH_PROCESS_H
