// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Options, identities of ranks, errors: what needs no device.

#include "backend/backend_store.h"
#include "base/status_test_util.h"
#include "cuda_error.h"
#include "cuda_options.h"
#include "group_bootstrap.h"
#include "store/store.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

using namespace ddphook;
using namespace ddphook::cuda;

static std::string parsed(const std::string &text) {
  CudaOptions options;
  Status status = CudaOptions::parse(text, &options);
  return status.isOk() ? "OK" : status.message();
}

TEST(CudaOptions, Values) {
  CudaOptions options;
  ASSERT_TRUE(CudaOptions::parse("device=3,min_ctas=2,max_ctas=16,"
                                 "cga_cluster_size=4,net_name=Socket,"
                                 "exact_division=1,traffic_class=7,collnet=0,"
                                 "cta_policy=1,nvls_ctas=5,register=1,"
                                 "channels_per_net_peer=2,comm_priority=-5,"
                                 "nvlink_centric_sched=1,watchdog_ms=20,"
                                 "roots=2,compute_priority=0,blocking=1",
                                 &options)
                  .isOk());
  EXPECT_EQ(options.device, 3);
  EXPECT_EQ(options.commPriority, -5);
  EXPECT_EQ(options.watchdogMs, 20);
  EXPECT_TRUE(options.dividesExactly());
  EXPECT_EQ(options.registerMemory, 1);
  std::string name = "group";
  ncclConfig_t config = options.ncclConfig(name);
  EXPECT_EQ(config.blocking, 1);
  EXPECT_STREQ(config.commName, "group");
  EXPECT_EQ(config.minCTAs, 2);
  EXPECT_EQ(config.maxCTAs, 16);
  EXPECT_EQ(config.cgaClusterSize, 4);
  EXPECT_STREQ(config.netName, "Socket");
  EXPECT_EQ(config.trafficClass, 7);
  EXPECT_EQ(config.collnetEnable, 0);
  EXPECT_EQ(config.CTAPolicy, 1);
  EXPECT_EQ(config.nvlsCTAs, 5);
  EXPECT_EQ(config.nChannelsPerNetPeer, 2);
  EXPECT_EQ(config.nvlinkCentricSched, 1);
  // What is not given is NCCL's own.
  ncclConfig_t own = CudaOptions().ncclConfig(name);
  EXPECT_EQ(own.blocking, 0);
  EXPECT_EQ(own.minCTAs, NCCL_CONFIG_UNDEF_INT);
  EXPECT_FALSE(CudaOptions().dividesExactly());
  EXPECT_EQ(own.netName, nullptr);
}

TEST(CudaOptions, NcclsEnvironmentSaysWhatBlocks) {
  CudaOptions options;
  for (const char *given : {"blocking=0", "blocking=1"}) {
    ASSERT_TRUE(CudaOptions::parse(given, &options).isOk());
    const bool isGiven = options.blocking == 1;
    for (const char *value : {"0", "1", "2", ""}) {
      ::setenv("NCCL_COMM_BLOCKING", value, 1);
      const bool isDecided = *value == '0' || *value == '1';
      EXPECT_EQ(options.isBlocking(), isDecided ? *value == '1' : isGiven);
    }
    ::unsetenv("NCCL_COMM_BLOCKING");
    EXPECT_EQ(options.isBlocking(), isGiven);
  }
}

TEST(CudaOptions, Refusals) {
  EXPECT_EQ(parsed(""), "OK");
  EXPECT_EQ(parsed("device"), "expected an option name=value, but got "
                              "'device'");
  EXPECT_EQ(parsed("device=1,,"), "expected an option name=value, but got ''");
  EXPECT_EQ(parsed("device=1,device=2"), "option device is given twice");
  EXPECT_EQ(parsed("net_name="),
            "option net_name: expected a word, but got nothing");
  for (const char *value : {"", "x", "1x", " 1", "-1", "99999999999"})
    EXPECT_EQ(
        parsed(std::string("roots=") + value),
        "option roots: expected a number from 1 to 2147483647, but got '" +
            std::string(value) + "'");
  std::string unknown = parsed("devices=1");
  EXPECT_EQ(unknown.find("expected one of the options device, "), 0u);
  EXPECT_NE(unknown.find(", but got 'devices'"), std::string::npos);
}

TEST(CudaOptions, EnvironmentIsSetOnce) {
  CudaOptions options;
  ASSERT_TRUE(
      CudaOptions::parse("algo=Ring,proto=Simple,nthreads=256", &options)
          .isOk());
  ::unsetenv("NCCL_ALGO");
  ::unsetenv("NCCL_NTHREADS");
  ::setenv("NCCL_PROTO", "LL", 1);
  options.exportEnvironment();
  EXPECT_STREQ(std::getenv("NCCL_ALGO"), "Ring");
  EXPECT_STREQ(std::getenv("NCCL_NTHREADS"), "256");
  EXPECT_STREQ(std::getenv("NCCL_PROTO"), "LL");
}

