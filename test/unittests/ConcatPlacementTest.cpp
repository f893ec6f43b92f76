// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where the parts of a ddp.concat are computed.

#include "ConcatPlacement.h"
#include "TestModule.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
class ConcatPlacementTest : public ModuleTest {
protected:
  /// The concat's operand in whose place the operation's result can be, or -1.
  int64_t findPart(StringRef name) {
    Operation *op = find(name);
    OpOperand *use = findConcatUse(cast<FlatOpInterface>(op), op->getResult(0));
    return use ? static_cast<int64_t>(use->getOperandNumber()) : -1;
  }

  /// Parses a function that packs two results, next to a bucket that is split.
  void parseTwoParts() {
    parse(R"mlir(
      func.func @parts(%x: tensor<4xf32>) -> tensor<8xf32> {
        %w = tensor.empty() {test.name = "bucket"} : tensor<8xf32>
        %s:2 = ddp.split %w {test.name = "split"} : tensor<8xf32>
            -> tensor<4xf32>, tensor<4xf32>
        %d = tensor.empty() : tensor<4xf32>
        %a = ddp.flat.add %x, %x into %d {test.name = "a"}
            : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
        %e = tensor.empty() : tensor<4xf32>
        %b = ddp.flat.add %x, %x into %e {test.name = "b"}
            : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
        %0 = ddp.concat %a, %b {test.name = "concat"}
            : tensor<4xf32>, tensor<4xf32> -> tensor<8xf32>
        return {test.name = "return"} %0 : tensor<8xf32>
      })mlir");
  }
  Value findInSplit(StringRef name) {
    Operation *op = find(name);
    return concats.findInSplit(cast<FlatOpInterface>(op), op->getResult(0));
  }

  BufferPool pool;
  ConcatPlacement concats{pool};
};
} // namespace

TEST_F(ConcatPlacementTest, PlacesAreSumsOfSizes) {
  parse(R"mlir(
    func.func @parts(%a: tensor<4xf32>, %b: tensor<0xf32>, %c: tensor<5xf32>)
        -> tensor<9xf32> {
      %r = ddp.concat %a, %b, %c, %b {test.name = "concat"}
          : tensor<4xf32>, tensor<0xf32>, tensor<5xf32>, tensor<0xf32>
          -> tensor<9xf32>
      return %r : tensor<9xf32>
    })mlir");
  auto concat = findOp<ConcatOp>("concat");
  OpBuilder builder(concat);
  // What has no elements begins at 0, wherever it stands.
  const int64_t offsets[] = {0, 0, 4, 0}, sizes[] = {4, 0, 5, 0};
  for (unsigned part = 0; part < 4; ++part) {
    PartPlace place(builder, concat, part);
    EXPECT_EQ(getConstantIntValue(place.offset), offsets[part]) << part;
    EXPECT_EQ(getConstantIntValue(place.size), sizes[part]) << part;
    EXPECT_EQ(getConstantIntValue(place.stride), 1) << part;
  }
}

TEST_F(ConcatPlacementTest, OnlyUsesOfOneConcatInTheBlockAreParts) {
  parse(R"mlir(
    func.func @parts(%x: tensor<4xf32>, %e: tensor<0xf32>, %w: tensor<8xf32>,
                     %is: i1) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>,
                                  tensor<8xf32>) {
      %s = ddp.flat.add %x, %x into %x {test.name = "second"}
          : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
      %n = ddp.flat.add %e, %e into %e {test.name = "empty"}
          : tensor<0xf32>, tensor<0xf32>, tensor<0xf32>
      %t = ddp.flat.add %x, %x into %x {test.name = "twice"}
          : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
      %i = ddp.flat.add %x, %x into %x {test.name = "in-a-branch"}
          : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
      %d = ddp.flat.add %w, %w into %w {test.name = "destination"}
          : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
      %r = ddp.flat.add %w, %w into %w {test.name = "returned"}
          : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
      %0 = ddp.concat %x, %n, %s
          : tensor<4xf32>, tensor<0xf32>, tensor<4xf32> -> tensor<8xf32>
      %1 = ddp.concat %t, %t : tensor<4xf32>, tensor<4xf32> -> tensor<8xf32>
      %2 = scf.if %is -> tensor<8xf32> {
        %3 = ddp.concat %i, %x : tensor<4xf32>, tensor<4xf32> -> tensor<8xf32>
        scf.yield %3 : tensor<8xf32>
      } else {
        scf.yield %0 : tensor<8xf32>
      }
      %4 = ddp.concat %x, %x into %d : tensor<8xf32>,
          : tensor<4xf32>, tensor<4xf32> -> tensor<8xf32>
      return %1, %2, %4, %r
          : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
    })mlir");
  EXPECT_EQ(findPart("second"), 2);
  for (StringRef name :
       {"empty", "twice", "in-a-branch", "destination", "returned"})
    EXPECT_EQ(findPart(name), -1) << name.str();
}

