// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Talks to torch_hooks.py, which measures PyTorch's hooks and is idle in
// between: one JSON object per line, each way.

#pragma once

#include "report.h"

#include <memory>
#include <sched.h>
#include <sys/types.h>

namespace ddphook::bench {

class TorchProcess {
public:
  /// Starts torch_hooks.py, on all processors of the parent process.
  static Status start(const std::string &python, const Json &options,
                      std::unique_ptr<TorchProcess> *process);
  ~TorchProcess();

  const std::string &version() const { return torchVersion; }

  /// Adds the time of the slowest rank for each repetition.
  Status run(const Json &job, Samples *seconds);

private:
  TorchProcess() = default;
  Status ask(const std::string &line, Json *reply);

  pid_t pid = -1;
  int channel = -1;
  std::string received, torchVersion;
};

} // namespace ddphook::bench
