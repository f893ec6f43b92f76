//===- bench_cast.cpp - ddphook-bench cast --------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The work of a 16-bit hook without its collective, in one thread: cast,
// decompress, and both chunk by chunk, compared with plain copies of as many
// bytes and with PyTorch's hook in a group of one.
//
//===----------------------------------------------------------------------===//
#include "benches.h"
#include "local_work.h"

#include "kernels.h"

#include <algorithm>
#include <cstring>
#include <thread>

using namespace ddphook;
using namespace ddphook::bench;
using namespace ddphook::host;

namespace {

/// The world size for the hook's local work. PyTorch divides by one, which
/// costs as much; for us, one would mean no division.
constexpr int kWorld = 2;

class CastBench {
public:
  CastBench(int64_t n) : n(n), x(4 * n), y(4 * n), half(2 * n), copied(2 * n) {
    fillInput(x.as<float>(), n, 0);
  }

  void verify(TorchProcess *torch, Report &report, Status *status);
  std::vector<Work> works();

  /// Casts and divides a chunk, then decompresses it in place.
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
       [=] { std::memcpy(y.as<void>(), x.as<void>(), wide); }},
      {"best copy of 6 bytes/element", 6 * n,
       [=] {
         copyBytes(y.as<void>(), x.as<void>(), 3 * n, Stores::Streaming);
       }},
      {"best copy of the bucket", 8 * n,
       [=] {
         copyBytes(y.as<void>(), x.as<void>(), 4 * n, Stores::Streaming);
       }},
      {"best copy of 12 bytes/element", 12 * n, [=] {
         copyBytes(y.as<void>(), x.as<void>(), 4 * n, Stores::Streaming);
         copyBytes(copied.as<void>(), half.as<void>(), 2 * n,
                   Stores::Streaming);
       }}};
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
  return measureWorks(
      "local work, one thread; GB/s of memory traffic, read and written",
      bench.works(), options, torch, report);
}

} // namespace

Status bench::benchCast(const Options &options, TorchProcess *torch,
                        Report &report) {
  // Use a separate thread, so that binding it does not bind later benchmarks.
  Status status;
  std::thread([&] { status = run(options, torch, report); }).join();
  return status;
}
