// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The process groups that follow from a plan and from the ranks' nodes.

#include "job/process_groups.h"
#include "plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace ddphook;

/// The sets of `groups` in a job whose rank r runs on machine `nodes[r]`, as
/// seen by `rank`.
static Status resolve(const std::string &groups, const std::string &nodes,
                      int rank, std::vector<GroupMembers> *members) {
  Plan plan;
  Status status = parsePlan(
      R"({"abi":10,"memory":"host","kernels":[],"process_groups":)" + groups +
          R"(,"buckets":[],"states":[],"matrix_lists":[],)"
          R"("collectives":[],)"
          R"("arena":{"bytes":0,"alignment":1},)"
          R"("state_arena":{"bytes":0,"alignment":1},"entries":[]})",
      &plan);
  EXPECT_TRUE(status.isOk()) << status.message();
  std::vector<NodeIdentity> identities;
  for (char node : nodes)
    identities.push_back({std::string(1, node), std::string(1, node) + "/shm"});
  return resolveGroups(plan, rank, identities, members);
}

static std::string group(const std::string &name, int size,
                         const std::string &ranks, const std::string &placement,
                         const std::string &parent,
                         const std::string &topology = "flat") {
  return R"({"name":")" + name + R"(","size":)" + std::to_string(size) +
         R"(,"ranks":)" + ranks + R"(,"placement":")" + placement +
         R"(","parent":")" + parent + R"(","topology":")" + topology + R"("})";
}

TEST(ProcessGroups, Placement) {
  std::string groups = "[" + group("all", 6, "[]", "", "") + "," +
                       group("in", 3, "[]", "intra_node", "all") + "," +
                       group("out", 2, "[]", "inter_node", "") + "," +
                       group("same", 2, "[]", "", "out") + "]";
  // Ranks of the two nodes are interleaved.
  for (int rank = 0; rank < 6; ++rank) {
    std::vector<GroupMembers> members;
    ASSERT_TRUE(resolve(groups, "ababab", rank, &members).isOk());
    ASSERT_EQ(members.size(), 4u);
    EXPECT_EQ(members[0].ranks, (std::vector<int>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(members[0].index, rank);
    EXPECT_FALSE(members[0].isOneMachine);
    int parity = rank % 2;
    EXPECT_EQ(members[1].ranks,
              (std::vector<int>{parity, parity + 2, parity + 4}));
    EXPECT_EQ(members[1].index, rank / 2);
    EXPECT_TRUE(members[1].isOneMachine);
    EXPECT_EQ(members[2].ranks,
              (std::vector<int>{rank - parity, rank - parity + 1}));
    EXPECT_EQ(members[2].index, parity);
    EXPECT_FALSE(members[2].isOneMachine);
    EXPECT_EQ(members[3].ranks, members[2].ranks);
  }
}

TEST(ProcessGroups, Hierarchical) {
  std::string groups =
      "[" + group("all", 6, "[]", "", "", "hierarchical") + "," +
      group("listed", 0, "[[5,3,1,0],[4,2]]", "", "", "hierarchical") + "]";
  for (int rank = 0; rank < 6; ++rank) {
    std::vector<GroupMembers> members;
    Status status = resolve(groups, "abaabb", rank, &members);
    ASSERT_TRUE(status.isOk()) << status.message();
    const std::vector<GroupMembers> &levels = members[0].levels;
    ASSERT_EQ(levels.size(), 2u);
    // Nodes have ranks 0, 2, 3 and 1, 4, 5.
    const std::vector<int> a = {0, 2, 3}, b = {1, 4, 5};
    bool onA = std::find(a.begin(), a.end(), rank) != a.end();
    const std::vector<int> &mine = onA ? a : b;
    EXPECT_EQ(levels[0].ranks, mine);
    EXPECT_TRUE(levels[0].isOneMachine);
    auto place = static_cast<size_t>(levels[0].index);
    EXPECT_EQ(mine[place], rank);
    EXPECT_EQ(levels[1].ranks, (std::vector<int>{a[place], b[place]}));
    EXPECT_EQ(levels[1].index, onA ? 0 : 1);
    EXPECT_FALSE(levels[1].isOneMachine);
  }
  // In the order of the list.
  std::vector<GroupMembers> members;
  ASSERT_TRUE(resolve(groups, "abaabb", 3, &members).isOk());
  EXPECT_EQ(members[1].levels[0].ranks, (std::vector<int>{3, 0}));
  EXPECT_EQ(members[1].levels[1].ranks, (std::vector<int>{5, 3}));
  members.clear();
  ASSERT_TRUE(resolve(groups, "abaabb", 4, &members).isOk());
  EXPECT_EQ(members[1].levels[0].ranks, std::vector<int>{4});
  EXPECT_EQ(members[1].levels[1].ranks, (std::vector<int>{4, 2}));
}

TEST(ProcessGroups, Lists) {
  std::string groups = "[" + group("pairs", 0, "[[0,3],[2,1]]", "", "") + "," +
                       group("in", 0, "[]", "intra_node", "pairs") + "]";
  std::vector<GroupMembers> members;
  ASSERT_TRUE(resolve(groups, "aaab", 1, &members).isOk());
  EXPECT_EQ(members[0].ranks, (std::vector<int>{2, 1}));
  EXPECT_EQ(members[0].index, 1);
  EXPECT_TRUE(members[0].isOneMachine);
  members.clear();
  ASSERT_TRUE(resolve(groups, "aaab", 3, &members).isOk());
  EXPECT_EQ(members[0].ranks, (std::vector<int>{0, 3}));
  EXPECT_FALSE(members[0].isOneMachine);
  EXPECT_EQ(members[1].ranks, (std::vector<int>{3}));
}

TEST(ProcessGroups, DoNotFitTheJob) {
  auto expectError = [](const std::string &groups, const std::string &nodes,
                        const std::string &message) {
    // All ranks say the same.
    for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank) {
      std::vector<GroupMembers> members;
      Status status = resolve(groups, nodes, rank, &members);
      EXPECT_EQ(status.code(), DDPHOOK_INVALID_ARGUMENT);
      EXPECT_EQ(status.message(), message);
    }
  };
  expectError("[" + group("dp", 0, "[]", "", "", "hierarchical") + "]", "abb",
              "process group 'dp': expected equally many ranks on every node, "
              "but got 1 (with rank 0) and 2 (with rank 1)");
  expectError("[" + group("dp", 4, "[]", "", "") + "]", "aa",
              "process group 'dp' was compiled for 4 ranks, but has 2 in this "
              "job");
  expectError("[" + group("dp", 0, "[[0],[1,2]]", "", "") + "]", "aa",
              "process group 'dp' has rank 2, but the job has only 2 ranks");
  expectError("[" + group("dp", 0, "[[0],[1]]", "", "") + "]", "aaa",
              "process group 'dp' lists 2 ranks, but the job has 3");
  expectError(
      "[" + group("in", 0, "[]", "intra_node", "") + "," +
          group("x", 0, "[[0,1],[2,3]]", "", "in") + "]",
      "abab",
      "process group 'x' has ranks 0 and 1 together, but its parent does not");
  expectError("[" + group("out", 0, "[]", "inter_node", "") + "]", "aab",
              "process group 'out': expected equally many ranks on every "
              "node, but got 2 (with rank 0) and 1 (with rank 2)");
  expectError("[" + group("in", 2, "[]", "intra_node", "") + "]", "aab",
              "process group 'in' was compiled for 2 ranks, but has 1 in this "
              "job");
}
