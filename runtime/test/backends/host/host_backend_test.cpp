// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduces of ranks as threads, over both transports, against a scalar model
// of docs/parity.md; the order of collectives; failures.

#include "backend/backend_store.h"
#include "backend/backend_test_util.h"
#include "encoded_chunks.h"
#include "host_backend.h"
#include "host_communicator.h"
#include "kernels.h"
#include "store/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::host;
using ddphook::test::groupOnOneMachine;
using ddphook::test::plainSum;

namespace {

const ddphook_backend_t &backend() { return hostBackend(); }

/// A rank of a group, on a thread of its own.
struct Rank {
  ddphook_device_t *device = nullptr;
  ddphook_communicator_t *communicator = nullptr;
  ddphook_backend_error_t error = {};
  int index = 0;
};

/// A transport, and the value of async_progress for ranks of even and of odd
/// numbers.
struct Setting {
  const char *transport;
  const char *progress[2] = {"auto", "auto"};
};

void PrintTo(const Setting &setting, std::ostream *os) {
  *os << setting.transport << ", " << setting.progress[0] << " and "
      << setting.progress[1];
}

/// Runs `body` as every rank of a group of `size`.
void runGroup(int size, const Setting &setting, double timeout,
              const std::function<void(Rank &)> &body) {
  MemoryStore store;
  ddphook_backend_store_t table = toBackendStore(store);
  std::vector<std::thread> threads;
  for (int index = 0; index < size; ++index)
    threads.emplace_back([&, index] {
      Rank rank;
      rank.index = index;
      ddphook_device_config_t device = {};
      device.struct_size = sizeof(device);
      device.transport = setting.transport;
      const std::string options =
          std::string("async_progress=") + setting.progress[index % 2];
      device.options = options.c_str();
      device.local_address = "127.0.0.1";
      device.timeout_s = timeout;
      device.threads = 2;
      ASSERT_EQ(backend().device_create(&device, &rank.device, &rank.error),
                DDPHOOK_OK)
          << rank.error.message;
      const auto config = groupOnOneMachine(size, index, table, "group");
      ASSERT_EQ(backend().communicator_create(rank.device, &config,
                                              &rank.communicator, &rank.error),
                DDPHOOK_OK)
          << rank.error.message;
      body(rank);
      backend().communicator_destroy(rank.device, rank.communicator);
      backend().device_destroy(rank.device);
    });
  for (std::thread &thread : threads)
    thread.join();
}

/// Rounds to a type by the scalar path: casting one element.
double roundTo(Dtype type, double value) {
  if (type == Dtype::F64)
    return value;
  float single = static_cast<float>(value);
  if (type == Dtype::F32)
    return single;
  if (type == Dtype::F16)
    return static_cast<double>(static_cast<_Float16>(single));
  uint32_t bits;
  std::memcpy(&bits, &single, sizeof(bits));
  if (!std::isnan(single))
    bits += 0x7fff + ((bits >> 16) & 1);
  bits &= 0xffff0000;
  std::memcpy(&single, &bits, sizeof(bits));
  return single;
}

std::vector<double> toDoubles(const std::vector<char> &bytes, Dtype type,
                              int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  castArray(bytes.data(), type, values.data(), Dtype::F64, count);
  return values;
}

/// The chunk that element `i` is in, by Gloo's rule.
int64_t chunkOf(int64_t i, int64_t count, int64_t elementSize, int64_t ranks) {
  auto roundUp = [](int64_t value, int64_t unit) {
    return (value + unit - 1) / unit * unit;
  };
  int64_t bytes = count * elementSize;
  int64_t maxSegment = elementSize * ((1 << 20) / elementSize);
  int64_t segments = roundUp(
      std::max((bytes + maxSegment - 1) / maxSegment, 2 * ranks), ranks);
  int64_t segment = roundUp((bytes + segments - 1) / segments, elementSize);
  return i * elementSize / segment / (segments / ranks);
}

/// The sum over ranks that element `i` of `inputs` must become.
double expected(const CollectiveDesc &desc, int64_t i,
                const std::vector<std::vector<double>> &inputs) {
  int64_t ranks = static_cast<int64_t>(inputs.size());
  Dtype wire = desc.wireType();
  std::array<double, 4> x;
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    double value = roundTo(wire, inputs[rank][static_cast<size_t>(i)]);
    if (desc.divide) {
      // A 16-bit value divided in f32, an f32 in f32, an f64 in f64.
      value = wire == Dtype::F64
                  ? value / static_cast<double>(ranks)
                  : static_cast<double>(static_cast<float>(value) /
                                        static_cast<float>(ranks));
      value = roundTo(wire, value);
    }
    x[rank] = value;
  }
  int64_t chunk = chunkOf(i, desc.count, dtypeSize(wire), ranks);
  double sum = x[static_cast<size_t>((chunk - 1 + ranks) % ranks)];
  for (int64_t back = 2; back <= ranks; ++back)
    sum = roundTo(
        wire, x[static_cast<size_t>((chunk - back + 2 * ranks) % ranks)] + sum);
  return roundTo(desc.type(), sum);
}

