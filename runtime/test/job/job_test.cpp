// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks as processes: joining, stepping, leaving, and jobs whose ranks do not
// fit each other. Ranks that are lost: job_failure_test.cpp.

#include "job/job_test_ranks.h"

#include <cmath>
#include <cstring>
#include <signal.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;

INSTANTIATE_TEST_SUITE_P(All, JobTest,
                         testing::Combine(testing::Values("shm", "gloo"),
                                          testing::Values(1, 2, 3, 4)),
                         nameOf);

TEST_P(JobTest, StepsAndStatistics) {
  int port = freePort(), ranks = world();
  auto results = runRanks(ranks, [&](int rank) {
    TestModule module(Collectives{{1001, "f32", "f16", true}, {0}, {17, "f64"}},
                      5 << 20);
    ddphook_options_t options = jobOptions(rank, ranks, port, transport());
    return withModule(options, module, [&](ddphook_context_t *context) {
      if (ddphook_context_rank(context) != rank ||
          ddphook_context_world_size(context) != ranks)
        return std::string("wrong place");
      auto *arena = static_cast<char *>(ddphook_rt_arena(module.handle));
      if (reinterpret_cast<uintptr_t>(arena) % (2 << 20) != 0)
        return std::string("the arena is not aligned to 2 MiB");
      for (size_t i = 0; i < (5u << 20); ++i)
        if (arena[i] != 0)
          return std::string("the arena is not zeroed");
      for (int round = 0; round < 3; ++round) {
        std::vector<float> in(1001), out(1001, NAN);
        std::vector<double> wide(17, rank + 1.0);
        for (size_t i = 0; i < in.size(); ++i)
          in[i] = static_cast<float>(rank + 1) * static_cast<float>(i % 16);
        ddphook_status_t status = ddphook_rt_enter(module.handle, 0);
        if (status != DDPHOOK_OK)
          return show(status);
        int64_t ticket = ddphook_rt_collective_start(
            module.handle, 0, in.data(), out.data(), /*step=*/0);
        ddphook_rt_collective(module.handle, 1, nullptr, nullptr, /*step=*/0);
        int64_t second = ddphook_rt_collective_start(
            module.handle, 2, wide.data(), wide.data(), /*step=*/0);
        ddphook_rt_wait(module.handle, ticket);
        ddphook_rt_wait(module.handle, ticket);
        ddphook_rt_wait(module.handle, second);
        status = ddphook_rt_leave(module.handle);
        if (status != DDPHOOK_OK)
          return show(status);
        float sum = static_cast<float>(ranks * (ranks + 1)) / 2;
        for (size_t i = 0; i < in.size(); ++i) {
          float mean = sum * static_cast<float>(i % 16) / ranks;
          if (std::fabs(out[i] - mean) > 0.002f * mean)
            return "element " + std::to_string(i) + " is " +
                   std::to_string(out[i]);
        }
        for (double value : wide)
          if (value != sum)
            return std::string("wrong f64 sum");
      }
      ddphook_stats_t stats = {};
      stats.struct_size = sizeof(stats);
      ddphook_status_t status = ddphook_module_stats(&module.compiled, &stats);
      if (status != DDPHOOK_OK)
        return show(status);
      if (stats.steps != 3 || stats.collectives != 9 ||
          stats.wire_bytes != 3 * (2002 + 136) ||
          stats.collective_bytes != 3 * (4004 + 136) ||
          // All of it belongs to the bucket, whose elements are f32.
          stats.uncompressed_bytes != 3 * (4004 + 68) ||
          stats.arena_bytes != 5 << 20 || stats.state_bytes != 0)
        return std::string("wrong statistics");
      return show(ddphook_barrier(context));
    });
  });
  expectAll(results, "OK");
}

