// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How often each collective launches something of NCCL's, and how many threads
// of the host that starts: counted by the emulated device, since a thread costs
// more than all else that the host does for a collective.

#include "backend/backend_test_util.h"
#include "cuda_backend_test_util.h"
#include "emulated_cuda/nccl_counts.h"

using namespace ddphook;
using namespace ddphook::test;

namespace {

constexpr int kRanks = 2;
constexpr int64_t kCount = 999;

struct Call {
  const char *name;
  int32_t kind;
  int32_t wireDtype;
  int32_t encoding;
  int64_t launches;
};

/// A launch each, and two where codes are added in between. An all-to-all's
/// sends and receives are one group.
constexpr Call kCalls[] = {
    {"all-reduce", DDPHOOK_ALL_REDUCE, -1, 0, 1},
    {"all-reduce as f16", DDPHOOK_ALL_REDUCE, DDPHOOK_F16, 0, 1},
    {"all-reduce as int8", DDPHOOK_ALL_REDUCE, -1, DDPHOOK_ENCODING_I8, 2},
    {"all-reduce as ui8", DDPHOOK_ALL_REDUCE, -1, DDPHOOK_ENCODING_UI8, 1},
    {"reduce-scatter", DDPHOOK_REDUCE_SCATTER, -1, 0, 1},
    {"reduce-scatter as int8", DDPHOOK_REDUCE_SCATTER, -1, DDPHOOK_ENCODING_I8,
     1},
    {"reduce-scatter as bf16", DDPHOOK_REDUCE_SCATTER, DDPHOOK_BF16, 0, 1},
    {"all-gather", DDPHOOK_ALL_GATHER, -1, 0, 1},
    {"all-gather as f16", DDPHOOK_ALL_GATHER, DDPHOOK_F16, 0, 1},
    {"all-to-all", DDPHOOK_ALL_TO_ALL, -1, 0, 1},
    {"broadcast", DDPHOOK_BROADCAST, -1, 0, 1},
};

class CudaCalls : public LinkedBackendTest {
protected:
  /// What `calls` collectives of each rank take, with all that is around them.
  emulated_cuda::NcclCounts count(const Call &call, bool isBlocking,
                                  int calls) {
    GroupOptions options;
    options.options = isBlocking ? "blocking=1" : "blocking=0";
    options.maxWireBytes = 1 << 16;
    options.maxEncodedBytes = options.maxGatheredBytes = 1 << 16;
    ddphook_collective_t operation = {};
    operation.kind = call.kind;
    // All-to-alls have equal parts.
    operation.count = call.kind == DDPHOOK_ALL_TO_ALL ? kCount + 1 : kCount;
    operation.dtype = DDPHOOK_F32;
    operation.wire_dtype = call.wireDtype;
    operation.encoding = call.encoding;
    operation.block = call.encoding == 0 ? 0 : 64;
    const emulated_cuda::NcclCounts before = emulated_cuda::ncclCounts();
    runGroup(
        kRanks,
        [&](Rank &rank) {
          DeviceArray in(rank, filled(2 * kCount, 1));
          DeviceArray out(rank, filled(2 * kCount, 0));
          int64_t ticket = 0;
          for (int i = 0; i < calls; ++i)
            EXPECT_EQ(rank.show(backend->collective(
                          rank.device, rank.communicator, &operation, in.get(),
                          out.get(), &ticket, &rank.error)),
                      "OK");
          EXPECT_EQ(rank.show(backend->wait(rank.device, ticket, &rank.error)),
                    "OK");
          EXPECT_EQ(rank.show(backend->synchronize(rank.device, &rank.error)),
                    "OK");
        },
        options);
    const emulated_cuda::NcclCounts after = emulated_cuda::ncclCounts();
    return {after.launches - before.launches, after.threads - before.threads};
  }
};
INSTANTIATE_TEST_SUITE_P(, CudaCalls,
                         testing::Values(DDPHOOK_TEST_CUDA_BACKEND),
                         [](const auto &info) { return info.param; });

} // namespace

TEST_P(CudaCalls, OfEachCollective) {
  for (const Call &call : kCalls)
    for (bool isBlocking : {false, true}) {
      SCOPED_TRACE(std::string(call.name) + (isBlocking ? ", blocking" : ""));
      const emulated_cuda::NcclCounts one = count(call, isBlocking, 1);
      const emulated_cuda::NcclCounts many = count(call, isBlocking, 6);
      const int64_t launches = 5 * kRanks * call.launches;
      EXPECT_EQ(many.launches - one.launches, launches);
      EXPECT_EQ(many.threads - one.threads, isBlocking ? 0 : launches);
    }
}
