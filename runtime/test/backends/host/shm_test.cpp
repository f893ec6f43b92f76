// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Results against gloo::allreduce itself, bit by bit; ranks are threads here.
// Failures are in shm_failure_test.cpp.

#include "shm_group.h"

#include "kernels.h"
#include "shm_membership.h"

#include "gloo/allreduce.h"
#include "gloo/rendezvous/context.h"
#include "gloo/rendezvous/hash_store.h"
#include "gloo/transport/tcp/device.h"
#include "gtest/gtest.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace ddphook;
using namespace ddphook::host;

namespace {

constexpr uint32_t kSeed = 4321;
using Bytes = std::vector<char>;

/// Runs fn(rank) in one thread per rank.
void onRanks(int size, const std::function<void(int)> &fn) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back(fn, rank);
  for (std::thread &thread : threads)
    thread.join();
}

/// Returns elements: 14 of 16 are moderate, one is random bits, one is special.
Bytes randomInput(Dtype type, int64_t n, uint32_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(static_cast<size_t>(n * dtypeSize(type)));
  constexpr double special[] = {0.0,    -0.0, 65519.9,  65520,
                                -65520, 6e-8, 3e-8,     1e-40,
                                1e-45,  3e38, HUGE_VAL, HUGE_VAL};
  for (int64_t i = 0; i < n; ++i) {
    char *p = bytes.data() + i * dtypeSize(type);
    uint64_t bits = random();
    double value = static_cast<double>(bits % 2000001) * 1e-6 - 1;
    if (bits >> 60 == 0)
      std::memcpy(p, &bits, static_cast<size_t>(dtypeSize(type)));
    else if (bits >> 60 == 1)
      value = special[bits % std::size(special)];
    if (bits >> 60 != 0)
      castArray(&value, Dtype::F64, p, type, 1);
  }
  return bytes;
}

/// No differing bits, but any NaN equals any NaN.
void expectSameBits(Dtype type, const Bytes &want, const Bytes &got) {
  ASSERT_EQ(want.size(), got.size());
  const int64_t size = dtypeSize(type);
  int wrong = 0;
  for (size_t i = 0; i < want.size() && wrong < 3;
       i += static_cast<size_t>(size)) {
    if (std::memcmp(&want[i], &got[i], static_cast<size_t>(size)) == 0)
      continue;
    double a, b;
    castArray(&want[i], type, &a, Dtype::F64, 1);
    castArray(&got[i], type, &b, Dtype::F64, 1);
    if (std::isnan(a) && std::isnan(b))
      continue;
    ++wrong;
    ADD_FAILURE() << dtypeName(type) << " element "
                  << i / static_cast<size_t>(size) << ": expected " << a
                  << ", but got " << b;
  }
}

template <Dtype kType>
void addForGloo(void *out, const void *a, const void *b, size_t n) {
  addArrays(out, a, b, kType, static_cast<int64_t>(n));
}

/// Gloo's all-reduce of 16-bit types, which its own functions round otherwise,
/// and of all others, with our addition.
void glooAllReduce(const std::shared_ptr<gloo::Context> &context, Dtype type,
                   void *data, int64_t n, uint32_t tag) {
  gloo::AllreduceOptions options(context);
  auto run = [&](auto element, auto fn) {
    using T = decltype(element);
    options.setOutput(static_cast<T *>(data), static_cast<size_t>(n));
    options.setReduceFunction(static_cast<gloo::AllreduceOptions::Func>(fn));
    options.setTag(tag);
    gloo::allreduce(options);
  };
  switch (type) {
  case Dtype::F16:
    return run(uint16_t(), &addForGloo<Dtype::F16>);
  case Dtype::BF16:
    return run(uint16_t(), &addForGloo<Dtype::BF16>);
  case Dtype::F32:
    return run(float(), &addForGloo<Dtype::F32>);
  case Dtype::F64:
    return run(double(), &addForGloo<Dtype::F64>);
  }
}

/// The hook's arithmetic in separate whole-array steps around Gloo.
Bytes referenceAllReduce(const std::shared_ptr<gloo::Context> &context,
                         const CollectiveDesc &desc, const Bytes &in, int size,
                         uint32_t tag) {
  Bytes wire(static_cast<size_t>(desc.wireBytes())), out(in.size());
  castArray(in.data(), desc.type(), wire.data(), desc.wireType(), desc.count);
  if (desc.divide)
    divideArray(wire.data(), wire.data(), desc.wireType(), desc.count, size);
  if (desc.count > 0 && size > 1)
    glooAllReduce(context, desc.wireType(), wire.data(), desc.count, tag);
  castArray(wire.data(), desc.wireType(), out.data(), desc.type(), desc.count);
  return out;
}

