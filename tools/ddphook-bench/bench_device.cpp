//===- bench_device.cpp - ddphook-bench device ----------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of a backend and the local work of hooks on its device, against
// PyTorch on the same device and against a copy of as many bytes within its
// memory, which is the roofline of everything here. Large arrays and all copies
// are larger than a GPU's second-level cache, so caches need no flushing; small
// ones show what a call costs the host.
//
//===----------------------------------------------------------------------===//
#include "benches.h"

#include "backend/backend_store.h"
#include "device_stream.h"
#include "powersgd_bucket.h"
#include "work_device.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

using namespace ddphook;
using namespace ddphook::bench;

namespace {

constexpr int kSamples = 5;
/// As many calls are timed together as take this long: one alone is shorter
/// than the clock, the launch and the wait around it.
constexpr double kSampleSeconds = 2e-3;
constexpr int64_t kPowerSgdBytesPerElement = 28;

/// So many calls fit into a GPU's queue that the host need not wait for room.
constexpr int64_t kMostCalls = 200;

using Body = std::function<Status()>;

Status sample(DeviceStream &stream, const Body &body, Samples *samples,
              Samples *host) {
  CallTimes times;
  for (int warmUp = 0; warmUp < 2; ++warmUp)
    DDPHOOK_RETURN_IF_ERROR(stream.time(body, 1, &times));
  const double once = std::max(times.device, 1e-7);
  const auto calls =
      std::clamp<int64_t>(std::llround(kSampleSeconds / once), 1, kMostCalls);
  for (int i = 0; i < kSamples; ++i) {
    DDPHOOK_RETURN_IF_ERROR(stream.time(body, calls, &times));
    samples->add({times.device});
    host->add({times.host});
  }
  return Status::ok();
}

/// One line of the table: what runs, and what PyTorch runs beside it.
struct Work {
  std::string name;
  int64_t bytes; ///< that have to move
  Body body;
  std::string torchJob, torchKind; ///< no job: no baseline
};

/// What every section has at hand.
struct Bench {
  WorkDevice &device;
  DeviceStream &stream;
  const Options &options;
  TorchProcess *torch; ///< none: no baseline
  Report &report;
};

/// Measures works in turns with PyTorch. The first one is the copy.
Status measure(Bench &bench, const std::vector<Work> &works, Section &section) {
  std::vector<Samples> ours(works.size()), host(works.size()),
      theirs(works.size());
  for (int round = 0; round < bench.options.rounds; ++round)
    for (size_t w = 0; w < works.size(); ++w) {
      DDPHOOK_RETURN_IF_ERROR(
          sample(bench.stream, works[w].body, &ours[w], &host[w]));
      if (!bench.torch || works[w].torchJob.empty())
        continue;
      TorchAnswer answer;
      DDPHOOK_RETURN_IF_ERROR(bench.torch->run(works[w].torchJob,
                                               works[w].torchKind, Caches::Warm,
                                               kSamples, &answer));
      theirs[w].add(answer.seconds);
    }
  const double copySeconds =
      ours[0].median() / static_cast<double>(works[0].bytes);
  for (size_t w = 0; w < works.size(); ++w) {
    Result &result = section.add(works[w].name, Caches::Warm, works[w].bytes);
    result.samples = ours[w];
    result.hostSeconds = host[w].median();
    if (w > 0)
      result.ofBestCopy = ours[w].median() /
                          (copySeconds * static_cast<double>(works[w].bytes));
    if (theirs[w].seconds.empty())
      continue;
    result.speedups.emplace_back("PyTorch",
                                 theirs[w].median() / ours[w].median());
    section.add("  PyTorch", Caches::Warm, works[w].bytes).samples = theirs[w];
  }
  bench.report.print(section);
  // What was measured is there, whatever ends the program later.
  return bench.report.writeJson();
}

/// The table's functions as bodies. Keeps where their messages go.
class Calls {
public:
  explicit Calls(WorkDevice &device) : device(device) {}

