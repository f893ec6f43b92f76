//===- bench_device.cpp - ddphook-bench device ----------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of a backend and the local work of hooks on its device, call by
// call and as graphs. Baselines are PyTorch on the same device, and a copy of
// as many bytes within the device's memory, which is the roofline. Large arrays
// and all copies exceed a GPU's second-level cache, so no flushing is needed;
// small arrays show what a call costs the host.
//
//===----------------------------------------------------------------------===//
#include "benches.h"

#include "backend/backend_store.h"
#include "base/collective.h"
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
/// The time for which calls are repeated in one measurement: a single call is
/// shorter than the clock's resolution, the launch and the wait.
constexpr double kSampleSeconds = 2e-3;
constexpr int64_t kPowerSgdBytesPerElement = 28;

/// This many calls fit into a GPU's queue without blocking the host.
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

/// One line of the table: our work, and PyTorch's equivalent.
struct Work {
  std::string name;
  int64_t bytes; ///< that must move
  Body body;
  std::string torchJob, torchKind; ///< no job: no baseline
};

/// The context of every section.
struct Bench {
  WorkDevice &device;
  DeviceStream &stream;
  const Options &options;
  TorchProcess *torch; ///< null: no baseline
  Report &report;
};

/// Works, and the graphs that some of them launch.
struct Works {
  std::vector<Work> list;
  std::vector<std::unique_ptr<DeviceGraph>> graphs;
};

/// Adds a work and, if the device has graphs, the same as a graph. `verify`
/// compares the results of a body; its string is the body's name.
using Verify = std::function<Status(const Body &, const std::string &)>;
Status addWork(Bench &bench, Work work, const Verify &verify, Works *works) {
  const std::string name = work.name + ", as a graph";
  const int64_t bytes = work.bytes;
  const Body body = work.body;
  if (verify)
    DDPHOOK_RETURN_IF_ERROR(verify(body, work.name));
  works->list.push_back(std::move(work));
  std::unique_ptr<DeviceGraph> graph;
  DDPHOOK_RETURN_IF_ERROR(bench.stream.capture(body, &graph));
  if (!graph)
    return Status::ok();
  const Body replay = [graph = graph.get()] { return graph->launch(); };
  works->graphs.push_back(std::move(graph));
  if (verify)
    DDPHOOK_RETURN_IF_ERROR(verify(replay, name));
  works->list.push_back({name, bytes, replay, "", ""});
  return Status::ok();
}

/// Measures works alternately with PyTorch. The first one is the copy.
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
  // Write now, in case the program ends early.
  return bench.report.writeJson();
}