std::string nameOf(const CollectiveDesc &desc) {
  return std::string(dtypeName(desc.type())) + " over " +
         dtypeName(desc.wireType()) + (desc.divide ? " mean of " : " sum of ") +
         std::to_string(desc.count);
}

/// One all-reduce of random values on all ranks of a running group.
class Case {
public:
  Case(const CollectiveDesc &desc, int ranks, unsigned seed) : desc(desc) {
    std::mt19937_64 random(seed);
    std::vector<std::vector<double>> values;
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<double> wide(static_cast<size_t>(desc.count));
      // Wide-ranged, down to the halves' subnormals.
      for (double &value : wide)
        value = std::ldexp(static_cast<double>(static_cast<int64_t>(random())) *
                               0x1p-63,
                           static_cast<int>(random() % 34) - 20);
      std::vector<char> input(static_cast<size_t>(desc.memoryBytes()));
      castArray(wide.data(), Dtype::F64, input.data(), desc.type(), desc.count);
      values.push_back(toDoubles(input, desc.type(), desc.count));
      inputs.push_back(std::move(input));
    }
    for (int64_t i = 0; i < desc.count; ++i)
      sums.push_back(expected(desc, i, values));
  }

  void run(Rank &rank, bool inPlace, bool async) const {
    SCOPED_TRACE(nameOf(desc));
    std::vector<char> in = inputs[rank.index];
    std::vector<char> out(in.size() + 8, '\x5a');
    if (inPlace)
      std::copy(in.begin(), in.end(), out.begin());
    const void *source = inPlace ? out.data() : in.data();
    if (async) {
      int64_t ticket = 0;
      ASSERT_EQ(backend().collective(rank.device, rank.communicator, &desc,
                                     source, out.data(), &ticket, &rank.error),
                DDPHOOK_OK)
          << rank.error.message;
      ASSERT_EQ(backend().wait(rank.device, ticket, &rank.error), DDPHOOK_OK)
          << rank.error.message;
    } else {
      ASSERT_EQ(backend().collective(rank.device, rank.communicator, &desc,
                                     source, out.data(), /*ticket=*/nullptr,
                                     &rank.error),
                DDPHOOK_OK)
          << rank.error.message;
    }
    EXPECT_EQ(std::string(out.end() - 8, out.end()), std::string(8, '\x5a'));
    EXPECT_TRUE(inPlace || in == inputs[rank.index]) << "the input was written";
    std::vector<double> got = toDoubles(out, desc.type(), desc.count);
    for (size_t i = 0; i < got.size(); ++i)
      if (std::memcmp(&got[i], &sums[i], sizeof(double)) != 0)
        FAIL() << "expected element " << i << " to be " << sums[i]
               << ", but got " << got[i];
  }

private:
  const CollectiveDesc desc;
  std::vector<std::vector<char>> inputs;
  std::vector<double> sums;
};