/// Of each kind a blocking one and one in flight, and what they count.
TEST_P(JobTest, Exchanges) {
  int port = freePort(), ranks = world();
  auto results = runRanks(ranks, [&](int rank) {
    // Of several ranks the last one has a short part.
    const int64_t part = 1000, even = part * ranks, count = even - (ranks > 1);
    const TestCollective whole{count, "f32", "", true}, moved{count};
    TestModule module(Collectives{whole.as("reduce_scatter"),
                                  moved.as("all_gather"),
                                  TestCollective{even}.as("all_to_all"),
                                  moved.as("broadcast", ranks - 1)},
                      0, groupOf(ranks));
    ddphook_options_t options = jobOptions(rank, ranks, port, transport());
    return withModule(options, module, [&](ddphook_context_t *) {
      auto number = [](int from, int64_t i) {
        return static_cast<float>(from * 1000000 + i);
      };
      const auto size = static_cast<size_t>(even + 1);
      std::vector<float> in(size), sums(part, -1), own(part), all(size, -1),
          exchanged(size, -1), sent(size, -1);
      for (int64_t i = 0; i < even; ++i)
        in[static_cast<size_t>(i)] = number(rank, i);
      for (int64_t i = 0; i < part; ++i)
        own[static_cast<size_t>(i)] = number(rank, 7 * i);
      for (bool isStarted : {false, true}) {
        ddphook_status_t status = ddphook_rt_enter(module.handle, 0);
        if (status != DDPHOOK_OK)
          return show(status);
        int64_t ticket = 0;
        auto run = [&](int collective, const float *from, float *to) {
          if (isStarted)
            ticket = ddphook_rt_collective_start(module.handle, collective,
                                                 from, to, /*step=*/0);
          else
            ddphook_rt_collective(module.handle, collective, from, to,
                                  /*step=*/0);
        };
        run(0, in.data(), sums.data());
        run(1, own.data(), all.data());
        run(2, in.data(), exchanged.data());
        run(3, in.data(), sent.data());
        if (isStarted)
          ddphook_rt_wait(module.handle, ticket);
        status = ddphook_rt_leave(module.handle);
        if (status != DDPHOOK_OK)
          return show(status);
        for (int64_t i = 0; i < part; ++i) {
          const int64_t element = rank * part + i;
          // Sums of numbers of this size may be rounded.
          const float mean =
              element < count ? number(ranks - 1, 2 * element) / 2 : 0;
          if (std::fabs(sums[static_cast<size_t>(i)] - mean) > 1)
            return "sum " + std::to_string(i) + " is " +
                   std::to_string(sums[static_cast<size_t>(i)]);
        }
        for (int64_t i = 0; i < count; ++i)
          if (all[static_cast<size_t>(i)] !=
                  number(static_cast<int>(i / part), 7 * (i % part)) ||
              sent[static_cast<size_t>(i)] != number(ranks - 1, i))
            return "element " + std::to_string(i) + " is wrong";
        if (all.back() != -1 || exchanged.back() != -1 || sent.back() != -1)
          return std::string("there was a write beyond the array");
        for (int64_t i = 0; i < even; ++i)
          if (exchanged[static_cast<size_t>(i)] !=
              number(static_cast<int>(i / part), rank * part + i % part))
            return "element " + std::to_string(i) + " was not exchanged";
      }
      ddphook_stats_t stats = {};
      stats.struct_size = sizeof(stats);
      ddphook_status_t status = ddphook_module_stats(&module.compiled, &stats);
      if (status != DDPHOOK_OK)
        return show(status);
      const auto bytes = static_cast<uint64_t>(4 * (2 * count + even + part));
      // Of a bucket with an all-gather, whatever is sent stands for its
      // elements.
      const uint64_t uncompressed = 4 * 3;
      if (stats.collectives != 8 || stats.wire_bytes != 2 * bytes ||
          stats.collective_bytes != 2 * bytes ||
          stats.uncompressed_bytes != 2 * uncompressed)
        return std::string("wrong statistics");
      return std::string("OK");
    });
  });
  expectAll(results, "OK");
}

