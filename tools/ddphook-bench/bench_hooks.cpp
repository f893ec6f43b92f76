//===- bench_hooks.cpp - ddphook-bench hooks ------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whole hooks on two ranks, from an f32 bucket to its average in place: the
// calls that compiled code makes, against PyTorch's hooks from their call to
// the future's end.
//
//===----------------------------------------------------------------------===//
#include "bench_collective.h"

using namespace ddphook;
using namespace ddphook::bench;

Status bench::benchHooks(const Options &options, TorchProcess *torch,
                         Report &report) {
  const int64_t n = options.elements();
  std::vector<CollectiveWork> works;
  for (auto [name, wire] : {std::pair<const char *, std::optional<Dtype>>(
                                "allreduce", std::nullopt),
                            {"fp16", Dtype::F16},
                            {"bf16", Dtype::BF16}})
    works.push_back({std::string(name) + " hook",
                     {n, Dtype::F32, wire, true},
                     expectedOfTwo(n, wire.value_or(Dtype::F32), true),
                     "hook",
                     name});
  std::unique_ptr<RankPool> pool;
  DDPHOOK_RETURN_IF_ERROR(RankPool::start(2, n, &pool));
  Section &section =
      report.addSection("whole hooks, 2 ranks as processes; GB/s of gradients",
                        {"Gloo", "PyTorch"});
  DDPHOOK_RETURN_IF_ERROR(
      measureCollectives(works, *pool, torch, options.rounds,
                         {Caches::Cold, Caches::Warm}, section, report));
  report.print(section);
  return Status::ok();
}
