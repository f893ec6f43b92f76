// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which buffers results may reuse.

#include "BufferPool.h"
#include "TestModule.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
class BufferPoolTest : public ModuleTest {
protected:
  Value result(StringRef name) { return find(name)->getResult(0); }
  Value findDying(StringRef name) {
    auto op = findOp<FlatOpInterface>(name);
    return pool.findDyingOperand(op, op->getResult(0));
  }
  Value findDead(StringRef name) {
    return pool.findDead(find(name), result(name));
  }

  BufferPool pool;
};
} // namespace

TEST_F(BufferPoolTest, ABufferIsDeadAfterItsLastUse) {
  parse(R"mlir(
    func.func @step(%x: tensor<4xf32>) {
      %e = tensor.empty() {test.name = "buffer"} : tensor<4xf32>
      %a = ddp.flat.add %x, %x into %e {test.name = "a"}
          : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
      %f = tensor.empty() : tensor<4xf32>
      %b = ddp.flat.add %a, %x into %f {test.name = "b"}
          : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
      %g = tensor.empty() : tensor<4xf32>
      %c = ddp.flat.add %x, %x into %g {test.name = "c"}
          : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
      %h = tensor.empty() : tensor<5xf32>
      %d = ddp.flat.add %h, %h into %h {test.name = "larger"}
          : tensor<5xf32>, tensor<5xf32>, tensor<5xf32>
      return
    })mlir");
  Value buffer = result("buffer"), a = result("a");
  pool.add(buffer);
  pool.setRoot(a, buffer);
  EXPECT_FALSE(pool.isDeadAfter(buffer, Value(), find("b")));
  EXPECT_TRUE(pool.isDeadAfter(buffer, a, find("b")));
  EXPECT_TRUE(pool.isDeadAfter(buffer, Value(), find("c")));
  EXPECT_EQ(findDying("b"), a);
  EXPECT_EQ(findDying("c"), Value());
  EXPECT_EQ(findDead("b"), Value());
  EXPECT_EQ(findDead("larger"), Value());
  for (unsigned reuse = 0; reuse < BufferPool::maxReuses; ++reuse)
    EXPECT_EQ(findDead("c"), buffer);
  EXPECT_EQ(findDead("c"), Value());
}

TEST_F(BufferPoolTest, OnlyTheLastBuffersAreCandidates) {
  std::string text = "func.func @step(%x: tensor<4xf32>) {\n";
  for (size_t i = 0; i <= BufferPool::maxCandidates; ++i)
    text += "%e" + std::to_string(i) + " = tensor.empty() {test.name = \"e" +
            std::to_string(i) + "\"} : tensor<4xf32>\n";
  text += "%a = ddp.flat.add %x, %x into %x {test.name = \"a\"}"
          " : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>\nreturn\n}";
  parse(text);
  pool.add(result("e0"));
  // Not offered: it has a root, but was not added.
  pool.setRoot(result("e1"), result("e1"));
  EXPECT_EQ(findDead("a"), result("e0"));
  for (size_t i = 1; i <= BufferPool::maxCandidates; ++i)
    pool.add(result("e" + std::to_string(i)));
  // The last one first, each as often as allowed; never the oldest.
  for (size_t i = BufferPool::maxCandidates; i > 0; --i)
    for (unsigned reuse = 0; reuse < BufferPool::maxReuses; ++reuse)
      EXPECT_EQ(findDead("a"), result("e" + std::to_string(i)));
  EXPECT_EQ(findDead("a"), Value());
}

TEST_F(BufferPoolTest, StatesHoldValuesThatAreOverByTheStore) {
  parse(R"mlir(
    ddp.state @s : !ddp.bucket<f32, [4]> per_rank zero
    ddp.state @t : !ddp.bucket<f32, [4]> per_rank zero
    func.func @step(%x: tensor<4xf32>) {
      %l = ddp.load @s {test.name = "load"} : tensor<4xf32>
      %m = ddp.load @t {test.name = "never stored"} : tensor<4xf32>
      %e = tensor.empty() : tensor<4xf32>
      %o = ddp.flat.add %x, %x into %e {test.name = "needed later"}
          : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
      %f = tensor.empty() : tensor<4xf32>
      %n = ddp.flat.add %l, %m into %f {test.name = "new"}
          : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
      ddp.store %n, @s : tensor<4xf32>
      %g = tensor.empty() : tensor<4xf32>
      %p = ddp.flat.add %o, %x into %g {test.name = "after"}
          : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
      return
    })mlir");
  for (StringRef name : {"load", "never stored"})
    pool.add(result(name));
  EXPECT_EQ(pool.getState(result("load")).getOperation(), find("load"));
  EXPECT_TRUE(pool.mayLiveIn(result("load"), result("new")));
  EXPECT_FALSE(pool.mayLiveIn(result("load"), result("needed later")));
  EXPECT_FALSE(pool.mayLiveIn(result("load"), result("after")));
  EXPECT_FALSE(pool.mayLiveIn(result("never stored"), result("new")));
  EXPECT_EQ(findDying("new"), result("load"));
  // A dead buffer of a state is only for what is stored there.
  EXPECT_EQ(findDead("needed later"), Value());
}

TEST_F(BufferPoolTest, BothBranchesYieldTheSameBuffer) {
  parse(R"mlir(
    func.func @step(%x: tensor<4xf32>, %c: i1) {
      %e = tensor.empty() {test.name = "buffer"} : tensor<4xf32>
      %f = tensor.empty() : tensor<4xf32>
      %r = scf.if %c -> tensor<4xf32> {
        %t = ddp.flat.add %x, %x into %e {test.name = "then"}
            : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
        scf.yield %t : tensor<4xf32>
      } else {
        %t = ddp.flat.add %x, %x into %f {test.name = "else"}
            : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
        scf.yield %t : tensor<4xf32>
      }
      return
    })mlir");
  pool.add(result("buffer"));
  pool.setRoot(result("then"), result("buffer"));
  auto find = [&](StringRef name) {
    return pool.findYielded(findOp<FlatOpInterface>(name), result(name));
  };
  EXPECT_EQ(find("else"), result("buffer"));
  EXPECT_EQ(find("then"), Value());
}
