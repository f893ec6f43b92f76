// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Good plans, every kind of bad one, damaged ones, and differences.

#include "plan/plan.h"

#include <gtest/gtest.h>

#include <random>

using namespace ddphook;

/// The example of docs/plan.md, with more of everything.
static const std::string goodPlan =
    R"({"abi":10,"memory":"host","kernels":[],"process_groups":[{"name":"dp","size":0,"ranks":[],)"
    R"("placement":"","parent":"","topology":"flat"},{"name":"pairs","size":2,)"
    R"("ranks":[[0,2],[3,1]],"placement":"","parent":"dp","topology":"flat"}],)"
    R"("buckets":[{"name":"b0","group":"dp","reduction":"mean","dtype":"f32",)"
    R"("shapes":[[300,200],[200]],"gradients":["w","b"],"hook":"#ddp.fp16",)"
    R"("wire_dtype":"f16","encoding":"","block":0,)"
    R"("wire_bytes":120400,"state_bytes":0}],"states":[{"name":"b0.error",)"
    R"("dtype":"f32","shapes":[[300,200],[200]],"kind":"error",)"
    R"("role":"error","gradients":[["w"],["b"]],"method":"mean","placement":"per_rank",)"
    R"("init":"zero","seed":0,"generator":"","draws":[],"offset":64,)"
    R"("bytes":240800},{"name":"generator","dtype":"i32","shapes":[[625]],)"
    R"("role":"generator","gradients":[["w","b"]],"method":"",)"
    R"("placement":"replicated","init":"mt19937","seed":4294967295,)"
    R"("generator":"","draws":[],"offset":240864,"bytes":2500},)"
    R"({"name":"b0.q","dtype":"f64","shapes":[[],[3,2]],)"
    R"("role":"","gradients":[],"method":"",)"
    R"("placement":"replicated","init":"normal","seed":0,)"
    R"("generator":"generator","draws":[1,6],"offset":0,"bytes":56}],)"
    R"("matrix_lists":[{"dtype":"f32","begin":100,"end":60200,)"
    R"("matrices":[[160,8,40,300,200,2],[100,0,0,4,10,2]],)"
    R"("pieces":[[60160,0,40],[140,60,20]]}],)"
    R"("collectives":[{"kind":"all_reduce","bucket":"b0","group":1,"count":60200,)"
    R"("dtype":"f32","wire_dtype":"f16",)"
    R"("encoding":"","block":0,"divide":true,"root":0,)"
    R"("error":"","stream":-1}],)"
    R"("arena":{"bytes":240832,"alignment":64},)"
    R"("state_arena":{"bytes":243364,"alignment":128},)"
    R"("entries":[{"name":"step","arguments":[{"dtype":"f32",)"
    R"("shape":[300,200],"scalar":false,"inout":true},{"dtype":"i1","shape":[],)"
    R"("scalar":false,"inout":false}],"results":[{"dtype":"f32","shape":[300,200],)"
    R"("argument":0},{"dtype":"index","shape":[0,7],"argument":-1}]}]})";

static std::string replaced(const std::string &from, const std::string &to,
                            std::string text = goodPlan) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

static Status parse(const std::string &text) {
  Plan plan;
  return parsePlan(text, &plan);
}

static void expectBad(const std::string &text, const std::string &part) {
  Status status = parse(text);
  EXPECT_EQ(status.code(), DDPHOOK_DATA_LOSS) << text;
  EXPECT_NE(status.message().find(part), std::string::npos)
      << "expected '" << part << "' in '" << status.message() << "'";
}