/// All pairs of element and wire type, those of hooks, or a few.
enum class Variety { All, Hooks, Few };
/// Returns descriptions of all-reduces of `count` elements.
std::vector<CollectiveDesc> allDescs(int64_t count, Variety variety) {
  if (variety == Variety::Few)
    return {{count, Dtype::F32, {}, true},
            {count, Dtype::F32, Dtype::F16, true},
            {count, Dtype::BF16, {}, false},
            {count, Dtype::F64, {}, false}};
  std::vector<CollectiveDesc> descs;
  for (Dtype dtype : {Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::F64})
    for (std::optional<Dtype> wire :
         {std::optional<Dtype>(), std::optional<Dtype>(Dtype::F16),
          std::optional<Dtype>(Dtype::BF16),
          std::optional<Dtype>(Dtype::F32)}) {
      if (variety == Variety::Hooks && wire &&
          (dtype != Dtype::F32 || isHalf(*wire) == false))
        continue;
      for (bool divide : {false, true})
        descs.push_back(CollectiveDesc{count, dtype, wire, divide});
    }
  return descs;
}

//===----------------------------------------------------------------------===//
// Bits
//===----------------------------------------------------------------------===//

void compareWithGloo(int size, const std::vector<int64_t> &counts,
                     Variety variety) {
  MemoryStore store;
  gloo::rendezvous::HashStore glooStore;
  std::vector<std::vector<Bytes>> results(static_cast<size_t>(size));
  onRanks(size, [&](int rank) {
    gloo::transport::tcp::attr attr("127.0.0.1");
    auto device = gloo::transport::tcp::CreateDevice(attr);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    context->connectFullMesh(glooStore, device);
    std::unique_ptr<ShmGroup> group;
    Status status = ShmGroup::create(store, "g", {rank, size}, 60, &group);
    ASSERT_TRUE(status.isOk()) << status.message();
    uint32_t tag = 0;
    for (int64_t count : counts)
      for (const CollectiveDesc &desc : allDescs(count, variety)) {
        ++tag;
        SCOPED_TRACE(testing::Message()
                     << "rank " << rank << " of " << size << ", " << count
                     << " x " << dtypeName(desc.type()) << " as "
                     << dtypeName(desc.wireType()) << " divide "
                     << desc.divide);
        Bytes in = randomInput(desc.type(), count,
                               kSeed + 100 * tag + static_cast<uint32_t>(rank));
        Bytes want = referenceAllReduce(context, desc, in, size, tag);
        Bytes out(in.size(), 0x5a), before = in;
        status = group->run(desc, in.data(), out.data());
        ASSERT_TRUE(status.isOk()) << status.message();
        expectSameBits(desc.type(), want, out);
        EXPECT_TRUE(in == before) << "the input was written";
        status = group->run(desc, in.data(), in.data());
        ASSERT_TRUE(status.isOk()) << status.message();
        expectSameBits(desc.type(), want, in);
        results[static_cast<size_t>(rank)].push_back(std::move(in));
      }
  });
  // All ranks have the same bits, NaNs included.
  for (int rank = 1; rank < size; ++rank)
    EXPECT_TRUE(results[0] == results[static_cast<size_t>(rank)]) << rank;
}

class ShmBits : public testing::TestWithParam<int> {};

TEST_P(ShmBits, equalGlooSmall) {
  RecordProperty("seed", kSeed);
  compareWithGloo(GetParam(), {0, 1, 2, 5, 31, 1009}, Variety::All);
}

TEST_P(ShmBits, equalGlooMedium) {
  compareWithGloo(GetParam(), {10007, 65536, 99991, 300007}, Variety::Hooks);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ShmBits, testing::Values(1, 2, 3, 4, 5, 8),
                         testing::PrintToStringParamName());

class ShmBigBits : public testing::TestWithParam<int> {};

TEST_P(ShmBigBits, equalGloo) {
  compareWithGloo(GetParam(), {(3 << 20) + 17}, Variety::Few);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ShmBigBits, testing::Values(2, 3, 4),
                         testing::PrintToStringParamName());

