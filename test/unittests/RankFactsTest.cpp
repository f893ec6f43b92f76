// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Facts about values and memory: how they combine, and what operations make of
// them.

#include "RankTransfer.h"
#include "TestModule.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
const char rootA = 0, rootB = 0;

class RankFactsTest : public ModuleTest {
protected:
  Value result(StringRef name) { return find(name)->getResult(0); }

  RankFact make(RankMask uniform, StringAttr reducedAs = {}) {
    RankFact fact;
    fact.uniform = uniform;
    fact.reducedAs = reducedAs;
    return fact;
  }

  RankFacts facts;
};
} // namespace

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

TEST_F(RankFactsTest, PathsMeet) {
  auto bucket = StringAttr::get(&context, "b0"),
       other = StringAttr::get(&context, "b1");
  RankFact a = make(0b0111, bucket), b = make(0b1110, bucket);
  a.region = {&rootA, 0, 4, true};
  b.region = {&rootB, 0, 4, true};
  RankFact both = facts.join(a, b);
  EXPECT_EQ(both.uniform, 0b0110u);
  EXPECT_EQ(both.reducedAs, bucket);
  ASSERT_TRUE(both.region.places);
  EXPECT_TRUE(both.region.overlaps(a.region));
  EXPECT_TRUE(both.region.overlaps(b.region));
  EXPECT_EQ(facts.join(a, make(kAllRanks, other)).reducedAs, StringAttr());
}

TEST_F(RankFactsTest, LoopsFindOnlyAFewPlaces) {
  MemoryRegion all = {&rootA, 0, 1};
  MemoryRegion far = {&rootA, 1000, 1001};
  for (int64_t i = 1; i < 8; ++i)
    all = facts.unite(all, {&rootA, i, i + 1});
  ASSERT_TRUE(all.places);
  EXPECT_EQ(all.places->size(), 8u);
  EXPECT_FALSE(all.overlaps(far));
  // The same list, however it was found.
  EXPECT_EQ(facts.unite(all, {&rootA, 3, 4}).places, all.places);
  all = facts.unite(all, {&rootA, 8, 9});
  EXPECT_TRUE(all.overlaps(far));
}

TEST_F(RankFactsTest, AFactChangesUnlessItsSourcesAreTheSame) {
  parse("func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>, %n: index) {\n"
        "return\n}");
  auto function = *module->getOps<func::FuncOp>().begin();
  Value x = function.getArgument(0), y = function.getArgument(1);
  RankFact ofX = facts.createUnknown(x), ofY = facts.createUnknown(y);
  EXPECT_EQ(ofX.uniform, 0u);
  EXPECT_EQ(ofX.count.times, GradientCount::Unreduced);
  EXPECT_EQ(ofX.count.elements, 4);
  EXPECT_EQ(facts.createUnknown(x).count.sources, ofX.count.sources);
  EXPECT_NE(ofY.count.sources, ofX.count.sources);
  // A number is a setting, not a gradient.
  EXPECT_EQ(facts.createUnknown(function.getArgument(2)).count.times, 0);

  EXPECT_TRUE(facts.update(x, ofX));
  EXPECT_FALSE(facts.update(x, ofX));
  RankFact both = facts.join(ofX, ofY);
  EXPECT_TRUE(facts.update(x, both));
  EXPECT_FALSE(facts.update(x, facts.join(ofY, both)));
}

