//===- torch_process.h - PyTorch as the baseline ----------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Talks to torch_hooks.py, which runs PyTorch's hooks on two ranks and is idle
// in between, so that its measurements alternate with ours.
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

/// The answer to one command.
struct TorchAnswer {
  std::vector<double> seconds;
  uint64_t checksum = 0;
  /// A description of the result for a job that cannot be compared bit by bit.
  std::vector<double> values;
};

class TorchProcess {
public:
  /// Starts torch_hooks.py with the interpreter that `options` names. Without
  /// one, *process stays empty.
  static Status start(const Options &options,
                      std::unique_ptr<TorchProcess> *process);
  /// Starts another script in the same directory with the same protocol.
  static Status start(const Options &options, const std::string &script,
                      const std::vector<std::string> &arguments,
                      std::unique_ptr<TorchProcess> *process);
  ~TorchProcess();

  const std::string &version() const { return torchVersion; }

  /// Runs `job` on `kind` (see torch_hooks.py). Returns the checksum of its
  /// result and, per repetition, the time of the slowest rank.
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
