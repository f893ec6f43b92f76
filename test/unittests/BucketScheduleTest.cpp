// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which gradients share a bucket, in which order, and where the buckets stand.

#include "BucketSchedule.h"
#include "TestModule.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
class BucketScheduleTest : public ModuleTest {
protected:
  /// Buckets as the numbers of their reductions in the program: "0 1|2".
  std::string schedule(StringRef body, int64_t firstBytes, int64_t otherBytes,
                       BucketOrder order = BucketOrder::Forward) {
    parse(("ddp.process_group @dp\nddp.process_group @other size 2\n"
           "func.func @step(%g: tensor<2xf32>, %h: tensor<2xf64>) {\n" +
           body + "  return\n}\n")
              .str());
    Block &block = (*module->getOps<func::FuncOp>().begin()).front();
    std::map<Operation *, unsigned> numbers;
    unsigned next = 0;
    for (auto op : block.getOps<AllReduceOp>())
      numbers[op] = next++;
    result = scheduleBuckets(block, TensorsInMemory(),
                             {firstBytes, otherBytes, order});
    std::string text;
    for (auto &bucket : result.buckets) {
      text += text.empty() ? "" : "|";
      for (AllReduceOp member : bucket->members)
        text += (member == bucket->members.front() ? "" : " ") +
                std::to_string(numbers.at(member));
    }
    return text;
  }

  BucketSchedule result;
};

/// `count` reductions of 8 bytes each that do not depend on each other.
std::string makeReductions(unsigned count) {
  std::string text;
  for (unsigned i = 0; i < count; ++i)
    text += "%r" + std::to_string(i) +
            " = ddp.all_reduce mean %g on @dp : tensor<2xf32>\n";
  return text;
}
} // namespace

TEST_F(BucketScheduleTest, ABlockWithoutReductionsHasNoBuckets) {
  EXPECT_EQ(schedule("%a = arith.addf %g, %g : tensor<2xf32>\n", 1, 1), "");
  EXPECT_EQ(result.items.size(), 1u);
}

TEST_F(BucketScheduleTest, ABucketClosesBehindTheGradientThatFillsIt) {
  // 8 bytes a gradient: a bucket of 16 takes exactly two, one of 17 three.
  EXPECT_EQ(schedule(makeReductions(5), 16, 16), "0 1|2 3|4");
  EXPECT_EQ(schedule(makeReductions(5), 17, 17), "0 1 2|3 4");
  EXPECT_EQ(schedule(makeReductions(3), 0, 0), "0|1|2");
  EXPECT_EQ(schedule(makeReductions(3), 1, 1), "0|1|2");
}

TEST_F(BucketScheduleTest, TheFirstBucketHasALimitOfItsOwn) {
  EXPECT_EQ(schedule(makeReductions(5), 8, 16), "0|1 2|3 4");
  EXPECT_EQ(schedule(makeReductions(5), 24, 8), "0 1 2|3|4");
}

TEST_F(BucketScheduleTest, OrdersOfGradients) {
  EXPECT_EQ(schedule(makeReductions(3), 16, 16, BucketOrder::Reverse), "2 1|0");
  // The second gradient is there before the first one.
  StringRef late = "%b = arith.addf %g, %g : tensor<2xf32>\n"
                   "%a = arith.mulf %g, %g : tensor<2xf32>\n"
                   "%r0 = ddp.all_reduce mean %a on @dp : tensor<2xf32>\n"
                   "%r1 = ddp.all_reduce mean %b on @dp : tensor<2xf32>\n"
                   "%r2 = ddp.all_reduce mean %g on @dp : tensor<2xf32>\n";
  EXPECT_EQ(schedule(late, 1000, 1000, BucketOrder::Ready), "2 1 0");
  EXPECT_EQ(schedule(late, 1000, 1000, BucketOrder::Forward), "0 1 2");
}

