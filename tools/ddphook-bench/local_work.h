//===- local_work.h - what one thread does, timed ---------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pieces of work of one thread, measured in turns with each other and with what
// PyTorch does for the same, beside plain copies that move as many bytes.
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

/// Something to time, and what PyTorch calls it.
struct Work {
  std::string name;
  /// Read and written, of memory or of caches.
  int64_t bytes;
  std::function<void()> run;
  /// Job and kind of torch_hooks.py; empty: PyTorch has no such thing.
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
