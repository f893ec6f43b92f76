// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What ends a reduction whose job fails. What it computes is the business of
// host_backend_test.cpp.

#include "base/status_test_util.h"
#include "node_pipeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

using namespace ddphook;
using namespace ddphook::test;
using namespace ddphook::host;

/// A group of one, which does without a network.
static std::unique_ptr<HostCommunicator> makeGroupOfOne() {
  const int32_t rank = 0;
  ddphook_communicator_config_t config = {};
  config.size = 1;
  config.world_ranks = &rank;
  auto group = std::make_unique<HostCommunicator>();
  const std::atomic<bool> isAborted{false};
  EXPECT_EQ(show(group->join(config, Transport::Auto, /*timeoutSeconds=*/60, {},
                             isAborted)),
            "OK");
  return group;
}

/// Whether the thread between nodes has begun, works or has ended by then: the
/// stages within the node go well, so that only its end can end the reduction.
TEST(NodePipeline, AbortedAtAnyMoment) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  auto node = makeGroupOfOne(), across = makeGroupOfOne();
  std::vector<float> array(64, 1.0f), share(64);
  for (int round = 0; round < 2000; ++round) {
    CollectiveDesc desc;
    desc.count = static_cast<int64_t>(array.size());
    StagedReduction reduction = {};
    reduction.node = node.get();
    reduction.across = across.get();
    reduction.nodeRanks = 1;
    reduction.in = reduction.out = array.data();
    reduction.share = share.data();
    reduction.setStages(desc.count, desc);

    NodePipeline pipeline;
    std::atomic<bool> hasBegun{false};
    const std::chrono::microseconds delay(random() % 100);
    std::thread other([&] {
      while (!hasBegun)
        std::this_thread::yield();
      const auto begin = Deadline::Clock::now();
      while (Deadline::Clock::now() - begin < delay) {
        // A sleep would take longer.
      }
      pipeline.abort(Status(DDPHOOK_PEER_LOST, "a rank was lost"));
    });
    hasBegun = true;
    const Status status = pipeline.run(reduction);
    other.join();
    EXPECT_FALSE(status.isOk());
    // The group of one has no network.
    EXPECT_TRUE(status.code() == DDPHOOK_PEER_LOST ||
                status.code() == DDPHOOK_INTERNAL)
        << show(status);
  }
}