  Body copy(void *to, const void *from, int64_t bytes) {
    return [=, this_ = this] {
      return this_->check(this_->device.table().copy(
          this_->device.get(), from, to, bytes, &this_->message));
    };
  }
  Body cast(const void *in, Dtype inType, void *out, Dtype outType, int64_t n) {
    return [=, this_ = this] {
      return this_->check(this_->device.table().cast(
          this_->device.get(), in, static_cast<int32_t>(inType), out,
          static_cast<int32_t>(outType), n, &this_->message));
    };
  }
  Body divide(const void *in, void *out, int64_t n, int64_t divisor) {
    return [=, this_ = this] {
      return this_->check(this_->device.table().divide_by_group_size(
          this_->device.get(), divisor, in, out, n, DDPHOOK_F32,
          &this_->message));
    };
  }
  Body add(const void *a, const void *b, void *out, int64_t n) {
    return [=, this_ = this] {
      return this_->check(this_->device.table().add(
          this_->device.get(), a, b, out, n, DDPHOOK_F32, &this_->message));
    };
  }
  Body allReduce(ddphook_communicator_t *group, Dtype wire, const void *in,
                 void *out, int64_t n) {
    return [=, this_ = this] {
      const ddphook_collective_t operation = {
          DDPHOOK_ALL_REDUCE,   n, DDPHOOK_F32,     static_cast<int32_t>(wire),
          /*divide=*/1,
          /*encoding=*/0,
          /*block=*/0,          0, /*rounding=*/{}, /*error=*/nullptr,
          /*part_ends=*/nullptr};
      return this_->check(this_->device.table().collective(
          this_->device.get(), group, &operation, in, out, &this_->message));
    };
  }

  Status check(ddphook_status_t code) const {
    return fromBackendError(code, message);
  }

  WorkDevice &device;
  ddphook_backend_error_t message = {};
};

/// A process group of this process alone.
class GroupOfOne {
public:
  explicit GroupOfOne(WorkDevice &device)
      : device(device), table(toBackendStore(store)) {}
  ~GroupOfOne() {
    if (group)
      device.table().communicator_destroy(device.get(), group);
  }

  Status create(int64_t wireBytes) {
    const int32_t worldRank = 0;
    ddphook_communicator_config_t config = {};
    config.struct_size = sizeof(config);
    config.size = 1;
    config.world_ranks = &worldRank;
    config.one_machine = 1;
    config.max_wire_bytes = static_cast<uint64_t>(wireBytes);
    config.store = &table;
    config.key = "bench";
    ddphook_backend_error_t message = {};
    return fromBackendError(device.table().communicator_create(
                                device.get(), &config, &group, &message),
                            message);
  }
  ddphook_communicator_t *get() const { return group; }

private:
  WorkDevice &device;
  MemoryStore store;
  const ddphook_backend_store_t table;
  ddphook_communicator_t *group = nullptr;
};

/// So many elements at the end of an array are compared.
constexpr int64_t kMostCompared = 1 << 24;

/// Compares what a call left in `out` with scalar code.
Status verify(const DeviceArray &out, int64_t n, const Body &body,
              const std::function<float(float)> &expected,
              const std::string &what, Report &report) {
  const int64_t count = std::min(n, kMostCompared), first = n - count;
  std::vector<float> got(static_cast<size_t>(count));
  std::memset(got.data(), 0xff, static_cast<size_t>(4 * count));
  DDPHOOK_RETURN_IF_ERROR(out.write(got.data(), 4 * count, 4 * first));
  DDPHOOK_RETURN_IF_ERROR(body());
  DDPHOOK_RETURN_IF_ERROR(out.read(got.data(), 4 * count, 4 * first));
  bool right = true;
  for (int64_t i = 0; i < count; ++i)
    right &=
        got[static_cast<size_t>(i)] == expected(inputElement(first + i, 0));
  report.verified(what, right);
  return Status::ok();
}

std::string sizeOf(int64_t elements) {
  char text[32];
  const double kib = static_cast<double>(elements) / 256;
  std::snprintf(text, sizeof(text), kib < 1024 ? "%.3g KiB" : "%.4g MiB",
                kib < 1024 ? kib : kib / 1024);
  return text;
}

/// Arrays of f32, as large as the largest bucket, with what each section takes
/// the beginning of.
struct Arrays {
  std::unique_ptr<DeviceArray> in, half, out;