TEST_F(BucketScheduleTest, OnlyReductionsOfOneKindShareABucket) {
  EXPECT_EQ(
      schedule("%r0 = ddp.all_reduce mean %g on @dp : tensor<2xf32>\n"
               "%r1 = ddp.all_reduce sum %g on @dp : tensor<2xf32>\n"
               "%r2 = ddp.all_reduce mean %g on @other : tensor<2xf32>\n"
               "%r3 = ddp.all_reduce mean %h on @dp : tensor<2xf64>\n"
               "%r4 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.fp16}"
               " : tensor<2xf32>\n"
               "%r5 = ddp.all_reduce mean %g on @dp : tensor<2xf32>\n",
               1000, 1000),
      "0 5|1|2|3|4");
}

TEST_F(BucketScheduleTest, AGradientThatNeedsAnotherOneIsNotInItsBucket) {
  EXPECT_EQ(schedule("%r0 = ddp.all_reduce mean %g on @dp : tensor<2xf32>\n"
                     "%a = arith.addf %r0, %g : tensor<2xf32>\n"
                     "%r1 = ddp.all_reduce mean %a on @dp : tensor<2xf32>\n"
                     "%r2 = ddp.all_reduce mean %g on @dp : tensor<2xf32>\n",
                     1000, 1000),
            "0 2|1");
  EXPECT_TRUE(result.buckets[0]->isSplit);
  EXPECT_TRUE(result.buckets[1]->isSplit);
}

TEST_F(BucketScheduleTest, BucketsThatNeedEachOtherAreSplit) {
  // f32 and f64 make two buckets, and each holds what the other one needs.
  EXPECT_EQ(schedule("%r0 = ddp.all_reduce mean %g on @dp : tensor<2xf32>\n"
                     "%e = arith.extf %r0 : tensor<2xf32> to tensor<2xf64>\n"
                     "%r1 = ddp.all_reduce mean %e on @dp : tensor<2xf64>\n"
                     "%r2 = ddp.all_reduce mean %h on @dp : tensor<2xf64>\n"
                     "%t = arith.truncf %r2 : tensor<2xf64> to tensor<2xf32>\n"
                     "%r3 = ddp.all_reduce mean %t on @dp : tensor<2xf32>\n",
                     1000, 1000),
            "0|1 2|3");
}

TEST_F(BucketScheduleTest, ABucketStandsWhereItsLastMemberStood) {
  schedule("%r0 = ddp.all_reduce mean %g on @dp : tensor<2xf32>\n"
           "%user = arith.addf %r0, %g {test.name = \"user\"} : tensor<2xf32>\n"
           "%free = arith.mulf %g, %g {test.name = \"free\"} : tensor<2xf32>\n"
           "%r1 = ddp.all_reduce mean %g on @dp : tensor<2xf32>\n",
           1000, 1000);
  ASSERT_EQ(result.items.size(), 3u);
  EXPECT_EQ(result.items[0], ScheduledItem(find("free")));
  EXPECT_EQ(result.items[1], ScheduledItem(result.buckets[0].get()));
  EXPECT_EQ(result.items[2], ScheduledItem(find("user")));
}

TEST_F(BucketScheduleTest, WhatTouchesMemoryKeepsItsOrder) {
  schedule("%r0 = ddp.all_reduce mean %g on @dp : tensor<2xf32>\n"
           "\"test.write\"(%r0) {test.name = \"first\"} : "
           "(tensor<2xf32>) -> ()\n"
           "\"test.write\"(%g) {test.name = \"second\"} : "
           "(tensor<2xf32>) -> ()\n"
           "%r1 = ddp.all_reduce mean %g on @dp : tensor<2xf32>\n",
           1000, 1000);
  ASSERT_EQ(result.items.size(), 3u);
  EXPECT_EQ(result.items[1], ScheduledItem(find("first")));
  EXPECT_EQ(result.items[2], ScheduledItem(find("second")));
}
