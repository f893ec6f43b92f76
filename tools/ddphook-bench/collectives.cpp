// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduces and whole hooks of all ranks, over each transport of the host,
// next to copies that all ranks make at once; and the time to start one.

#include "powersgd.h"

#include "base/encoding.h"

#include <cmath>
#include <deque>

using namespace ddphook;
using namespace ddphook::bench;

namespace {

/// A transport, and the name that works have over it.
struct Link {
  std::string name;
  Group group;

  Link(Context &context, std::string name)
      : name(std::move(name)), group(context) {}
};

/// Arrays for all-reduces in place, over every transport.
struct Bucket {
  Bucket(Context &context, int64_t n)
      : context(context), n(n), array(context), error(context) {}

  /// Allocates memory and connects all ranks: over shared memory and over TCP
  /// if they are on a host, or with the device's only transport.
  Status prepare(Rank &rank) {
    for (bool isOneMachine : {true, false}) {
      if (!isOneMachine && !rank.isOnHost())
        continue;
      Link &link =
          links.emplace_back(rank.job(), !rank.isOnHost() ? rank.options.device
                                         : isOneMachine   ? "shared memory"
                                                          : "Gloo");
      DDPHOOK_TRY(link.group.join(link.name, isOneMachine, 4 * n));
    }
    DDPHOOK_TRY(array.allocate(4 * n));
    return error.allocate(4 * n);
  }

  /// Fills it with this rank's input in a type.
  Status fill(Dtype type) const {
    const std::vector<float> values = inputOf(n, context.rank());
    DDPHOOK_TRY(error.write(values.data(), 4 * n));
    return context.call(&ddphook_backend_t::cast, error.as<>(), DDPHOOK_F32,
                        array.as<>(), static_cast<int32_t>(type), n);
  }

  /// Reduces the input, and compares the result with that of scalar code.
  Status check(Group &group, const ddphook_collective_t &operation,
               bool *right) const {
    const Dtype type = *dtypeFromAbi(operation.dtype);
    const Dtype wire = dtypeFromAbi(operation.wire_dtype).value_or(type);
    DDPHOOK_TRY(fill(type));
    DDPHOOK_TRY(group.run(operation, array.as<>(), array.as<>()));
    std::vector<float> result(static_cast<size_t>(n));
    DDPHOOK_TRY(context.call(&ddphook_backend_t::cast, array.as<>(),
                             static_cast<int32_t>(type), error.as<>(),
                             DDPHOOK_F32, n));
    DDPHOOK_TRY(error.read(result.data(), 4 * n));
    const int ranks = context.worldSize();
    // Codes lose up to a half step of the largest element of a block, twice. A
    // sum of more than two ranks depends on the order of additions.
    const double tolerance = operation.encoding == DDPHOOK_ENCODING_I4 ? 0.2
                             : operation.encoding                      ? 0.08
                             : ranks == 2                              ? 0
                             : isHalf(wire)                            ? 0.05
                                                                       : 1e-5;
    *right = true;
    for (int64_t i = 0; i < n; ++i) {
      float sum = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        float part = roundScalar(inputElement(i, rank), wire);
        if (operation.divide)
          part = roundScalar(part / static_cast<float>(ranks), wire);
        sum = roundScalar(sum + part, wire);
      }
      *right &= std::fabs(result[i] - sum) <= tolerance;
    }
    return fill(type);
  }

  Context &context;
  const int64_t n;
  Array array, error;
  std::deque<Link> links;
};

/// Measures all-reduces of a bucket over every transport, and `more`.
Status
measureReductions(Rank &rank, const std::string &title,
                  const std::vector<std::pair<Work, ddphook_collective_t>> &all,
                  const std::vector<Work> &more, Bucket &bucket) {
  const std::string &last = bucket.links.back().name;
  std::vector<Work> works;
  for (const auto &[given, operation] : all)
    for (Link &link : bucket.links) {
      Work work = given;
      work.name = given.name + ", " + link.name;
      work.run = [&, operation = operation] {
        return link.group.run(operation, bucket.array.as<>(),
                              bucket.array.as<>());
      };
      work.check = [&, operation = operation](bool *right) {
        return bucket.check(link.group, operation, right);
      };
      if (link.name != last)
        work.baselines.emplace_back(given.name + ", " + last, last);
      else if (bucket.links.size() > 1)
        work.torch = nullptr;
      works.push_back(std::move(work));
    }
  works.insert(works.end(), more.begin(), more.end());
  return rank.measure(
      concat(title, ", ", rank.size, " ranks on '", rank.options.device, "', ",
             sizeName(bucket.n),
             "; copies by all ranks at once; GB/s of what has to move"),
      rank.withCopies(std::move(works), 4 * bucket.n),
      &bucket.links.front().group);
}

} // namespace

