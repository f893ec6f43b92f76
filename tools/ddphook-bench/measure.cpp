// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Members of bench.h: a rank, its memory and group, and the loop over works.

#include "bench.h"

#include "kernels.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <sched.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::bench;

static constexpr int kRepetitions = 5;
/// On a device of its own, calls are repeated for this time in one sample,
/// because one is shorter than the launch and the wait; but no more calls than
/// fit into a GPU's queue without blocking the host.
static constexpr double kSampleSeconds = 2e-3;
static constexpr int64_t kMostCalls = 200;

double bench::now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Status Array::write(const void *host, int64_t size) const {
  return context.call(&ddphook_backend_t::memory_write, as<>(), host, size);
}

Status Array::read(void *host, int64_t size) const {
  return context.call(&ddphook_backend_t::memory_read, host, as<>(), size);
}

Status Group::join(const std::string &key, bool isOneMachine,
                   int64_t maxBytes) {
  DDPHOOK_TRY(word.allocate(8));
  GroupMembers members;
  members.ranks.resize(context.worldSize());
  std::iota(members.ranks.begin(), members.ranks.end(), 0);
  members.index = context.rank();
  members.isOneMachine = isOneMachine;
  // The barrier's word is a collective, too.
  const uint64_t most = std::max<int64_t>(maxBytes, 8);
  return communicator.join(context, members, "the process group", key,
                           {most, most, /*gathered=*/0});
}

Status Group::run(const ddphook_collective_t &operation, const void *in,
                  void *out) {
  return context.call(&ddphook_backend_t::collective, communicator.get(),
                      &operation, in, out, /*ticket=*/nullptr);
}

Status Group::barrier() {
  DDPHOOK_TRY(run(allReduceOf(1, Dtype::F32, std::nullopt, /*isMean=*/false),
                  word.as<>(), word.as<>()));
  return context.synchronize();
}

ddphook_collective_t bench::allReduceOf(int64_t count, Dtype dtype,
                                        std::optional<Dtype> wire,
                                        bool isMean) {
  ddphook_collective_t operation = {};
  operation.kind = DDPHOOK_ALL_REDUCE;
  operation.count = count;
  operation.dtype = static_cast<int32_t>(dtype);
  operation.wire_dtype =
      wire.value_or(dtype) == dtype ? -1 : static_cast<int32_t>(*wire);
  operation.divide = isMean;
  return operation;
}

Status bench::combine(Context &context, std::vector<double> *numbers,
                      bool isSum) {
  std::vector<std::string> all;
  DDPHOOK_TRY(context.allGather("results", Json(*numbers).dump(), &all));
  std::vector<double> result(numbers->size());
  for (const std::string &text : all) {
    const Json theirs = Json::parse(text);
    for (size_t i = 0; i < result.size(); ++i) {
      const double other = theirs.at(i);
      result[i] = isSum ? result[i] + other : std::max(result[i], other);
    }
  }
  *numbers = std::move(result);
  return Status::ok();
}

float bench::inputElement(int64_t i, int rank) {
  auto bits = static_cast<uint32_t>(i) + static_cast<uint32_t>(rank) * 40503u;
  bits = (bits ^ bits >> 16) * 0x7feb352du;
  bits = (bits ^ bits >> 15) * 0x846ca68bu;
  return static_cast<float>(static_cast<int32_t>(bits ^ bits >> 16) * 0x1p-31);
}

std::vector<float> bench::inputOf(int64_t n, int rank) {
  std::vector<float> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    values[i] = inputElement(i, rank);
  return values;
}

float bench::roundScalar(float x, Dtype type) {
  if (!isHalf(type) || x == 0)
    return x;
  const int fraction = type == Dtype::F16 ? 10 : 7;
  const int least = type == Dtype::F16 ? -14 : -126;
  const int exponent = std::max(std::ilogb(x), least) - fraction;
  return std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
}

