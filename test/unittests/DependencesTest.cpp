// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What keeps operations in their order: effects, values that are overwritten,
// and what may lie in the memory of a tensor.

#include "Dependences.h"
#include "MemoryUses.h"
#include "TestModule.h"

using namespace mlir;
using namespace mlir::ddp;

//===----------------------------------------------------------------------===//
// Effects
//===----------------------------------------------------------------------===//

namespace {
class DependencesTest : public ModuleTest {
protected:
  /// "r" and "w" for each access, "?" where effects are unknown.
  std::string getEffectsOf(StringRef name) {
    Effects effects = getEffects(find(name));
    std::string text = effects.isUnknown ? "?" : "";
    for (const Access &access : effects.accesses)
      text += access.isWrite ? "w" : "r";
    EXPECT_EQ(effects.isNone(), text.empty());
    return text;
  }
};
} // namespace

TEST_F(DependencesTest, Effects) {
  parse(R"mlir(
    ddp.process_group @dp
    ddp.state @s : !ddp.bucket<f32, [4]> per_rank zero
    ddp.state @t : !ddp.bucket<f32, [4]> per_rank zero
    ddp.state @g : tensor<625xi32> replicated mt19937 seed 0
    func.func private @f()
    func.func @step(%a: tensor<4xf32>, %m: memref<4xf32>, %c: i1, %i: i64) {
      %0 = ddp.load @s {test.name = "load"} : tensor<4xf32>
      ddp.store %0, @s {test.name = "store"} : tensor<4xf32>
      ddp.store %0, @t {test.name = "other"} : tensor<4xf32>
      %1 = ddp.random_normal from @g draws [4] {test.name = "draw"}
          : () -> !ddp.bucket<f32, [4]>
      %2 = ddp.all_reduce mean %a on @dp {test.name = "reduce"} : tensor<4xf32>
      ddp.count_compression "b" before 1 after 1 at %i every 1
          {test.name = "count"}
      memref.copy %m, %m {test.name = "copy"} : memref<4xf32> to memref<4xf32>
      "test.unknown"() {test.name = "unknown"} : () -> ()
      func.call @f() {test.name = "call"} : () -> ()
      scf.if %c {
        ddp.store %0, @s : tensor<4xf32>
      } {test.name = "branch"}
      scf.if %c {
        "test.unknown"() : () -> ()
      } {test.name = "unknown branch"}
      return
    })mlir");
  EXPECT_EQ(getEffectsOf("load"), "r");
  EXPECT_EQ(getEffectsOf("store"), "w");
  EXPECT_EQ(getEffectsOf("draw"), "w");
  EXPECT_EQ(getEffectsOf("reduce"), "");
  EXPECT_EQ(getEffectsOf("count"), "w");
  EXPECT_EQ(getEffectsOf("copy"), "rw");
  EXPECT_EQ(getEffectsOf("unknown"), "?");
  EXPECT_EQ(getEffectsOf("call"), "?");
  EXPECT_EQ(getEffectsOf("branch"), "w");
  EXPECT_EQ(getEffectsOf("unknown branch"), "?");
  // Accesses of one state are of the same thing, those of two are not.
  auto key = [&](StringRef name) {
    return getEffects(find(name)).accesses[0].what;
  };
  EXPECT_EQ(key("load"), key("store"));
  EXPECT_EQ(key("branch"), key("store"));
  EXPECT_NE(key("other"), key("store"));
  EXPECT_NE(key("copy"), key("count"));
}

TEST_F(DependencesTest, Uses) {
  parse(R"mlir(
    ddp.process_group @dp
    func.func @step(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: i1) {
      %0 = linalg.exp {test.name = "exp"} ins(%a : tensor<4xf32>)
          outs(%b : tensor<4xf32>) -> tensor<4xf32>
      %1 = scf.if %c -> tensor<4xf32> {
        %2 = linalg.abs ins(%a : tensor<4xf32>) outs(%0 : tensor<4xf32>)
            -> tensor<4xf32>
        %3 = arith.addf %2, %2 : tensor<4xf32>
        scf.yield %3 : tensor<4xf32>
      } else {
        scf.yield %b : tensor<4xf32>
      } {test.name = "branch"}
      return
    })mlir");
  auto getUses = [&](StringRef name) {
    Block &entry = (*module->getOps<func::FuncOp>().begin()).front();
    std::string text;
    forEachUse(find(name), [&](Value value, bool isOverwritten) {
      auto argument = dyn_cast<BlockArgument>(value);
      text += argument && argument.getOwner() == &entry
                  ? "abc"[argument.getArgNumber()]
                  : '0';
      text += isOverwritten ? "!" : "";
    });
    return text;
  };
  EXPECT_EQ(getUses("exp"), "ab!");
  // The condition, what is inside, and nothing that is defined inside.
  std::string uses = getUses("branch");
  EXPECT_EQ(uses.substr(uses.find('a')), "a0!b");
  EXPECT_EQ(uses[0], 'c');
}

