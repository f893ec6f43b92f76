//===- bench_device.cpp - ddphook-bench device ----------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of a backend and the local work of hooks on its device, against
// PyTorch on the same device and against a copy of as many bytes within its
// memory, which is the roofline of everything here. Arrays are larger than a
// GPU's second-level cache, so caches need no flushing.
//
//===----------------------------------------------------------------------===//
#include "benches.h"

#include "backend/backend_store.h"
#include "device_graph.h"
#include "powersgd_bucket.h"
#include "work_device.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace ddphook;
using namespace ddphook::bench;

namespace {

constexpr int kSamples = 5;
/// As many calls are timed together as take this long: one alone is shorter
/// than the clock, the launch and the wait around it.
constexpr double kSampleSeconds = 2e-3;
constexpr int64_t kPowerSgdBytesPerElement = 28;

using Body = std::function<Status()>;

Status timeCalls(WorkDevice &device, const Body &body, int64_t calls,
                 double *seconds) {
  DDPHOOK_RETURN_IF_ERROR(device.synchronize());
  const double begin = now();
  for (int64_t i = 0; i < calls; ++i)
    DDPHOOK_RETURN_IF_ERROR(body());
  DDPHOOK_RETURN_IF_ERROR(device.synchronize());
  *seconds = (now() - begin) / static_cast<double>(calls);
  return Status::ok();
}

Status sample(WorkDevice &device, const Body &body, Samples *samples) {
  double seconds = 0;
  DDPHOOK_RETURN_IF_ERROR(timeCalls(device, body, 1, &seconds));
  const double once = std::max(seconds, 1e-7);
  const auto calls =
      std::clamp<int64_t>(std::llround(kSampleSeconds / once), 1, 10000);
  for (int i = 0; i < kSamples; ++i) {
    DDPHOOK_RETURN_IF_ERROR(timeCalls(device, body, calls, &seconds));
    samples->add({seconds});
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

/// Measures works in turns with PyTorch. The first one is the copy.
Status measure(WorkDevice &device, const std::vector<Work> &works,
               const Options &options, TorchProcess *torch, Section &section) {
  std::vector<Samples> ours(works.size()), theirs(works.size());
  for (int round = 0; round < options.rounds; ++round)
    for (size_t w = 0; w < works.size(); ++w) {
      DDPHOOK_RETURN_IF_ERROR(sample(device, works[w].body, &ours[w]));
      if (!torch || works[w].torchJob.empty())
        continue;
      TorchAnswer answer;
      DDPHOOK_RETURN_IF_ERROR(torch->run(works[w].torchJob, works[w].torchKind,
                                         Caches::Warm, kSamples, &answer));
      theirs[w].add(answer.seconds);
    }
  const double copySeconds =
      ours[0].median() / static_cast<double>(works[0].bytes);
  for (size_t w = 0; w < works.size(); ++w) {
    Result &result = section.add(works[w].name, Caches::Warm, works[w].bytes);
    result.samples = ours[w];
    if (w > 0)
      result.ofBestCopy = ours[w].median() /
                          (copySeconds * static_cast<double>(works[w].bytes));
    if (theirs[w].seconds.empty())
      continue;
    result.speedups.emplace_back("PyTorch",
                                 theirs[w].median() / ours[w].median());
    section.add("  PyTorch", Caches::Warm, works[w].bytes).samples = theirs[w];
  }
  return Status::ok();
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

/// Compares what a call left in `out` with scalar code.
Status verify(const DeviceArray &out, int64_t n, const Body &body,
              const std::function<float(float)> &expected,
              const std::string &what, Report &report) {
  DDPHOOK_RETURN_IF_ERROR(out.fill(0xff));
  DDPHOOK_RETURN_IF_ERROR(body());
  std::vector<float> got(static_cast<size_t>(n));
  DDPHOOK_RETURN_IF_ERROR(out.read(got.data(), 4 * n));
  bool right = true;
  for (int64_t i = 0; i < n; ++i)
    right &= got[static_cast<size_t>(i)] == expected(inputElement(i, 0));
  report.verified(what, right);
  return Status::ok();
}

Status benchElements(WorkDevice &device, const Options &options,
                     TorchProcess *torch, Report &report) {
  const int64_t n = 4 * options.elements();
  std::unique_ptr<DeviceArray> in, half, out;
  DDPHOOK_RETURN_IF_ERROR(DeviceArray::allocate(device, 4 * n, &in));
  DDPHOOK_RETURN_IF_ERROR(DeviceArray::allocate(device, 2 * n, &half));
  DDPHOOK_RETURN_IF_ERROR(DeviceArray::allocate(device, 4 * n, &out));
  std::vector<float> input(static_cast<size_t>(n));
  fillInput(input.data(), n, 0);
  DDPHOOK_RETURN_IF_ERROR(in->write(input.data(), 4 * n));
  GroupOfOne group(device);
  DDPHOOK_RETURN_IF_ERROR(group.create(2 * n));

  Calls calls(device);
  void *const x = in->as<void>(), *const y = out->as<void>();
  void *const h = half->as<void>();
  std::vector<Work> works = {
      {"copy", 8 * n, calls.copy(y, x, 4 * n), "copy", ""}};
  for (auto [name, type] :
       {std::pair<const char *, Dtype>("f16", Dtype::F16),
        std::pair<const char *, Dtype>("bf16", Dtype::BF16)}) {
    const Body compress = calls.cast(x, Dtype::F32, h, type, n);
    const Body decompress = calls.cast(h, type, y, Dtype::F32, n);
    auto rounded = [type = type](float v) { return roundScalar(v, type); };
    DDPHOOK_RETURN_IF_ERROR(compress());
    DDPHOOK_RETURN_IF_ERROR(verify(*out, n, decompress, rounded,
                                   std::string("cast to ") + name + " and back",
                                   report));
    const Body hook = calls.allReduce(group.get(), type, x, y, n);
    const std::string hookName = type == Dtype::F16 ? "fp16" : "bf16";
    DDPHOOK_RETURN_IF_ERROR(verify(
        *out, n, hook, rounded, hookName + " hook in a group of one", report));
    works.push_back(
        {std::string("cast f32 to ") + name, 6 * n, compress, "cast", name});
    works.push_back({std::string("cast ") + name + " to f32", 6 * n, decompress,
                     "decompress", name});
    works.push_back(
        {hookName + " hook, local work", 12 * n, hook, "hook", hookName});
  }
  const Body half2 = calls.divide(x, y, n, 2);
  DDPHOOK_RETURN_IF_ERROR(verify(
      *out, n, half2, [](float v) { return v / 2; }, "division", report));
  works.push_back({"divide f32", 8 * n, half2, "divide", ""});
  const Body twice = calls.add(x, x, y, n);
  DDPHOOK_RETURN_IF_ERROR(verify(
      *out, n, twice, [](float v) { return v + v; }, "addition", report));
  // One array read twice moves once.
  works.push_back({"add f32 to itself", 8 * n, twice, "", ""});

  Section &section =
      report.addSection("element-wise kernels on '" + options.device +
                            "'; GB/s of what has to move",
                        {"PyTorch"});
  DDPHOOK_RETURN_IF_ERROR(measure(device, works, options, torch, section));
  report.print(section);
  return Status::ok();
}

Status benchLowRank(WorkDevice &device, const BucketShape &shape,
                    const Options &options, TorchProcess *torch,
                    Report &report) {
  const int64_t n = shape.elements();
  std::unique_ptr<DeviceArray> from, to;
  DDPHOOK_RETURN_IF_ERROR(DeviceArray::allocate(device, 4 * n, &from));
  DDPHOOK_RETURN_IF_ERROR(DeviceArray::allocate(device, 4 * n, &to));
  Calls calls(device);
  std::vector<Work> works = {
      {"copy", 8 * n, calls.copy(to->as<void>(), from->as<void>(), 4 * n), "",
       ""}};
  std::vector<std::unique_ptr<PowerSgdBucket>> buckets;
  std::vector<std::unique_ptr<DeviceGraph>> graphs;
  for (int64_t rank : {1, 2, 4, 8}) {
    const std::string name = "rank " + std::to_string(rank);
    const std::string kind = nlohmann::json{
        {"shapes", shape.tensors},
        {"rank", rank},
        {"together", false}}.dump();
    buckets.push_back(std::make_unique<PowerSgdBucket>(device, shape, rank, n));
    PowerSgdBucket &bucket = *buckets.back();
    DDPHOOK_RETURN_IF_ERROR(bucket.prepare());
    DDPHOOK_RETURN_IF_ERROR(bucket.step());
    bool right = false;
    DDPHOOK_RETURN_IF_ERROR(checkFirstStep(bucket, &right));
    report.verified(shape.name + ", " + name + ": result and error", right);
    if (torch) {
      TorchAnswer answer;
      DDPHOOK_RETURN_IF_ERROR(
          torch->run("powersgd", kind, Caches::Warm, 0, &answer));
      std::vector<double> ours;
      DDPHOOK_RETURN_IF_ERROR(bucket.describe(&ours));
      report.verified(shape.name + ", " + name + " against PyTorch",
                      areNear(ours, answer.values));
    }
    const int64_t bytes = kPowerSgdBytesPerElement * n;
    auto step = [&bucket] { return bucket.step(); };
    works.push_back({name, bytes, step, "powersgd", kind});
    std::unique_ptr<DeviceGraph> graph;
    DDPHOOK_RETURN_IF_ERROR(DeviceGraph::capture(device, step, &graph));
    if (!graph)
      continue;
    graphs.push_back(std::move(graph));
    works.push_back(
        {name + ", as a graph", bytes,
         [replay = graphs.back().get()] { return replay->launch(); }, "", ""});
  }
  char size[32];
  std::snprintf(size, sizeof(size), "%.3g MiB",
                static_cast<double>(n) / (1 << 18));
  Section &section = report.addSection(
      "PowerSGD's local work on '" + options.device + "', " + shape.name +
          " of " + size + "; GB/s of 28 bytes an element",
      {"PyTorch"});
  DDPHOOK_RETURN_IF_ERROR(measure(device, works, options, torch, section));
  report.print(section);
  return Status::ok();
}

} // namespace

Status bench::benchDevice(const Options &options, TorchProcess *,
                          Report &report) {
  std::unique_ptr<WorkDevice> device;
  DDPHOOK_RETURN_IF_ERROR(
      WorkDevice::open(options.device, /*threads=*/1, &device));
  std::unique_ptr<TorchProcess> torch;
  const std::string place =
      device->table().memory_is_host ? "--device=cpu" : "--device=cuda";
  DDPHOOK_RETURN_IF_ERROR(TorchProcess::start(
      options, "torch_device.py",
      {place, "--elements=" + std::to_string(4 * options.elements())}, &torch));
  DDPHOOK_RETURN_IF_ERROR(benchElements(*device, options, torch.get(), report));
  for (const BucketShape &shape :
       {squares(options.elements(), 1), squares(options.elements(), 100),
        layers(options.elements())})
    DDPHOOK_RETURN_IF_ERROR(
        benchLowRank(*device, shape, options, torch.get(), report));
  return Status::ok();
}
