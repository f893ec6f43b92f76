//===- sweep_rank.h - one rank of a sweep -----------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A member of the job that measures all-reduces through a backend, with the
// store, connections and transport of a compiled step.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_SWEEP_RANK_H
#define DDPHOOK_BENCH_SWEEP_RANK_H

#include "job/bootstrap.h"
#include "sweep_options.h"
#include "sweep_result.h"

#include <functional>

namespace ddphook::bench {

/// Joins the job at `place` and measures. Calls `onBegin` when all ranks have
/// joined, whose failure ends the job, and `onRow` after every row. All ranks
/// get the same numbers.
Status runSweepRank(const SweepOptions &options, const Bootstrap &place,
                    const std::function<Status(const SweepResult &)> &onBegin,
                    const std::function<void(const SweepResult &)> &onRow,
                    SweepResult *result);

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_SWEEP_RANK_H