TEST(Identities, Refusals) {
  const int32_t world[] = {4, 6, 8};
  auto check = [&](std::vector<RankIdentity> ranks, bool canShare = false) {
    Status status = checkIdentities(ranks, world, canShare);
    EXPECT_TRUE(status.isOk() || status.code() == DDPHOOK_UNSUPPORTED);
    return status.isOk() ? "OK" : status.message();
  };
  EXPECT_EQ(check({{"a", 90, 22809}, {"b", 90, 22809}, {"c", 90, 22809}}),
            "OK");
  EXPECT_EQ(check({{"a", 90, 22809}, {"b", 90, 22809}, {"c", 90, 23007}}),
            "expected the same NCCL on all ranks, but rank 4 has 2.28.9 and "
            "rank 8 has 2.30.7");
  EXPECT_EQ(check({{"a", 90, 22809}, {"b", 90, 22707}, {"c", 90, 22809}}),
            "expected NCCL 2.28.0 or later, but rank 6 has loaded 2.27.7");
  EXPECT_EQ(check({{"a", 90, 22809}, {"b", 100, 22809}, {"c", 90, 22809}}),
            "expected GPUs of one kind, but rank 4 has compute capability 9.0 "
            "and rank 6 has 10.0");
  std::vector<RankIdentity> shared = {
      {"a", 90, 22809}, {"b", 90, 22809}, {"b", 90, 22809}};
  EXPECT_EQ(
      check(shared),
      "expected every rank to have its own GPU, but ranks 6 and 8 share one; "
      "NCCL 2.28.9 refuses that unless each of them has its own NCCL_HOSTID");
  EXPECT_EQ(check(shared, /*canShare=*/true), "OK");
  std::vector<RankIdentity> apart = shared;
  apart[2].hostId = "other";
  EXPECT_EQ(check(apart), "OK");
  apart[1].hostId = "other";
  EXPECT_NE(check(apart), "OK");
  for (RankIdentity &rank : shared)
    rank.ncclVersion = 23003;
  EXPECT_EQ(check(shared),
            "expected every rank to have its own GPU, but ranks 6 and 8 share "
            "one; NCCL 2.30.3 refuses that unless each of them has its own "
            "NCCL_HOSTID, or NCCL_MULTI_RANK_GPU_ENABLE=1");
}

/// Whoever gives up first says who has not come, also a rank that waits for the
/// decision of another one.
TEST(Identities, ARankThatIsMissing) {
  for (int missing : {0, 1, 2}) {
    MemoryStore store;
    const ddphook_backend_store_t table = toBackendStore(store);
    const int32_t ranks[] = {5, 6, 7};
    auto agree = [&](int rank, double seconds) {
      ddphook_communicator_config_t config = {};
      config.size = 3;
      config.rank = rank;
      config.world_ranks = ranks;
      config.store = &table;
      config.key = "group";
      DeviceChoice device;
      device.uuid = std::to_string(rank);
      std::vector<ncclUniqueId> ids;
      return agreeOnIds(config, CudaOptions(), device, Deadline::after(seconds),
                        &ids);
    };
    std::thread first;
    if (missing != 0) {
      first = std::thread([&] { agree(0, 300).ignore(); });
      std::string text;
      EXPECT_TRUE(
          store.get("group/nccl/0", Deadline::after(300), &text).isOk());
    }
    const std::string text = test::show(agree(missing == 1 ? 2 : 1, 0.05));
    EXPECT_EQ(text.find("DEADLINE_EXCEEDED: waiting for rank " +
                        std::to_string(ranks[missing]) + ": "),
              0u)
        << text;
    store.fail(Status(DDPHOOK_ABORTED, "no more"));
    if (first.joinable())
      first.join();
  }
}

TEST(CudaErrors, CodesAndTexts) {
  EXPECT_TRUE(toStatus(cudaSuccess, "anything").isOk());
  Status sticky = toStatus(cudaErrorIllegalAddress, "casting");
  EXPECT_EQ(sticky.code(), DDPHOOK_INTERNAL);
  EXPECT_EQ(sticky.message(), "casting: an illegal memory access was "
                              "encountered (cudaErrorIllegalAddress)");
  EXPECT_EQ(toStatus(cudaErrorMemoryAllocation, "x").code(),
            DDPHOOK_RESOURCE_EXHAUSTED);
  EXPECT_EQ(toStatus(cudaErrorStreamCaptureUnsupported, "x").code(),
            DDPHOOK_FAILED_PRECONDITION);
  EXPECT_EQ(toStatus(cudaErrorUnsupportedPtxVersion, "x").code(),
            DDPHOOK_UNSUPPORTED);
  EXPECT_EQ(toStatus(ncclRemoteError, nullptr, "x").code(), DDPHOOK_PEER_LOST);
  EXPECT_EQ(toStatus(ncclSystemError, nullptr, "x").code(), DDPHOOK_IO_ERROR);
  EXPECT_EQ(toStatus(ncclInternalError, nullptr, "x").code(), DDPHOOK_INTERNAL);
  EXPECT_EQ(cudaVersionText(13020), "13.2");
  EXPECT_EQ(ncclVersionText(22809), "2.28.9");
}