/// What only the job decides: sets of a group may differ in size.
TEST_P(JobTest, ARootThatIsNoRank) {
  int port = freePort(), ranks = world();
  auto results = runRanks(ranks, [&](int rank) {
    TestModule module(Collectives{TestCollective{10}.as("broadcast", ranks)});
    ddphook_options_t options = jobOptions(rank, ranks, port, transport());
    return withModule(options, module,
                      [&](ddphook_context_t *) { return std::string("OK"); });
  });
  for (const std::string &text : texts(results))
    EXPECT_NE(text.find("process group 'dp': expected the root of a broadcast "
                        "to be one of " +
                        std::to_string(ranks) + " ranks, but got " +
                        std::to_string(ranks)),
              std::string::npos)
        << text;
}

TEST_P(JobTest, Broadcast) {
  int port = freePort(), ranks = world();
  auto results = runRanks(ranks, [&](int rank) {
    TestModule module;
    ddphook_options_t options = jobOptions(rank, ranks, port, transport());
    return withModule(options, module, [&](ddphook_context_t *context) {
      for (size_t bytes :
           {size_t(0), size_t(1), size_t(4) << 20, (size_t(37) << 20) + 13}) {
        int root = bytes % 2 == 1 ? ranks - 1 : 0;
        std::vector<unsigned char> data(bytes + 1, 0xee);
        auto expected = [](size_t i) {
          return static_cast<unsigned char>(i * 2654435761u >> 13);
        };
        for (size_t i = 0; rank == root && i < bytes; ++i)
          data[i] = expected(i);
        ddphook_status_t status =
            ddphook_broadcast(context, data.data(), bytes, root);
        if (status != DDPHOOK_OK)
          return show(status);
        for (size_t i = 0; i < bytes; ++i)
          if (data[i] != expected(i))
            return "byte " + std::to_string(i) + " is wrong";
        if (data[bytes] != 0xee)
          return std::string("it wrote beyond the end");
      }
      return std::string("OK");
    });
  });
  expectAll(results, "OK");
}

TEST(Job, LateRanksAreWaitedFor) {
  for (int late : {0, 1}) {
    int port = freePort();
    auto results = runRanks(2, [&](int rank) {
      if (rank == late)
        sleepMs(700);
      TestModule module(Collectives{{3}});
      ddphook_options_t options = jobOptions(rank, 2, port, "auto");
      return withModule(options, module, [&](ddphook_context_t *) {
        std::vector<float> data(3, 1.0f);
        return step(module, data);
      });
    });
    expectAll(results, "OK");
  }
}

TEST(Job, DifferentWorldSizes) {
  int port = freePort();
  auto results = runRanks(2, [&](int rank) {
    TestModule module;
    ddphook_options_t options =
        jobOptions(rank, rank == 0 ? 2 : 3, port, "auto", farDeadline);
    return withModule(options, module,
                      [](ddphook_context_t *) { return std::string(); });
  });
  for (const RankResult &result : results) {
    expectContains(result.text, "create BAD_ENVIRONMENT: rank 1 was started "
                                "with a world size of 3, but rank 0 with 2");
    EXPECT_LT(result.seconds, room);
  }
}

TEST(Job, DifferentSettings) {
  int port = freePort();
  auto results = runRanks(3, [&](int rank) {
    TestModule module;
    return withModule(
        jobOptions(rank, 3, port, rank == 2 ? "gloo" : "shm", farDeadline),
        module, [](ddphook_context_t *) { return std::string("joined"); });
  });
  expectAll(results,
            "create BAD_ENVIRONMENT: the ranks' settings differ: "
            "DDPHOOK_TRANSPORT is 'shm' on rank 0, but 'gloo' on rank 2");
  for (const RankResult &result : results)
    EXPECT_LT(result.seconds, room);
}

TEST(Job, TheSameRankTwice) {
  int port = freePort();
  auto results = runRanks(3, [&](int process) {
    TestModule module;
    ddphook_options_t options =
        jobOptions(process == 0 ? 0 : 1, 3, port, "auto", farDeadline);
    return withModule(options, module,
                      [](ddphook_context_t *) { return std::string(); });
  });
  for (const RankResult &result : results) {
    expectContains(result.text, "rank 1 joined twice");
    EXPECT_LT(result.seconds, room);
  }
}

