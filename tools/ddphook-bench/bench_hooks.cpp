//===- bench_hooks.cpp - ddphook-bench hooks ------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whole hooks on two ranks, from an f32 bucket to its average in place: the
// calls of compiled code, against PyTorch's hooks from the call until the
// future is done. PowerSGD's result goes to a separate array, as in compiled
// steps.
//
//===----------------------------------------------------------------------===//
#include "bench_collective.h"

#include "powersgd_bucket.h"

#include <nlohmann/json.hpp>

using namespace ddphook;
using namespace ddphook::bench;

static constexpr int kRepetitions = 5;
static constexpr Wire kWires[] = {Wire::SharedMemory, Wire::Gloo};

static Status measurePowerSgd(const Options &options, int64_t rank,
                              RankPool &pool, TorchProcess *torch,
                              Section &section, Report &report) {
  const int64_t n = options.elements();
  const std::string name = "PowerSGD, rank " + std::to_string(rank);
  const std::string kind = nlohmann::json{
      {"shapes", layers(n).tensors},
      {"rank", rank},
      {"together", true}}.dump();
  TorchAnswer answer;
  if (torch)
    DDPHOOK_RETURN_IF_ERROR(
        torch->run("powersgd", kind, Caches::Warm, 0, &answer));
  for (Wire wire : kWires) {
    RankPool::Answer ours;
    DDPHOOK_RETURN_IF_ERROR(
        pool.runPowerSgd(wire, rank, Caches::Warm, 0, &ours));
    const std::string where = name + ", " + wireName(wire) + ": ";
    report.verified(where + "same bits on all ranks", ours.ranksAgree);
    if (torch)
      report.verified(where + "against PyTorch",
                      areNear(ours.values, answer.values));
  }
  for (Caches caches : {Caches::Cold, Caches::Warm}) {
    Samples samples[2], theirs;
    for (int round = 0; round < options.rounds; ++round) {
      for (Wire wire : kWires) {
        RankPool::Answer ours;
        DDPHOOK_RETURN_IF_ERROR(
            pool.runPowerSgd(wire, rank, caches, kRepetitions, &ours));
        samples[static_cast<int>(wire)].add(ours.seconds);
      }
      if (!torch)
        continue;
      DDPHOOK_RETURN_IF_ERROR(
          torch->run("powersgd", kind, caches, kRepetitions, &answer));
      theirs.add(answer.seconds);
    }
    for (Wire wire : kWires) {
      Result &result = section.add(name + ", " + wireName(wire), caches, 4 * n);
      result.samples = samples[static_cast<int>(wire)];
      if (torch)
        result.speedups.emplace_back("PyTorch",
                                     theirs.median() / result.samples.median());
    }
    if (torch)
      section.add("  PyTorch: " + name, caches, 4 * n).samples = theirs;
  }
  return Status::ok();
}

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
  for (int64_t rank : {1, 2, 4, 8})
    DDPHOOK_RETURN_IF_ERROR(
        measurePowerSgd(options, rank, *pool, torch, section, report));
  report.print(section);
  return Status::ok();
}
