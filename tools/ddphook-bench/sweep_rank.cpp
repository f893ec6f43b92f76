//===- sweep_rank.cpp - one rank of a sweep -------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See sweep_rank.h.
//
//===----------------------------------------------------------------------===//
#include "sweep_rank.h"

#include "all_ranks.h"
#include "base/collective.h"
#include "job/context.h"
#include "sweep_values.h"

#include <algorithm>
#include <cstring>
#include <set>

using namespace ddphook;
using namespace ddphook::bench;

static constexpr uint64_t kAlignment = 256;
/// Fills a result before it is computed; not a sum of any sweep.
static constexpr unsigned char kPoison = 0xa5;

namespace {

/// Memory of the context's device.
class Array {
public:
  explicit Array(Context &context) : context(context) {}
  ~Array() {
    if (memory)
      context.backend().memory_free(context.device(), memory, bytes);
  }
  Array(const Array &) = delete;
  Array &operator=(const Array &) = delete;

  Status allocate(int64_t size) {
    bytes = static_cast<uint64_t>(size);
    return context.call(&ddphook_backend_t::memory_alloc, bytes, kAlignment,
                        &memory);
  }
  Status write(const std::vector<char> &host) const {
    return context.call(&ddphook_backend_t::memory_write, memory,
                        static_cast<const void *>(host.data()),
                        static_cast<uint64_t>(host.size()));
  }
  Status read(std::vector<char> *host) const {
    return context.call(
        &ddphook_backend_t::memory_read, static_cast<void *>(host->data()),
        static_cast<const void *>(memory), static_cast<uint64_t>(host->size()));
  }
  void *get() const { return memory; }

private:
  Context &context;
  void *memory = nullptr;
  uint64_t bytes = 0;
};

class SweepRank {
public:
  SweepRank(const SweepOptions &options, Context &context)
      : options(options), context(context), in(context), out(context),
        word(context) {}
  ~SweepRank() {
    if (group)
      context.backend().communicator_destroy(context.device(), group);
  }
  SweepRank(const SweepRank &) = delete;
  SweepRank &operator=(const SweepRank &) = delete;

  Status prepare(SweepResult *result);
  Status measure(SweepRow *row);

private:
  Status compareOptions();
  Status connect(bool isOneMachine);
  Status allReduce(const ddphook_collective_t &operation, const void *from,
                   void *to);
  Status time(const ddphook_collective_t &operation, const void *from, void *to,
              std::vector<double> *seconds);
  Status check(const SweepRow &row, const ddphook_collective_t &operation,
               const SweepValues &values, bool isInPlace, int64_t *wrong);
  Status combine(SweepTiming *timing);

  const SweepOptions &options;
  Context &context;
  Array in, out, word;
  ddphook_communicator_t *group = nullptr;
};

} // namespace

Status SweepRank::compareOptions() {
  const std::string mine = options.fingerprint();
  std::vector<std::string> all;
  DDPHOOK_RETURN_IF_ERROR(context.allGather("options of a sweep", mine, &all));
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      return error(DDPHOOK_INVALID_ARGUMENT,
                   "expected the same options on all ranks, but rank 0 got "
                   "'%s' and rank %zu got '%s'",
                   all[0].c_str(), rank, all[rank].c_str());
  return Status::ok();
}

Status SweepRank::connect(bool isOneMachine) {
  // The barrier's word is a collective, too.
  return joinAllRanks(context, "sweep", isOneMachine,
                      std::max<int64_t>(options.maxBytes, 8), &group);
}

Status SweepRank::prepare(SweepResult *result) {
  DDPHOOK_RETURN_IF_ERROR(compareOptions());
  DDPHOOK_RETURN_IF_ERROR(in.allocate(options.maxBytes));
  DDPHOOK_RETURN_IF_ERROR(out.allocate(options.maxBytes));
  DDPHOOK_RETURN_IF_ERROR(word.allocate(8));
  std::set<std::string> machines, memories;
  for (const NodeIdentity &node : context.allNodes()) {
    machines.insert(node.node);
    memories.insert(node.memoryDomain);
  }
  result->worldSize = context.worldSize();
  result->machines = std::max(1, static_cast<int>(machines.size()));
  result->isMean = options.isMean;
  return connect(/*isOneMachine=*/memories.size() <= 1);
}

Status SweepRank::allReduce(const ddphook_collective_t &operation,
                            const void *from, void *to) {
  return context.call(&ddphook_backend_t::collective, group, &operation, from,
                      to, /*ticket=*/nullptr);
}

Status SweepRank::time(const ddphook_collective_t &operation, const void *from,
                       void *to, std::vector<double> *seconds) {
  for (int i = 0; i < options.warmup; ++i)
    DDPHOOK_RETURN_IF_ERROR(allReduce(operation, from, to));
  const CollectiveOperation barrier(1, Dtype::F32);
  for (int round = 0; round < options.rounds; ++round) {
    DDPHOOK_RETURN_IF_ERROR(allReduce(barrier, word.get(), word.get()));
    DDPHOOK_RETURN_IF_ERROR(context.synchronize());
    const double begin = now();
    for (int i = 0; i < options.iterations; ++i)
      DDPHOOK_RETURN_IF_ERROR(allReduce(operation, from, to));
    DDPHOOK_RETURN_IF_ERROR(context.synchronize());
    seconds->push_back((now() - begin) / options.iterations);
  }
  return Status::ok();
}

