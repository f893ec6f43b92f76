// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks as processes: sums, bit for bit, in an order of their own; what a
// communicator answers while it is not ready; what wrong use gives.

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "emulated_cuda/nccl_counts.h"
#include "nccl_test_util.h"
#include "ring_order.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

using namespace emulated_cuda;
using namespace emulated_cuda_test;

namespace {

constexpr unsigned seed = 20250131;

/// One element type: its bits, its size, and how it adds.
struct Type {
  const char *name;
  ncclDataType_t nccl;
  size_t bytes;
  /// Of a number of moderate size, and the sum of two.
  uint64_t (*fromDouble)(double);
  uint64_t (*add)(uint64_t, uint64_t);
};

template <typename T>
uint64_t bitsOf(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <typename T>
T valueOf(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

const Type types[] = {
    {"f16", ncclFloat16, 2,
     [](double x) -> uint64_t { return __half_as_ushort(__double2half(x)); },
     [](uint64_t a, uint64_t b) -> uint64_t {
       auto wide = [](uint64_t bits) {
         return __half2float(__ushort_as_half(static_cast<uint16_t>(bits)));
       };
       return __half_as_ushort(__float2half_rn(wide(a) + wide(b)));
     }},
    {"bf16", ncclBfloat16, 2,
     [](double x) -> uint64_t {
       return __bfloat16_as_ushort(__double2bfloat16(x));
     },
     [](uint64_t a, uint64_t b) -> uint64_t {
       auto wide = [](uint64_t bits) {
         return __bfloat162float(
             __ushort_as_bfloat16(static_cast<uint16_t>(bits)));
       };
       return __bfloat16_as_ushort(__float2bfloat16_rn(wide(a) + wide(b)));
     }},
    {"f32", ncclFloat32, 4,
     [](double x) { return bitsOf(static_cast<float>(x)); },
     [](uint64_t a, uint64_t b) {
       return bitsOf(valueOf<float>(a) + valueOf<float>(b));
     }},
    {"f64", ncclFloat64, 8, [](double x) { return bitsOf(x); },
     [](uint64_t a, uint64_t b) {
       return bitsOf(valueOf<double>(a) + valueOf<double>(b));
     }},
};

std::vector<uint64_t> valuesOf(const Type &type, size_t count, int rank) {
  std::mt19937_64 random(seed + static_cast<unsigned>(rank));
  std::normal_distribution<double> normal(0, 3);
  std::vector<uint64_t> values(count);
  for (uint64_t &value : values)
    value = type.fromDouble(normal(random));
  return values;
}

std::vector<char> packed(const Type &type, const std::vector<uint64_t> &bits) {
  std::vector<char> bytes(bits.size() * type.bytes);
  for (size_t i = 0; i < bits.size(); ++i)
    std::memcpy(&bytes[i * type.bytes], &bits[i], type.bytes);
  return bytes;
}

/// Checks elements first, first + 1, … of sums of `count` elements: each is the
/// ranks' sum in some order, and of many not all are in the host's. Returns
/// what is wrong.
std::string checkSums(const Type &type, size_t count, int size, size_t first,
                      const std::vector<char> &got) {
  std::vector<std::vector<uint64_t>> values;
  for (int rank = 0; rank < size; ++rank)
    values.push_back(valuesOf(type, count, rank));
  const ddphook::host::RingOrder ring(static_cast<int64_t>(count),
                                      static_cast<int64_t>(type.bytes), size);
  std::vector<int> order(static_cast<size_t>(size));
  size_t unlike = 0;
  for (size_t i = first; i < first + got.size() / type.bytes; ++i) {
    uint64_t sum = 0;
    std::memcpy(&sum, &got[(i - first) * type.bytes], type.bytes);
    auto isSumIn = [&](const std::vector<int> &ranks) {
      uint64_t total = values[static_cast<size_t>(ranks[0])][i];
      for (size_t position = 1; position < ranks.size(); ++position)
        total =
            type.add(values[static_cast<size_t>(ranks[position])][i], total);
      return total == sum;
    };
    for (int position = 0; position < size; ++position)
      order[static_cast<size_t>(position)] =
          ring.rankAt(ring.section(static_cast<int64_t>(i)), position);
    unlike += !isSumIn(order);
    std::sort(order.begin(), order.end());
    while (!isSumIn(order))
      if (!std::next_permutation(order.begin(), order.end()))
        return std::string("wrong sum of ") + type.name + ", element " +
               std::to_string(i) + " of " + std::to_string(count);
  }
  if (size > 2 && got.size() > 10000 && unlike == 0)
    return "all sums are in the host's order";
  return "";
}

/// All-reduces one array of every type, in place and not.
std::string reduceAllTypes(int rank, int size, bool isBlocking) {
  Rank self(rank, size, isBlocking);
  REQUIRE_NCCL(self.join());
  for (const Type &type : types) {
    for (size_t count : {0, 1, 7, 1000, 300000}) {
      for (bool isInPlace : {false, true}) {
        DeviceBytes in(packed(type, valuesOf(type, count, rank)));
        DeviceBytes out(std::vector<char>(count * type.bytes, 0));
        REQUIRE_NCCL(self.finish(ncclAllReduce(
            in.data(), isInPlace ? in.data() : out.data(), count, type.nccl,
            ncclSum, self.communicator(), self.stream())));
        REQUIRE_CUDA(cudaStreamSynchronize(self.stream()));
        const std::vector<char> got = (isInPlace ? in : out).read();
        if (std::string wrong = checkSums(type, count, size, 0, got);
            !wrong.empty())
          return wrong;
        // All ranks have the same.
        REQUIRE_NCCL(self.finish(ncclBroadcast(
            (isInPlace ? in : out).data(), out.data(), count, type.nccl,
            size - 1, self.communicator(), self.stream())));
        REQUIRE_CUDA(cudaStreamSynchronize(self.stream()));
        if (out.read() != got)
          return "the ranks have different sums";
      }
    }
  }
  return self.leave();
}

/// Every other collective of one type, where the backend uses it in place and
/// where not.
std::string exchangeAll(int rank, int size, bool isBlocking) {
  Rank self(rank, size, isBlocking);
  REQUIRE_NCCL(self.join());
  const Type &type = types[2];
  const size_t bytes = type.bytes, ranks = static_cast<size_t>(size);
  const size_t own = static_cast<size_t>(rank);
  for (size_t part : {0, 1, 7, 1000, 100000}) {
    const size_t count = part * ranks, partBytes = part * bytes;
    const std::vector<char> whole = packed(type, valuesOf(type, count, rank));
    auto slice = [&](const std::vector<char> &all, size_t number) {
      const auto begin = all.begin() + static_cast<long>(number * partBytes);
      return std::vector<char>(begin, begin + static_cast<long>(partBytes));
    };
    std::vector<char> gathered, exchanged;
    for (int from = 0; from < size; ++from) {
      const std::vector<char> theirs =
          packed(type, valuesOf(type, count, from));
      for (char byte : slice(theirs, static_cast<size_t>(from)))
        gathered.push_back(byte);
      for (char byte : slice(theirs, own))
        exchanged.push_back(byte);
    }
    for (bool isInPlace : {false, true}) {
      auto at = [&](DeviceBytes &array) {
        return static_cast<char *>(array.data()) + own * partBytes;
      };
      DeviceBytes data(whole), out(std::vector<char>(count * bytes, 'Z'));
      REQUIRE_NCCL(self.finish(ncclReduceScatter(
          data.data(), isInPlace ? at(data) : out.data(), part, type.nccl,
          ncclSum, self.communicator(), self.stream())));
      REQUIRE_CUDA(cudaStreamSynchronize(self.stream()));
      if (std::string wrong = checkSums(
              type, count, size, own * part,
              slice((isInPlace ? data : out).read(), isInPlace ? own : 0));
          !wrong.empty())
        return wrong;

      DeviceBytes mine(whole);
      DeviceBytes &all = isInPlace ? mine : out;
      REQUIRE_NCCL(
          self.finish(ncclAllGather(at(mine), all.data(), part, type.nccl,
                                    self.communicator(), self.stream())));
      REQUIRE_CUDA(cudaStreamSynchronize(self.stream()));
      if (all.read() != gathered)
        return "wrong parts of " + std::to_string(part);

      DeviceBytes sent(whole);
      DeviceBytes &got = isInPlace ? sent : out;
      REQUIRE_NCCL(self.finish(
          ncclBroadcast(sent.data(), got.data(), count, type.nccl, size - 1,
                        self.communicator(), self.stream())));
      REQUIRE_CUDA(cudaStreamSynchronize(self.stream()));
      if (got.read() != packed(type, valuesOf(type, count, size - 1)))
        return "wrong elements of " + std::to_string(part);
    }
    DeviceBytes in(whole), out(std::vector<char>(count * bytes, 'Z'));
    REQUIRE_NCCL(ncclGroupStart());
    for (int peer = 0; peer < size; ++peer) {
      const size_t offset = static_cast<size_t>(peer) * partBytes;
      REQUIRE_NCCL(ncclSend(static_cast<char *>(in.data()) + offset, part,
                            type.nccl, peer, self.communicator(),
                            self.stream()));
      REQUIRE_NCCL(ncclRecv(static_cast<char *>(out.data()) + offset, part,
                            type.nccl, peer, self.communicator(),
                            self.stream()));
    }
    REQUIRE_NCCL(self.finish(ncclGroupEnd()));
    REQUIRE_CUDA(cudaStreamSynchronize(self.stream()));
    if (out.read() != exchanged)
      return "wrong exchange of " + std::to_string(part);
  }
  return self.leave();
}

class Sums : public testing::TestWithParam<std::pair<int, bool>> {};

TEST_P(Sums, AreInAnOrderOfTheirOwn) {
  auto [size, isBlocking] = GetParam();
  std::printf("seed %u\n", seed);
  SharedId id;
  runAll(size, id, [size = size, isBlocking = isBlocking](int rank) {
    return reduceAllTypes(rank, size, isBlocking);
  });
}

TEST_P(Sums, AndEverythingElse) {
  auto [size, isBlocking] = GetParam();
  std::printf("seed %u\n", seed);
  SharedId id;
  runAll(size, id, [size = size, isBlocking = isBlocking](int rank) {
    return exchangeAll(rank, size, isBlocking);
  });
}

INSTANTIATE_TEST_SUITE_P(Nccl, Sums,
                         testing::Values(std::pair(1, false),
                                         std::pair(2, false),
                                         std::pair(2, true),
                                         std::pair(3, false)));

TEST(Nccl, ACommunicatorThatIsNotReadyRefusesCalls) {
  SharedId id;
  runAll(2, id, [](int rank) -> std::string {
    Rank self(rank, 2, false);
    if (rank == 1)
      usleep(200000);
    EXPECT_TEXT(self.begin(), ncclInProgress);
    if (rank == 0) {
      ncclResult_t state;
      ncclCommGetAsyncError(self.communicator(), &state);
      EXPECT_TEXT(state, ncclInProgress);
      int count;
      EXPECT_TEXT(ncclCommCount(self.communicator(), &count),
                  ncclInvalidArgument);
      DeviceBytes data(std::vector<char>(64, 0));
      EXPECT_TEXT(ncclAllReduce(data.data(), data.data(), 16, ncclFloat32,
                                ncclSum, self.communicator(), self.stream()),
                  ncclInvalidArgument);
    }
    REQUIRE_NCCL(self.finish(ncclInProgress));
    int count, device, userRank;
    REQUIRE_NCCL(ncclCommCount(self.communicator(), &count));
    REQUIRE_NCCL(ncclCommCuDevice(self.communicator(), &device));
    REQUIRE_NCCL(ncclCommUserRank(self.communicator(), &userRank));
    EXPECT_TEXT(count, 2);
    EXPECT_TEXT(device, 0);
    EXPECT_TEXT(userRank, rank);
    return self.leave();
  });
}

TEST(Nccl, TwoRanksOnOneGpuAreRefused) {
  SharedId id;
  runAll(2, id, [](int rank) -> std::string {
    setenv("EMULATED_CUDA_FIRST_DEVICE", "0", 1);
    Rank self(rank, 2, false);
    EXPECT_TEXT(self.join(), ncclInvalidUsage);
    EXPECT_TEXT(std::string(ncclGetLastError(nullptr)),
                std::string("duplicate GPU detected: rank 0 and rank 1"));
    REQUIRE_NCCL(ncclCommAbort(self.release()));
    return "";
  });
}

TEST(Nccl, TwoRanksOnOneGpuWorkWhereThatIsAllowed) {
  for (const char *variable : {"NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_HOSTID"}) {
    SharedId id;
    runAll(2, id, [variable](int rank) -> std::string {
      setenv("EMULATED_CUDA_FIRST_DEVICE", "0", 1);
      bool isHost = std::string(variable) == "NCCL_HOSTID";
      setenv(variable, isHost && rank == 0 ? "other" : "1", 1);
      return reduceAllTypes(rank, 2, false);
    });
  }
}

TEST(Nccl, GroupsBeginTogether) {
  SharedId id;
  runAll(2, id, [](int rank) -> std::string {
    Rank self(rank, 2, false);
    REQUIRE_NCCL(self.join());
    std::vector<std::unique_ptr<DeviceBytes>> data;
    REQUIRE_NCCL(ncclGroupStart());
    for (size_t i = 0; i < 5; ++i) {
      data.push_back(std::make_unique<DeviceBytes>(
          packed(types[2], valuesOf(types[2], 100 + i, rank))));
      REQUIRE_NCCL(ncclAllReduce(data[i]->data(), data[i]->data(), 100 + i,
                                 ncclFloat32, ncclSum, self.communicator(),
                                 self.stream()));
    }
    REQUIRE_NCCL(self.finish(ncclGroupEnd()));
    REQUIRE_CUDA(cudaStreamSynchronize(self.stream()));
    for (size_t i = 0; i < 5; ++i)
      if (std::string wrong =
              checkSums(types[2], 100 + i, 2, 0, data[i]->read());
          !wrong.empty())
        return wrong;
    EXPECT_TEXT(ncclGroupEnd(), ncclInvalidUsage);
    return self.leave();
  });
}

TEST(Nccl, CallsOfNonBlockingCommunicatorsStartThreads) {
  for (bool isBlocking : {false, true}) {
    SharedId id;
    runAll(2, id, [isBlocking](int rank) -> std::string {
      // Says the contrary, and is what counts.
      setenv("NCCL_COMM_BLOCKING", isBlocking ? "1" : "0", 1);
      Rank self(rank, 2, !isBlocking);
      REQUIRE_NCCL(self.join());
      DeviceBytes data(std::vector<char>(64, 0));
      auto reduce = [&] {
        return self.finish(ncclAllReduce(data.data(), data.data(), 16,
                                         ncclFloat32, ncclSum,
                                         self.communicator(), self.stream()));
      };
      const NcclCounts before = ncclCounts();
      for (int i = 0; i < 3; ++i)
        REQUIRE_NCCL(reduce());
      REQUIRE_NCCL(ncclGroupStart());
      for (int i = 0; i < 4; ++i)
        REQUIRE_NCCL(ncclAllReduce(data.data(), data.data(), 16, ncclFloat32,
                                   ncclSum, self.communicator(),
                                   self.stream()));
      REQUIRE_NCCL(self.finish(ncclGroupEnd()));
      const NcclCounts after = ncclCounts();
      EXPECT_TEXT(after.launches - before.launches, 4);
      EXPECT_TEXT(after.threads - before.threads, isBlocking ? 0 : 4);
      return self.leave();
    });
  }
}

TEST(Nccl, OneProcessWithTwoDevicesJoinsInAGroup) {
  SharedId id;
  runAll(1, id, [](int) -> std::string {
    setenv("EMULATED_CUDA_DEVICES", "2", 1);
    ncclUniqueId unique;
    REQUIRE_NCCL(ncclGetUniqueId(&unique));
    ncclComm_t communicators[2];
    REQUIRE_NCCL(ncclGroupStart());
    for (int i = 0; i < 2; ++i) {
      REQUIRE_CUDA(cudaSetDevice(i));
      REQUIRE_NCCL(ncclCommInitRank(&communicators[i], 2, unique, i));
    }
    REQUIRE_NCCL(ncclGroupEnd());
    DeviceBytes a(packed(types[3], valuesOf(types[3], 50, 0)));
    DeviceBytes b(packed(types[3], valuesOf(types[3], 50, 1)));
    cudaStream_t streams[2];
    REQUIRE_NCCL(ncclGroupStart());
    for (int i = 0; i < 2; ++i) {
      REQUIRE_CUDA(cudaSetDevice(i));
      REQUIRE_CUDA(cudaStreamCreate(&streams[i]));
      void *data = i ? b.data() : a.data();
      REQUIRE_NCCL(ncclAllReduce(data, data, 50, ncclFloat64, ncclSum,
                                 communicators[i], streams[i]));
    }
    REQUIRE_NCCL(ncclGroupEnd());
    for (int i = 0; i < 2; ++i)
      REQUIRE_CUDA(cudaStreamSynchronize(streams[i]));
    if (a.read() != b.read())
      return std::string("the devices have different sums");
    if (std::string wrong = checkSums(types[3], 50, 2, 0, a.read());
        !wrong.empty())
      return wrong;
    for (int i = 0; i < 2; ++i) {
      REQUIRE_NCCL(ncclCommDestroy(communicators[i]));
      REQUIRE_CUDA(cudaStreamDestroy(streams[i]));
    }
    return "";
  });
}

TEST(Nccl, ACapturedCollectiveRunsInEveryLaunch) {
  SharedId id;
  runAll(2, id, [](int rank) -> std::string {
    Rank self(rank, 2, false);
    REQUIRE_NCCL(self.join());
    float own = static_cast<float>(rank + 1);
    std::vector<char> bytes(sizeof(own));
    std::memcpy(bytes.data(), &own, sizeof(own));
    DeviceBytes data(bytes);
    cudaStream_t stream = self.stream();
    REQUIRE_CUDA(
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    REQUIRE_NCCL(
        self.finish(ncclAllReduce(data.data(), data.data(), 1, ncclFloat32,
                                  ncclSum, self.communicator(), stream)));
    cudaGraph_t graph;
    REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t exec;
    REQUIRE_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 4; ++i)
      REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    float sum;
    std::memcpy(&sum, data.read().data(), sizeof(sum));
    EXPECT_TEXT(sum, 24.0f);
    REQUIRE_CUDA(cudaGraphExecDestroy(exec));
    REQUIRE_CUDA(cudaGraphDestroy(graph));
    return self.leave();
  });
}

TEST(Nccl, WrongArgumentsAreRefused) {
  SharedId id;
  runAll(1, id, [](int) -> std::string {
    Rank self(0, 1, true);
    REQUIRE_NCCL(self.join());
    float host[4] = {};
    DeviceBytes data(std::vector<char>(16, 0));
    auto reduce = [&](const void *in, void *out, size_t count,
                      ncclDataType_t type, ncclRedOp_t op) {
      return ncclAllReduce(in, out, count, type, op, self.communicator(),
                           self.stream());
    };
    void *device = data.data();
    EXPECT_TEXT(reduce(host, device, 4, ncclFloat32, ncclSum),
                ncclInvalidArgument);
    EXPECT_TEXT(reduce(device, host, 4, ncclFloat32, ncclSum),
                ncclInvalidArgument);
    EXPECT_TEXT(reduce(device, device, 5, ncclFloat32, ncclSum),
                ncclInvalidArgument);
    EXPECT_TEXT(reduce(device, device, 4, ncclInt32, ncclSum),
                ncclInvalidArgument);
    EXPECT_TEXT(reduce(device, device, 4, ncclFloat32, ncclAvg),
                ncclInvalidArgument);
    EXPECT_TEXT(reduce(device, device, 4, ncclFloat32, ncclSum), ncclSuccess);
    EXPECT_TEXT(ncclBroadcast(device, device, 4, ncclFloat32, 1,
                              self.communicator(), self.stream()),
                ncclInvalidArgument);
    EXPECT_TEXT(ncclReduceScatter(device, host, 4, ncclFloat32, ncclSum,
                                  self.communicator(), self.stream()),
                ncclInvalidArgument);
    // No send without a receive, and none outside of a group.
    auto send = [&](int peer) {
      return ncclSend(device, 4, ncclFloat32, peer, self.communicator(),
                      self.stream());
    };
    EXPECT_TEXT(send(0), ncclInvalidArgument);
    for (int peer : {0, 1}) {
      REQUIRE_NCCL(ncclGroupStart());
      EXPECT_TEXT(send(peer), peer == 0 ? ncclSuccess : ncclInvalidArgument);
      EXPECT_TEXT(ncclGroupEnd(), ncclInvalidArgument);
    }
    void *handle = nullptr;
    EXPECT_TEXT(ncclCommRegister(self.communicator(), host, 16, &handle),
                ncclInvalidArgument);
    EXPECT_TEXT(ncclCommRegister(self.communicator(), device, 16, &handle),
                ncclSuccess);
    EXPECT_TEXT(ncclCommDeregister(self.communicator(), handle), ncclSuccess);
    ncclComm_t other;
    ncclUniqueId unique = {};
    EXPECT_TEXT(ncclCommInitRank(&other, 2, unique, 2), ncclInvalidArgument);
    EXPECT_TEXT(ncclCommInitRank(&other, 1, unique, 0), ncclInvalidArgument);
    REQUIRE_NCCL(ncclCommAbort(other));
    int version;
    EXPECT_TEXT(ncclGetVersion(&version), ncclSuccess);
    EXPECT_TEXT(version, 22809);
    return self.leave();
  });
}

} // namespace