TEST(Job, PlansDiffer) {
  int port = freePort();
  auto results = runRanks(3, [&](int rank) {
    TestModule module(Collectives{{3}}, 0,
                      R"([{"name":"dp","size":0,"ranks":[],"placement":"",)"
                      R"("parent":"","topology":"flat"}])",
                      rank == 2 ? "#ddp.bf16" : "#ddp.fp16");
    ddphook_options_t options = jobOptions(rank, 3, port, "auto");
    return withModule(options, module,
                      [](ddphook_context_t *) { return std::string(); });
  });
  expectAll(results, "load PLAN_MISMATCH: plans differ: buckets[0].hook is "
                     "\"#ddp.fp16\" on rank 0, but \"#ddp.bf16\" on rank 2");
}

TEST(Job, TheContextSurvivesAPlanMismatch) {
  int port = freePort();
  auto results = runRanks(2, [&](int rank) {
    TestModule good(Collectives{{3}}), bad(Collectives{{rank + 5}});
    ddphook_options_t options = jobOptions(rank, 2, port, "auto");
    return withModule(options, good, [&](ddphook_context_t *context) {
      ddphook_status_t status = ddphook_module_load(context, &bad.compiled);
      if (status != DDPHOOK_PLAN_MISMATCH || bad.handle)
        return "load " + show(status);
      std::vector<float> data(3, 1.0f);
      return step(good, data);
    });
  });
  expectAll(results, "OK");
}

TEST(Job, OneRankHasABrokenModule) {
  int port = freePort();
  auto results = runRanks(2, [&](int rank) {
    TestModule module(Collectives{{3}});
    if (rank == 1)
      module.compiled.plan_hash ^= 1;
    ddphook_options_t options = jobOptions(rank, 2, port, "auto");
    return withModule(options, module,
                      [](ddphook_context_t *) { return std::string(); });
  });
  expectContains(results[0].text, "load ABORTED: rank 1 could not load its "
                                  "module: expected a plan with the hash");
  expectContains(results[1].text,
                 "load DATA_LOSS: expected a plan with the hash");
}

TEST(Job, GroupSizeUnlikeTheJobs) {
  int port = freePort();
  auto results = runRanks(2, [&](int rank) {
    TestModule module(Collectives{{3}}, 0,
                      R"([{"name":"dp","size":4,"ranks":[],"placement":"",)"
                      R"("parent":"","topology":"flat"}])");
    ddphook_options_t options = jobOptions(rank, 2, port, "auto");
    return withModule(options, module,
                      [](ddphook_context_t *) { return std::string(); });
  });
  expectAll(results, "load INVALID_ARGUMENT: process group 'dp' was compiled "
                     "for 4 ranks, but has 2 in this job");
}

TEST(Job, DifferentCalls) {
  int port = freePort();
  auto results = runRanks(2, [&](int rank) {
    TestModule module;
    ddphook_options_t options = jobOptions(rank, 2, port, "auto");
    return withModule(options, module, [&](ddphook_context_t *context) {
      char byte = 0;
      std::string first =
          show(rank == 0 ? ddphook_barrier(context)
                         : ddphook_broadcast(context, &byte, 1, 0));
      std::string second =
          show(ddphook_broadcast(context, &byte, rank == 0 ? 1 : 2, 0));
      return first + " | " + second + " | " + show(ddphook_barrier(context));
    });
  });
  EXPECT_EQ(results[0].text,
            "FAILED_PRECONDITION: the ranks make different calls: "
            "ddphook_barrier on rank 0, but ddphook_broadcast on rank 1 | "
            "INVALID_ARGUMENT: ddphook_broadcast: rank 0 has 1 bytes from "
            "rank 0, but rank 1 has 2 bytes from rank 0 | OK");
}

