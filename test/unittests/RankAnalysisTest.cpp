// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the analysis of ranks is made of: process groups, memory, and how often
// a value was reduced.

#include "RankAnalysis.h"
#include "TestModule.h"

#include <random>

using namespace mlir;
using namespace mlir::ddp;

//===----------------------------------------------------------------------===//
// Process groups
//===----------------------------------------------------------------------===//

namespace {
class RankGroupsTest : public ModuleTest {
protected:
  ProcessGroupOp get(StringRef name) {
    return module->lookupSymbol<ProcessGroupOp>(name);
  }
};
} // namespace

TEST_F(RankGroupsTest, ListsOfRanks) {
  RankGroups groups(
      parse("ddp.process_group @all\n"
            "ddp.process_group @one ranks [[0, 1, 2, 3]]\n"
            "ddp.process_group @rows ranks [[0, 1], [2, 3]]\n"
            "ddp.process_group @columns ranks [[0, 2], [1, 3]]\n"
            "ddp.process_group @cross ranks [[0, 3], [1, 2]]\n"
            "ddp.process_group @single ranks [[0], [1], [2], [3]]\n"));
  RankMask rows = groups.getBit(get("rows")),
           columns = groups.getBit(get("columns")),
           single = groups.getBit(get("single"));
  // One list of all ranks is the whole job.
  EXPECT_EQ(groups.getBit(get("all")), 1u);
  EXPECT_EQ(groups.getBit(get("one")), 1u);
  EXPECT_NE(rows, columns);

  // What is the same everywhere is the same within each part of anything.
  EXPECT_EQ(groups.getRefinements(get("all")), kAllRanks);
  EXPECT_EQ(groups.getRefinements(get("rows")), rows | single);

  EXPECT_TRUE(RankGroups::isTrivial(get("single")));
  EXPECT_FALSE(RankGroups::isTrivial(get("rows")));
  EXPECT_FALSE(RankGroups::isTrivial(get("all")));

  EXPECT_TRUE(groups.areOrthogonal(get("rows"), columns));
  EXPECT_FALSE(groups.areOrthogonal(get("rows"), rows));
  EXPECT_FALSE(groups.areOrthogonal(get("rows"), rows | columns));
  EXPECT_FALSE(groups.areOrthogonal(get("all"), columns));
  EXPECT_FALSE(groups.areOrthogonal(get("rows"), 1));
  EXPECT_TRUE(groups.areOrthogonal(get("cross"), rows));
}

TEST_F(RankGroupsTest, Machines) {
  RankGroups groups(
      parse("ddp.process_group @all\n"
            "ddp.process_group @near placement intra_node\n"
            "ddp.process_group @far placement inter_node\n"
            "ddp.process_group @near_of_all placement intra_node parent @all\n"
            "ddp.process_group @halves ranks [[0, 1], [2, 3]]\n"
            "ddp.process_group @near_of_half placement intra_node "
            "parent @halves\n"));
  RankMask near = groups.getBit(get("near"));
  // Without a parent, and with the whole job as parent, they are the same.
  EXPECT_EQ(groups.getRefinements(get("near")),
            groups.getRefinements(get("near_of_all")));
  EXPECT_TRUE(groups.getRefinements(get("halves")) &
              groups.getBit(get("near_of_half")));
  EXPECT_FALSE(groups.getRefinements(get("halves")) & near);
  EXPECT_TRUE(groups.areOrthogonal(get("far"), near));
  EXPECT_FALSE(
      groups.areOrthogonal(get("far"), groups.getBit(get("near_of_half"))));

  // Between the machines after within them is over all.
  EXPECT_EQ(groups.getMaskOfSum(get("far"), near), kAllRanks);
  EXPECT_NE(groups.getMaskOfSum(get("far"), 0), kAllRanks);
  // Machines may have several numbers of ranks: sums of equals may differ.
  EXPECT_EQ(groups.getMaskOfSum(get("near"), 1) & 1, 0u);
  EXPECT_EQ(groups.getMaskOfSum(get("halves"), kAllRanks), kAllRanks);
}