/// Wraps the table's functions as bodies, and stores their messages.
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
  Body encodingError(const void *in, void *out, int64_t n, int32_t encoding,
                     int64_t block) {
    return [=, this_ = this] {
      return this_->check(this_->device.table().encoding_error(
          this_->device.get(), in, out, n, DDPHOOK_F32, encoding, block,
          /*rank=*/-1, /*stream=*/-1, /*step=*/0, &this_->message));
    };
  }
  Body allReduce(ddphook_communicator_t *group, Dtype wire, const void *in,
                 void *out, int64_t n) {
    return [=, this_ = this] {
      const CollectiveOperation operation(n, Dtype::F32, wire, /*isMean=*/true);
      return this_->check(this_->device.table().collective(
          this_->device.get(), group, &operation, in, out, /*ticket=*/nullptr,
          &this_->message));
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

/// The most elements, from the end of an array, that are compared. The first
/// one is at the start of a block.
constexpr int64_t kMostCompared = 1 << 22;

int64_t firstCompared(int64_t n) {
  return std::max<int64_t>(n - kMostCompared, 0) / 4096 * 4096;
}

/// Compares the last elements of `out` after a call with `expected`.
Status verify(const DeviceArray &out, int64_t n, const Body &body,
              const std::vector<float> &expected, const std::string &what,
              Report &report) {
  const auto count = static_cast<int64_t>(expected.size());
  const int64_t first = n - count;
  std::vector<float> got(expected.size());
  std::memset(got.data(), 0xff, static_cast<size_t>(4 * count));
  DDPHOOK_RETURN_IF_ERROR(out.write(got.data(), 4 * count, 4 * first));
  DDPHOOK_RETURN_IF_ERROR(body());
  DDPHOOK_RETURN_IF_ERROR(out.read(got.data(), 4 * count, 4 * first));
  report.verified(what, got == expected);
  return Status::ok();
}

/// Computes the expected last elements with scalar code.
std::vector<float> expectedOf(int64_t n,
                              const std::function<float(float)> &function) {
  std::vector<float> values;
  for (int64_t i = firstCompared(n); i < n; ++i)
    values.push_back(function(inputElement(i, 0)));
  return values;
}

std::string sizeOf(int64_t elements) {
  char text[32];
  const double kib = static_cast<double>(elements) / 256;
  std::snprintf(text, sizeof(text), kib < 1024 ? "%.3g KiB" : "%.4g MiB",
                kib < 1024 ? kib : kib / 1024);
  return text;
}

/// Arrays of f32 with the size of the largest bucket. Each section uses the
/// beginning of them.
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

/// The hooks' encodings, with their names in docs/quantization.md.
struct NamedEncoding {
  const char *name;
  int32_t encoding;
  int64_t block;
};
constexpr NamedEncoding kEncodings[] = {
    {"int8", DDPHOOK_ENCODING_I8, 256},
    {"int4", DDPHOOK_ENCODING_I4, 64},
    {"fp8", DDPHOOK_ENCODING_F8E4M3FN, 256}};

/// Computes the last elements with the host's backend: all backends have equal
/// bits.
Status lossOnHost(int64_t n, const NamedEncoding &encoding,
                  std::vector<float> *expected) {
  std::unique_ptr<WorkDevice> host;
  DDPHOOK_RETURN_IF_ERROR(WorkDevice::open("host", /*threads=*/1, &host));
  const std::vector<float> in = expectedOf(n, [](float v) { return v; });
  expected->resize(in.size());
  return Calls(*host).encodingError(in.data(), expected->data(),
                                    static_cast<int64_t>(in.size()),
                                    encoding.encoding, encoding.block)();
}

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
  Works works;
  works.list.push_back({"copy", 8 * n, calls.copy(y, x, 4 * n), "copy", ""});
  auto leaves = [&](std::vector<float> expected) -> Verify {
    return [&, expected = std::move(expected)](const Body &body,
                                               const std::string &name) {
      return verify(*arrays.out, n, body, expected, size + name, report);
    };
  };
  for (auto [name, type] :
       {std::pair<const char *, Dtype>("f16", Dtype::F16),
        std::pair<const char *, Dtype>("bf16", Dtype::BF16)}) {
    const Body compress = calls.cast(x, Dtype::F32, h, type, n);
    const Body decompress = calls.cast(h, type, y, Dtype::F32, n);
    const Body hook = calls.allReduce(group.get(), type, x, y, n);
    const std::string hookName = type == Dtype::F16 ? "fp16" : "bf16";
    const Verify rounds = leaves(
        expectedOf(n, [type = type](float v) { return roundScalar(v, type); }));
    // A cast to 16 bits is right if the cast back has the expected result.
    const Verify castRounds = [&](const Body &body, const std::string &what) {
      return rounds(
          [&] {
            DDPHOOK_RETURN_IF_ERROR(body());
            return decompress();
          },
          what);
    };
    DDPHOOK_RETURN_IF_ERROR(addWork(
        bench,
        {std::string("cast f32 to ") + name, 6 * n, compress, "cast", name},
        castRounds, &works));
    DDPHOOK_RETURN_IF_ERROR(addWork(bench,
                                    {std::string("cast ") + name + " to f32",
                                     6 * n, decompress, "decompress", name},
                                    rounds, &works));
    DDPHOOK_RETURN_IF_ERROR(addWork(
        bench, {hookName + " hook, local work", 12 * n, hook, "hook", hookName},
        rounds, &works));
  }
  for (const NamedEncoding &encoding : kEncodings) {
    std::vector<float> expected;
    DDPHOOK_RETURN_IF_ERROR(lossOnHost(n, encoding, &expected));
    DDPHOOK_RETURN_IF_ERROR(addWork(
        bench,
        {std::string("what ") + encoding.name + " loses", 8 * n,
         calls.encodingError(x, y, n, encoding.encoding, encoding.block), "",
         ""},
        leaves(std::move(expected)), &works));
  }
  DDPHOOK_RETURN_IF_ERROR(addWork(
      bench, {"divide f32", 8 * n, calls.divide(x, y, n, 2), "divide", ""},
      leaves(expectedOf(n, [](float v) { return v / 2; })), &works));
  // One array that is read twice moves once.
  DDPHOOK_RETURN_IF_ERROR(addWork(
      bench, {"add f32 to itself", 8 * n, calls.add(x, x, y, n), "", ""},
      leaves(expectedOf(n, [](float v) { return v + v; })), &works));

  Section &section = report.addSection(
      "element-wise kernels on '" + bench.options.device + "', arrays of " +
          sizeOf(n) + "; GB/s of what has to move",
      {"PyTorch"});
  return measure(bench, works.list, section);
}

/// Returns true if PowerSGD compresses the first tensor at that rank.
bool isCompressed(const BucketShape &shape, int64_t rank) {
  const std::vector<int64_t> &matrix = shape.tensors.front();
  return 2 * rank * (matrix[0] + matrix[1]) < matrix[0] * matrix[1];
}

/// A bucket under PowerSGD at a rank, in groups of `groupMb` MiB that pass
/// through the stages one by one; 0 for the whole bucket.
struct LowRankCase {
  int64_t rank;
  int64_t groupMb;
};

Status benchLowRank(Bench &bench, const Arrays &arrays, int64_t arrayElements,
                    const BucketShape &shape,
                    const std::vector<LowRankCase> &cases) {
  const int64_t n = shape.elements();
  const int64_t bytes = kPowerSgdBytesPerElement * n;
  Report &report = bench.report;
  Calls calls(bench.device);
  Works works;
  works.list.push_back({"copy of " + sizeOf(arrayElements), 8 * arrayElements,
                        calls.copy(arrays.out->as<void>(),
                                   arrays.in->as<void>(), 4 * arrayElements),
                        "", ""});
  std::vector<std::unique_ptr<PowerSgdBucket>> buckets;
  for (const LowRankCase &each : cases) {
    if (!isCompressed(shape, each.rank))
      continue;
    std::string name = "rank " + std::to_string(each.rank);
    if (cases.front().rank == cases.back().rank)
      name = "group-mb " + std::to_string(each.groupMb) + ", " + name;
    const std::string kind = nlohmann::json{
        {"shapes", shape.tensors},
        {"rank", each.rank},
        {"together", false}}.dump();
    // The elements of a MiB in a bucket of 25 MiB, scaled to this bucket.
    const int64_t mib = bench.options.elements() / 25;
    buckets.push_back(std::make_unique<PowerSgdBucket>(
        bench.device, shape, each.rank,
        each.groupMb == 0 ? n : std::max<int64_t>(each.groupMb * mib, 1)));
    PowerSgdBucket &bucket = *buckets.back();
    DDPHOOK_RETURN_IF_ERROR(bucket.prepare());
    const Verify isFirstStep = [&](const Body &body, const std::string &how) {
      bool right = false;
      DDPHOOK_RETURN_IF_ERROR(bucket.reset());
      DDPHOOK_RETURN_IF_ERROR(body());
      DDPHOOK_RETURN_IF_ERROR(checkFirstStep(bucket, &right));
      report.verified(shape.name + ", " + how, right);
      return Status::ok();
    };
    DDPHOOK_RETURN_IF_ERROR(
        addWork(bench,
                {name, bytes, [&bucket] { return bucket.step(); },
                 each.groupMb == 0 ? "powersgd" : "", kind},
                isFirstStep, &works));
    // PyTorch processes the bucket as a whole.
    if (!bench.torch || each.groupMb != 0)
      continue;
    TorchAnswer answer;
    DDPHOOK_RETURN_IF_ERROR(
        bench.torch->run("powersgd", kind, Caches::Warm, 0, &answer));
    std::vector<double> ours;
    DDPHOOK_RETURN_IF_ERROR(bucket.describe(&ours));
    report.verified(shape.name + ", " + name + " against PyTorch",
                    areNear(ours, answer.values));
  }
  Section &section = report.addSection(
      "PowerSGD's local work on '" + bench.options.device + "', " + shape.name +
          " of " + sizeOf(n) + "; GB/s of 28 bytes an element",
      {"PyTorch"});
  return measure(bench, works.list, section);
}

} // namespace