TEST_F(ConcatPlacementTest, PlacesAreTheSameWhereAllPartsAre) {
  parse(R"mlir(
    func.func @parts(%x: tensor<9xf32>) -> (tensor<9xf32>, tensor<9xf32>,
                                            tensor<9xf32>) {
      %s:3 = ddp.split %x {test.name = "split"} : tensor<9xf32>
          -> tensor<4xf32>, tensor<4xf32>, tensor<1xf32>
      %0 = ddp.concat %s#0, %s#1, %s#2 {test.name = "same"}
          : tensor<4xf32>, tensor<4xf32>, tensor<1xf32> -> tensor<9xf32>
      %1 = ddp.concat %s#1, %s#0, %s#2 {test.name = "exchanged"}
          : tensor<4xf32>, tensor<4xf32>, tensor<1xf32> -> tensor<9xf32>
      %2 = ddp.concat %s#2, %s#0, %s#1 {test.name = "rotated"}
          : tensor<1xf32>, tensor<4xf32>, tensor<4xf32> -> tensor<9xf32>
      return %0, %1, %2 : tensor<9xf32>, tensor<9xf32>, tensor<9xf32>
    })mlir");
  for (unsigned number = 0; number < 3; ++number) {
    auto areSame = [&](StringRef name) {
      OpOperand &use = findOp<ConcatOp>(name)->getOpOperand(number);
      return isInSamePlace(use, use.get());
    };
    EXPECT_TRUE(areSame("same")) << number;
    EXPECT_EQ(areSame("exchanged"), number == 2) << number;
    EXPECT_FALSE(areSame("rotated")) << number;
  }
}

TEST_F(ConcatPlacementTest, PartsAreComputedInADeadBucketThatIsSplitAlike) {
  parseTwoParts();
  auto split = findOp<SplitOp>("split");
  Value bucket = find("bucket")->getResult(0);
  pool.add(bucket);
  concats.addSplit(split);
  for (unsigned number : {0, 1}) {
    Value part = split.getParts()[number];
    EXPECT_EQ(pool.getRoot(part), part);
    Value result = find(number == 0 ? "a" : "b")->getResult(0);
    EXPECT_EQ(findInSplit(number == 0 ? "a" : "b"), part);
    pool.setRoot(result, part);
  }
  auto concat = findOp<ConcatOp>("concat");
  concats.lower(concat);
  EXPECT_EQ(concat.getDestination(), bucket);
  EXPECT_EQ(pool.getRoot(concat.getResult()), bucket);
  // From now on the memory of the parts is that of the whole.
  EXPECT_EQ(findInSplit("a"), Value());
}

TEST_F(ConcatPlacementTest, PartsOfABucketThatIsNeededAreNoBuffers) {
  parseTwoParts();
  auto split = findOp<SplitOp>("split");
  Value bucket = find("bucket")->getResult(0);
  pool.add(bucket);
  OpBuilder(find("return")).clone(*split);
  concats.addSplit(split);
  EXPECT_EQ(pool.getRoot(split.getParts()[0]), bucket);
  EXPECT_EQ(findInSplit("a"), Value());
}

TEST_F(ConcatPlacementTest, AnAssemblyReplacesItsConcat) {
  parseTwoParts();
  auto op = findOp<FlatOpInterface>("a");
  Value result = op->getResult(0);
  OpOperand &use = find("concat")->getOpOperand(0);
  Value place = concats.createPlace(op, use, /*isInSplit=*/false);
  auto slice = place.getDefiningOp<tensor::ExtractSliceOp>();
  ASSERT_TRUE(slice);
  Value whole = slice.getSource();
  EXPECT_EQ(pool.getRoot(place), whole);
  concats.insertResult(op, result);
  auto first = dyn_cast<tensor::InsertSliceOp>(op->getNextNode());
  ASSERT_TRUE(first);
  EXPECT_EQ(first.getDest(), whole);
  EXPECT_EQ(first.getSource(), result);

  concats.lower(findOp<ConcatOp>("concat"));
  auto last =
      find("return")->getOperand(0).getDefiningOp<tensor::InsertSliceOp>();
  ASSERT_TRUE(last);
  EXPECT_EQ(last.getSource(), find("b")->getResult(0));
  EXPECT_EQ(last.getDest(), first.getResult());
  EXPECT_EQ(last.getStaticOffsets().front(), 4);
  EXPECT_EQ(pool.getRoot(last.getResult()), whole);
}

TEST_F(ConcatPlacementTest, PartsComeFromASplitAndNobodyElseReusesIt) {
  parseTwoParts();
  auto op = findOp<FlatOpInterface>("b");
  OpOperand &use = find("concat")->getOpOperand(1);
  Value place = concats.createPlace(op, use, /*isInSplit=*/true);
  auto split = place.getDefiningOp<SplitOp>();
  ASSERT_TRUE(split);
  EXPECT_EQ(place, split.getParts()[1]);
  EXPECT_EQ(pool.getRoot(place), place);
  Operation *concat = find("concat");
  EXPECT_EQ(pool.findDead(concat, concat->getResult(0)), Value());
  EXPECT_EQ(pool.findDead(op, op->getResult(0)), Value());
}

TEST_F(ConcatPlacementTest, ManyPartsAreCopied) {
  constexpr size_t numParts = ConcatPlacement::maxInserted + 1;
  std::string parts = "%x", types = "tensor<4xf32>";
  for (size_t i = 1; i < numParts; ++i) {
    parts += ", %x";
    types += ", tensor<4xf32>";
  }
  std::string type = "tensor<" + std::to_string(4 * numParts) + "xf32>";
  parse("func.func @parts(%x: tensor<4xf32>) -> " + type +
        " {\n%0 = ddp.concat " + parts + " {test.name = \"concat\"} : " +
        types + " -> " + type + "\nreturn %0 : " + type + "\n}");
  auto concat = findOp<ConcatOp>("concat");
  concats.lower(concat);
  Value destination = concat.getDestination();
  ASSERT_TRUE(destination);
  EXPECT_TRUE(destination.getDefiningOp<tensor::EmptyOp>());
  EXPECT_EQ(pool.getRoot(concat.getResult()), destination);
}