  Status allocate(WorkDevice &device, int64_t n) {
    DDPHOOK_RETURN_IF_ERROR(DeviceArray::allocate(device, 4 * n, &in));
    DDPHOOK_RETURN_IF_ERROR(DeviceArray::allocate(device, 2 * n, &half));
    DDPHOOK_RETURN_IF_ERROR(DeviceArray::allocate(device, 4 * n, &out));
    std::vector<float> input(static_cast<size_t>(n));
    fillInput(input.data(), n, 0);
    return in->write(input.data(), 4 * n);
  }
};

Status benchElements(Bench &bench, const Arrays &arrays, int64_t n) {
  Report &report = bench.report;
  GroupOfOne group(bench.device);
  DDPHOOK_RETURN_IF_ERROR(group.create(2 * n));
  if (bench.torch) {
    TorchAnswer answer;
    DDPHOOK_RETURN_IF_ERROR(bench.torch->run("elements", std::to_string(n),
                                             Caches::Warm, 0, &answer));
  }

  Calls calls(bench.device);
  void *const x = arrays.in->as<void>(), *const y = arrays.out->as<void>();
  void *const h = arrays.half->as<void>();
  const std::string size = sizeOf(n) + ", ";
  std::vector<Work> works = {
      {"copy", 8 * n, calls.copy(y, x, 4 * n), "copy", ""}};
  for (auto [name, type] :
       {std::pair<const char *, Dtype>("f16", Dtype::F16),
        std::pair<const char *, Dtype>("bf16", Dtype::BF16)}) {
    const Body compress = calls.cast(x, Dtype::F32, h, type, n);
    const Body decompress = calls.cast(h, type, y, Dtype::F32, n);
    auto rounded = [type = type](float v) { return roundScalar(v, type); };
    DDPHOOK_RETURN_IF_ERROR(compress());
    DDPHOOK_RETURN_IF_ERROR(verify(*arrays.out, n, decompress, rounded,
                                   size + "cast to " + name + " and back",
                                   report));
    const Body hook = calls.allReduce(group.get(), type, x, y, n);
    const std::string hookName = type == Dtype::F16 ? "fp16" : "bf16";
    DDPHOOK_RETURN_IF_ERROR(verify(*arrays.out, n, hook, rounded,
                                   size + hookName + " hook in a group of one",
                                   report));
    works.push_back(
        {std::string("cast f32 to ") + name, 6 * n, compress, "cast", name});
    works.push_back({std::string("cast ") + name + " to f32", 6 * n, decompress,
                     "decompress", name});
    works.push_back(
        {hookName + " hook, local work", 12 * n, hook, "hook", hookName});
  }
  const Body half2 = calls.divide(x, y, n, 2);
  DDPHOOK_RETURN_IF_ERROR(verify(
      *arrays.out, n, half2, [](float v) { return v / 2; }, size + "division",
      report));
  works.push_back({"divide f32", 8 * n, half2, "divide", ""});
  const Body twice = calls.add(x, x, y, n);
  DDPHOOK_RETURN_IF_ERROR(verify(
      *arrays.out, n, twice, [](float v) { return v + v; }, size + "addition",
      report));
  // One array read twice moves once.
  works.push_back({"add f32 to itself", 8 * n, twice, "", ""});

  Section &section = report.addSection(
      "element-wise kernels on '" + bench.options.device + "', arrays of " +
          sizeOf(n) + "; GB/s of what has to move",
      {"PyTorch"});
  return measure(bench, works, section);
}

/// Whether PowerSGD compresses the first tensor, a matrix, at that rank.
bool isCompressed(const BucketShape &shape, int64_t rank) {
  const std::vector<int64_t> &matrix = shape.tensors.front();
  return 2 * rank * (matrix[0] + matrix[1]) < matrix[0] * matrix[1];
}

Status benchLowRank(Bench &bench, const Arrays &arrays, int64_t arrayElements,
                    const BucketShape &shape) {
  const int64_t n = shape.elements();
  Report &report = bench.report;
  Calls calls(bench.device);
  std::vector<Work> works = {
      {"copy of " + sizeOf(arrayElements), 8 * arrayElements,
       calls.copy(arrays.out->as<void>(), arrays.in->as<void>(),
                  4 * arrayElements),
       "", ""}};
  std::vector<std::unique_ptr<PowerSgdBucket>> buckets;
  std::vector<std::unique_ptr<DeviceGraph>> graphs;
  for (int64_t rank : {1, 4, 8, 32}) {
    if (!isCompressed(shape, rank))
      continue;
    const std::string name = "rank " + std::to_string(rank);
    const std::string kind = nlohmann::json{
        {"shapes", shape.tensors},
        {"rank", rank},
        {"together", false}}.dump();
    buckets.push_back(
        std::make_unique<PowerSgdBucket>(bench.device, shape, rank, n));
    PowerSgdBucket &bucket = *buckets.back();
    DDPHOOK_RETURN_IF_ERROR(bucket.prepare());
    DDPHOOK_RETURN_IF_ERROR(bucket.step());
    bool right = false;
    DDPHOOK_RETURN_IF_ERROR(checkFirstStep(bucket, &right));
    report.verified(shape.name + ", " + name + ": result and error", right);
    if (bench.torch) {
      TorchAnswer answer;
      DDPHOOK_RETURN_IF_ERROR(
          bench.torch->run("powersgd", kind, Caches::Warm, 0, &answer));
      std::vector<double> ours;
      DDPHOOK_RETURN_IF_ERROR(bucket.describe(&ours));
      report.verified(shape.name + ", " + name + " against PyTorch",
                      areNear(ours, answer.values));
    }
    const int64_t bytes = kPowerSgdBytesPerElement * n;
    auto step = [&bucket] { return bucket.step(); };
    works.push_back({name, bytes, step, "powersgd", kind});
    std::unique_ptr<DeviceGraph> graph;
    DDPHOOK_RETURN_IF_ERROR(bench.stream.capture(step, &graph));
    if (!graph)
      continue;
    graphs.push_back(std::move(graph));
    works.push_back(
        {name + ", as a graph", bytes,
         [replay = graphs.back().get()] { return replay->launch(); }, "", ""});
  }
  Section &section = report.addSection(
      "PowerSGD's local work on '" + bench.options.device + "', " + shape.name +
          " of " + sizeOf(n) + "; GB/s of 28 bytes an element",
      {"PyTorch"});
  return measure(bench, works, section);
}

} // namespace