class HostBackend : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Transports, HostBackend,
                         testing::Values(Setting{"shm", {"always", "always"}},
                                         Setting{"shm", {"never", "never"}},
                                         Setting{"gloo", {"always", "always"}},
                                         Setting{"gloo", {"always", "never"}}),
                         [](const auto &info) {
                           const Setting &setting = info.param;
                           return std::string(setting.transport) + "_" +
                                  setting.progress[0] + "_" +
                                  setting.progress[1];
                         });

} // namespace

TEST_P(HostBackend, AllReduceBits) {
  const unsigned seed = 20250101;
  RecordProperty("seed", static_cast<int>(seed));
  std::vector<std::pair<Dtype, std::optional<Dtype>>> types = {
      {Dtype::F32, std::nullopt},  {Dtype::F32, Dtype::F16},
      {Dtype::F32, Dtype::BF16},   {Dtype::F64, std::nullopt},
      {Dtype::F64, Dtype::F16},    {Dtype::F64, Dtype::BF16},
      {Dtype::F64, Dtype::F32},    {Dtype::F16, std::nullopt},
      {Dtype::BF16, std::nullopt}, {Dtype::F16, Dtype::F16},
      {Dtype::BF16, Dtype::F16}};
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::vector<Case> cases;
    for (auto [dtype, wire] : types)
      for (int64_t count : {0, 1, 2, 3, 7, 31, 1009, 4099})
        for (bool divide : {false, true})
          cases.emplace_back(CollectiveDesc{count, dtype, wire, divide}, ranks,
                             seed + static_cast<unsigned>(cases.size()));
    runGroup(ranks, GetParam(), 60, [&](Rank &rank) {
      for (size_t i = 0; i < cases.size() && !testing::Test::HasFailure(); ++i)
        cases[i].run(rank, i % 2 == 0, i % 3 == 0);
    });
  }
}

/// Several segments a rank, where the order of additions changes inside.
TEST_P(HostBackend, LargeAllReduceBits) {
  const unsigned seed = 77;
  RecordProperty("seed", static_cast<int>(seed));
  // Above ranks x 2 MiB on the wire there are more than two segments a rank.
  Case half(CollectiveDesc{3300001, Dtype::F32, Dtype::F16, true}, 3, seed);
  runGroup(3, GetParam(), 60,
           [&](Rank &rank) { half.run(rank, false, false); });
  Case full(CollectiveDesc{1200007, Dtype::F32, std::nullopt, true}, 2, seed);
  runGroup(2, GetParam(), 60, [&](Rank &rank) { full.run(rank, true, true); });
}