/// Binds the calling thread to an allowed processor, for less noise.
static void pinTo(int index) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  int skip = index % std::max(CPU_COUNT(&allowed), 1);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && skip-- == 0) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      (void)sched_setaffinity(0, sizeof(one), &one);
      return;
    }
}

Rank::~Rank() { leave(); }

Status Rank::join(const std::string &backendOptions) {
  Bootstrap place;
  DDPHOOK_TRY(findPlace(nullptr, processEnvironment(), &place));
  place.backend = options.device;
  place.threads = options.threads;
  if (!backendOptions.empty())
    place.backendOptions = backendOptions;
  number = place.rank;
  if (options.threads == 1)
    pinTo(number);
  return Context::create(place, &context);
}

void Rank::leave() {
  stream.reset();
  from.reset();
  to.reset();
  copied = 0;
  context.reset();
}

Status Rank::fail(Status status) {
  return context ? context->fail(std::move(status)) : status;
}

Status Rank::verify(const std::string &what, bool right) {
  std::vector<double> wrong = {right ? 0.0 : 1.0};
  DDPHOOK_TRY(combine(*context, &wrong));
  if (isFirst())
    report.verified(what, wrong[0] == 0);
  return Status::ok();
}

Status Rank::add(const std::string &title, std::vector<Result> results) {
  for (Result &result : results)
    DDPHOOK_TRY(combine(*context, &result.samples));
  return isFirst() ? report.add(title, results) : Status::ok();
}

Status Rank::copy(int64_t bytes) {
  for (int64_t left = bytes / 2; left > 0; left -= copied) {
    const int64_t size = std::min(left, copied);
    // On the host the best copy passes by the caches.
    if (isOnHost())
      host::copyBytes(to->as<>(), from->as<>(), size, host::Stores::Streaming);
    else
      DDPHOOK_TRY(context->call(&ddphook_backend_t::copy, from->as<>(),
                                to->as<>(), size));
  }
  return Status::ok();
}

std::vector<Work> Rank::withCopies(std::vector<Work> works,
                                   int64_t arrayBytes) {
  copied = arrayBytes;
  std::vector<Work> list;
  for (Work &work : works) {
    if (work.bytes > 0) {
      const int64_t bytes = work.bytes;
      const std::string name =
          formatText("copy of %.4g MB", static_cast<double>(bytes) * 1e-6);
      work.baselines.emplace_back(name, "copy");
      if (std::none_of(list.begin(), list.end(),
                       [&](const Work &other) { return other.name == name; }))
        list.push_back({name, bytes, [=] { return copy(bytes); }});
    }
    list.push_back(std::move(work));
  }
  return list;
}

Status Rank::sample(const Work &work, bool isCold, Group *group,
                    Samples *seconds, Samples *host) {
  alive.progress(0);
  if (!isOnHost()) {
    CallTimes times;
    for (int warmUp = 0; warmUp < 2; ++warmUp)
      DDPHOOK_TRY(stream->time(work.run, 1, &times));
    // All ranks of a group have to make equally many calls.
    const auto calls =
        group ? 1
              : std::clamp<int64_t>(
                    std::llround(kSampleSeconds / std::max(times.device, 1e-7)),
                    1, kMostCalls);
    for (int i = 0; i < kRepetitions; ++i) {
      DDPHOOK_TRY(stream->time(work.run, calls, &times));
      seconds->push_back(times.device);
      host->push_back(times.host);
    }
    return Status::ok();
  }
  for (int i = 0; i < kRepetitions; ++i) {
    for (size_t k = 0; isCold && k < flushed.size(); k += 64)
      ++flushed[k];
    if (group)
      DDPHOOK_TRY(group->barrier());
    const double begin = now();
    DDPHOOK_TRY(work.run());
    seconds->push_back(now() - begin);
  }
  return Status::ok();
}

/// Twice the last-level cache: writing that much replaces its contents.
static int64_t flushBytes() {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return 2 * static_cast<int64_t>(cache > 0 ? cache : 32 << 20);
}

