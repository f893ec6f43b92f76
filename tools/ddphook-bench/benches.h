//===- benches.h - the subcommands of ddphook-bench -------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One function per subcommand, each in a separate file. Each verifies its
// results first, adds to the report, and prints its table.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_BENCHES_H
#define DDPHOOK_BENCH_BENCHES_H

#include "options.h"
#include "report.h"
#include "torch_process.h"

namespace ddphook::bench {

/// `torch` may be null: then there is no PyTorch baseline.
using BenchFunction = Status (*)(const Options &options, TorchProcess *torch,
                                 Report &report);

/// Casts and the local work of a hook in one thread.
Status benchCast(const Options &options, TorchProcess *torch, Report &report);
/// Codes of few bits, and the local work of the hooks that send them.
Status benchEncode(const Options &options, TorchProcess *torch, Report &report);
/// The all-reduce alone, over every transport.
Status benchAllReduce(const Options &options, TorchProcess *torch,
                      Report &report);
/// Whole hooks on two ranks.
Status benchHooks(const Options &options, TorchProcess *torch, Report &report);
/// The local work of PowerSGD.
Status benchPowerSgd(const Options &options, TorchProcess *torch,
                     Report &report);
/// The host's time for collectives that a device runs. It forks ranks, so it
/// must run before this process uses a device.
Status benchHostTime(const Options &options, Report &report);
/// Kernels and local work on the device of a backend.
Status benchDevice(const Options &options, TorchProcess *torch, Report &report);
/// The compiler's passes; needs no ranks and no PyTorch.
Status benchCompile(const Options &options, TorchProcess *torch,
                    Report &report);

/// `ddphook-bench sweep`: has separate options, and returns the exit status.
int benchSweep(const std::vector<std::string> &arguments);

/// `ddphook-bench torch`: becomes `python -m ddphook bench` with the same
/// arguments; returns only if that is impossible.
int benchTorch(const std::vector<std::string> &arguments);

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_BENCHES_H