TEST(ShmGroup, manyRanks) {
  constexpr int size = 64;
  constexpr int64_t n = 10007;
  MemoryStore store;
  onRanks(size, [&](int rank) {
    std::unique_ptr<ShmGroup> group;
    Status status = ShmGroup::create(store, "g", {rank, size}, 60, &group);
    ASSERT_TRUE(status.isOk()) << status.message();
    std::vector<float> x(n);
    for (int repeat = 0; repeat < 3; ++repeat) {
      // Small integers: exact in f16 in any order.
      for (int64_t i = 0; i < n; ++i)
        x[static_cast<size_t>(i)] = static_cast<float>((rank + i) % 7);
      status =
          group->run({n, Dtype::F32, Dtype::F16, false}, x.data(), x.data());
      ASSERT_TRUE(status.isOk()) << status.message();
      for (int64_t i = 0; i < n; ++i) {
        float want = 0;
        for (int r = 0; r < size; ++r)
          want += static_cast<float>((r + i) % 7);
        ASSERT_EQ(x[static_cast<size_t>(i)], want) << i;
      }
    }
  });
}

/// Collectives of all sizes back to back, with ranks that dawdle: slots and
/// counters survive being reused in any rhythm.
TEST(ShmGroup, mixedSequence) {
  constexpr int size = 3, rounds = 300;
  MemoryStore store;
  onRanks(size, [&](int rank) {
    std::unique_ptr<ShmGroup> group;
    Status status = ShmGroup::create(store, "g", {rank, size}, 60, &group);
    ASSERT_TRUE(status.isOk()) << status.message();
    std::mt19937 shared(kSeed), own(kSeed + 1 + static_cast<uint32_t>(rank));
    std::vector<double> x;
    for (int round = 0; round < rounds; ++round) {
      size_t n = shared() % (shared() % 4 == 0 ? 200000 : 3000);
      x.assign(n, 0);
      for (size_t i = 0; i < n; ++i)
        x[i] = static_cast<double>(i % 1000) + rank * round;
      if (own() % 20 == 0)
        usleep(own() % 2000);
      status =
          group->run({static_cast<int64_t>(n), Dtype::F64, std::nullopt, false},
                     x.data(), x.data());
      ASSERT_TRUE(status.isOk()) << status.message();
      for (size_t i = 0; i < n; ++i)
        ASSERT_EQ(x[i], 3.0 * static_cast<double>(i % 1000) + 3.0 * round)
            << "round " << round << " element " << i;
    }
  });
}

/// A rank that looks for a peer's sums, is interrupted, and looks for free
/// slots finds that all peers have overtaken it. Here the peers stop at that
/// point.
class ShmSlots : public testing::TestWithParam<int> {};

TEST_P(ShmSlots, keptWhileTheirOwnerReads) {
  const int size = GetParam();
  constexpr uint64_t slots = ShmSegment::kSlots;
  constexpr int64_t n = 4 << 20; // of many more chunks than there are slots
  MemoryStore store;
  onRanks(size, [&](int rank) {
    if (rank == 0) {
      std::unique_ptr<ShmGroup> group;
      Status status = ShmGroup::create(store, "g", {rank, size}, 60, &group);
      ASSERT_TRUE(status.isOk()) << status.message();
      std::vector<float> x(n);
      status =
          group->run({n, Dtype::F32, Dtype::F16, false}, x.data(), x.data());
      EXPECT_EQ(status.code(), DDPHOOK_ABORTED) << status.message();
      return;
    }
    ShmMembership peer({rank, size}, 60);
    Status status = peer.join(store, "g");
    ASSERT_TRUE(status.isOk()) << status.message();
    peer.startClock();
    ASSERT_TRUE(peer.await(&RankControl::published, 1, 0));
    peer.mine().announced[0] = peer.memory().control(0).announced[0];
    // Of the first chunk rank 0 does not see the last stage before its own.
    peer.set(&RankControl::consumed, 1);
    if (size > 2)
      peer.set(&RankControl::published, 1);
    if (rank > 1) {
      peer.set(&RankControl::reduced, 1);
      return (void)peer.await(&RankControl::published, n, 0);
    }
    ASSERT_TRUE(peer.await(&RankControl::published, slots, 0));
    usleep(50000); // Rank 0 would go on.
    EXPECT_EQ(peer.counter(&RankControl::published, 0).load(), slots);
    peer.abort();
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, ShmSlots, testing::Values(2, 3),
                         testing::PrintToStringParamName());

} // namespace
