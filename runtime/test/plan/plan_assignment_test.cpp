// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Assignments of matrix lists and collectives: good ones, bad ones, and who
// gets what.

#include "plan/plan.h"

#include <gtest/gtest.h>

using namespace ddphook;

/// Four members, of which two and two are a group. A node's ranks reduce the
/// first group, whose factor P and rest nodes then reduce.
static const std::string goodPlan =
    R"({"abi":10,"memory":"host","kernels":[],"process_groups":[)"
    R"({"name":"dp","size":0,"ranks":[],"placement":"","parent":"","topology":"hierarchical"},)"
    R"({"name":"dp.node","size":0,"ranks":[],"placement":"intra_node","parent":"dp","topology":"flat"},)"
    R"({"name":"other","size":0,"ranks":[],"placement":"intra_node","parent":"","topology":"flat"}],)"
    R"("buckets":[{"name":"b0","group":"dp","reduction":"mean","dtype":"f32",)"
    R"("shapes":[[4,6],[5],[6,4],[3]],"gradients":[],"hook":"#ddp.powersgd",)"
    R"("wire_dtype":"","encoding":"","block":0,"wire_bytes":0,"state_bytes":0},)"
    R"({"name":"b1","group":"other","reduction":"mean","dtype":"f32",)"
    R"("shapes":[[29]],"gradients":[],"hook":"#ddp.allreduce",)"
    R"("wire_dtype":"","encoding":"","block":0,"wire_bytes":0,"state_bytes":0}],)"
    R"("states":[],"matrix_lists":[{"dtype":"f32","begin":0,"end":29,)"
    R"("matrices":[[0,0,0,4,6,1]],"pieces":[[24,0,5]],)"
    R"("assignment":{"bucket":"b0","groups":[0,2],"members":[0,1],"counts":[24,5]}}],)"
    R"("collectives":[{"kind":"all_reduce","bucket":"","group":1,"count":29,)"
    R"("dtype":"f32","wire_dtype":"","encoding":"","block":0,"divide":true,"root":0,)"
    R"("error":"","stream":-1,)"
    R"("assignment":{"bucket":"b0","groups":[0,2],"members":[0,1],"counts":[24,5]}},)"
    R"({"kind":"all_reduce","bucket":"b0","group":0,"count":15,)"
    R"("dtype":"f32","wire_dtype":"","encoding":"","block":0,"divide":false,"root":0,)"
    R"("error":"","stream":-1,)"
    R"("assignment":{"bucket":"b0","groups":[0,2],"members":[0,2,1],"counts":[4,6,5]}}],)"
    R"("arena":{"bytes":0,"alignment":1},"state_arena":{"bytes":0,"alignment":1},)"
    R"("entries":[]})";