TEST_F(DependencesTest, PartsAndContents) {
  parse(R"mlir(
    func.func @step(%b: !ddp.bucket<f32, [4x2, 8]>) {
      %e = ddp.extract %b [0, 1] : !ddp.bucket<f32, [4x2, 8]>
      %u:2 = ddp.unpack %e : !ddp.bucket<f32, [4x2, 8]>
          -> tensor<4x2xf32>, tensor<8xf32>
      %s = tensor.extract_slice %u#1[0] [4] [1] {test.name = "slice"}
          : tensor<8xf32> to tensor<4xf32>
      %n = arith.negf %s {test.name = "new"} : tensor<4xf32>
      %empty = tensor.empty() {test.name = "empty"} : tensor<4xf32>
      %zero = arith.constant {test.name = "zero"} dense<0.0> : tensor<4xf32>
      return
    })mlir");
  auto result = [&](StringRef name) { return find(name)->getResult(0); };
  EXPECT_TRUE(isa<BlockArgument>(getWhole(result("slice"))));
  EXPECT_EQ(getWhole(result("new")), result("new"));
  EXPECT_TRUE(isWithoutContents(result("empty")));
  EXPECT_TRUE(isWithoutContents(result("zero")));
  EXPECT_FALSE(isWithoutContents(result("new")));
  EXPECT_FALSE(isWithoutContents(getWhole(result("slice"))));
}

//===----------------------------------------------------------------------===//
// Memory of tensors
//===----------------------------------------------------------------------===//

namespace {
class MemoryUsesTest : public ModuleTest {
protected:
  /// The `test.name`s of all that may use the memory of the first result of
  /// `name`, "?" behind them if it may go anywhere.
  std::string getUsers(StringRef name) {
    std::string text;
    WalkResult result =
        visitMemoryUses(find(name)->getResult(0), [&](OpOperand &use) {
          if (auto user =
                  use.getOwner()->getAttrOfType<StringAttr>("test.name"))
            text += (text.empty() ? "" : " ") + user.str();
          return WalkResult::advance();
        });
    return text + (result.wasInterrupted() ? "?" : "");
  }
};
} // namespace

TEST_F(MemoryUsesTest, ResultsInPlaceAndViews) {
  parse(R"mlir(
    func.func private @f(tensor<4xf32>) -> tensor<4xf32>
    func.func @step(%x: tensor<4xf32>, %m: memref<4xf32>) {
      %a = tensor.empty() {test.name = "a"} : tensor<4xf32>
      %0 = linalg.exp {test.name = "exp"} ins(%x : tensor<4xf32>)
          outs(%a : tensor<4xf32>) -> tensor<4xf32>
      %1 = linalg.abs {test.name = "abs"} ins(%0 : tensor<4xf32>)
          outs(%x : tensor<4xf32>) -> tensor<4xf32>
      %2 = linalg.abs {test.name = "neg"} ins(%1 : tensor<4xf32>)
            outs(%x : tensor<4xf32>) -> tensor<4xf32>
      %b = tensor.empty() {test.name = "b"} : tensor<4xf32>
      %3 = func.call @f(%b) {test.name = "call"}
          : (tensor<4xf32>) -> tensor<4xf32>
      %4 = ddp.flat.add %3, %3 into %x {test.name = "add"}
          : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
      %c = tensor.empty() {test.name = "c"} : tensor<4xf32>
      "test.keep"(%c) {test.name = "keep"} : (tensor<4xf32>) -> ()
      %d = tensor.empty() {test.name = "d"} : tensor<4xf32>
      %5 = ddp.pack %d : tensor<4xf32> {test.name = "pack"} -> tensor<4xf32>
      %6 = ddp.flat.add %5, %5 into %x
          : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
      return
    })mlir");
  // The result of `exp` lies in its memory; that of `abs` elsewhere.
  EXPECT_EQ(getUsers("a"), "exp abs");
  // A callee may return its argument.
  EXPECT_EQ(getUsers("b"), "call add add");
  EXPECT_EQ(getUsers("c"), "keep?");
  EXPECT_EQ(getUsers("d"), "pack");
}

TEST_F(MemoryUsesTest, BranchesAndLoops) {
  parse(R"mlir(
    func.func @step(%x: tensor<4xf32>, %c: i1, %n: index) {
      %i0 = arith.constant 0 : index
      %i1 = arith.constant 1 : index
      %a = tensor.empty() {test.name = "a"} : tensor<4xf32>
      %0 = scf.if %c -> tensor<4xf32> {
        scf.yield %a : tensor<4xf32>
      } else {
        scf.yield %x : tensor<4xf32>
      }
      %1 = linalg.abs {test.name = "behind"} ins(%0 : tensor<4xf32>)
            outs(%x : tensor<4xf32>) -> tensor<4xf32>
      %b = tensor.empty() {test.name = "b"} : tensor<4xf32>
      %2 = scf.for %i = %i0 to %n step %i1 iter_args(%y = %b) -> tensor<4xf32> {
        %3 = linalg.abs {test.name = "inside"} ins(%y : tensor<4xf32>)
            outs(%x : tensor<4xf32>) -> tensor<4xf32>
        %e = tensor.empty() {test.name = "e"} : tensor<4xf32>
        scf.yield %e : tensor<4xf32>
      }
      %4 = linalg.abs {test.name = "after"} ins(%2 : tensor<4xf32>)
            outs(%x : tensor<4xf32>) -> tensor<4xf32>
      return
    })mlir");
  EXPECT_EQ(getUsers("a"), "behind");
  // It is the loop's result if the loop does not run.
  EXPECT_EQ(getUsers("b"), "inside after");
  // A tensor of one iteration goes into the next one.
  EXPECT_EQ(getUsers("e"), "?");
}