Status SweepRank::check(const SweepRow &row,
                        const ddphook_collective_t &operation,
                        const SweepValues &values, bool isInPlace,
                        int64_t *wrong) {
  const std::vector<char> input = values.input(context.rank(), row.count);
  std::vector<char> result(input.size(), static_cast<char>(kPoison));
  DDPHOOK_RETURN_IF_ERROR(in.write(input));
  DDPHOOK_RETURN_IF_ERROR(out.write(isInPlace ? input : result));
  const void *from = isInPlace ? out.get() : in.get();
  DDPHOOK_RETURN_IF_ERROR(allReduce(operation, from, out.get()));
  DDPHOOK_RETURN_IF_ERROR(context.synchronize());
  DDPHOOK_RETURN_IF_ERROR(out.read(&result));
  *wrong = values.countWrong(result.data(), row.count);
  if (isInPlace)
    return Status::ok();
  // An out-of-place reduction must not write to its input.
  DDPHOOK_RETURN_IF_ERROR(in.read(&result));
  const bool isKept = result == input;
  *wrong = isKept ? *wrong : row.count;
  return Status::ok();
}

/// Combines all ranks: the slowest rank's times, the sum of wrong elements.
Status SweepRank::combine(SweepTiming *timing) {
  std::vector<double> numbers = timing->samples.seconds;
  numbers.push_back(static_cast<double>(timing->wrong.value_or(0)));
  const std::string mine(reinterpret_cast<const char *>(numbers.data()),
                         numbers.size() * sizeof(double));
  std::vector<std::string> all;
  DDPHOOK_RETURN_IF_ERROR(context.allGather("results of a sweep", mine, &all));
  std::fill(numbers.begin(), numbers.end(), 0);
  for (const std::string &theirs : all) {
    std::vector<double> other(numbers.size());
    if (theirs.size() != mine.size())
      return error(DDPHOOK_INTERNAL,
                   "expected results of %zu bytes, but got %zu", mine.size(),
                   theirs.size());
    std::memcpy(other.data(), theirs.data(), theirs.size());
    for (size_t i = 0; i + 1 < numbers.size(); ++i)
      numbers[i] = std::max(numbers[i], other[i]);
    numbers.back() += other.back();
  }
  if (timing->wrong)
    timing->wrong = static_cast<int64_t>(numbers.back());
  numbers.pop_back();
  timing->samples.seconds = std::move(numbers);
  return Status::ok();
}

Status SweepRank::measure(SweepRow *row) {
  CollectiveOperation operation(row->count, row->dtype, row->wire,
                                options.isMean);
  if (row->wire == row->dtype)
    operation.wire_dtype = -1;
  const std::optional<SweepValues> values = SweepValues::create(
      row->dtype, row->wire, options.isMean, context.worldSize());
  for (bool isInPlace : {false, true}) {
    SweepTiming &timing = isInPlace ? row->inPlace : row->outOfPlace;
    if (options.checks && values) {
      int64_t wrong = 0;
      DDPHOOK_RETURN_IF_ERROR(
          check(*row, operation, *values, isInPlace, &wrong));
      timing.wrong = wrong;
    }
    const void *from = isInPlace ? out.get() : in.get();
    DDPHOOK_RETURN_IF_ERROR(
        time(operation, from, out.get(), &timing.samples.seconds));
    DDPHOOK_RETURN_IF_ERROR(combine(&timing));
  }
  return Status::ok();
}

Status
bench::runSweepRank(const SweepOptions &options, const Bootstrap &place,
                    const std::function<Status(const SweepResult &)> &onBegin,
                    const std::function<void(const SweepResult &)> &onRow,
                    SweepResult *result) {
  std::unique_ptr<Context> context;
  DDPHOOK_RETURN_IF_ERROR(Context::create(place, &context));
  result->backend = place.backend;
  result->transport = place.transport;
  SweepRank rank(options, *context);
  // A rank that fails must not keep the others waiting.
  auto run = [&]() -> Status {
    DDPHOOK_RETURN_IF_ERROR(rank.prepare(result));
    DDPHOOK_RETURN_IF_ERROR(onBegin(*result));
    for (const SweepHook &hook : options.hooks)
      for (Dtype dtype : options.dtypes)
        for (int64_t size : options.sizes()) {
          SweepRow row;
          row.hook = hook.name;
          row.dtype = dtype;
          row.wire = hook.wire.value_or(dtype);
          row.count = size / dtypeSize(dtype);
          if (row.count == 0)
            continue;
          DDPHOOK_RETURN_IF_ERROR(rank.measure(&row));
          result->rows.push_back(std::move(row));
          onRow(*result);
        }
    return context->barrier();
  };
  Status status = run();
  return status.isOk() ? status : context->fail(std::move(status));
}