Status bench::benchDevice(const Options &options, TorchProcess *,
                          Report &report) {
  // Relative to the bucket of 25 MiB: 64 KiB, 64 MiB and 1 GiB.
  const int64_t bucket = options.elements();
  const int64_t small = std::max<int64_t>(bucket / 400, 1);
  const int64_t large = bucket * 64 / 25, largest = 16 * large;
  DDPHOOK_RETURN_IF_ERROR(benchHostTime(options, report));
  std::unique_ptr<WorkDevice> device;
  DDPHOOK_RETURN_IF_ERROR(
      WorkDevice::open(options.device, /*threads=*/1, &device));
  std::unique_ptr<TorchProcess> torch;
  // PyTorch does not know emulated devices.
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
  std::vector<LowRankCase> ranks, groups;
  for (int64_t rank : {1, 2, 4, 8, 16, 32})
    ranks.push_back({rank, 0});
  for (int64_t groupMb : {0, 8, 16, 32})
    groups.push_back({4, groupMb});
  // The most important results come first: a run may be cut off.
  DDPHOOK_RETURN_IF_ERROR(benchElements(bench, arrays, largest));
  // 4096², 2560², 100 x 256² and 100 000 x 64.
  for (const BucketShape &shape :
       {squares(large, 1), squares(bucket, 1), squares(bucket, 100),
        tall(bucket * 125 / 128)})
    DDPHOOK_RETURN_IF_ERROR(benchLowRank(bench, arrays, largest, shape, ranks));
  // 1024² each, together larger than any cache.
  DDPHOOK_RETURN_IF_ERROR(
      benchLowRank(bench, arrays, largest, squares(large, 16), groups));
  for (int64_t n : {large, small})
    DDPHOOK_RETURN_IF_ERROR(benchElements(bench, arrays, n));
  return Status::ok();
}
