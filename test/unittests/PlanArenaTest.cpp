// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random programs: buffers that are alive together must not share memory.

#include "TestModule.h"
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"
#include <random>

using namespace mlir;
using namespace mlir::ddp;

namespace {
class PlanArenaTest : public ModuleTest {
protected:
  struct Buffer {
    int64_t bytes;
    unsigned first, last; // its uses
    int64_t offset = -1;
  };

  /// Makes a function with these buffers, and sets their offsets. Returns the
  /// bytes of the arena.
  int64_t plan(std::vector<Buffer> &buffers) {
    unsigned end = 0;
    for (const Buffer &buffer : buffers)
      end = std::max(end, buffer.last + 1);
    std::string text = "func.func @step() {\n", type;
    for (unsigned i = 0; i < buffers.size(); ++i)
      text += "%b" + std::to_string(i) + " = memref.alloc() : memref<" +
              std::to_string(buffers[i].bytes) + "xi8>\n";
    for (unsigned time = 0; time < end; ++time)
      for (unsigned i = 0; i < buffers.size(); ++i)
        if (buffers[i].first == time || buffers[i].last == time)
          text += "\"test.use\"(%b" + std::to_string(i) +
                  ") {at = " + std::to_string(time) + "} : (memref<" +
                  std::to_string(buffers[i].bytes) + "xi8>) -> ()\n";
    parse(text + "return\n}\n");
    PassManager passes(&context);
    passes.addPass(createDDPPlanArenaPass());
    EXPECT_TRUE(succeeded(passes.run(*module)));
    unsigned next = 0;
    module->walk([&](memref::ViewOp view) {
      APInt offset;
      EXPECT_TRUE(matchPattern(view.getByteShift(), m_ConstantInt(&offset)));
      buffers[next++].offset = offset.getSExtValue();
    });
    EXPECT_EQ(next, buffers.size());
    int64_t bytes = 0;
    module->walk([&](ArenaOp arena) {
      bytes = cast<MemRefType>(arena.getResult().getType()).getDimSize(0);
    });
    return bytes;
  }

  static void check(ArrayRef<Buffer> buffers, int64_t arena) {
    for (const Buffer &a : buffers) {
      EXPECT_EQ(a.offset % 64, 0);
      EXPECT_GE(a.offset, 0);
      EXPECT_LE(a.offset + a.bytes, arena);
      for (const Buffer &b : buffers) {
        // At one time the uses stand in the order of the buffers.
        bool isBefore = std::pair(a.last, &a) < std::pair(b.first, &b),
             isBehind = std::pair(b.last, &b) < std::pair(a.first, &a);
        bool aliveTogether = !isBefore && !isBehind;
        bool overlap = std::max(a.offset, b.offset) <
                       std::min(a.offset + a.bytes, b.offset + b.bytes);
        EXPECT_FALSE(&a != &b && aliveTogether && overlap)
            << a.bytes << " bytes at " << a.offset << " and " << b.bytes
            << " at " << b.offset;
      }
    }
  }
};
} // namespace

TEST_F(PlanArenaTest, NothingToPlace) {
  std::vector<Buffer> buffers;
  EXPECT_EQ(plan(buffers), 0);
}

TEST_F(PlanArenaTest, EmptyBuffersTakeNoMemory) {
  std::vector<Buffer> buffers = {{0, 0, 3}, {0, 1, 2}};
  EXPECT_EQ(plan(buffers), 0);
  // The empty buffer lies where the third one does, and ends first.
  buffers = {{128, 0, 1}, {0, 2, 4}, {64, 3, 5}, {128, 6, 7}};
  EXPECT_EQ(plan(buffers), 128);
}

TEST_F(PlanArenaTest, MemoryIsUsedAgain) {
  std::vector<Buffer> buffers = {{64, 0, 1}, {64, 2, 3}, {64, 4, 5}};
  EXPECT_EQ(plan(buffers), 64);
  // The second one is used for the last time behind the first use of the first.
  buffers = {{1, 1, 2}, {64, 0, 1}};
  EXPECT_EQ(plan(buffers), 128);
  check(buffers, 128);
}

TEST_F(PlanArenaTest, TheSmallestPieceThatFits) {
  // Behind time 1, 256 bytes are free at 0 and 64 at 320.
  std::vector<Buffer> buffers = {{256, 0, 1}, {64, 0, 9}, {64, 0, 1},
                                 {64, 0, 9},  {64, 2, 9}, {256, 2, 9}};
  EXPECT_EQ(plan(buffers), 448);
  EXPECT_EQ(buffers[4].offset, buffers[2].offset);
  EXPECT_EQ(buffers[5].offset, buffers[0].offset);
}

TEST_F(PlanArenaTest, TheArenaGrowsByWhatIsMissing) {
  // The free piece at the end is the beginning of a larger one.
  std::vector<Buffer> buffers = {{64, 0, 9}, {64, 0, 1}, {192, 2, 9}};
  EXPECT_EQ(plan(buffers), 256);
  EXPECT_EQ(buffers[2].offset, 64);
}

TEST_F(PlanArenaTest, NeighboursThatAreFreeBecomeOne) {
  std::vector<Buffer> buffers = {
      {64, 0, 1}, {64, 0, 3}, {64, 0, 2}, {64, 0, 9}, {192, 4, 9}};
  EXPECT_EQ(plan(buffers), 256);
  EXPECT_EQ(buffers[4].offset, 0);
}

TEST_F(PlanArenaTest, RandomLifetimes) {
  constexpr unsigned seed = 20261122;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (unsigned round = 0; round < 100; ++round) {
    std::vector<Buffer> buffers(1 + random() % 30);
    int64_t all = 0;
    for (Buffer &buffer : buffers) {
      buffer.bytes = random() % 5 == 0 ? 0 : random() % 1000;
      buffer.first = random() % 20;
      buffer.last = buffer.first + random() % 8;
      all += (buffer.bytes + 63) / 64 * 64;
    }
    int64_t arena = plan(buffers);
    SCOPED_TRACE("round " + std::to_string(round));
    EXPECT_LE(arena, all);
    check(buffers, arena);
    if (HasFailure())
      break;
  }
}