TEST_F(MemoryUsesTest, Order) {
  parse(R"mlir(
    func.func @step(%x: tensor<4xf32>, %c: i1, %n: index) {
      %i0 = arith.constant 0 : index
      %i1 = arith.constant 1 : index
      %a = linalg.abs {test.name = "first"} ins(%x : tensor<4xf32>)
            outs(%x : tensor<4xf32>) -> tensor<4xf32>
      scf.if %c {
        %b = linalg.abs {test.name = "then"} ins(%x : tensor<4xf32>)
            outs(%x : tensor<4xf32>) -> tensor<4xf32>
      } else {
        %d = linalg.abs {test.name = "else"} ins(%x : tensor<4xf32>)
            outs(%x : tensor<4xf32>) -> tensor<4xf32>
      }
      scf.for %i = %i0 to %n step %i1 {
        %e = linalg.abs {test.name = "loop"} ins(%x : tensor<4xf32>)
            outs(%x : tensor<4xf32>) -> tensor<4xf32>
      }
      %f = linalg.abs {test.name = "last"} ins(%x : tensor<4xf32>)
            outs(%x : tensor<4xf32>) -> tensor<4xf32>
      return
    })mlir");
  auto compare = [&](StringRef user, StringRef op) {
    WalkResult result = requireBefore(find(user), find(op));
    return result.wasInterrupted() ? "no" : result.wasSkipped() ? "-" : "yes";
  };
  EXPECT_STREQ(compare("first", "then"), "yes");
  EXPECT_STREQ(compare("then", "first"), "no");
  EXPECT_STREQ(compare("then", "last"), "yes");
  EXPECT_STREQ(compare("last", "then"), "no");
  EXPECT_STREQ(compare("then", "else"), "-");
  EXPECT_STREQ(compare("first", "first"), "no");

  Value a = find("first")->getResult(0);
  EXPECT_TRUE(runsAtMostOncePer(a, find("last")));
  EXPECT_TRUE(runsAtMostOncePer(a, find("then")));
  EXPECT_FALSE(runsAtMostOncePer(a, find("loop")));
  EXPECT_FALSE(runsAtMostOncePer(find("then")->getResult(0), find("last")));
}

TEST_F(MemoryUsesTest, LastUser) {
  parse(R"mlir(
    func.func @step(%x: tensor<4xf32>) {
      %a = tensor.empty() {test.name = "a"} : tensor<4xf32>
      %0 = linalg.exp {test.name = "first"} ins(%x : tensor<4xf32>)
          outs(%a : tensor<4xf32>) -> tensor<4xf32>
      %1 = linalg.abs {test.name = "last"} ins(%0 : tensor<4xf32>)
          outs(%x : tensor<4xf32>) -> tensor<4xf32>
      return
    })mlir");
  Value a = find("a")->getResult(0);
  EXPECT_TRUE(isLastUser(find("last"), a, WalkResult::advance()));
  EXPECT_FALSE(isLastUser(find("last"), a, WalkResult::interrupt()));
  EXPECT_FALSE(isLastUser(find("first"), a, WalkResult::advance()));
  // Without the values that share the memory because of it.
  EXPECT_TRUE(isLastUser(find("first"), a, WalkResult::skip()));
}

TEST_F(MemoryUsesTest, WhatIsOverByAStore) {
  parse(R"mlir(
    ddp.process_group @dp
    ddp.state @s : !ddp.bucket<f32, [4]> per_rank zero
    func.func @step(%x: tensor<4xf32>) {
      %0 = ddp.load @s {test.name = "over"} : tensor<4xf32>
      %1 = linalg.abs ins(%0 : tensor<4xf32>)
            outs(%x : tensor<4xf32>) -> tensor<4xf32>
      %2 = ddp.load @s {test.name = "needed"} : tensor<4xf32>
      %3, %ticket = ddp.flat.all_reduce_start mean %x on @dp into %x
          : tensor<4xf32>, tensor<4xf32>
      ddp.store %1, @s {test.name = "store"} : tensor<4xf32>
      %4 = linalg.abs ins(%2 : tensor<4xf32>)
            outs(%x : tensor<4xf32>) -> tensor<4xf32>
      %5 = ddp.flat.wait %3, %ticket reading %x : tensor<4xf32>, tensor<4xf32>
      return
    })mlir");
  auto store = findOp<StoreOp>("store");
  EXPECT_TRUE(isOverBy(find("over")->getResult(0), store));
  EXPECT_FALSE(isOverBy(find("needed")->getResult(0), store));
  // A collective reads its operand until it is awaited.
  EXPECT_FALSE(isOverBy(store->getParentRegion()->getArgument(0), store));
}