TEST(Plan, Parses) {
  Plan plan;
  Status status = parsePlan(goodPlan, &plan);
  ASSERT_TRUE(status.isOk()) << status.message();
  ASSERT_EQ(plan.processGroups.size(), 2u);
  EXPECT_FALSE(plan.processGroups[0].parent);
  EXPECT_EQ(plan.processGroups[1].parent, size_t(0));
  EXPECT_EQ(plan.processGroups[1].ranks,
            (std::vector<std::vector<int>>{{0, 2}, {3, 1}}));
  ASSERT_EQ(plan.buckets.size(), 1u);
  EXPECT_EQ(plan.buckets[0].shapes, (std::vector<Shape>{{300, 200}, {200}}));
  ASSERT_EQ(plan.states.size(), 3u);
  EXPECT_EQ(plan.states[0].offset, 64);
  EXPECT_EQ(plan.states[0].kind, "error");
  EXPECT_TRUE(plan.states[0].isError());
  EXPECT_EQ(plan.states[0].placement, StatePlacement::PerRank);
  EXPECT_EQ(plan.states[0].init, StateInit::Zero);
  EXPECT_FALSE(plan.states[0].generator);
  EXPECT_EQ(plan.states[1].kind, "");
  EXPECT_EQ(plan.states[1].init, StateInit::Mt19937);
  EXPECT_EQ(plan.states[1].dtype, StateDtype::I32);
  EXPECT_EQ(plan.states[1].seed, 4294967295u);
  EXPECT_EQ(plan.states[2].init, StateInit::Normal);
  EXPECT_EQ(plan.states[2].generator, size_t(1));
  EXPECT_EQ(plan.states[2].draws, (std::vector<int64_t>{1, 6}));
  ASSERT_EQ(plan.matrixLists.size(), 1u);
  const ddphook_matrix_list_t list = plan.matrixLists[0].view();
  EXPECT_EQ(list.struct_size, sizeof(ddphook_matrix_list_t));
  EXPECT_EQ(plan.matrixLists[0].dtype, Dtype::F32);
  EXPECT_EQ(list.begin, 100);
  EXPECT_EQ(list.end, 60200);
  ASSERT_EQ(list.matrix_count, 2);
  EXPECT_EQ(list.matrices[0].offset, 160);
  EXPECT_EQ(list.matrices[0].p_offset, 8);
  EXPECT_EQ(list.matrices[0].q_offset, 40);
  EXPECT_EQ(list.matrices[0].rows, 300);
  EXPECT_EQ(list.matrices[0].columns, 200);
  EXPECT_EQ(list.matrices[0].rank, 2);
  ASSERT_EQ(list.piece_count, 2);
  EXPECT_EQ(list.pieces[1].offset, 140);
  EXPECT_EQ(list.pieces[1].rest_offset, 60);
  EXPECT_EQ(list.pieces[1].count, 20);
  ASSERT_EQ(plan.collectives.size(), 1u);
  EXPECT_EQ(plan.collectives[0].group, 1u);
  EXPECT_EQ(plan.collectives[0].wireBytes(2), 120400);
  EXPECT_EQ(plan.collectives[0].memoryBytes(2), 240800);
  EXPECT_TRUE(plan.collectives[0].divide);
  EXPECT_EQ(plan.arena.bytes, 240832);
  EXPECT_EQ(plan.stateArena.alignment, 128);
  ASSERT_EQ(plan.entries.size(), 1u);
  EXPECT_TRUE(plan.entries[0].arguments[0].isInout);
  EXPECT_EQ(plan.entries[0].results[0].argument, 0);
  EXPECT_EQ(plan.entries[0].results[1].shape, (Shape{0, 7}));
}

TEST(Plan, OtherAbiVersions) {
  Status status = parse(replaced(R"("abi":10)", R"("abi":1)"));
  EXPECT_EQ(status.code(), DDPHOOK_UNSUPPORTED);
  EXPECT_EQ(status.message(), "expected a plan for ABI version " +
                                  std::to_string(DDPHOOK_ABI_VERSION) +
                                  ", but got one for 1");
  // Whatever else such a plan holds.
  EXPECT_EQ(parse(R"({"abi":77,"new":[]})").code(), DDPHOOK_UNSUPPORTED);
  expectBad(replaced(R"("abi":10)", R"("abi":"3")"), "has no ABI version");
  expectBad("[]", "has no ABI version");
}

TEST(Plan, IsNoJson) {
  for (const char *text : {"", "{", "nonsense", "{\"abi\":2}}", "\xff\xfe"})
    expectBad(text, "it is not JSON text");
  expectBad(goodPlan + "x", "it is not JSON text");
  expectBad(replaced(R"("size":2,)", R"("size":2,"size":2,)"),
            "an object has the same key twice");
  std::string deep(500000, '[');
  expectBad(R"({"abi":10,"memory":"host","kernels":[],"process_groups":)" +
                deep,
            "the nesting is too deep");
  expectBad(R"({"abi":10,"memory":"host","kernels":[],"process_groups":)" +
                deep + std::string(500000, ']') + "}",
            "the nesting is too deep");
}

