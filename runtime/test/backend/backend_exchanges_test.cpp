// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reduce-scatters, all-gathers, all-to-alls and broadcasts of ranks as threads,
// over every transport of every backend: a reduce-scatter against the same
// backend's all-reduce, the others against what the ranks put in.

#include "backend/backend_test_util.h"

#include "base/collective.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <thread>

using namespace ddphook;
using namespace ddphook::test;

namespace {

using Exchanges = BackendTest;
INSTANTIATE_TEST_SUITE_P(, Exchanges,
                         testing::Values("host", "cuda_emulated", "cuda"),
                         [](const auto &info) { return info.param; });

constexpr CollectiveKind kinds[] = {
    CollectiveKind::ReduceScatter, CollectiveKind::AllGather,
    CollectiveKind::AllToAll, CollectiveKind::Broadcast};

struct Case {
  CollectiveKind kind;
  Dtype dtype;
  std::optional<Dtype> wire;
  int64_t count;
  bool divide = false;
  int root = 0;

  ddphook_collective_t operation() const {
    CollectiveOperation result(count, dtype, wire, divide);
    result.kind = static_cast<int32_t>(kind);
    result.root = root;
    return result;
  }
  std::string name() const {
    return describeCollective(kind) + " of " + std::to_string(count) + " " +
           dtypeName(dtype) + " over " + dtypeName(wire.value_or(dtype)) +
           (divide ? ", mean" : "") + ", root " + std::to_string(root);
  }
  size_t bytes(int64_t elements) const {
    return static_cast<size_t>(elements * dtypeSize(dtype));
  }
  /// Returns the input of a rank; poison follows a short part.
  std::vector<char> input(int rank, int ranks) const {
    std::vector<char> values = randomValues(
        dtype, inputElements(kind, count, ranks),
        2000 + static_cast<unsigned>(rank) + 7 * static_cast<unsigned>(count));
    if (kind == CollectiveKind::AllGather) {
      const size_t used = bytes(partOf(count, ranks, rank).size());
      std::fill(values.begin() + static_cast<int64_t>(used), values.end(),
                '\xff');
    }
    return values;
  }
};

std::vector<Case> allCases(int ranks) {
  constexpr Dtype types[] = {Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64};
  std::vector<Case> cases;
  const std::set<int64_t> counts = {0,  1,    ranks - 1, ranks, ranks + 1,
                                    31, 1009, 4096,      4099};
  for (Dtype dtype : types)
    for (int64_t count : counts) {
      std::vector<std::optional<Dtype>> wires = {std::nullopt};
      wires.insert(wires.end(), std::begin(types), std::end(types));
      for (std::optional<Dtype> wire : wires) {
        cases.push_back({CollectiveKind::ReduceScatter, dtype, wire, count});
        cases.push_back(
            {CollectiveKind::ReduceScatter, dtype, wire, count, true});
        cases.push_back({CollectiveKind::AllGather, dtype, wire, count});
      }
      cases.push_back({CollectiveKind::AllToAll, dtype, {}, count * ranks});
      for (int root = 0; root < ranks; ++root)
        cases.push_back(
            {CollectiveKind::Broadcast, dtype, {}, count, false, root});
    }
  // Several chunks, and sections of sums that end within parts.
  for (CollectiveKind kind : kinds)
    cases.push_back(
        {kind,
         Dtype::F32,
         {},
         kind == CollectiveKind::AllToAll ? 300000 * ranks : 1200007});
  cases.push_back(
      {CollectiveKind::ReduceScatter, Dtype::F32, Dtype::F16, 900001, true});
  return cases;
}

enum class Way { Blocking, Started, InPlace };

/// Runs it, and gives what is in the result.
std::vector<char> run(Rank &rank, const ddphook_collective_t &operation,
                      const std::vector<char> &in, size_t outBytes, Way way) {
  const ddphook_backend_t &backend = *rank.backend;
  DeviceArray source(rank, in);
  DeviceArray other(rank, std::vector<char>(outBytes, 'Z'));
  DeviceArray &result = way == Way::InPlace ? source : other;
  if (way == Way::Started) {
    int64_t ticket = 0;
    EXPECT_EQ(rank.show(backend.collective(rank.device, rank.communicator,
                                           &operation, source.get(),
                                           result.get(), &ticket, &rank.error)),
              "OK");
    EXPECT_GT(ticket, 0);
    EXPECT_EQ(rank.show(backend.wait(rank.device, ticket, &rank.error)), "OK");
  } else {
    EXPECT_EQ(rank.show(backend.collective(
                  rank.device, rank.communicator, &operation, source.get(),
                  result.get(), /*ticket=*/nullptr, &rank.error)),
              "OK");
  }
  std::vector<char> out = result.read();
  if (way != Way::InPlace) {
    EXPECT_EQ(source.read(), in);
  }
  return out;
}

/// The elements of an array as they are after a cast to another type and back.
std::vector<char> rounded(Rank &rank, const std::vector<char> &values,
                          const Case &test) {
  if (!test.wire || values.empty())
    return values;
  const auto count =
      static_cast<int64_t>(values.size()) / dtypeSize(test.dtype);
  DeviceArray in(rank, values);
  DeviceArray wire(rank, static_cast<uint64_t>(count * dtypeSize(*test.wire)));
  const auto own = static_cast<int32_t>(test.dtype);
  const auto other = static_cast<int32_t>(*test.wire);
  const ddphook_backend_t &backend = *rank.backend;
  EXPECT_EQ(rank.show(backend.cast(rank.device, in.get(), own, wire.get(),
                                   other, count, &rank.error)),
            "OK");
  EXPECT_EQ(rank.show(backend.cast(rank.device, wire.get(), other, in.get(),
                                   own, count, &rank.error)),
            "OK");
  return in.read();
}

std::vector<char> slice(const std::vector<char> &values, size_t begin,
                        size_t size) {
  const auto first = values.begin() + static_cast<int64_t>(begin);
  return {first, first + static_cast<int64_t>(size)};
}

/// What the ranks' operands make, of a reduce-scatter by way of an all-reduce.
std::vector<char> expected(Rank &rank, const Case &test, int ranks) {
  const int64_t count = test.count;
  const ElementRange own = partOf(count, ranks, rank.index);
  switch (test.kind) {
  case CollectiveKind::AllReduce:
    break;
  case CollectiveKind::ReduceScatter: {
    ddphook_collective_t whole = test.operation();
    whole.kind = DDPHOOK_ALL_REDUCE;
    const std::vector<char> sum =
        run(rank, whole, test.input(rank.index, ranks), test.bytes(count),
            Way::Blocking);
    std::vector<char> part =
        slice(sum, test.bytes(own.begin), test.bytes(own.size()));
    part.resize(test.bytes(partElements(count, ranks)), 0);
    return part;
  }
  case CollectiveKind::AllGather: {
    std::vector<char> all;
    for (int from = 0; from < ranks; ++from) {
      const std::vector<char> part =
          slice(test.input(from, ranks), 0,
                test.bytes(partOf(count, ranks, from).size()));
      all.insert(all.end(), part.begin(), part.end());
    }
    return rounded(rank, all, test);
  }
  case CollectiveKind::AllToAll: {
    std::vector<char> all;
    for (int from = 0; from < ranks; ++from) {
      const std::vector<char> part =
          slice(test.input(from, ranks), test.bytes(own.begin),
                test.bytes(own.size()));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  case CollectiveKind::Broadcast:
    return test.input(test.root, ranks);
  }
  return {};
}

ddphook_collective_t plain(CollectiveKind kind, int64_t count) {
  return Case{kind, Dtype::F32, {}, count}.operation();
}

double secondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

} // namespace

TEST_P(Exchanges, Bits) {
  for (const char *transport : {"shm", "gloo"}) {
    GroupOptions options;
    if (isHost())
      options.transport = transport;
    else if (std::string(transport) == "gloo")
      continue;
    for (int ranks = 1; ranks <= 4; ++ranks) {
      const std::vector<Case> cases = allCases(ranks);
      bool hasRun = runGroup(
          ranks,
          [&](Rank &rank) {
            for (size_t i = 0; i < cases.size(); ++i) {
              const Case &test = cases[i];
              Way way = static_cast<Way>(i % 3);
              if (way == Way::InPlace && !mayBeInPlace(test.kind))
                way = Way::Started;
              const std::vector<char> wanted = expected(rank, test, ranks);
              const std::vector<char> got =
                  run(rank, test.operation(), test.input(rank.index, ranks),
                      test.bytes(outputElements(test.kind, test.count, ranks)),
                      way);
              const bool isRough = test.kind == CollectiveKind::ReduceScatter &&
                                   ranks > 2 && !isHost();
              EXPECT_EQ(
                  isRough ? roughDifference(got, wanted, test.dtype, test.wire)
                          : difference(got, wanted, test.dtype),
                  "")
                  << test.name() << ", rank " << rank.index << " of " << ranks
                  << ", " << options.transport;
              if (testing::Test::HasFailure())
                return;
            }
          },
          options);
      if (!hasRun)
        GTEST_SKIP() << "no " << ranks << " GPUs; passed with fewer ranks";
    }
  }
}

/// Reduce-scatters of parts that are not equally long, empty ones among them:
/// the parts of an all-reduce, and nothing written behind them.
TEST_P(Exchanges, PartsOfOtherSizes) {
  const std::vector<std::vector<int64_t>> fractions = {
      {1}, {3, 0}, {0, 5}, {1, 7, 2}, {0, 1, 0}, {4, 0, 1, 2}};
  struct Kind {
    Dtype dtype;
    std::optional<Dtype> wire;
    bool divide;
    int64_t unit;
  };
  const Kind kinds[] = {{Dtype::F32, {}, true, 41003},
                        {Dtype::F64, {}, false, 17},
                        {Dtype::BF16, {}, true, 1001},
                        {Dtype::F32, Dtype::F16, true, 999}};
  for (const char *transport : {"shm", "gloo"}) {
    GroupOptions options;
    if (isHost())
      options.transport = transport;
    else if (std::string(transport) == "gloo")
      continue;
    for (const std::vector<int64_t> &parts : fractions) {
      const auto ranks = static_cast<int>(parts.size());
      bool hasRun = runGroup(
          ranks,
          [&](Rank &rank) {
            int number = 0;
            for (const Kind &kind : kinds) {
              std::vector<int64_t> ends;
              int64_t count = 0;
              for (int64_t part : parts)
                ends.push_back(count += part * kind.unit);
              const Case test = {CollectiveKind::ReduceScatter, kind.dtype,
                                 kind.wire, count, kind.divide};
              ddphook_collective_t operation = test.operation();
              ddphook_collective_t whole = operation;
              operation.part_ends = ends.data();
              whole.kind = DDPHOOK_ALL_REDUCE;
              const std::vector<char> in = test.input(rank.index, ranks);
              const std::vector<char> sum =
                  run(rank, whole, in, test.bytes(count), Way::Blocking);
              const ElementRange own = partOf(ends.data(), rank.index);
              const std::vector<char> wanted =
                  slice(sum, test.bytes(own.begin), test.bytes(own.size()));
              const size_t behind = 64;
              std::vector<char> got =
                  run(rank, operation, in, wanted.size() + behind,
                      number++ % 2 ? Way::Started : Way::Blocking);
              EXPECT_EQ(slice(got, wanted.size(), behind),
                        std::vector<char>(behind, 'Z'));
              got.resize(wanted.size());
              // In its place in the operand.
              DeviceArray array(rank, in);
              EXPECT_EQ(
                  rank.show(backend->collective(
                      rank.device, rank.communicator, &operation, array.get(),
                      static_cast<char *>(array.get()) + test.bytes(own.begin),
                      /*ticket=*/nullptr, &rank.error)),
                  "OK");
              const std::vector<char> kept =
                  slice(array.read(), test.bytes(own.begin), wanted.size());
              for (const std::vector<char> &result : {got, kept})
                EXPECT_EQ(
                    !isHost() && ranks > 2
                        ? roughDifference(result, wanted, test.dtype, test.wire)
                        : difference(result, wanted, test.dtype),
                    "")
                    << test.name() << ", rank " << rank.index << " of " << ranks
                    << ", " << options.transport;
              if (testing::Test::HasFailure())
                return;
            }
          },
          options);
      if (!hasRun)
        GTEST_SKIP() << "no " << ranks << " GPUs; passed with fewer ranks";
    }
  }
}

/// All kinds in flight at once, several times, and an all-reduce behind them.
TEST_P(Exchanges, KindsAreInFlightTogether) {
  const int ranks = 3;
  const int rounds = 5;
  const int64_t part = 1001, count = part * ranks;
  auto filled = [](int64_t size, float value) {
    std::vector<float> values(static_cast<size_t>(size), value);
    std::vector<char> bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  };
  bool hasRun = runGroup(ranks, [&](Rank &rank) {
    std::vector<std::unique_ptr<DeviceArray>> ins, outs;
    int64_t ticket = 0;
    auto start = [&](CollectiveKind kind, int64_t in, int64_t out) {
      const auto value = static_cast<float>(rank.index + 1);
      ins.push_back(std::make_unique<DeviceArray>(rank, filled(in, value)));
      outs.push_back(std::make_unique<DeviceArray>(rank, filled(out, -1)));
      ddphook_collective_t operation = plain(kind, count);
      operation.root = kind == CollectiveKind::Broadcast ? 2 : 0;
      const int64_t before = ticket;
      ASSERT_EQ(rank.show(backend->collective(rank.device, rank.communicator,
                                              &operation, ins.back()->get(),
                                              outs.back()->get(), &ticket,
                                              &rank.error)),
                "OK");
      ASSERT_GT(ticket, before);
    };
    for (int round = 0; round < rounds; ++round) {
      start(CollectiveKind::ReduceScatter, count, part);
      start(CollectiveKind::AllGather, part, count);
      start(CollectiveKind::AllToAll, count, count);
      start(CollectiveKind::Broadcast, count, count);
      start(CollectiveKind::AllReduce, count, count);
    }
    ASSERT_EQ(rank.show(backend->wait(rank.device, ticket, &rank.error)), "OK");
    std::vector<char> byRank;
    for (int from = 0; from < ranks; ++from) {
      const std::vector<char> theirs =
          filled(part, static_cast<float>(from + 1));
      byRank.insert(byRank.end(), theirs.begin(), theirs.end());
    }
    for (size_t i = 0; i < outs.size(); i += 5) {
      EXPECT_EQ(outs[i]->read(), filled(part, 6));
      EXPECT_EQ(outs[i + 1]->read(), byRank);
      EXPECT_EQ(outs[i + 2]->read(), byRank);
      EXPECT_EQ(outs[i + 3]->read(), filled(count, 3));
      EXPECT_EQ(outs[i + 4]->read(), filled(count, 6));
    }
  });
  if (!hasRun)
    GTEST_SKIP() << "no " << ranks << " GPUs";
}

TEST_P(Exchanges, WrongOnesAreRefused) {
  const int ranks = 2;
  bool hasRun = runGroup(ranks, [&](Rank &rank) {
    DeviceArray in(rank, 64), out(rank, 64);
    auto refuse = [&](const ddphook_collective_t &operation,
                      const std::string &message) {
      EXPECT_EQ(rank.show(backend->collective(rank.device, rank.communicator,
                                              &operation, in.get(), out.get(),
                                              /*ticket=*/nullptr, &rank.error)),
                "INVALID_ARGUMENT: expected " + message);
      int64_t ticket = 0;
      EXPECT_EQ(rank.show(backend->collective(rank.device, rank.communicator,
                                              &operation, in.get(), out.get(),
                                              &ticket, &rank.error)),
                "INVALID_ARGUMENT: expected " + message);
    };
    ddphook_collective_t operation = plain(CollectiveKind::Broadcast, 8);
    operation.kind = 5;
    refuse(operation, "a kind of collective, but got 5");
    operation.kind = -1;
    refuse(operation, "a kind of collective, but got -1");
    operation = plain(CollectiveKind::Broadcast, 8);
    operation.root = 2;
    refuse(operation,
           "the root of a broadcast to be one of 2 ranks, but got 2");
    operation.root = -1;
    refuse(operation,
           "the root of a broadcast to be one of 2 ranks, but got -1");
    refuse(plain(CollectiveKind::AllToAll, 9),
           "the element count of an all-to-all to be a multiple of 2 ranks, "
           "but got 9");
    refuse(plain(CollectiveKind::ReduceScatter, -1),
           "a count of at least 0, but got -1");
    const int64_t descending[] = {5, 4}, early[] = {2, 7}, ends[] = {2, 8};
    operation = plain(CollectiveKind::ReduceScatter, 8);
    operation.part_ends = descending;
    refuse(operation, "consecutive parts that cover 8 elements, but got a part "
                      "from element 5 to 4");
    operation.part_ends = early;
    refuse(operation, "consecutive parts that cover 8 elements, but got a part "
                      "from element 2 to 7");
    operation = plain(CollectiveKind::AllReduce, 8);
    operation.part_ends = ends;
    refuse(operation, "part ends only for a reduce-scatter without an "
                      "encoding, but got kind 0 with encoding 0");
    // The group is unharmed.
    operation = plain(CollectiveKind::AllToAll, 8);
    EXPECT_EQ(rank.show(backend->collective(rank.device, rank.communicator,
                                            &operation, in.get(), out.get(),
                                            /*ticket=*/nullptr, &rank.error)),
              "OK");
  });
  if (!hasRun)
    GTEST_SKIP() << "no " << ranks << " GPUs";
}

/// Every kind waits for all ranks but a broadcast's root, and no longer than
/// the deadline.
TEST_P(Exchanges, AMissingPeerIsADeadline) {
  for (const char *transport : {"shm", "gloo"}) {
    GroupOptions options;
    options.timeout = 1;
    if (isHost())
      options.transport = transport;
    else if (std::string(transport) == "gloo")
      continue;
    for (CollectiveKind kind : kinds) {
      ddphook_collective_t operation = plain(kind, 8);
      operation.root = kind == CollectiveKind::Broadcast ? 1 : 0;
      std::atomic<int> left{2};
      std::atomic<bool> hasExpired{false};
      bool hasRun = runGroup(
          2,
          [&](Rank &rank) {
            DeviceArray in(rank, 32), out(rank, 32);
            auto call = [&] {
              ddphook_status_t status = backend->collective(
                  rank.device, rank.communicator, &operation, in.get(),
                  out.get(), /*ticket=*/nullptr, &rank.error);
              return status == DDPHOOK_OK
                         ? backend->synchronize(rank.device, &rank.error)
                         : status;
            };
            // Connected; first collectives take longer than others.
            EXPECT_EQ(rank.show(call()), "OK");
            if (rank.index == 0) {
              auto begin = std::chrono::steady_clock::now();
              EXPECT_EQ(call(), DDPHOOK_DEADLINE_EXCEEDED)
                  << describeCollective(kind) << ": " << rank.error.message;
              EXPECT_GE(secondsSince(begin), 0.9);
              EXPECT_LT(secondsSince(begin), 20);
              const std::string first = rank.error.message;
              EXPECT_EQ(call(), DDPHOOK_DEADLINE_EXCEEDED);
              EXPECT_EQ(rank.error.message, first);
              hasExpired = true;
            } else {
              while (!hasExpired)
                std::this_thread::sleep_for(std::chrono::microseconds(100));
            }
            --left;
            while (left > 0)
              std::this_thread::sleep_for(std::chrono::microseconds(100));
          },
          options);
      if (!hasRun)
        GTEST_SKIP() << "no two GPUs";
    }
  }
}
