//===- local_work.h - timing of work in one thread --------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Measures work of one thread alternately with PyTorch's equivalent, and with
// plain copies of as many bytes.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_LOCAL_WORK_H
#define DDPHOOK_BENCH_LOCAL_WORK_H

#include "report.h"
#include "torch_process.h"

#include <functional>
#include <string>
#include <vector>

namespace ddphook::bench {

/// Work to time, and its name in PyTorch's script.
struct Work {
  std::string name;
  /// Bytes read and written, in memory or caches.
  int64_t bytes;
  std::function<void()> run;
  /// Job and kind of torch_hooks.py; empty if PyTorch has no equivalent.
  std::string torchJob = {}, torchKind = {};
  /// The work that copies as many bytes; empty for the copies themselves.
  std::string copy = {};
};

/// Measures all of `works` with cold and with warm caches, adds a section with
/// that title to the report, and prints it. `torch` may be null.
Status measureWorks(std::string title, const std::vector<Work> &works,
                    const Options &options, TorchProcess *torch,
                    Report &report);

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_LOCAL_WORK_H