Status bench::benchAllReduce(Rank &rank) {
  Bucket bucket(rank.job(), rank.options.elements());
  DDPHOOK_TRY(bucket.prepare(rank));
  for (Dtype type : {Dtype::F32, Dtype::F16, Dtype::BF16}) {
    Work work{dtypeName(type), 3 * dtypeSize(type) * bucket.n, {}};
    DDPHOOK_TRY(measureReductions(
        rank, std::string("all-reduce ") + dtypeName(type),
        {{work, allReduceOf(bucket.n, type, std::nullopt, /*isMean=*/false)}},
        {}, bucket));
  }
  return Status::ok();
}

Status bench::benchHooks(Rank &rank) {
  Bucket bucket(rank.job(), rank.options.elements());
  DDPHOOK_TRY(bucket.prepare(rank));
  std::vector<std::pair<Work, ddphook_collective_t>> all;
  for (const HookKind &kind : hookKinds()) {
    Work work{kind.name, kind.bytes(bucket.n), {}};
    if (kind.encoding == DDPHOOK_ENCODING_NONE)
      work.torch = {{"hook", kind.name}, {"shapes", {{bucket.n}}}};
    all.emplace_back(std::move(work), kind.collective(bucket.n));
  }
  std::deque<PowerSgd> buckets;
  std::vector<Work> works;
  const BucketShape shape = layers(bucket.n);
  for (int64_t approximation : {1, 2, 4, 8})
    for (Link &link : bucket.links) {
      PowerSgd &each = buckets.emplace_back(rank.job(), shape, approximation,
                                            shape.elements(), &link.group);
      DDPHOOK_TRY(each.prepare());
      works.push_back(
          {concat("PowerSGD, rank ", approximation, ", ", link.name),
           kPowerSgdBytes * shape.elements(), [&each] { return each.step(); },
           [&each](bool *right) { return each.checkFirstStep(right); }});
      if (&link == &bucket.links.front())
        works.back().torch = shape.torch(approximation);
    }
  return measureReductions(rank, "whole hooks", all, works, bucket);
}

Status bench::benchStart(Rank &rank) {
  constexpr int64_t count = 4096;
  constexpr int samples = 15;
  // Fewer than a backend may have in flight, so that none waits for another.
  constexpr int calls = 64;
  // Names, and options of the backend.
  std::vector<std::pair<std::string, std::string>> kinds = {{"host", ""}};
  if (!rank.isOnHost()) {
    // As if each rank had a machine, so that they may use one GPU.
    kinds = {{"not blocking", "device=0,blocking=0"},
             {"blocking", "device=0,blocking=1"}};
  }
  std::vector<Result> results;
  for (const auto &[name, options] : kinds) {
    if (!options.empty()) {
      rank.leave();
      DDPHOOK_TRY(rank.join(options));
    }
    Context &job = rank.job();
    Group group(job);
    Array in(job), out(job);
    DDPHOOK_TRY(group.join("start", true, 4 * count));
    for (Array *array : {&in, &out})
      DDPHOOK_TRY(array->allocate(4 * count));
    std::vector<float> values(count, static_cast<float>(rank.number + 1));
    DDPHOOK_TRY(in.write(values.data(), 4 * count));
    const ddphook_collective_t sum =
        allReduceOf(count, Dtype::F32, std::nullopt, /*isMean=*/false);
    Samples seconds;
    for (int i = 0; i < samples; ++i) {
      rank.alive.progress(i);
      int64_t ticket = 0;
      DDPHOOK_TRY(job.barrier());
      const double begin = now();
      for (int call = 0; call < calls; ++call)
        DDPHOOK_TRY(job.call(&ddphook_backend_t::collective, group.get(), &sum,
                             in.as<>(), out.as<>(), &ticket));
      seconds.push_back((now() - begin) / calls);
      DDPHOOK_TRY(job.call(&ddphook_backend_t::wait, ticket));
      DDPHOOK_TRY(job.synchronize());
    }
    DDPHOOK_TRY(out.read(values.data(), 4 * count));
    const auto expected = static_cast<float>(rank.size * (rank.size + 1) / 2);
    DDPHOOK_TRY(rank.verify("sums, " + name,
                            values == std::vector<float>(count, expected)));
    results.push_back({name, "", 0, seconds});
  }
  return rank.add(concat("host time of starting an all-reduce of 16 KiB on '",
                         rank.options.device, "', ", rank.size, " ranks"),
                  results);
}
