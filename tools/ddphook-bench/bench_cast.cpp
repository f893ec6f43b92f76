//===- bench_cast.cpp - ddphook-bench cast --------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The work of a 16-bit hook without its collective, in one thread: cast,
// decompress, and both together chunk by chunk, compared with plain copies that
// move as many bytes and with PyTorch's hook in a group of one.
//
//===----------------------------------------------------------------------===//
#include "benches.h"

#include "kernels.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>

using namespace ddphook;
using namespace ddphook::bench;
using namespace ddphook::host;

namespace {

constexpr int kRepetitions = 6;
/// What the hook's local work is measured for: PyTorch divides by one, which
/// costs as much; for us one would mean no division.
constexpr int kWorld = 2;

/// Something to time, and what PyTorch calls it.
struct Work {
  std::string name;
  int64_t bytes;
  std::function<void()> run;
  std::string torchJob, torchKind;
  /// The copy that moves as many bytes; empty for the copies themselves.
  std::string copy;
};

class CastBench {
public:
  CastBench(int64_t n) : n(n), x(4 * n), y(4 * n), half(2 * n), copied(2 * n) {
    fillInput(x.as<float>(), n, 0);
  }

  void verify(TorchProcess *torch, Report &report, Status *status);
  std::vector<Work> works();

  /// Cast and divide a chunk, then decompress it into place.
  void hook(Dtype wire, int64_t divisor) {
    constexpr int64_t chunk = (128 << 10) / 2;
    for (int64_t i = 0; i < n; i += chunk) {
      const int64_t length = std::min(chunk, n - i);
      float *place = x.as<float>() + i;
      compressArray(place, Dtype::F32, half.as<void>(), wire, length, divisor);
      castArray(half.as<void>(), wire, place, Dtype::F32, length);
    }
  }

private:
  const int64_t n;
  Buffer x, y, half, copied;
};

void CastBench::verify(TorchProcess *torch, Report &report, Status *status) {
  for (Dtype type : {Dtype::F16, Dtype::BF16}) {
    uint64_t want = 0;
    std::vector<float> model(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i)
      model[static_cast<size_t>(i)] = roundScalar(inputElement(i, 0), type);
    want = checksum(model.data(), n);
    const std::string name = std::string("f32 to ") + dtypeName(type);
    for (Stores stores : {Stores::Cached, Stores::Streaming}) {
      std::memset(half.as<void>(), 0x5a, static_cast<size_t>(2 * n));
      std::memset(y.as<void>(), 0x5a, static_cast<size_t>(4 * n));
      castArray(x.as<void>(), Dtype::F32, half.as<void>(), type, n, stores);
      castArray(half.as<void>(), type, y.as<void>(), Dtype::F32, n, stores);
      report.verified(name + " and back against scalar code",
                      checksum(y.as<float>(), n) == want);
    }
    hook(type, kWorld);
    for (float &value : model)
      value = roundScalar(value / kWorld, type);
    report.verified(name + ", the hook's local work",
                    checksum(x.as<float>(), n) == checksum(model.data(), n));
    fillInput(x.as<float>(), n, 0);
    if (!torch)
      continue;
    TorchAnswer answer;
    *status = torch->run("cast", dtypeName(type), Caches::Warm, 1, &answer);
    if (!status->isOk())
      return;
    report.verified(name + " against PyTorch", answer.checksum == want);
  }
}

std::vector<Work> CastBench::works() {
  const size_t wide = static_cast<size_t>(4 * n);
  std::vector<Work> list = {
      {"memcpy of the bucket", 8 * n,
       [=] { std::memcpy(y.as<void>(), x.as<void>(), wide); }, "", "", ""},
      {"best copy of 6 bytes/element", 6 * n,
       [=] { copyBytes(y.as<void>(), x.as<void>(), 3 * n, Stores::Streaming); },
       "", "", ""},
      {"best copy of the bucket", 8 * n,
       [=] { copyBytes(y.as<void>(), x.as<void>(), 4 * n, Stores::Streaming); },
       "", "", ""},
      {"best copy of 12 bytes/element", 12 * n,
       [=] {
         copyBytes(y.as<void>(), x.as<void>(), 4 * n, Stores::Streaming);
         copyBytes(copied.as<void>(), half.as<void>(), 2 * n,
                   Stores::Streaming);
       },
       "", "", ""}};
  for (Dtype type : {Dtype::F16, Dtype::BF16}) {
    const std::string name = dtypeName(type);
    const char *small = "best copy of 6 bytes/element";
    list.push_back(
        {"cast f32 to " + name, 6 * n,
         [=] { castArray(x.as<void>(), Dtype::F32, half.as<void>(), type, n); },
         "cast", name, small});
    list.push_back({"cast f32 to " + name + ", streaming", 6 * n,
                    [=] {
                      castArray(x.as<void>(), Dtype::F32, half.as<void>(), type,
                                n, Stores::Streaming);
                    },
                    "cast", name, small});
    list.push_back(
        {"decompress " + name, 6 * n,
         [=] { castArray(half.as<void>(), type, y.as<void>(), Dtype::F32, n); },
         "decompress", name, small});
    list.push_back({"decompress " + name + ", streaming", 6 * n,
                    [=] {
                      castArray(half.as<void>(), type, y.as<void>(), Dtype::F32,
                                n, Stores::Streaming);
                    },
                    "decompress", name, small});
    list.push_back({(type == Dtype::F16 ? "fp16" : "bf16") +
                        std::string(" hook, local work"),
                    12 * n, [=] { hook(type, kWorld); }, "local",
                    type == Dtype::F16 ? "fp16" : "bf16",
                    "best copy of 12 bytes/element"});
  }
  return list;
}

Status run(const Options &options, TorchProcess *torch, Report &report) {
  pinTo(0);
  CastBench bench(options.elements());
  Status status;
  bench.verify(torch, report, &status);
  DDPHOOK_RETURN_IF_ERROR(status);

  Section &section = report.addSection(
      "local work, one thread; GB/s of memory traffic, read and written",
      {"PyTorch"});
  const std::vector<Work> works = bench.works();
  CacheFlusher flusher;
  for (Caches caches : {Caches::Cold, Caches::Warm}) {
    std::vector<Samples> ours(works.size()), theirs(works.size());
    for (int round = 0; round < options.rounds; ++round)
      for (size_t w = 0; w < works.size(); ++w) {
        for (int i = 0; i < kRepetitions; ++i) {
          if (caches == Caches::Cold)
            flusher.flush();
          const double begin = now();
          works[w].run();
          ours[w].add({now() - begin});
        }
        if (!torch || works[w].torchJob.empty())
          continue;
        TorchAnswer answer;
        DDPHOOK_RETURN_IF_ERROR(torch->run(works[w].torchJob,
                                           works[w].torchKind, caches,
                                           kRepetitions, &answer));
        theirs[w].add(answer.seconds);
      }
    auto medianOf = [&](const std::string &name) {
      for (size_t w = 0; w < works.size(); ++w)
        if (works[w].name == name)
          return ours[w].median();
      return 0.0;
    };
    for (size_t w = 0; w < works.size(); ++w) {
      Result &result = section.add(works[w].name, caches, works[w].bytes);
      result.samples = ours[w];
      if (!works[w].copy.empty())
        result.ofBestCopy = ours[w].median() / medianOf(works[w].copy);
      if (theirs[w].seconds.empty())
        continue;
      result.speedups.emplace_back("PyTorch",
                                   theirs[w].median() / ours[w].median());
      // The same job may stand beside several of ours; list it once.
      if (w > 0 && works[w].torchJob == works[w - 1].torchJob)
        continue;
      Result &baseline = section.add("  PyTorch: " + works[w].torchJob + " " +
                                         works[w].torchKind,
                                     caches, works[w].bytes);
      baseline.samples = theirs[w];
    }
  }
  report.print(section);
  return Status::ok();
}

} // namespace

Status bench::benchCast(const Options &options, TorchProcess *torch,
                        Report &report) {
  // Use a separate thread, so that binding it does not bind later benchmarks.
  Status status;
  std::thread([&] { status = run(options, torch, report); }).join();
  return status;
}