TEST(Plan, WrongTypesAndRanges) {
  expectBad(replaced(R"("size":2,)", R"("size":-1,)"),
            "malformed plan: process_groups[1].size: expected a whole number "
            "from 0 to 16777216, but got -1");
  expectBad(replaced(R"("size":2,)", R"("size":2.0,)"), "but got 2.0");
  expectBad(replaced(R"("size":2,)", R"("size":18446744073709551615,)"),
            "but got 18446744073709551615");
  expectBad(replaced(R"("size":2,)", R"("sizes":2,)"),
            "process_groups[1]: expected a key 'size'");
  expectBad(replaced(R"("size":2,)", R"("size":2,"more":0,)"),
            "process_groups[1]: expected no unknown keys");
  expectBad(
      replaced(R"("name":"pairs")", R"("name":"dp")"),
      "process_groups[1].name: expected a name that is not empty and not used");
  expectBad(replaced(R"("states":[{"name":"b0.error")",
                     R"("states":[{"name":"__metadata__")"),
            "expected a valid name of a tensor in a file");
  expectBad(
      replaced(R"("name":"pairs")", R"("name":"")"),
      "process_groups[1].name: expected a name that is not empty and not used");
  expectBad(
      replaced(R"("parent":"dp")", R"("parent":"pairs")"),
      "process_groups[1].parent: expected a name that is declared earlier");
  expectBad(replaced(R"("parent":"dp","topology":"flat")",
                     R"("parent":"dp","topology":"tree")"),
            "process_groups[1].topology: expected \"flat\" or "
            "\"hierarchical\"");
  expectBad(replaced(R"("placement":"","parent":"dp","topology":"flat")",
                     R"("placement":"","parent":"dp")"),
            "process_groups[1]");
  expectBad(replaced("[3,1]", "[3,0]"),
            "process_groups[1].ranks[1][1]: expected each rank only once");
  expectBad(
      replaced("[3,1]", "[3,4]"),
      "process_groups[1].ranks: expected all ranks from 0 to the largest");
  expectBad(replaced("[3,1]", "[3,1],[]"), "expected at least one rank");
  expectBad(replaced(R"([[0,2],[3,1]],"placement":"")",
                     R"([[0,2],[3,1]],"placement":"intra_node")"),
            "expected no placement together with a list of ranks");
  expectBad(replaced(R"("placement":"")", R"("placement":"rack")"),
            "process_groups[0].placement");
  expectBad(replaced(R"("group":"dp")", R"("group":"tp")"),
            "buckets[0].group: expected a name that is declared earlier");
  expectBad(replaced(R"("mean")", R"("max")"), "buckets[0].reduction");
  expectBad(replaced(R"("dtype":"f32")", R"("dtype":"i32")"),
            "buckets[0].dtype");
  expectBad(replaced(R"("wire_dtype":"f16")", R"("wire_dtype":"f8")"),
            "buckets[0].wire_dtype");
  const std::string none = R"("encoding":"","block":0)";
  expectBad(
      replaced(none, R"("encoding":"i8","block":256)"),
      "buckets[0].wire_dtype: expected no wire type together with an encoding");
  expectBad(replaced(none, R"("encoding":"","block":7)"),
            "buckets[0].block: expected 0 without an encoding");
  expectBad(replaced(none, R"("encoding":"i7","block":256)"),
            "buckets[0].encoding");
  const std::string inF16 = R"("wire_dtype":"f16",)" + none;
  for (const char *bad : {R"("i8","block":0)", R"("i8","block":33)",
                          R"("i4","block":8192)", R"("f16","block":32)"})
    expectBad(
        replaced(inF16, R"("wire_dtype":"","encoding":)" + std::string(bad)),
        "buckets[0].block: expected the size of a block");
  expectBad(replaced("[300,200]", "[300,-200]"), "buckets[0].shapes[0][1]");
  expectBad(replaced("[300,200]", "[200000000,200000000,200000000]"),
            "expected an array of at most");
  expectBad(replaced(R"("placement":"per_rank")", R"("placement":"rank")"),
            "states[0].placement");
  expectBad(replaced(R"("init":"zero")", R"("init":"one")"), "states[0].init");
  expectBad(replaced(R"("offset":64)", R"("offset":62)"),
            "states[0].offset: expected a multiple");
  expectBad(replaced(R"("bytes":240800)", R"("bytes":240804)"),
            "states[0].bytes: expected the 240800 bytes of the shapes");
  expectBad(replaced(R"("offset":64)", R"("offset":243296)"),
            "states[0].bytes: expected an end within the state arena");
  expectBad(replaced(R"("offset":64)", R"("offset":4)"),
            "no overlap between the states 'b0.q' and 'b0.error'");
  expectBad(replaced(R"("offset":64)", R"("offset":243368)"),
            "states[0].offset: expected a whole number");
  expectBad(replaced(R"("group":1)", R"("group":2)"),
            "collectives[0].group: expected a whole number from 0 to 1");
  expectBad(replaced(R"("bucket":"b0")", R"("bucket":"b1")"),
            "collectives[0].bucket");
  expectBad(replaced(R"("count":60200)", R"("count":-1)"),
            "collectives[0].count");
  expectBad(replaced(R"("count":60200)", R"("count":999999999999999999)"),
            "collectives[0].count");
  expectBad(replaced(R"("divide":true)", R"("divide":1)"),
            "collectives[0].divide: expected true or false");
  expectBad(replaced(R"("kind":"all_reduce")", R"("kind":"gather")"),
            "collectives[0].kind: expected a kind of collective, but got "
            "\"gather\"");
  expectBad(replaced(R"("root":0)", R"("root":-1)"), "collectives[0].root");
  expectBad(replaced(R"("root":0)", R"("root":1)"),
            "collectives[0].root: expected 0 in all_reduce");
  expectBad(replaced(R"("stream":-1)", R"("stream":-2)"),
            "collectives[0].stream");
  expectBad(replaced(R"("stream":-1)", R"("stream":5)"),
            "collectives[0].stream: expected -1 without codes that have a "
            "scale for each block, but got 5");
  expectBad(replaced(R"("error":"")", R"("error":"generator")"),
            "collectives[0].error: expected error feedback only for an "
            "all_reduce with a scaled encoding");
  auto encoded = [](const std::string &error) {
    return replaced(R"("wire_dtype":"f16","encoding":"","block":0,)"
                    R"("divide":true,"root":0,"error":"")",
                    R"("wire_dtype":"","encoding":"i8","block":32,)"
                    R"("divide":true,"root":0,"error":")" +
                        error + "\"");
  };
  expectBad(encoded("generator"),
            "collectives[0].error: expected a state with the element count and "
            "type of the collective");
  expectBad(encoded("nobody"),
            "collectives[0].error: expected a name that is declared earlier");
  expectBad(replaced(R"("alignment":64)", R"("alignment":48)"),
            "arena.alignment: expected a power of two");
  expectBad(replaced(R"("alignment":64)", R"("alignment":4194304)"),
            "arena.alignment");
  expectBad(replaced(R"("bytes":240832)", R"("bytes":"x")"), "arena.bytes");
  expectBad(replaced(R"("dtype":"i1")", R"("dtype":"i2")"),
            "entries[0].arguments[1].dtype");
  expectBad(replaced(R"("inout":true)", R"("inout":false)"),
            "entries[0].results[0].argument: expected an inout argument");
  expectBad(replaced(R"("argument":0)", R"("argument":2)"),
            "entries[0].results[0].argument: expected a whole number");
  expectBad(replaced(R"("argument":0)", R"("argument":1)"),
            "expected an inout argument of the same type");
  expectBad(replaced(R"("entries":[)", R"("entries":[7,)"),
            "entries[0]: expected an object, but got 7");
  expectBad(replaced(R"("states":[)", R"("states":[[[]],)"),
            "states[0]: expected an object");
  expectBad(R"({"abi":10})", "top level: expected a key 'memory'");
}

