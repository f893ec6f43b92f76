//===- bench_allreduce.cpp - ddphook-bench allreduce ----------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The sum alone, with as many elements as the bucket, in three types.
//
//===----------------------------------------------------------------------===//
#include "bench_collective.h"

using namespace ddphook;
using namespace ddphook::bench;

Status bench::benchAllReduce(const Options &options, TorchProcess *torch,
                             Report &report) {
  for (int size : options.ranks) {
    // PyTorch uses two ranks; the sum of two has one order of additions.
    TorchProcess *baseline = size == 2 ? torch : nullptr;
    std::vector<CollectiveWork> works;
    for (Dtype type : {Dtype::F32, Dtype::F16, Dtype::BF16}) {
      CollectiveWork work{dtypeName(type),
                          {options.elements(), type, std::nullopt, false},
                          std::nullopt,
                          "reduce",
                          dtypeName(type)};
      if (size == 2)
        work.expected = expectedOfTwo(options.elements(), type, false);
      works.push_back(work);
    }
    std::unique_ptr<RankPool> pool;
    DDPHOOK_RETURN_IF_ERROR(RankPool::start(size, options.elements(), &pool));
    Section &section =
        report.addSection("all-reduce, " + std::to_string(size) +
                              " ranks as processes; GB/s of payload",
                          {"Gloo", "PyTorch"});
    DDPHOOK_RETURN_IF_ERROR(measureCollectives(
        works, *pool, baseline, size == 2 ? options.rounds : 2,
        size == 2 ? std::vector<Caches>{Caches::Cold, Caches::Warm}
                  : std::vector<Caches>{Caches::Cold},
        section, report));
    report.print(section);
  }
  return Status::ok();
}