Status bench::benchDevice(const Options &options, TorchProcess *,
                          Report &report) {
  // Of the 25 MiB that the bucket has by itself: 64 KiB, 64 MiB and 1 GiB.
  const int64_t bucket = options.elements();
  const int64_t small = std::max<int64_t>(bucket / 400, 1);
  const int64_t large = bucket * 64 / 25, largest = 16 * large;
  std::unique_ptr<WorkDevice> device;
  DDPHOOK_RETURN_IF_ERROR(
      WorkDevice::open(options.device, /*threads=*/1, &device));
  std::unique_ptr<TorchProcess> torch;
  // An emulated device is none of PyTorch's.
  const std::string place =
      options.device == "cuda" ? "--device=cuda" : "--device=cpu";
  DDPHOOK_RETURN_IF_ERROR(TorchProcess::start(
      options, "torch_device.py",
      {place, "--elements=" + std::to_string(small)}, &torch));
  Arrays arrays;
  DDPHOOK_RETURN_IF_ERROR(arrays.allocate(*device, largest));
  std::unique_ptr<DeviceStream> stream;
  DDPHOOK_RETURN_IF_ERROR(DeviceStream::open(*device, &stream));
  Bench bench{*device, *stream, options, torch.get(), report};
  for (int64_t n : {largest, large, small})
    DDPHOOK_RETURN_IF_ERROR(benchElements(bench, arrays, n));
  for (const BucketShape &shape : {squares(large, 1), squares(bucket, 1),
                                   squares(bucket, 100), tall(bucket)})
    DDPHOOK_RETURN_IF_ERROR(benchLowRank(bench, arrays, largest, shape));
  return Status::ok();
}