/// A plan with one collective of that kind over a group of `size` ranks.
static Status parseCollective(const std::string &kind, int64_t size,
                              int64_t count, const std::string &rest,
                              Plan *plan) {
  return parsePlan(
      R"({"abi":10,"memory":"host","kernels":[],"process_groups":[)"
      R"({"name":"dp","size":)" +
          std::to_string(size) +
          R"(,"ranks":[],"placement":"","parent":"","topology":"flat"}],"buckets":[],)"
          R"("states":[],"matrix_lists":[],"collectives":[{"kind":")" +
          kind + R"(","bucket":"","group":0,"count":)" + std::to_string(count) +
          R"(,"dtype":"f32",)" + rest +
          R"(}],"arena":{"bytes":0,"alignment":1},)"
          R"("state_arena":{"bytes":0,"alignment":1},"entries":[]})",
      plan);
}

TEST(Plan, KindsOfCollectives) {
  const std::string plain =
      R"("wire_dtype":"","encoding":"","block":0,"divide":false,"root":0,)"
      R"("error":"","stream":-1)";
  auto bytes = [&](const std::string &kind, int64_t count,
                   const std::string &rest) {
    Plan plan;
    Status status = parseCollective(kind, 4, count, rest, &plan);
    EXPECT_TRUE(status.isOk()) << status.message();
    if (!status.isOk())
      return std::vector<int64_t>();
    const PlanCollective &collective = plan.collectives[0];
    return std::vector<int64_t>{collective.memoryBytes(4),
                                collective.wireBytes(4),
                                collective.wholeWireBytes(4)};
  };
  using Bytes = std::vector<int64_t>;
  const std::string half =
      R"("wire_dtype":"f16","encoding":"","block":0,"divide":false,"root":0,)"
      R"("error":"","stream":-1)";
  EXPECT_EQ(bytes("all_reduce", 10, half), (Bytes{40, 20, 20}));
  EXPECT_EQ(bytes("reduce_scatter", 10, half), (Bytes{40, 20, 24}));
  EXPECT_EQ(bytes("all_gather", 10, half), (Bytes{12, 6, 24}));
  EXPECT_EQ(bytes("all_to_all", 8, plain), (Bytes{32, 32, 32}));
  const std::string codes =
      R"("wire_dtype":"","encoding":"i8","block":32,"divide":false,"root":0,)"
      R"("error":"","stream":-1)";
  EXPECT_EQ(bytes("reduce_scatter", 10, codes), (Bytes{40, 12, 12}));
  EXPECT_EQ(bytes("all_gather", 10, codes), (Bytes{12, 5, 12}));
  EXPECT_EQ(bytes("broadcast", 10, plain), (Bytes{40, 40, 40}));
}