TEST_F(RankGroupsTest, GroupsBeyondThe63rdAskForMore) {
  std::string text;
  for (unsigned i = 0; i < 70; ++i)
    text += "ddp.process_group @g" + std::to_string(i) +
            " ranks [[0, 1], [2, 3]]\n";
  RankGroups groups(parse(text));
  EXPECT_EQ(groups.getBit(get("g0")), RankMask(1) << 1);
  EXPECT_EQ(groups.getBit(get("g62")), RankMask(1) << 63);
  EXPECT_EQ(groups.getBit(get("g63")), 1u);
  EXPECT_EQ(groups.getBit(get("g69")), 1u);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

namespace {
const char rootA = 0, rootB = 0;

MemoryRegion at(int64_t begin, int64_t end, const void *root = &rootA) {
  return {root, begin, end, /*isExact=*/true};
}
} // namespace

TEST(RankMemoryTest, ReadsWhatWasWritten) {
  RankMemory memory;
  memory.setInitial(&rootA, 0b1000);
  EXPECT_EQ(memory.read(at(0, 8)).uniform, 0b1000u);
  EXPECT_EQ(memory.read(at(0, 8, &rootB)).uniform, kAllRanks);
  EXPECT_EQ(memory.read(MemoryRegion()).uniform, 0u);

  memory.write(at(4, 8), {0b0110, {}}, /*isWhole=*/true);
  EXPECT_EQ(memory.read(at(4, 8)).uniform, 0b0110u);
  EXPECT_EQ(memory.read(at(5, 6)).uniform, 0b0110u);
  EXPECT_EQ(memory.read(at(0, 4)).uniform, 0b1000u);
  EXPECT_EQ(memory.read(at(8, 9)).uniform, 0b1000u);
  EXPECT_EQ(memory.read(at(3, 5)).uniform, 0u);
  EXPECT_EQ(memory.read(at(7, 9)).uniform, 0u);

  // Somewhere in there: what it was, or this.
  memory.write(at(0, 8), {0b0010, {}}, /*isWhole=*/false);
  EXPECT_EQ(memory.read(at(4, 8)).uniform, 0b0010u);
  EXPECT_EQ(memory.read(at(0, 4)).uniform, 0u);
  memory.write(at(0, 8), {0b0001, {}}, /*isWhole=*/true);
  EXPECT_EQ(memory.read(at(0, 8)).uniform, 0b0001u);
  EXPECT_EQ(memory.getUniform(&rootA), 0b0001u);
}

TEST(RankMemoryTest, EmptyWritesChangeNothing) {
  RankMemory memory, untouched;
  memory.write(at(4, 4), {0, {}}, true);
  memory.write(at(8, 4), {0, {}}, true);
  memory.write(MemoryRegion(), {0, {}}, true);
  EXPECT_TRUE(memory == untouched);
}

TEST(RankMemoryTest, OneOfSeveralPlaces) {
  std::vector<MemoryRegion> places = {at(0, 4), at(0, 4, &rootB)};
  MemoryRegion either = at(0, 4, &places);
  either.places = &places;
  EXPECT_TRUE(either.overlaps(at(3, 9)));
  EXPECT_TRUE(at(3, 9, &rootB).overlaps(either));
  EXPECT_FALSE(either.overlaps(at(4, 9)));

  RankMemory memory;
  memory.write(at(0, 4), {0b11, {}}, true);
  memory.write(at(0, 4, &rootB), {0b110, {}}, true);
  EXPECT_EQ(memory.read(either).uniform, 0b10u);
  // Only one of them is overwritten.
  memory.write(either, {0b101, {}}, true);
  EXPECT_EQ(memory.read(at(0, 4)).uniform, 0b1u);
  EXPECT_EQ(memory.read(at(0, 4, &rootB)).uniform, 0b100u);
}

TEST(RankMemoryTest, ACollectiveLeavesItsBucketUntilSomethingElseIsWritten) {
  MLIRContext context;
  auto bucket = StringAttr::get(&context, "b0");
  RankMemory memory;
  memory.write(at(0, 8), {kAllRanks, bucket}, true);
  EXPECT_EQ(memory.read(at(2, 4)).reducedAs, bucket);
  memory.write(at(4, 5), {kAllRanks, {}}, true);
  EXPECT_EQ(memory.read(at(0, 4)).reducedAs, bucket);
  EXPECT_EQ(memory.read(at(0, 8)).reducedAs, StringAttr());
  EXPECT_EQ(memory.read(at(0, 9)).reducedAs, StringAttr());
}

TEST(RankMemoryTest, TwoPathsMeet) {
  RankMemory one, other;
  one.setInitial(&rootA, 0b1111);
  other.setInitial(&rootA, 0b1111);
  one.write(at(0, 4), {0b0111, {}}, true);
  other.write(at(2, 6), {0b1110, {}}, true);
  RankMemory both = one;
  both.join(other, /*choice=*/kAllRanks);
  EXPECT_EQ(both.read(at(0, 2)).uniform, 0b0111u);
  EXPECT_EQ(both.read(at(2, 4)).uniform, 0b0110u);
  EXPECT_EQ(both.read(at(4, 6)).uniform, 0b1110u);
  EXPECT_EQ(both.read(at(6, 8)).uniform, 0b1111u);
  // Where ranks take different paths, what was written differs.
  both = one;
  both.join(other, /*choice=*/0b1000);
  EXPECT_EQ(both.read(at(0, 2)).uniform, 0u);
  EXPECT_EQ(both.read(at(6, 8)).uniform, 0b1111u);
}

/// Against memory that is kept byte by byte.
TEST(RankMemoryTest, RandomWritesAndJoins) {
  constexpr unsigned seed = 20261122, bytes = 24;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  using Bytes = std::array<RankMask, bytes>;
  for (unsigned round = 0; round < 300; ++round) {
    RankMemory memories[2];
    Bytes models[2];
    for (unsigned path : {0, 1}) {
      memories[path].setInitial(&rootA, 0b11110000);
      models[path].fill(0b11110000);
    }
    for (unsigned step = 0; step < 8; ++step) {
      unsigned path = random() % 2;
      int64_t begin = random() % bytes, end = begin + random() % 6;
      end = std::min<int64_t>(end, bytes);
      RankMask mask = random() % 256;
      bool isWhole = random() % 2;
      memories[path].write(at(begin, end), {mask, {}}, isWhole);
      for (int64_t i = begin; i < end; ++i)
        models[path][i] = isWhole ? mask : models[path][i] & mask;
    }
    RankMask choice = random() % 256;
    memories[0].join(memories[1], choice);
    for (unsigned i = 0; i < bytes; ++i) {
      if (models[0][i] != models[1][i])
        models[0][i] &= models[1][i] & choice;
      ASSERT_EQ(memories[0].read(at(i, i + 1)).uniform, models[0][i])
          << "byte " << i << " in round " << round;
    }
    RankMask all = kAllRanks;
    for (RankMask mask : models[0])
      all &= mask;
    ASSERT_EQ(memories[0].read(at(0, bytes)).uniform, all);
  }
}

//===----------------------------------------------------------------------===//
// Counts
//===----------------------------------------------------------------------===//

TEST(SourceSetsTest, UnionsAreSets) {
  SourceSets sets;
  unsigned a = sets.createSource(), b = sets.createSource(),
           c = sets.createSource();
  unsigned ab = sets.getUnion(a, b), abc = sets.getUnion(ab, c);
  EXPECT_EQ(sets.getUnion(a, 0), a);
  EXPECT_EQ(sets.getUnion(0, a), a);
  EXPECT_EQ(sets.getUnion(a, a), a);
  EXPECT_EQ(sets.getUnion(b, a), ab);
  EXPECT_TRUE(sets.contains(abc, ab));
  EXPECT_FALSE(sets.contains(ab, abc));
  EXPECT_TRUE(sets.contains(ab, 0));
  EXPECT_FALSE(sets.contains(0, a));
  EXPECT_FALSE(sets.contains(sets.getUnion(a, c), b));
  // The same set, made in another way.
  unsigned bca = sets.getUnion(sets.getUnion(b, c), a);
  EXPECT_TRUE(sets.contains(bca, abc) && sets.contains(abc, bca));
}

TEST(SourceSetsTest, WhatWasReducedDiffers) {
  SourceSets sets;
  unsigned a = sets.createSource(), b = sets.createSource(),
           c = sets.createSource();
  EXPECT_FALSE(sets.differs(a));
  sets.addReduced(sets.getUnion(a, b));
  // Either of the two differs, so only both together are known to.
  EXPECT_FALSE(sets.differs(a));
  EXPECT_FALSE(sets.differs(sets.getUnion(b, c)));
  EXPECT_TRUE(sets.differs(sets.getUnion(a, b)));
  EXPECT_TRUE(sets.differs(sets.getUnion(sets.getUnion(c, b), a)));
  sets.addReduced(0);
  EXPECT_FALSE(sets.differs(0));
}

namespace {
class GradientCountTest : public ModuleTest {
protected:
  GradientCount make(uint8_t times, int64_t elements = 8) {
    GradientCount count;
    count.times = times;
    count.elements = elements;
    if (times & GradientCount::Unreduced)
      count.sources = sets.createSource();
    return count;
  }
  SourceSets sets;
  static constexpr uint8_t U = GradientCount::Unreduced,
                           O = GradientCount::Once, M = GradientCount::Often;
};
} // namespace

TEST_F(GradientCountTest, AnElementIsAsReducedAsItsMostReducedOperand) {
  auto combine = [&](uint8_t a, uint8_t b) {
    return combineCounts(sets, {make(a), make(b)}).times;
  };
  EXPECT_EQ(combine(U, O), O);
  EXPECT_EQ(combine(U, U), U);
  EXPECT_EQ(combine(O, M), M);
  EXPECT_EQ(combine(0, U), U);
  EXPECT_EQ(combine(0, 0), 0);
  // On some paths this, on others that.
  EXPECT_EQ(combine(U | O, U), U | O);
  EXPECT_EQ(combine(U | O, O), O);
}

TEST_F(GradientCountTest, ANormDoesNotReduceWhatItScales) {
  EXPECT_EQ(combineCounts(sets, {make(U, 8), make(O, 1)}).times, U);
  EXPECT_EQ(combineCounts(sets, {make(U, 8), make(O, 8)}).times, O);
  EXPECT_EQ(combineCounts(sets, {make(O, 8), make(O, 1)}).times, O);
}

TEST_F(GradientCountTest, PathsAndParts) {
  EXPECT_EQ(joinCounts(sets, make(U), make(O)).times, U | O);
  EXPECT_FALSE(joinCounts(sets, make(U), make(O)).isMixedInParts);
  EXPECT_TRUE(placeCounts(sets, make(O), make(U)).isMixedInParts);
  EXPECT_FALSE(placeCounts(sets, make(O), make(O)).isMixedInParts);
  EXPECT_FALSE(placeCounts(sets, make(O), make(0)).isMixedInParts);
  // A parameter that is updated piece by piece with its own old value.
  GradientCount old = make(U), piece = make(O);
  piece.sources = old.sources;
  EXPECT_EQ(placeCounts(sets, piece, old).times, O);
}

TEST_F(GradientCountTest, Reductions) {
  RankGroups groups(
      parse("ddp.process_group @all\n"
            "ddp.process_group @rows ranks [[0, 1], [2, 3]]\n"
            "ddp.process_group @columns ranks [[0, 2], [1, 3]]\n"
            "ddp.process_group @single ranks [[0], [1], [2], [3]]\n"));
  auto reduce = [&](GradientCount count, StringRef group) {
    return reduceCount(groups, count,
                       module->lookupSymbol<ProcessGroupOp>(group), *module);
  };
  GradientCount rows = reduce(make(U), "rows");
  EXPECT_EQ(rows.times, O);
  EXPECT_EQ(rows.sources, 0u);
  EXPECT_EQ(reduce(rows, "columns").times, O);
  EXPECT_EQ(reduce(rows, "rows").times, M);
  EXPECT_EQ(reduce(rows, "all").times, M);
  EXPECT_EQ(reduce(reduce(rows, "columns"), "rows").times, M);
  EXPECT_EQ(reduce(make(U), "single").times, U);
  EXPECT_EQ(reduce(make(U | O), "all").times, O | M);
  EXPECT_EQ(reduce(make(0), "all").times, O);
}

//===----------------------------------------------------------------------===//
// The analysis
//===----------------------------------------------------------------------===//

using RankAnalysisTest = ModuleTest;

TEST_F(RankAnalysisTest, BlocksAndTheBranchesThatDecideAboutThem) {
  parse(R"mlir(
    func.func @step(%c: i1) {
      cf.cond_br %c, ^left, ^right {test.name = "branch"}
    ^left:
      cf.br ^loop {test.name = "left"}
    ^right:
      cf.br ^end {test.name = "right"}
    ^loop:
      cf.cond_br %c, ^loop, ^end {test.name = "again"}
    ^end:
      return {test.name = "end"}
    }
    func.func @straight() {
      cf.br ^end
    ^end:
      return {test.name = "straight"}
    }
  )mlir");
  ControlFlow flow(*find("branch")->getParentRegion());
  auto getDeciding = [&](StringRef name) {
    SmallVector<Operation *, 2> found =
        flow.deciding.lookup(find(name)->getBlock());
    return llvm::SmallPtrSet<Operation *, 2>(found.begin(), found.end());
  };
  Operation *branch = find("branch"), *again = find("again");
  ASSERT_EQ(flow.order.size(), 5u);
  EXPECT_EQ(flow.order.front(), branch->getBlock());
  EXPECT_TRUE(flow.hasCycles);
  EXPECT_TRUE(getDeciding("branch").empty());
  EXPECT_EQ(getDeciding("left").size(), 1u);
  EXPECT_TRUE(getDeciding("left").contains(branch));
  EXPECT_TRUE(getDeciding("right").contains(branch));
  // How often the loop runs, its own branch decides too.
  EXPECT_EQ(getDeciding("again").size(), 2u);
  EXPECT_TRUE(getDeciding("again").contains(again));
  EXPECT_TRUE(getDeciding("end").empty());

  ControlFlow straight(*find("straight")->getParentRegion());
  EXPECT_FALSE(straight.hasCycles);
  EXPECT_TRUE(straight.deciding.empty());
}

TEST_F(RankAnalysisTest, CallsAreFollowedWithTheirArguments) {
  RankAnalysis analysis(parse(R"mlir(
    ddp.process_group @dp
    func.func private @reduce(%x: tensor<4xf32>) -> tensor<4xf32> {
      %r = ddp.all_reduce mean %x on @dp {test.name = "inside"} : tensor<4xf32>
      return %r : tensor<4xf32>
    }
    func.func @step(%g: tensor<4xf32>, %own: i1) -> tensor<4xf32> {
      %a = func.call @reduce(%g) {test.name = "first"}
          : (tensor<4xf32>) -> tensor<4xf32>
      scf.if %own {
        %b = func.call @reduce(%a) {test.name = "second"}
            : (tensor<4xf32>) -> tensor<4xf32>
      } {test.name = "if"}
      return %a : tensor<4xf32>
    }
  )mlir"));
  analysis.run();
  ASSERT_TRUE(succeeded(analysis.reportUnfollowed()));
  auto times = [&](StringRef name) {
    return analysis.get(find(name)->getResult(0)).count.times;
  };
  EXPECT_EQ(times("first"), GradientCount::Once);
  EXPECT_EQ(times("second"), GradientCount::Often);
  // Some ranks come to the collective more often, because of the branch.
  EXPECT_EQ(analysis.getReach(find("inside"))->mask & 1, 0u);
  EXPECT_EQ(analysis.getReach(find("inside"))->cause, find("if"));
}

TEST_F(RankAnalysisTest, RanksInBranchesAndLoops) {
  RankAnalysis analysis(parse(R"mlir(
    ddp.process_group @dp
    func.func @step(%g: tensor<4xf32>, %same: i1 {ddp.replicated}, %own: i1,
                    %n: index {ddp.replicated}) -> tensor<4xf32> {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %a = scf.if %same -> tensor<4xf32> {
        %r = ddp.all_reduce mean %g on @dp {test.name = "same"} : tensor<4xf32>
        scf.yield %r : tensor<4xf32>
      } else {
        scf.yield %g : tensor<4xf32>
      }
      %b = scf.if %own -> tensor<4xf32> {
        %r = ddp.all_reduce mean %g on @dp {test.name = "own"} : tensor<4xf32>
        scf.yield %r : tensor<4xf32>
      } else {
        scf.yield %g : tensor<4xf32>
      }
      %l = scf.for %i = %c0 to %n step %c1 iter_args(%x = %g) -> tensor<4xf32> {
        %r = ddp.all_reduce mean %x on @dp {test.name = "loop"} : tensor<4xf32>
        scf.yield %r : tensor<4xf32>
      }
      %s = arith.addf %a, %b : tensor<4xf32>
      %t = arith.addf %s, %l {test.name = "sum"} : tensor<4xf32>
      return %t : tensor<4xf32>
    }
  )mlir"));
  analysis.run();
  ASSERT_TRUE(succeeded(analysis.reportUnfollowed()));
  EXPECT_EQ(analysis.getReach(find("same"))->mask, kAllRanks);
  EXPECT_EQ(analysis.getReach(find("same"))->cause, nullptr);
  EXPECT_EQ(analysis.getReach(find("loop"))->mask, kAllRanks);
  EXPECT_EQ(analysis.getReach(find("own"))->mask & 1, 0u);
  EXPECT_TRUE(isa<scf::IfOp>(analysis.getReach(find("own"))->cause));

  // A mean is the same everywhere; what depends on a rank's own condition not.
  auto result = [&](StringRef name) {
    return analysis.get(find(name)->getResult(0));
  };
  EXPECT_EQ(result("same").uniform, kAllRanks);
  EXPECT_EQ(result("sum").uniform & 1, 0u);
  EXPECT_EQ(result("same").count.times, GradientCount::Once);
  // The first time around once, later more often.
  EXPECT_EQ(result("loop").count.times,
            GradientCount::Once | GradientCount::Often);
}