/// Encoded all-reduces of all sizes and kinds, one after the other and several
/// in flight: against arrays that are not cut, without a transport.
TEST_P(HostBackend, EncodedAllReduceBits) {
  struct EncodedCase {
    CollectiveDesc desc;
    ddphook_rounding_t rounding = {};
    std::vector<std::vector<char>> in;
    std::vector<char> want;
  };
  const Encoding encodings[] = {
      {Code::I8, 256},   {Code::I4, 32},     {Code::UI8, 0},
      {Code::F16, 0},    {Code::UI8, 1},     {Code::F8E4M3FN, 4096},
      {Code::UI8, 4097}, {Code::I4, 4096},   {Code::UI8, 100},
      {Code::BF16, 0},   {Code::F8E5M2, 96}, {Code::UI1, 8200}};
  const Dtype types[] = {Dtype::F32, Dtype::BF16, Dtype::F64, Dtype::F16};
  std::mt19937_64 random(3);
  for (int ranks : {1, 2, 4}) {
    std::vector<EncodedCase> cases;
    for (int64_t count : {1, 33, 150001, 5, 20011, 1})
      for (const Encoding &encoding : encodings) {
        EncodedCase c;
        c.desc = {count, types[cases.size() % 4], std::nullopt,
                  cases.size() % 3 != 0, encoding};
        if (encoding.kind() == CodeKind::SCALED && count % 2 != 0) {
          // Of a share: as a hierarchical group has them.
          c.rounding = {1, static_cast<int32_t>(cases.size() % 2),
                        static_cast<int64_t>(random() >> 1), count};
          c.desc.sumRounding = Rounding::ofSum(
              c.rounding.stream, c.rounding.step, c.rounding.share, ranks);
        }
        std::vector<std::vector<char>> memory(ranks);
        std::vector<void *> memories;
        EncodedChunks chunks(c.desc, /*rank=*/0, ranks);
        for (int rank = 0; rank < ranks; ++rank) {
          std::vector<float> wide(static_cast<size_t>(count));
          for (float &value : wide)
            value =
                static_cast<float>(static_cast<int64_t>(random())) * 0x1p-63f;
          c.in.emplace_back(static_cast<size_t>(c.desc.memoryBytes()));
          castArray(wide.data(), Dtype::F32, c.in.back().data(), c.desc.type(),
                    count);
          memory[static_cast<size_t>(rank)].resize(
              static_cast<size_t>(chunks.bytes(0, count)));
          memories.push_back(memory[static_cast<size_t>(rank)].data());
          EncodedChunks(c.desc, rank, ranks)
              .encode(c.in.back().data(), 0, count, memories.back());
        }
        c.want.resize(c.in[0].size());
        if (encoding.isAffine()) {
          chunks.average(memories.data(), 0, count, c.want.data());
        } else {
          chunks.sum(memories.data(), 0, count, {0, count}, memories[0]);
          chunks.decode(memories[0], 0, count, {0, count}, c.want.data());
        }
        cases.push_back(std::move(c));
      }
    runGroup(ranks, GetParam(), 60, [&](Rank &rank) {
      for (size_t depth : {1, 4}) {
        std::vector<std::vector<char>> out(cases.size()), in(cases.size());
        std::vector<int64_t> tickets(cases.size());
        auto finish = [&](size_t i) {
          ASSERT_EQ(backend().wait(rank.device, tickets[i], &rank.error),
                    DDPHOOK_OK)
              << rank.error.message;
          EXPECT_TRUE(out[i] == cases[i].want)
              << cases[i].desc.codes()->describe() << " of "
              << cases[i].desc.count << ", ranks " << ranks << ", rank "
              << rank.index << " depth " << depth;
        };
        for (size_t i = 0; i < cases.size(); ++i) {
          const CollectiveDesc &desc = cases[i].desc;
          const auto &own = cases[i].in[static_cast<size_t>(rank.index)];
          const bool inPlace = (i + depth) % 2 == 0;
          in[i] = own;
          out[i] = inPlace ? own : std::vector<char>(own.size(), '\x5a');
          ddphook_collective_t operation = desc;
          operation.rounding = cases[i].rounding;
          ASSERT_EQ(
              backend().collective(rank.device, rank.communicator, &operation,
                                   inPlace ? out[i].data() : in[i].data(),
                                   out[i].data(), &tickets[i], &rank.error),
              DDPHOOK_OK)
              << rank.error.message;
          if (i + 1 >= depth)
            finish(i + 1 - depth);
        }
        for (size_t i = cases.size() - depth + 1; i < cases.size(); ++i)
          finish(i);
      }
    });
  }
}