TEST_F(RankFactsTest, AResultIsMadeOfAllInputs) {
  auto bucket = StringAttr::get(&context, "b0");
  RankInputs inputs;
  inputs.add(make(0b011, bucket));
  EXPECT_EQ(inputs.reducedAs, bucket);
  inputs.add(make(0b110));
  EXPECT_EQ(inputs.reducedAs, StringAttr());
  auto type = RankedTensorType::get(8, Float32Type::get(&context));
  EXPECT_EQ(facts.combine(inputs, type).uniform, 0b010u);

  GradientCount once, unreduced;
  once.times = GradientCount::Once;
  unreduced.times = GradientCount::Unreduced;
  once.elements = unreduced.elements = 8;
  inputs.counts = {once, unreduced};
  EXPECT_EQ(facts.combine(inputs, type).count.times, GradientCount::Once);
  // Where it is unknown which of them flows.
  EXPECT_EQ(facts.combineUnfollowed(inputs, type).count.times,
            GradientCount::Once | GradientCount::Unreduced);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

namespace {
class RankRegionsTest : public RankFactsTest {
protected:
  /// Parses a function on memory, and gives its views their regions.
  void parseViews() {
    parse(R"mlir(
      ddp.process_group @dp
      ddp.state @same : !ddp.bucket<f32, [4]> replicated zero
      ddp.state @own : !ddp.bucket<f32, [4]> per_rank zero
      func.func @step(%m: memref<8xf32>, %i: index) {
        %a = memref.subview %m[2] [4] [1] {test.name = "slice"}
            : memref<8xf32> to memref<4xf32, strided<[1], offset: 2>>
        %b = memref.subview %m[6] [2] [1] {test.name = "rest"}
            : memref<8xf32> to memref<2xf32, strided<[1], offset: 6>>
        %c = memref.subview %m[%i] [4] [1] {test.name = "anywhere"}
            : memref<8xf32> to memref<4xf32, strided<[1], offset: ?>>
        %d = memref.alloc() {test.name = "new"} : memref<8xf32>
        %t = ddp.flat.all_reduce_start mean %m on @dp into %d
            {test.name = "start"} : memref<8xf32>, memref<8xf32>
        memref.copy %m, %m {test.name = "copy"} : memref<8xf32> to memref<8xf32>
        ddp.flat.wait %d, %t reading %m {test.name = "wait"}
            : memref<8xf32>, memref<8xf32>
        return
      })mlir");
    argument = (*module->getOps<func::FuncOp>().begin()).getArgument(0);
    facts[argument] = regions.createArgument(argument, /*isReplicated=*/true);
    for (StringRef name : {"slice", "rest", "anywhere", "new"})
      facts[result(name)].region = regions.find(cast<OpResult>(result(name)));
  }
  RankMask read(Value value) {
    return regions.read(find("copy"), value).uniform;
  }

  RankRegions regions{facts};
  RankControl control;
  Value argument;
};
} // namespace

TEST_F(RankRegionsTest, ViewsAreStretchesOfTheirSource) {
  parseViews();
  MemoryRegion slice = facts.lookup(result("slice")).region;
  EXPECT_EQ(slice.begin, 8);
  EXPECT_EQ(slice.end, 24);
  EXPECT_TRUE(slice.isExact);
  EXPECT_FALSE(slice.overlaps(facts.lookup(result("rest")).region));
  MemoryRegion anywhere = facts.lookup(result("anywhere")).region;
  EXPECT_FALSE(anywhere.isExact);
  EXPECT_TRUE(anywhere.overlaps(slice));
  EXPECT_FALSE(anywhere.overlaps(facts.lookup(result("new")).region));
}

TEST_F(RankRegionsTest, WritesChangeWhatIsRead) {
  parseViews();
  EXPECT_EQ(read(argument), kAllRanks);
  EXPECT_FALSE(regions.isWritten(argument.getAsOpaquePointer()));
  regions.write(find("copy"), result("slice"), make(0b0110), true, control);
  EXPECT_TRUE(regions.isWritten(argument.getAsOpaquePointer()));
  EXPECT_EQ(read(result("slice")), 0b0110u);
  EXPECT_EQ(read(result("rest")), kAllRanks);
  EXPECT_EQ(read(argument), 0b0110u);
  // Only some ranks may run it.
  control.mask = 0b0010;
  regions.write(find("copy"), result("rest"), make(kAllRanks), true, control);
  EXPECT_EQ(read(result("rest")), 0b0010u);
  regions.startEntry();
  EXPECT_EQ(read(result("rest")), kAllRanks);
  EXPECT_FALSE(regions.isWritten(argument.getAsOpaquePointer()));
}

TEST_F(RankRegionsTest, MemoryOfACollectiveInFlightIsLeftAlone) {
  parseViews();
  auto start = findOp<CollectiveOpInterface>("start");
  regions.followCollective(start, result("new"), make(0b11), control);
  EXPECT_EQ(regions.memory.inFlight.size(), 1u);
  EXPECT_EQ(regions.read(find("wait"), result("new")).uniform, 0b11u);
  EXPECT_TRUE(regions.conflicts.empty());
  // Others may read its operand, but neither write it nor use the result.
  (void)read(argument);
  EXPECT_TRUE(regions.conflicts.empty());
  (void)read(result("new"));
  EXPECT_EQ(regions.conflicts.lookup(find("copy")), start.getOperation());
  regions.conflicts.clear();
  regions.write(find("copy"), argument, make(0), true, control);
  EXPECT_EQ(regions.conflicts.lookup(find("copy")), start.getOperation());
  regions.conflicts.clear();

  regions.followWait(find("wait"), start);
  EXPECT_TRUE(regions.memory.inFlight.empty());
  regions.write(find("copy"), argument, make(0), true, control);
  EXPECT_TRUE(regions.conflicts.empty());
}

TEST_F(RankRegionsTest, StatesOnlyLoseGroups) {
  parseViews();
  Operation *op = find("copy");
  auto same = FlatSymbolRefAttr::get(&context, "same"),
       own = FlatSymbolRefAttr::get(&context, "own");
  EXPECT_EQ(regions.getState(op, same), kAllRanks);
  EXPECT_EQ(regions.getState(op, own), 0u);
  EXPECT_EQ(regions.narrowState(op, own, kAllRanks), 0u);
  EXPECT_FALSE(regions.statesChanged);
  EXPECT_EQ(regions.narrowState(op, same, 0b0110), 0b0110u);
  EXPECT_TRUE(regions.statesChanged);
  regions.statesChanged = false;
  EXPECT_EQ(regions.narrowState(op, same, 0b0111), 0b0110u);
  EXPECT_FALSE(regions.statesChanged);
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

TEST_F(RankFactsTest, OperationsAreFollowed) {
  RankGroups groups(parse(R"mlir(
    ddp.process_group @dp
    func.func @step(%g: tensor<4xf32>, %c: i1) {
      %r = ddp.all_reduce mean %g on @dp {test.name = "reduce"} : tensor<4xf32>
      %s = arith.addf %r, %g {test.name = "mixed"} : tensor<4xf32>
      %t = arith.select %c, %r, %g {test.name = "choice"} : tensor<4xf32>
      %d = tensor.empty() : tensor<4xf32>
      %m = linalg.map ins(%r : tensor<4xf32>) outs(%d : tensor<4xf32>)
        (%x: f32, %y: f32) {
          %z = arith.negf %x {test.name = "body"} : f32
          linalg.yield %z : f32
        }
      return
    }
  )mlir"));
  RankRegions regions(facts);
  unsigned numFollowed = 0;
  RankTransfer transfer(groups, facts, regions,
                        [&](Operation *op, const RankControl &control) {
                          ++numFollowed;
                          transfer.apply(op, control);
                        });
  auto function = *module->getOps<func::FuncOp>().begin();
  for (BlockArgument argument : function.getArguments())
    facts[argument] = regions.createArgument(argument, false);
  RankControl outer, control;
  control.mask = ~RankMask(1);
  control.op = function;
  control.outer = &outer;
  for (Operation &op : function.front().without_terminator())
    transfer.apply(&op, control);

  EXPECT_EQ(facts.lookup(result("reduce")).uniform, kAllRanks);
  EXPECT_EQ(facts.lookup(result("reduce")).count.times, GradientCount::Once);
  EXPECT_EQ(facts.lookup(result("mixed")).uniform, 0u);
  EXPECT_EQ(facts.lookup(result("choice")).count.times,
            GradientCount::Once | GradientCount::Unreduced);
  EXPECT_EQ(numFollowed, 1u);
  Value map = find("body")->getParentOp()->getResult(0);
  EXPECT_EQ(facts.lookup(map).uniform, kAllRanks);
  EXPECT_EQ(facts.lookup(map).count.times, GradientCount::Once);
  // Not all ranks come here, because of the function.
  RankTransfer::Reach reach = transfer.reached.lookup(find("reduce"));
  EXPECT_EQ(reach.mask, control.mask);
  EXPECT_EQ(reach.cause, function.getOperation());
  EXPECT_EQ(facts.lookup(result("reduce")).count.divergent, find("reduce"));
  EXPECT_EQ(transfer.reducedSources.size(), 1u);

  // Followed once more without being recorded.
  transfer.isRecording = false;
  transfer.apply(find("reduce"), outer);
  EXPECT_EQ(transfer.reached.lookup(find("reduce")).mask, control.mask);
}