TEST(Plan, BadKindsOfCollectives) {
  auto expectMessage = [](const std::string &kind, int64_t size, int64_t count,
                          const std::string &rest,
                          const std::string &expected) {
    Plan plan;
    Status status = parseCollective(kind, size, count, rest, &plan);
    EXPECT_EQ(status.code(), DDPHOOK_DATA_LOSS);
    EXPECT_NE(status.message().find("collectives[0]." + expected),
              std::string::npos)
        << status.message();
  };
  auto rest = [](const std::string &wire, const std::string &encoding,
                 bool divide, int root) {
    return R"("wire_dtype":")" + wire + R"(","encoding":")" + encoding +
           R"(","block":)" + (encoding.empty() ? "0" : "32") + R"(,"divide":)" +
           (divide ? "true" : "false") + R"(,"root":)" + std::to_string(root) +
           R"(,"error":"","stream":-1)";
  };
  const std::string plain = rest("", "", false, 0);
  for (const char *kind : {"reduce_scatter", "all_gather", "all_to_all"}) {
    expectMessage(kind, 0, 8, plain,
                  "group: expected a group whose size the plan defines, for " +
                      std::string(kind));
    expectMessage(kind, 4, 8, rest("", "", false, 1),
                  "root: expected 0 in " + std::string(kind));
  }
  for (const char *kind : {"reduce_scatter", "all_gather"})
    expectMessage(kind, 4, 8, rest("", "ui8", false, 0),
                  "encoding: expected an encoding without a zero point for " +
                      std::string(kind));
  for (const char *kind : {"all_to_all", "broadcast"}) {
    expectMessage(kind, 4, 8, rest("", "i8", false, 0),
                  "encoding: expected no encoding for " + std::string(kind));
    expectMessage(kind, 4, 8, rest("f16", "", false, 0),
                  "wire_dtype: expected no wire type for " + std::string(kind));
  }
  std::string stochastic = rest("", "i8", false, 0);
  stochastic.replace(stochastic.find("-1"), 2, "5");
  expectMessage("all_gather", 4, 8, stochastic,
                "stream: expected -1 without codes that have a scale for each "
                "block");
  for (const char *kind : {"all_gather", "all_to_all", "broadcast"})
    expectMessage(kind, 4, 8, rest("", "", true, 0),
                  "divide: expected no division in " + std::string(kind));
  expectMessage("all_to_all", 4, 10, plain,
                "count: expected as many elements for each of 4 ranks");
  expectMessage("broadcast", 4, 8, rest("", "", false, 4),
                "root: expected one of 4 ranks");
}