TEST_P(HostBackend, StartedCollectivesKeepTheirOrder) {
  runGroup(3, GetParam(), 60, [&](Rank &rank) {
    const int64_t count = 1000;
    std::vector<std::vector<float>> data(50, std::vector<float>(count));
    std::vector<int64_t> tickets(data.size());
    ddphook_collective_t operation = plainSum(count, DDPHOOK_F32);
    for (size_t i = 0; i < data.size(); ++i) {
      std::fill(data[i].begin(), data[i].end(), static_cast<float>(i + 1));
      ASSERT_EQ(backend().collective(rank.device, rank.communicator, &operation,
                                     data[i].data(), data[i].data(),
                                     &tickets[i], &rank.error),
                DDPHOOK_OK);
      ASSERT_GT(tickets[i], i == 0 ? 0 : tickets[i - 1]);
    }
    // A blocking one comes after all of them.
    ASSERT_EQ(backend().collective(rank.device, rank.communicator, &operation,
                                   data[0].data(), data[0].data(),
                                   /*ticket=*/nullptr, &rank.error),
              DDPHOOK_OK);
    EXPECT_EQ(data[0][count - 1], 9.0f);
    for (size_t i = 1; i < data.size(); ++i)
      EXPECT_EQ(data[i][count - 1], 3.0f * static_cast<float>(i + 1));
    EXPECT_EQ(backend().wait(rank.device, tickets.back(), &rank.error),
              DDPHOOK_OK);
    EXPECT_EQ(backend().wait(rank.device, tickets.back() + 1, &rank.error),
              DDPHOOK_INVALID_ARGUMENT);
    EXPECT_EQ(backend().wait(rank.device, 0, &rank.error),
              DDPHOOK_INVALID_ARGUMENT);
  });
}

/// Ranks that decide differently about where their collectives run, and are
/// late at different places. Two groups in one order: all ranks through shared
/// memory, and pairs of ranks over TCP.
TEST(HostDevice, RanksNeedNotAgreeOnTheThread) {
  constexpr int kRanks = 4, kCollectives = 200;
  const char *const places[] = {"auto", "always", "never"};
  for (unsigned seed : {1u, 2u, 3u, 4u, 5u, 6u}) {
    SCOPED_TRACE(seed);
    std::mt19937 shared(seed);
    // The program: which group each collective is of, and how many are in
    // flight before the oldest is awaited.
    std::vector<bool> ofPair(kCollectives);
    std::generate(ofPair.begin(), ofPair.end(), [&] { return shared() % 2; });
    const size_t depth = 1 + shared() % 5;
    MemoryStore store;
    ddphook_backend_store_t table = toBackendStore(store);
    std::vector<std::thread> threads;
    for (int index = 0; index < kRanks; ++index)
      threads.emplace_back([&, index] {
        std::mt19937 own(100 * seed + static_cast<unsigned>(index));
        ddphook_device_t *device = nullptr;
        ddphook_backend_error_t error = {};
        const std::string options =
            std::string("async_progress=") + places[own() % 3];
        ddphook_device_config_t config = {};
        config.struct_size = sizeof(config);
        config.transport = "auto";
        config.local_address = "127.0.0.1";
        config.timeout_s = 60;
        config.options = options.c_str();
        config.threads = 1;
        ASSERT_EQ(backend().device_create(&config, &device, &error), DDPHOOK_OK)
            << error.message;
        ddphook_communicator_t *groups[2];
        for (int isPair : {0, 1}) {
          std::vector<int32_t> members(kRanks);
          std::iota(members.begin(), members.end(), isPair ? index & ~1 : 0);
          const std::string key =
              isPair ? "pair " + std::to_string(index / 2) : "all";
          ddphook_communicator_config_t group = {};
          group.struct_size = sizeof(group);
          group.size = isPair ? 2 : kRanks;
          group.rank = isPair ? index % 2 : index;
          group.world_ranks = members.data();
          group.one_machine = !isPair;
          group.store = &table;
          group.key = key.c_str();
          ASSERT_EQ(backend().communicator_create(device, &group,
                                                  &groups[isPair], &error),
                    DDPHOOK_OK)
              << error.message;
        }
        std::vector<std::array<float, 64>> data(kCollectives);
        std::vector<int64_t> tickets(kCollectives);
        auto await = [&](size_t i) {
          ASSERT_EQ(backend().wait(device, tickets[i], &error), DDPHOOK_OK)
              << error.message;
          const float first = static_cast<float>(index & ~1);
          ASSERT_EQ(data[i][63], ofPair[i] ? 2 * first + 1 : 6.0f) << i;
        };
        const ddphook_collective_t operation = plainSum(64, DDPHOOK_F32);
        for (size_t i = 0; i < kCollectives && !HasFailure(); ++i) {
          data[i].fill(static_cast<float>(index));
          if (own() % 8 == 0)
            std::this_thread::sleep_for(std::chrono::microseconds(own() % 500));
          if (i >= depth)
            await(i - depth);
          ASSERT_EQ(backend().collective(device, groups[ofPair[i]], &operation,
                                         data[i].data(), data[i].data(),
                                         &tickets[i], &error),
                    DDPHOOK_OK)
              << error.message;
        }
        for (size_t i = kCollectives - depth; i < kCollectives; ++i)
          await(i);
        for (ddphook_communicator_t *group : groups)
          backend().communicator_destroy(device, group);
        backend().device_destroy(device);
      });
    for (std::thread &thread : threads)
      thread.join();
  }
}