Status Rank::askTorch(const Json &job, bool isCold, Samples *seconds) {
  if (isFirst()) {
    if (!torch)
      DDPHOOK_TRY(TorchProcess::start(
          options.python,
          {{"ranks", size},
           {"device", options.device == "cuda" ? "cuda" : "cpu"},
           {"threads", options.threads},
           {"flush_bytes", flushBytes()}},
          &torch));
    report.json()["torch"] = torch->version();
    Json request = job;
    request["cold"] = isCold;
    request["repetitions"] = kRepetitions;
    DDPHOOK_TRY(torch->run(request, seconds));
  } else {
    seconds->resize(seconds->size() + kRepetitions);
  }
  alive.progress(0);
  // The other ranks wait here, without using a processor.
  return context->barrier();
}

Status Rank::measure(const std::string &title, const std::vector<Work> &given,
                     Group *group) {
  std::vector<Work> works = given;
  if (!isOnHost() && !stream)
    DDPHOOK_TRY(DeviceStream::open(*context, &stream));
  for (size_t w = 0; w < works.size(); ++w) {
    if (works[w].check) {
      bool right = false;
      DDPHOOK_TRY(works[w].check(&right));
      DDPHOOK_TRY(verify(works[w].name, right));
    }
    // Work of one rank on a device is also recorded and replayed.
    Body replay;
    if (stream && !group && !works[w].baselines.empty() &&
        works[w].name.find("graph") == std::string::npos)
      DDPHOOK_TRY(stream->capture(works[w].run, &replay));
    if (replay)
      works.insert(works.begin() + static_cast<ptrdiff_t>(w) + 1,
                   {works[w].name + ", graph",
                    works[w].bytes,
                    replay,
                    {},
                    works[w].baselines});
  }
  from = std::make_unique<Array>(*context);
  to = std::make_unique<Array>(*context);
  DDPHOOK_TRY(from->allocate(std::max<int64_t>(copied, 8)));
  DDPHOOK_TRY(to->allocate(std::max<int64_t>(copied, 8)));
  if (isOnHost() && flushed.empty())
    flushed.resize(static_cast<size_t>(flushBytes()));
  // Some processors write zeros faster than other values.
  const std::vector<float> values = inputOf(copied / 4, number);
  DDPHOOK_TRY(from->write(values.data(), copied / 4 * 4));

  std::vector<Result> results;
  for (bool isCold : {true, false}) {
    if (isCold && !isOnHost())
      continue;
    const std::string caches = !isOnHost() ? "" : isCold ? "cold" : "warm";
    std::vector<Samples> ours(works.size()), theirs(works.size()),
        host(works.size());
    for (int round = 0; round < options.rounds; ++round)
      for (size_t w = 0; w < works.size(); ++w) {
        DDPHOOK_TRY(sample(works[w], isCold, group, &ours[w], &host[w]));
        if (!options.python.empty() && !works[w].torch.is_null())
          DDPHOOK_TRY(askTorch(works[w].torch, isCold, &theirs[w]));
      }
    for (Samples &samples : ours)
      DDPHOOK_TRY(combine(*context, &samples));
    for (size_t w = 0; w < works.size(); ++w) {
      Result result = {works[w].name, caches, works[w].bytes, ours[w]};
      const double time = median(ours[w]);
      for (size_t other = 0; other < works.size(); ++other)
        for (const auto &[name, label] : works[w].baselines)
          if (works[other].name == name)
            result.ratios.emplace_back(label, time / median(ours[other]));
      result.hostSeconds = median(host[w]);
      if (!theirs[w].empty())
        result.ratios.emplace_back("PyTorch", time / median(theirs[w]));
      results.push_back(std::move(result));
      if (!theirs[w].empty())
        results.push_back(
            {"  PyTorch: " + works[w].name, caches, works[w].bytes, theirs[w]});
    }
  }
  return isFirst() ? report.add(title, results) : Status::ok();
}