TEST(Plan, BadStates) {
  // A counter may be of any type, but no type that no state has.
  const std::string rest = R"("role":"","gradients":[],"method":"",)";
  EXPECT_TRUE(parse(replaced(R"("dtype":"f64","shapes":[[],[3,2]],)" + rest +
                                 R"("placement":"replicated","init":"normal",)"
                                 R"("seed":0,"generator":"generator",)"
                                 R"("draws":[1,6])",
                             R"("dtype":"i64","shapes":[[],[3,2]],)" + rest +
                                 R"("placement":"replicated","init":"zero",)"
                                 R"("seed":0,"generator":"","draws":[])"))
                  .isOk());
  expectBad(replaced(R"("kind":"error")", R"("kind":1)"),
            "states[0].kind: expected a string, but got 1");
  expectBad(replaced(R"("dtype":"i32","shapes":[[625]],)",
                     R"("dtype":"i32","shapes":[[625]],"kind":"error",)"),
            "states[1].kind: expected errors of floating-point type");
  for (const std::string kind :
       {"share_error", "factor", "iteration", "counter", "generator"}) {
    Plan plan;
    const std::string text =
        replaced(R"("kind":"error")", R"("kind":")" + kind + '"');
    EXPECT_TRUE(parsePlan(text, &plan).isOk()) << kind;
    EXPECT_EQ(plan.hasShareErrors(), kind == "share_error");
  }
  expectBad(replaced(R"("dtype":"i32")", R"("dtype":"i16")"),
            R"(states[1].dtype: expected one of "f16", "bf16", "f32", "f64", )"
            R"("i32", "i64", but got "i16")");
  expectBad(replaced(R"("seed":0)", R"("seed":1)"),
            "states[0].seed: expected a whole number from 0 to 0, but got 1");
  expectBad(replaced(R"("seed":4294967295)", R"("seed":4294967296)"),
            "states[1].seed: expected a whole number from 0 to 4294967295");
  expectBad(replaced(R"("dtype":"i32")", R"("dtype":"f32")"),
            "states[1].shapes: expected a generator's 625 elements of type "
            "i32");
  expectBad(replaced(R"([[625]])", R"([[5,125]])"),
            "states[1].shapes: expected a generator's 625 elements");
  expectBad(replaced(R"("generator":"","draws":[],"offset":240864)",
                     R"("generator":"","draws":[625],"offset":240864)"),
            "states[1].draws: expected no draws for this init");
  expectBad(replaced(R"("generator":"","draws":[],"offset":240864)",
                     R"("generator":"b0.error","draws":[],"offset":240864)"),
            "states[1].generator: expected no generator for this init");
  expectBad(replaced(R"("dtype":"f64")", R"("dtype":"i64")"),
            "states[2].dtype: expected a floating-point type");
  expectBad(replaced("[1,6]", "[1,5]"),
            "states[2].draws: expected as many numbers as the state has "
            "elements, 7, but got [1,5]");
  expectBad(replaced("[1,6]", "[8,-1]"),
            "states[2].draws[1]: expected a whole number");
  expectBad(replaced("[1,6]", "[144115188075855872,144115188075855872]"),
            "states[2].draws: expected at most");
  expectBad(replaced(R"("generator":"generator")", R"("generator":"b0.q")"),
            "states[2].generator: expected a name that is declared earlier in "
            "the plan");
  expectBad(replaced(R"("generator":"generator")", R"("generator":"b0.error")"),
            "states[2].generator: expected the name of a random generator");
}

