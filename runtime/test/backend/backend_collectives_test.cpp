// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduces of ranks as threads, against the host backend over shared memory,
// whose bits host_backend_test.cpp holds to docs/parity.md; their order;
// missing peers and aborts.

#include "backend/backend_store.h"
#include "backend/backend_test_util.h"

#include "host_backend.h"
#include "store/store.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <thread>

using namespace ddphook;
using namespace ddphook::test;

namespace {

using Collectives = BackendTest;
INSTANTIATE_TEST_SUITE_P(, Collectives,
                         testing::Values("host", "cuda_emulated", "cuda"),
                         [](const auto &info) { return info.param; });

struct Case {
  Dtype dtype;
  std::optional<Dtype> wire;
  int64_t count;
  bool divide;

  ddphook_collective_t operation() const {
    return CollectiveOperation(count, dtype, wire, divide);
  }
  std::string name() const {
    return std::string(dtypeName(dtype)) + " over " +
           dtypeName(wire.value_or(dtype)) + (divide ? " mean" : " sum") +
           " of " + std::to_string(count);
  }
  std::vector<char> input(int rank) const {
    return randomValues(dtype, count,
                        1000 + static_cast<unsigned>(rank) +
                            7 * static_cast<unsigned>(count));
  }
};

std::vector<Case> allCases() {
  constexpr Dtype types[] = {Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64};
  std::vector<Case> cases;
  for (Dtype dtype : types)
    for (int64_t count : {0, 1, 3, 31, 1009, 4099})
      for (bool divide : {false, true}) {
        cases.push_back({dtype, std::nullopt, count, divide});
        for (Dtype wire : types)
          cases.push_back({dtype, wire, count, divide});
      }
  return cases;
}

enum class Way { Blocking, InPlace, Started };

std::vector<char> reduce(Rank &rank, const Case &test, Way way) {
  const ddphook_backend_t &backend = *rank.backend;
  ddphook_collective_t operation = test.operation();
  std::vector<char> in = test.input(rank.index);
  DeviceArray source(rank, in);
  DeviceArray other(rank, std::vector<char>(in.size(), 'Z'));
  DeviceArray &result = way == Way::InPlace ? source : other;
  if (way == Way::Started) {
    int64_t ticket = 0;
    EXPECT_EQ(rank.show(backend.collective(rank.device, rank.communicator,
                                           &operation, source.get(),
                                           result.get(), &ticket, &rank.error)),
              "OK");
    EXPECT_GT(ticket, 0);
    EXPECT_EQ(rank.show(backend.wait(rank.device, ticket, &rank.error)), "OK");
    EXPECT_EQ(rank.show(backend.wait(rank.device, ticket, &rank.error)), "OK");
  } else {
    EXPECT_EQ(rank.show(backend.collective(
                  rank.device, rank.communicator, &operation, source.get(),
                  result.get(), /*ticket=*/nullptr, &rank.error)),
              "OK");
  }
  if (way != Way::InPlace) {
    EXPECT_EQ(difference(source.read(), in, test.dtype), "");
  }
  return result.read();
}

/// Ends the group's threads together, whatever happened before.
class Meeting {
public:
  explicit Meeting(int size) : left(size) {}
  void arrive() {
    --left;
    while (left > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

private:
  std::atomic<int> left;
};

/// Runs an all-reduce to its end.
ddphook_status_t reduceAndWait(Rank &rank, DeviceArray &data, int64_t count) {
  ddphook_collective_t operation = plainSum(count, DDPHOOK_F32);
  ddphook_status_t status = rank.backend->collective(
      rank.device, rank.communicator, &operation, data.get(), data.get(),
      /*ticket=*/nullptr, &rank.error);
  return status == DDPHOOK_OK
             ? rank.backend->synchronize(rank.device, &rank.error)
             : status;
}

double secondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

} // namespace

TEST_P(Collectives, Bits) {
  std::vector<Case> cases = allCases();
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::vector<std::vector<char>> expected(cases.size());
    const ddphook_backend_t *mine = backend;
    backend = &host::hostBackend();
    runGroup(ranks, [&](Rank &rank) {
      for (size_t i = 0; i < cases.size(); ++i) {
        std::vector<char> sum = reduce(rank, cases[i], Way::Blocking);
        if (rank.index == 0)
          expected[i] = std::move(sum);
      }
    });
    backend = mine;
    GroupOptions options;
    options.transport = isHost() ? "gloo" : "auto";
    options.options = exactDivision();
    bool hasRun = runGroup(
        ranks,
        [&](Rank &rank) {
          for (size_t i = 0; i < cases.size(); ++i) {
            std::vector<char> got =
                reduce(rank, cases[i], static_cast<Way>(i % 3));
            EXPECT_EQ(!isHost() && ranks > 2
                          ? roughDifference(got, expected[i], cases[i].dtype,
                                            cases[i].wire)
                          : difference(got, expected[i], cases[i].dtype),
                      "")
                << cases[i].name() << ", " << ranks << " ranks";
            if (testing::Test::HasFailure())
              return;
          }
        },
        options);
    if (!hasRun)
      GTEST_SKIP() << "no " << ranks << " GPUs; passed with fewer ranks";
  }
}

/// Every element is 0 on all ranks but one, so that the order of additions does
/// not matter and the bits are those of a quotient.
TEST_P(Collectives, MeansDivideAsTheDeviceDoes) {
  constexpr int ranks = 3;
  constexpr int64_t count = 3000;
  const std::vector<char> values = randomValues(Dtype::F32, count, 16);
  for (bool isExact : {false, true})
    for (bool isScatter : {false, true}) {
      GroupOptions options;
      options.options = isExact ? exactDivision() : "";
      bool hasRun = runGroup(
          ranks,
          [&](Rank &rank) {
            std::vector<float> x(count), wanted(count);
            std::memcpy(x.data(), values.data(), values.size());
            for (size_t i = 0; i < x.size(); ++i) {
              wanted[i] = isExact || isHost() ? x[i] / 3 : x[i] * (1 / 3.0f);
              x[i] = static_cast<int>(i % ranks) == rank.index ? x[i] : 0;
            }
            std::vector<char> bytes(values.size());
            std::memcpy(bytes.data(), x.data(), bytes.size());
            DeviceArray in(rank, bytes), out(rank, bytes.size());
            CollectiveOperation mean(count, Dtype::F32, std::nullopt, true);
            const size_t part = bytes.size() / ranks;
            if (isScatter)
              mean.kind = DDPHOOK_REDUCE_SCATTER;
            ASSERT_EQ(rank.show(backend->collective(
                          rank.device, rank.communicator, &mean, in.get(),
                          out.get(), /*ticket=*/nullptr, &rank.error)),
                      "OK");
            std::memcpy(bytes.data(), wanted.data(), bytes.size());
            std::vector<char> got = out.read();
            if (isScatter) {
              got.resize(part);
              const auto begin = static_cast<size_t>(rank.index) * part;
              std::copy_n(bytes.data() + begin, part, bytes.data());
              bytes.resize(part);
            }
            EXPECT_EQ(difference(got, bytes, Dtype::F32), "");
          },
          options);
      if (!hasRun)
        GTEST_SKIP() << "no " << ranks << " GPUs";
    }
}

TEST_P(Collectives, StartedOnesKeepTheirOrder) {
  const int ranks = 3;
  bool hasRun = runGroup(ranks, [&](Rank &rank) {
    const int64_t count = 1000;
    const size_t number = 50;
    std::vector<std::unique_ptr<DeviceArray>> arrays;
    std::vector<int64_t> tickets(number);
    auto filled = [&](float value) {
      std::vector<float> values(count, value);
      std::vector<char> bytes(count * sizeof(float));
      std::memcpy(bytes.data(), values.data(), bytes.size());
      return bytes;
    };
    for (size_t i = 0; i < number; ++i)
      arrays.push_back(std::make_unique<DeviceArray>(
          rank, filled(static_cast<float>(i + 1))));
    ddphook_collective_t operation = plainSum(count, DDPHOOK_F32);
    for (size_t i = 0; i < number; ++i) {
      ASSERT_EQ(rank.show(backend->collective(rank.device, rank.communicator,
                                              &operation, arrays[i]->get(),
                                              arrays[i]->get(), &tickets[i],
                                              &rank.error)),
                "OK");
      ASSERT_GT(tickets[i], i == 0 ? 0 : tickets[i - 1]);
    }
    // A blocking one comes after all of them.
    ASSERT_EQ(rank.show(reduceAndWait(rank, *arrays[0], count)), "OK");
    EXPECT_EQ(arrays[0]->read(), filled(9));
    for (size_t i = 1; i < number; ++i)
      EXPECT_EQ(arrays[i]->read(), filled(3 * static_cast<float>(i + 1)));
    EXPECT_EQ(
        rank.show(backend->wait(rank.device, tickets.back(), &rank.error)),
        "OK");
    for (int64_t wrong : {int64_t(0), int64_t(-1), tickets.back() + 100})
      EXPECT_EQ(backend->wait(rank.device, wrong, &rank.error),
                DDPHOOK_INVALID_ARGUMENT);
  });
  if (!hasRun)
    GTEST_SKIP() << "no " << ranks << " GPUs";
}

/// Each begins when the one before has ended, without anybody waiting.
TEST_P(Collectives, KernelsAndCollectivesAlternate) {
  const int ranks = 2;
  bool hasRun = runGroup(ranks, [&](Rank &rank) {
    const int64_t count = 20000;
    std::vector<char> ones(count * sizeof(double));
    for (int64_t i = 0; i < count; ++i) {
      const double one = 1;
      std::memcpy(ones.data() + i * 8, &one, sizeof(one));
    }
    DeviceArray a(rank, ones), b(rank, ones);
    ddphook_collective_t sum = plainSum(count, DDPHOOK_F64);
    auto check = [&](ddphook_status_t status) {
      EXPECT_EQ(rank.show(status), "OK");
    };
    for (int i = 0; i < 10; ++i) {
      check(backend->scale(rank.device, 3, a.get(), b.get(), count, DDPHOOK_F64,
                           &rank.error));
      if (i % 2 == 0) {
        check(backend->collective(rank.device, rank.communicator, &sum, b.get(),
                                  a.get(), /*ticket=*/nullptr, &rank.error));
      } else {
        int64_t ticket = 0;
        check(backend->collective(rank.device, rank.communicator, &sum, b.get(),
                                  a.get(), &ticket, &rank.error));
        check(backend->wait(rank.device, ticket, &rank.error));
      }
    }
    std::vector<double> got = toDoubles(a.read(), Dtype::F64);
    EXPECT_EQ(got, std::vector<double>(count, std::pow(6.0, 10)));
  });
  if (!hasRun)
    GTEST_SKIP() << "no " << ranks << " GPUs";
}

/// More than a backend keeps books of at a time.
TEST_P(Collectives, ManyAreUnderWay) {
  const int ranks = 2;
  bool hasRun = runGroup(ranks, [&](Rank &rank) {
    std::vector<char> ones(16 * sizeof(float));
    for (size_t i = 0; i < 16; ++i) {
      float one = 1;
      std::memcpy(ones.data() + i * sizeof(float), &one, sizeof(float));
    }
    DeviceArray data(rank, ones), sum(rank, ones);
    ddphook_collective_t operation = plainSum(16, DDPHOOK_F32);
    int64_t ticket = 0;
    for (int i = 0; i < 600; ++i)
      ASSERT_EQ(rank.show(backend->collective(rank.device, rank.communicator,
                                              &operation, data.get(), sum.get(),
                                              &ticket, &rank.error)),
                "OK");
    ASSERT_EQ(rank.show(backend->wait(rank.device, ticket, &rank.error)), "OK");
    std::vector<double> got = toDoubles(sum.read(), Dtype::F32);
    EXPECT_EQ(got, std::vector<double>(16, 2));
  });
  if (!hasRun)
    GTEST_SKIP() << "no " << ranks << " GPUs";
}

TEST_P(Collectives, AMissingPeerIsADeadline) {
  Meeting meeting(2);
  std::atomic<bool> hasExpired{false};
  GroupOptions options;
  // Joining has it, too: NCCL takes seconds for that on a GPU.
  options.timeout = isReal() ? 20 : 2;
  bool hasRun = runGroup(
      2,
      [&](Rank &rank) {
        DeviceArray data(rank, 40);
        // Connected; first collectives take longer than others.
        EXPECT_EQ(rank.show(reduceAndWait(rank, data, 10)), "OK");
        if (rank.index == 0) {
          auto begin = std::chrono::steady_clock::now();
          EXPECT_EQ(reduceAndWait(rank, data, 10), DDPHOOK_DEADLINE_EXCEEDED)
              << rank.error.message;
          EXPECT_GE(secondsSince(begin), options.timeout - 0.1);
          EXPECT_LT(secondsSince(begin), options.timeout + 18);
          // Later calls fail with the same.
          std::string first = rank.error.message;
          EXPECT_EQ(reduceAndWait(rank, data, 10), DDPHOOK_DEADLINE_EXCEEDED);
          EXPECT_EQ(rank.error.message, first);
          hasExpired = true;
        } else {
          while (!hasExpired)
            std::this_thread::sleep_for(std::chrono::microseconds(100));
          EXPECT_NE(reduceAndWait(rank, data, 10), DDPHOOK_OK);
        }
        meeting.arrive();
      },
      options);
  if (!hasRun)
    GTEST_SKIP() << "no two GPUs";
}

TEST_P(Collectives, NoGroupIsJoinedAfterAnAbort) {
  MemoryStore store;
  const ddphook_backend_store_t table = toBackendStore(store);
  Meeting meeting(2);
  bool hasRun = runGroup(2, [&](Rank &rank) {
    backend->abort(rank.device, DDPHOOK_ABORTED, "rank 7 failed");
    const auto config = groupOnOneMachine(2, rank.index, table, "later");
    ddphook_communicator_t *later = nullptr;
    EXPECT_EQ(
        backend->communicator_create(rank.device, &config, &later, &rank.error),
        DDPHOOK_ABORTED)
        << rank.error.message;
    meeting.arrive();
  });
  if (!hasRun)
    GTEST_SKIP() << "no two GPUs";
}

TEST_P(Collectives, AbortEndsEverything) {
  Meeting meeting(2);
  bool hasRun = runGroup(2, [&](Rank &rank) {
    DeviceArray data(rank, 40);
    EXPECT_EQ(rank.show(reduceAndWait(rank, data, 10)), "OK");
    if (rank.index == 1) {
      // Only there, so that the other one waits. Were it aborted too, its
      // farewell might be the first that the other one hears.
      meeting.arrive();
      return;
    }
    // It waits in a collective, and is aborted by another thread.
    auto begin = std::chrono::steady_clock::now();
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      backend->abort(rank.device, DDPHOOK_ABORTED, "rank 7 failed");
    });
    EXPECT_EQ(rank.show(reduceAndWait(rank, data, 10)),
              "ABORTED: rank 7 failed");
    EXPECT_LT(secondsSince(begin), 20);
    other.join();
    ddphook_collective_t operation = plainSum(10, DDPHOOK_F32);
    int64_t ticket = 0;
    EXPECT_EQ(rank.show(backend->collective(rank.device, rank.communicator,
                                            &operation, data.get(), data.get(),
                                            &ticket, &rank.error)),
              "ABORTED: rank 7 failed");
    meeting.arrive();
  });
  if (!hasRun)
    GTEST_SKIP() << "no two GPUs";
}
