//===- bench_powersgd.cpp - ddphook-bench powersgd ------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// PowerSGD without its collectives: the calls of compiled code, with error
// feedback and warm start. Baselines are PyTorch's hook in a group of one with
// as many threads, and the best copy of 28 bytes per element in one thread. The
// three passes move that much: they read G and E and write M; read M; read M
// and write the result and E.
//
//===----------------------------------------------------------------------===//
#include "benches.h"

#include "kernels.h"
#include "powersgd_bucket.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <thread>

using namespace ddphook;
using namespace ddphook::bench;
using namespace ddphook::host;

namespace {

constexpr int kRepetitions = 5;
constexpr int64_t kBytesPerElement = 28;
/// The largest part of a bucket that completes all passes before the next part
/// starts, if that is measured.
constexpr int64_t kGroupElements = 8 << 18;

std::string sizeName(int64_t elements) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g MiB",
                static_cast<double>(elements) / (1 << 18));
  return text;
}

/// A bucket to time.
struct Work {
  std::string name;
  std::unique_ptr<PowerSgdBucket> bucket;
  std::string torchKind;
  /// Another order of the previous work: PyTorch is not measured again.
  bool isVariant = false;
};

Status verify(const Work &work, TorchProcess *torch, Report &report) {
  bool right = false;
  DDPHOOK_RETURN_IF_ERROR(checkFirstStep(*work.bucket, &right));
  report.verified(work.name + ": result and error", right);
  if (!torch)
    return Status::ok();
  TorchAnswer answer;
  DDPHOOK_RETURN_IF_ERROR(
      torch->run("powersgd", work.torchKind, Caches::Warm, 0, &answer));
  std::vector<double> ours;
  DDPHOOK_RETURN_IF_ERROR(work.bucket->describe(&ours));
  report.verified(work.name + " against PyTorch", areNear(ours, answer.values));
  return Status::ok();
}

Status measure(std::vector<Work> &works, const Options &options,
               TorchProcess *torch, Report &report, const std::string &title) {
  for (Work &work : works) {
    DDPHOOK_RETURN_IF_ERROR(work.bucket->prepare());
    DDPHOOK_RETURN_IF_ERROR(work.bucket->step());
    DDPHOOK_RETURN_IF_ERROR(verify(work, torch, report));
  }
  const int64_t n = works.front().bucket->elements();
  Buffer from(4 * n), to(4 * n);
  fillInput(from.as<float>(), n, 0);
  auto copy = [&] {
    for (int i = 0; i < 3; ++i)
      copyBytes(to.as<void>(), from.as<void>(), 4 * n, Stores::Streaming);
    copyBytes(to.as<void>(), from.as<void>(), 2 * n, Stores::Streaming);
  };
  Section &section = report.addSection(title, {"PyTorch"});
  CacheFlusher flusher;
  for (Caches caches : {Caches::Cold, Caches::Warm}) {
    Samples copied;
    std::vector<Samples> ours(works.size()), theirs(works.size());
    for (int round = 0; round < options.rounds; ++round) {
      auto time = [&](Samples &samples, const auto &body) {
        for (int i = 0; i < kRepetitions; ++i) {
          if (caches == Caches::Cold)
            flusher.flush();
          const double begin = now();
          body();
          samples.add({now() - begin});
        }
      };
      time(copied, copy);
      for (size_t w = 0; w < works.size(); ++w) {
        Status status;
        time(ours[w], [&] {
          if (status.isOk())
            status = works[w].bucket->step();
        });
        DDPHOOK_RETURN_IF_ERROR(status);
        if (!torch || works[w].isVariant)
          continue;
        TorchAnswer answer;
        DDPHOOK_RETURN_IF_ERROR(torch->run("powersgd", works[w].torchKind,
                                           caches, kRepetitions, &answer));
        theirs[w].add(answer.seconds);
      }
    }
    const int64_t bytes = kBytesPerElement * n;
    section.add("best copy of 28 bytes/element", caches, bytes).samples =
        copied;
    for (size_t w = 0, asked = 0; w < works.size(); ++w) {
      asked = works[w].isVariant ? asked : w;
      Result &result = section.add(works[w].name, caches, bytes);
      result.samples = ours[w];
      result.ofBestCopy = ours[w].median() / copied.median();
      if (!torch)
        continue;
      result.speedups.emplace_back("PyTorch",
                                   theirs[asked].median() / ours[w].median());
      if (!works[w].isVariant)
        section.add("  PyTorch", caches, bytes).samples = theirs[w];
    }
  }
  report.print(section);
  return Status::ok();
}

Status runCase(WorkDevice &device, const BucketShape &shape,
               const Options &options, TorchProcess *torch, Report &report) {
  std::vector<Work> works;
  for (int64_t rank : {1, 2, 4, 8}) {
    const nlohmann::json kind = {{"shapes", shape.tensors},
                                 {"rank", rank},
                                 {"together", false},
                                 {"threads", options.threads}};
    const std::string name = shape.name + ", rank " + std::to_string(rank);
    works.push_back({name,
                     std::make_unique<PowerSgdBucket>(device, shape, rank,
                                                      shape.elements()),
                     kind.dump(), false});
    if (shape.tensors.size() > 1 && shape.elements() > kGroupElements)
      works.push_back({name + ", in groups",
                       std::make_unique<PowerSgdBucket>(device, shape, rank,
                                                        kGroupElements),
                       kind.dump(), true});
  }
  return measure(works, options, torch, report,
                 "PowerSGD's local work, " +
                     (options.threads == 1
                          ? std::string("one thread")
                          : std::to_string(options.threads) + " threads") +
                     ", " + shape.name + " of " + sizeName(shape.elements()) +
                     "; GB/s of 28 bytes an element");
}

Status run(const Options &options, TorchProcess *torch, Report &report) {
  if (options.threads == 1)
    pinTo(0);
  const int64_t elements = options.elements();
  std::unique_ptr<WorkDevice> device;
  DDPHOOK_RETURN_IF_ERROR(WorkDevice::open("host", options.threads, &device));
  for (const BucketShape &shape :
       {layers(elements), squares(elements, 1), squares(elements, 100),
        layers(4 * elements), squares(4 * elements, 1),
        squares(4 * elements, 100)})
    DDPHOOK_RETURN_IF_ERROR(runCase(*device, shape, options, torch, report));
  return Status::ok();
}

} // namespace

Status bench::benchPowerSgd(const Options &options, TorchProcess *torch,
                            Report &report) {
  // Use a separate thread, so that binding it does not bind later benchmarks.
  Status status;
  std::thread([&] { status = run(options, torch, report); }).join();
  return status;
}