TEST(Plan, BadMatrixLists) {
  const std::string gap = "matrix_lists[0]: expected matrices and pieces that "
                          "cover the elements from ";
  expectBad(replaced(R"("begin":100)", R"("begin":99)"), gap + "99 to 60200");
  expectBad(replaced(R"("begin":100)", R"("begin":101)"), gap);
  expectBad(replaced(R"("begin":100)", R"("begin":60201)"),
            "matrix_lists[0].end: expected a whole number from 60201");
  expectBad(replaced(R"("end":60200)", R"("end":60201)"), gap);
  expectBad(replaced("[160,8,40,300", "[161,8,40,300"), gap);
  expectBad(replaced("[160,8,40,300", "[159,8,40,300"), gap);
  expectBad(replaced("[140,60,20]", "[140,60,21]"), gap);
  expectBad(replaced(",[140,60,20]", ""), gap);
  expectBad(replaced("[160,8,40,300,200,2]", "[160,7,40,300,200,2]"),
            "matrix_lists[0].matrices: expected factors P that do not overlap");
  expectBad(replaced("[160,8,40,300,200,2]", "[160,8,19,300,200,2]"),
            "matrix_lists[0].matrices: expected factors Q that do not overlap");
  expectBad(replaced("[140,60,20]", "[140,39,20]"),
            "matrix_lists[0].pieces: expected pieces that do not overlap");
  expectBad(replaced("[100,0,0,4,10,2]", "[100,0,0,4,10]"),
            "matrix_lists[0].matrices[1]: expected 6 numbers");
  expectBad(replaced("[100,0,0,4,10,2]", "[100,0,0,4,10,2,0]"),
            "matrix_lists[0].matrices[1]: expected 6 numbers");
  expectBad(replaced("[140,60,20]", "7"),
            "matrix_lists[0].pieces[1]: expected a list");
  expectBad(replaced("[140,60,20]", "[140,60,-20]"),
            "matrix_lists[0].pieces[1][2]: expected a whole number from 0");
  expectBad(replaced("[100,0,0,4,10,2]", "[100,0,0,4,10,144115188075855872]"),
            "matrix_lists[0].matrices[1]: expected a matrix of at most");
  expectBad(replaced("[100,0,0,4,10,2]",
                     "[100,0,0,144115188075855872,144115188075855872,2]"),
            "matrix_lists[0].matrices[1]: expected a matrix of at most");
  expectBad(
      replaced(R"([{"dtype":"f32","begin")", R"([{"dtype":"i32","begin")"),
      "matrix_lists[0].dtype");
  // What is empty is nowhere.
  EXPECT_TRUE(parse(replaced("[140,60,20]", "[140,60,20],[0,0,0]")).isOk());
  EXPECT_TRUE(parse(replaced("[100,0,0,4,10,2]",
                             "[100,0,0,4,10,2],[7,0,0,0,10,2]"))
                  .isOk() == false); // Q of ten rows does lie somewhere.
  EXPECT_TRUE(
      parse(replaced("[100,0,0,4,10,2]", "[100,0,0,4,10,2],[7,0,0,0,10,0]"))
          .isOk());
}

/// Long lists are checked in a time that nobody notices.
TEST(Plan, LongMatrixLists) {
  const int64_t count = 10000;
  std::string matrices, pieces;
  for (int64_t i = count - 1; i >= 0; --i) {
    matrices += (matrices.empty() ? "[" : ",[") + std::to_string(i * 13) + "," +
                std::to_string(i * 3) + "," + std::to_string(i * 4) + ",3,4,1]";
    pieces += (pieces.empty() ? "[" : ",[") + std::to_string(i * 13 + 12) +
              "," + std::to_string(i) + ",1]";
  }
  std::string text =
      replaced(R"("matrix_lists":[)",
               R"("matrix_lists":[{"dtype":"bf16","begin":0,)"
               R"("end":)" +
                   std::to_string(count * 13) + R"(,"matrices":[)" + matrices +
                   R"(],"pieces":[)" + pieces + "]},");
  Plan plan;
  ASSERT_TRUE(parsePlan(text, &plan).isOk());
  EXPECT_EQ(plan.matrixLists[0].matrices.size(), size_t(count));
  EXPECT_EQ(plan.matrixLists[0].pieces.size(), size_t(count));
}