TEST_P(HostBackend, AMissingPeerIsADeadline) {
  std::atomic<int> waiting{1};
  runGroup(2, GetParam(), 2, [&](Rank &rank) {
    std::vector<float> data(10);
    ddphook_collective_t operation = plainSum(10, DDPHOOK_F32);
    if (rank.index == 0) {
      auto begin = std::chrono::steady_clock::now();
      EXPECT_EQ(backend().collective(rank.device, rank.communicator, &operation,
                                     data.data(), data.data(),
                                     /*ticket=*/nullptr, &rank.error),
                DDPHOOK_DEADLINE_EXCEEDED)
          << rank.error.message;
      double seconds = std::chrono::duration<double>(
                           std::chrono::steady_clock::now() - begin)
                           .count();
      EXPECT_GE(seconds, 1.9);
      EXPECT_LT(seconds, 20);
      // The group is dead, on both ranks.
      EXPECT_EQ(backend().collective(rank.device, rank.communicator, &operation,
                                     data.data(), data.data(),
                                     /*ticket=*/nullptr, &rank.error),
                DDPHOOK_DEADLINE_EXCEEDED);
      waiting = 0;
    } else {
      while (waiting)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      EXPECT_NE(backend().collective(rank.device, rank.communicator, &operation,
                                     data.data(), data.data(),
                                     /*ticket=*/nullptr, &rank.error),
                DDPHOOK_OK);
    }
  });
}

TEST_P(HostBackend, AbortEndsEverything) {
  std::atomic<int> done{0};
  runGroup(2, GetParam(), 20, [&](Rank &rank) {
    std::vector<float> data(10);
    ddphook_collective_t operation = plainSum(10, DDPHOOK_F32);
    auto begin = std::chrono::steady_clock::now();
    if (rank.index == 0) {
      // Waits for rank 1, which gives up instead.
      EXPECT_NE(backend().collective(rank.device, rank.communicator, &operation,
                                     data.data(), data.data(),
                                     /*ticket=*/nullptr, &rank.error),
                DDPHOOK_OK);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      backend().abort(rank.device, DDPHOOK_ABORTED, "rank 7 failed");
      EXPECT_EQ(backend().collective(rank.device, rank.communicator, &operation,
                                     data.data(), data.data(),
                                     /*ticket=*/nullptr, &rank.error),
                DDPHOOK_ABORTED);
      EXPECT_STREQ(rank.error.message, "rank 7 failed");
      int64_t ticket = 0;
      EXPECT_EQ(backend().collective(rank.device, rank.communicator, &operation,
                                     data.data(), data.data(), &ticket,
                                     &rank.error),
                DDPHOOK_ABORTED);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin,
              std::chrono::seconds(15));
    ++done;
    while (done < 2)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  });
}

TEST(HostDevice, UnknownTransport) {
  ddphook_device_config_t config = {};
  config.struct_size = sizeof(config);
  config.transport = "pigeon";
  config.local_address = "";
  config.timeout_s = 1;
  config.threads = 1;
  ddphook_device_t *device = nullptr;
  ddphook_backend_error_t error = {};
  EXPECT_EQ(backend().device_create(&config, &device, &error),
            DDPHOOK_INVALID_ARGUMENT);
  EXPECT_STREQ(
      error.message,
      "expected the transport 'auto', 'shm' or 'gloo', but got 'pigeon'");
}