/// The text from the last place of `in` on that `from` has behind it, with
/// `to`.
static std::string replaced(const std::string &in, const std::string &from,
                            const std::string &to) {
  std::string text = goodPlan;
  const size_t section = text.find(in);
  EXPECT_NE(section, std::string::npos) << in;
  const size_t at = text.find(from, section);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

static void expectBad(const std::string &text, const std::string &message) {
  Plan plan;
  Status status = parsePlan(text, &plan);
  EXPECT_EQ(status.code(), DDPHOOK_DATA_LOSS);
  EXPECT_NE(status.message().find(message), std::string::npos)
      << status.message();
}

static const char *const list = R"("matrix_lists")";
static const char *const inNode = R"("collectives")";
static const char *const acrossNodes = R"("kind":"all_reduce","bucket":"b0")";

TEST(PlanAssignment, Good) {
  Plan plan;
  Status status = parsePlan(goodPlan, &plan);
  ASSERT_TRUE(status.isOk()) << status.message();
  const PlanAssignment &ofList = *plan.matrixLists[0].assignment;
  EXPECT_EQ(ofList.bucket, 0u);
  EXPECT_EQ(ofList.groups, (std::vector<size_t>{0, 2}));
  ASSERT_EQ(ofList.parts.size(), 2u);
  EXPECT_EQ(ofList.parts[1].member, 1u);
  EXPECT_EQ(ofList.parts[1].count, 5);
  EXPECT_TRUE(ofList.isOfOneGroup());
  EXPECT_FALSE(plan.collectives[1].assignment->isOfOneGroup());
}

TEST(PlanAssignment, Bad) {
  expectBad(
      replaced(list, R"("assignment":{"bucket":"b0",)", R"("assignment":{)"),
      "matrix_lists[0].assignment: expected a key 'bucket'");
  expectBad(replaced(list, R"("bucket":"b0")", R"("bucket":"b2")"),
            "matrix_lists[0].assignment.bucket: expected");
  expectBad(
      replaced(list, R"("bucket":"b0")", R"("bucket":"b1")"),
      "assignment.bucket: expected a bucket of a hierarchical process group");
  expectBad(replaced(list, "[0,2]", "[]"),
            "assignment.groups: expected a first group");
  expectBad(
      replaced(list, "[0,2]", "[1,2]"),
      "assignment.groups[0]: expected a whole number from 0 to 0, but got 1");
  expectBad(
      replaced(list, "[0,2]", "[0,0]"),
      "assignment.groups[1]: expected a whole number from 1 to 3, but got 0");
  expectBad(replaced(list, "[0,2]", "[0,4]"), "but got 4");
  expectBad(
      replaced(list, R"("members":[0,1])", R"("members":[0,4])"),
      "assignment.members[1]: expected a whole number from 0 to 3, but got 4");
  expectBad(replaced(list, "[24,5]", "[24]"),
            "assignment.counts: expected a count for each member");
  expectBad(replaced(list, "[24,5]", "[24,5,0]"),
            "assignment.counts[2]: expected a count for each member");
  expectBad(replaced(list, "[24,5]", "[24,-5]"),
            "assignment.counts[1]: expected a whole number");
  expectBad(replaced(list, "[24,5]", "[24,6]"),
            "assignment.counts: expected counts of 29 elements together");
  expectBad(replaced(list, R"([24,5])", R"([23,6])"),
            "assignment.counts: expected parts that do not split a matrix");
  expectBad(replaced(list, R"([24,5])", R"([25,4])"),
            "assignment.counts: expected parts that do not split a piece");
  expectBad(replaced(list, R"("members":[0,1])", R"("members":[1,0])"),
            "assignment.members: expected adjacent members of one group");
  expectBad(replaced(list, R"("members":[0,1])", R"("members":[1,2])"),
            "assignment.members: expected adjacent members of one group");
  expectBad(
      replaced(inNode, R"("members":[0,1])", R"("members":[1,2])"),
      "collectives[0].assignment.members: expected adjacent members of one "
      "group");
  expectBad(replaced(inNode, R"("group":1)", R"("group":2)"),
            "collectives[0].assignment: expected a bucket of the collective's "
            "process group or of its parent");
  const std::string adds =
      "assignment: expected assigned parts only for an all_reduce without an "
      "encoding, which divides only within nodes";
  expectBad(replaced(acrossNodes, R"("divide":false)", R"("divide":true)"),
            adds);
  expectBad(
      replaced(acrossNodes, R"("wire_dtype":"")", R"("wire_dtype":"f16")"),
      adds);
  expectBad(replaced(inNode, R"("wire_dtype":"")", R"("wire_dtype":"f16")"),
            adds);
  expectBad(replaced(acrossNodes, "all_reduce", "broadcast"), adds);
}

/// By the middle of a member's elements in its group.
TEST(PlanAssignment, Positions) {
  Plan plan;
  ASSERT_TRUE(parsePlan(goodPlan, &plan).isOk());
  using Positions = std::vector<int64_t>;
  PlanAssignment assignment;
  assignment.groups = {0};
  EXPECT_EQ(plan.assignMembers(assignment, 1), (Positions{0, 0, 0, 0}));
  EXPECT_EQ(plan.assignMembers(assignment, 2), (Positions{0, 0, 1, 1}));
  EXPECT_EQ(plan.assignMembers(assignment, 3), (Positions{0, 1, 2, 2}));
  EXPECT_EQ(plan.assignMembers(assignment, 56), (Positions{12, 26, 41, 54}));
  assignment.groups = {0, 2};
  EXPECT_EQ(plan.assignMembers(assignment, 2), (Positions{0, 1, 0, 1}));
  plan.buckets[0].shapes = {{0, 3}, {0}};
  assignment.groups = {0};
  EXPECT_EQ(plan.assignMembers(assignment, 2), (Positions{0, 0}));
}

/// Which part of a list a rank has.
TEST(PlanAssignment, Cut) {
  Plan plan;
  ASSERT_TRUE(parsePlan(goodPlan, &plan).isOk());
  const PlanMatrixList &whole = plan.matrixLists[0];
  const PlanMatrixList first = whole.cut(0, 24), second = whole.cut(24, 29);
  EXPECT_EQ(first.matrices.size(), 1u);
  EXPECT_TRUE(first.pieces.empty());
  EXPECT_TRUE(second.matrices.empty());
  ASSERT_EQ(second.pieces.size(), 1u);
  EXPECT_EQ(second.pieces[0].offset, 24);
  EXPECT_EQ(second.begin, 24);
  EXPECT_EQ(second.end, 29);
  EXPECT_TRUE(whole.cut(24, 24).pieces.empty());
}