/// Two "machines" of two ranks: intra-node groups use shared memory, the others
/// TCP, and both kinds work side by side.
TEST(Job, GroupsAcrossMachines) {
  int port = freePort();
  auto results = runRanks(4, [&](int rank) {
    ::setenv("DDPHOOK_NODE", rank < 2 ? "a" : "b", 1);
    std::string groups =
        R"([{"name":"dp","size":4,"ranks":[],"placement":"","parent":"","topology":"flat"},)"
        R"({"name":"in","size":2,"ranks":[],"placement":"intra_node",)"
        R"("parent":"dp","topology":"flat"},)"
        R"({"name":"out","size":2,"ranks":[],"placement":"inter_node",)"
        R"("parent":"dp","topology":"flat"},)"
        R"({"name":"odd","size":0,"ranks":[[0,3,2],[1]],"placement":"",)"
        R"("parent":"","topology":"flat"}])";
    TestModule module(Collectives{{5, "f32", "", false, 0},
                                  {5, "f32", "", false, 1},
                                  {5, "f32", "", false, 2},
                                  {5, "f32", "", false, 3}},
                      0, groups);
    ddphook_options_t options = jobOptions(rank, 4, port, "auto");
    return withModule(options, module, [&](ddphook_context_t *) {
      // Rank r contributes 10^r: a sum's digits name its ranks.
      const float own[] = {1, 10, 100, 1000};
      std::string sums;
      ddphook_status_t status = ddphook_rt_enter(module.handle, 0);
      if (status != DDPHOOK_OK)
        return show(status);
      for (int group = 0; group < 4; ++group) {
        std::vector<float> data(5, own[rank]), divided(5, 12);
        ddphook_rt_collective(module.handle, group, data.data(), data.data(),
                              /*step=*/0);
        ddphook_rt_divide_by_group_size(module.handle, group, divided.data(),
                                        divided.data(), 5, DDPHOOK_F32);
        sums += std::to_string(static_cast<int>(data[4])) + "/" +
                std::to_string(static_cast<int>(12 / divided[4])) + " ";
      }
      status = ddphook_rt_leave(module.handle);
      return status == DDPHOOK_OK ? sums : show(status);
    });
  });
  EXPECT_EQ(results[0].text, "1111/4 11/2 101/2 1101/3 ");
  EXPECT_EQ(results[1].text, "1111/4 11/2 1010/2 10/1 ");
  EXPECT_EQ(results[2].text, "1111/4 1100/2 101/2 1101/3 ");
  EXPECT_EQ(results[3].text, "1111/4 1100/2 1010/2 1101/3 ");
}

TEST(Job, SharedMemoryAcrossMachinesIsRefused) {
  int port = freePort();
  auto results = runRanks(2, [&](int rank) {
    ::setenv("DDPHOOK_NODE", rank == 0 ? "a" : "b", 1);
    TestModule module(Collectives{{3}});
    ddphook_options_t options = jobOptions(rank, 2, port, "shm");
    return withModule(options, module,
                      [](ddphook_context_t *) { return std::string(); });
  });
  for (const RankResult &result : results)
    expectContains(result.text, "do not share a machine's memory");
}

TEST(Job, LaunchVariables) {
  int port = freePort();
  auto results = runRanks(2, [&](int rank) {
    ::setenv("OMPI_COMM_WORLD_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
    ::setenv("DDPHOOK_PORT", std::to_string(port).c_str(), 1);
    ::setenv("DDPHOOK_TIMEOUT_S", "20", 1);
    ddphook_context_t *context = nullptr;
    ddphook_status_t status = ddphook_context_create(nullptr, &context);
    if (status != DDPHOOK_OK)
      return show(status);
    std::string result = std::to_string(ddphook_context_rank(context)) + "/" +
                         std::to_string(ddphook_context_world_size(context));
    ddphook_context_destroy(context);
    return result;
  });
  EXPECT_EQ(results[0].text, "0/2");
  EXPECT_EQ(results[1].text, "1/2");
}