/// Damaged bytes give an error or, when they happen to make sense, a plan; they
/// never crash.
TEST(Plan, DamagedBytes) {
  const unsigned seed = 424242;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  // JSON's own characters find more of the parser than random bytes do.
  const std::string alphabet = "{}[]\",:0123456789-.eE+truefalsn\\u \n\x80\xff";
  int refused = 0;
  const int rounds = 20000;
  for (int round = 0; round < rounds; ++round) {
    std::string text = goodPlan;
    int changes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < changes && !text.empty(); ++i) {
      size_t at = random() % text.size();
      char byte = alphabet[random() % alphabet.size()];
      switch (random() % 5) {
      case 0:
        text[at] = byte;
        break;
      case 1:
        text.insert(at, 1, byte);
        break;
      case 2:
        text.erase(at, 1 + random() % 20);
        break;
      case 3:
        text.insert(at, text.substr(random() % text.size(), random() % 40));
        break;
      default:
        text.resize(at);
        break;
      }
    }
    Status status = parse(text);
    EXPECT_TRUE(status.isOk() || status.code() == DDPHOOK_DATA_LOSS ||
                status.code() == DDPHOOK_UNSUPPORTED)
        << text;
    refused += !status.isOk();
    // Comparing must not crash either.
    EXPECT_FALSE(
        describeDifference(goodPlan, "rank 0", text, "rank 1").empty());
  }
  EXPECT_GT(refused, rounds / 2);
  EXPECT_LT(refused, rounds); // Otherwise the test shows nothing.
}

TEST(Plan, HashDependsOnEveryByte) {
  uint64_t hash = hashPlan(goodPlan);
  EXPECT_EQ(hash, hashPlan(std::string(goodPlan)));
  for (size_t i = 0; i < goodPlan.size(); i += 37) {
    std::string text = goodPlan;
    text[i] ^= 1;
    EXPECT_NE(hashPlan(text), hash);
  }
  // The published value of XXH3-64 of no bytes.
  EXPECT_EQ(hashPlan(""), 0x2d06800538d394c2u);
}

static std::string difference(const std::string &other) {
  return describeDifference(goodPlan, "rank 0", other, "rank 3");
}

TEST(PlanDifference, NamesTheFirst) {
  EXPECT_EQ(difference(replaced("#ddp.fp16", "#ddp.bf16")),
            "plans differ: buckets[0].hook is \"#ddp.fp16\" on rank 0, but "
            "\"#ddp.bf16\" on rank 3");
  // In the order in which they are written, not of the alphabet.
  EXPECT_EQ(
      difference(replaced(R"("mean")", R"("sum")", replaced("60200", "5"))),
      "plans differ: buckets[0].reduction is \"mean\" on rank 0, but "
      "\"sum\" on rank 3");
  EXPECT_EQ(difference(replaced("[[0,2],[3,1]]", "[[0,2],[3,1],[4]]")),
            "plans differ: the length of process_groups[1].ranks is 2 on rank "
            "0, but 3 on rank 3");
  EXPECT_EQ(difference(replaced(R"("size":0,)", "")),
            "plans differ: process_groups[0].size is 0 on rank 0, but absent "
            "on rank 3");
  EXPECT_EQ(difference(replaced(R"("size":0,)", R"("size":0,"x":1,)")),
            "plans differ: process_groups[0].x is absent on rank 0, but 1 on "
            "rank 3");
  EXPECT_EQ(difference("[]").find("plans differ: the whole plan is {"), 0u);
  EXPECT_NE(
      difference(goodPlan + " ").find("the same contents in different text"),
      std::string::npos);
}
