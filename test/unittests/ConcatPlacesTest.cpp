//===- ConcatPlacesTest.cpp ------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where an operand of ddp.concat belongs, and which results can be computed
// there.
//
//===----------------------------------------------------------------------===//

#include "ConcatPlaces.h"
#include "TestModule.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
class ConcatPlacesTest : public ModuleTest {
protected:
  /// The concat's operand in whose place the operation's result can be, or -1.
  int64_t findPart(StringRef name) {
    Operation *op = find(name);
    OpOperand *use = findConcatUse(cast<FlatOpInterface>(op), op->getResult(0));
    return use ? static_cast<int64_t>(use->getOperandNumber()) : -1;
  }
};
} // namespace

TEST_F(ConcatPlacesTest, PlacesAreSumsOfSizes) {
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

TEST_F(ConcatPlacesTest, OnlyUsesOfOneConcatInTheBlockAreParts) {
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

TEST_F(ConcatPlacesTest, PlacesAreTheSameWhereAllPartsAre) {
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
