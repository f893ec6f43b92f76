// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Their order, on the thread and on the caller's; the first failure.

#include "comm_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

using namespace ddphook;
using namespace ddphook::host;

TEST(CommThread, RunsInOrderAndKeepsTheFirstFailure) {
  int notified = 0;
  CommThread thread([&] { ++notified; });
  std::vector<int> order;
  int64_t first = 0, second = 0, third = 0;
  auto job = [&](int number, Status status = Status::ok()) {
    return [&order, number, status] {
      order.push_back(number);
      return status;
    };
  };
  ASSERT_TRUE(thread.run(job(1)).isOk());
  ASSERT_TRUE(thread.start(job(2), CommThread::RunsOn::Thread, &first).isOk());
  ASSERT_TRUE(thread
                  .start(job(3, error(DDPHOOK_PEER_LOST, "lost")),
                         CommThread::RunsOn::Thread, &second)
                  .isOk());
  Status started = thread.start(job(4), CommThread::RunsOn::Thread, &third);
  EXPECT_TRUE(thread.wait(first).isOk());
  EXPECT_EQ(thread.wait(second).message(), "lost");
  // The failure may have come before it was started.
  EXPECT_EQ((started.isOk() ? thread.wait(third) : started).message(), "lost");
  EXPECT_EQ(thread.run(job(5)).message(), "lost");
  EXPECT_EQ(thread.start(job(6), CommThread::RunsOn::Thread, &third).message(),
            "lost");
  thread.abort(error(DDPHOOK_ABORTED, "later"));
  EXPECT_EQ(thread.run(job(7)).message(), "lost");
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(notified, 1);
}

TEST(CommThread, TheCallerRunsWhatNothingComesBefore) {
  using Place = CommThread::RunsOn;
  CommThread thread([] {});
  std::vector<std::thread::id> ranOn;
  std::atomic<bool> mayEnd{false};
  int64_t first = 0, second = 0, third = 0, fourth = 0;
  auto job = [&] {
    ranOn.push_back(std::this_thread::get_id());
    return Status::ok();
  };
  ASSERT_TRUE(thread.start(job, Place::Caller, &first).isOk());
  ASSERT_EQ(ranOn.size(), 1u) << "it has ended";
  ASSERT_TRUE(thread
                  .start(
                      [&] {
                        while (!mayEnd)
                          std::this_thread::yield();
                        return job();
                      },
                      Place::Thread, &second)
                  .isOk());
  // An earlier one is left: this one must not overtake it, nor wait for it.
  ASSERT_TRUE(thread.start(job, Place::Caller, &third).isOk());
  mayEnd = true;
  EXPECT_TRUE(thread.wait(third).isOk());
  ASSERT_TRUE(thread.start(job, Place::Caller, &fourth).isOk());
  EXPECT_TRUE(thread.wait(first).isOk());
  EXPECT_TRUE(thread.wait(fourth).isOk());
  EXPECT_TRUE(thread.waitForAll().isOk());
  EXPECT_EQ((std::vector<int64_t>{first, second, third, fourth}),
            (std::vector<int64_t>{1, 2, 3, 4}));
  ASSERT_EQ(ranOn.size(), 4u);
  const std::thread::id here = std::this_thread::get_id();
  EXPECT_EQ(ranOn[0], here);
  EXPECT_NE(ranOn[1], here);
  EXPECT_EQ(ranOn[2], ranOn[1]);
  EXPECT_EQ(ranOn[3], here);
}

TEST(CommThread, AFailureOnTheCallersThreadIsFinal) {
  using Place = CommThread::RunsOn;
  int notified = 0, ran = 0;
  CommThread thread([&] { ++notified; });
  int64_t ticket = 0;
  auto job = [&](Status status) {
    return [&ran, status] {
      ++ran;
      return status;
    };
  };
  ASSERT_TRUE(thread.start(job(Status::ok()), Place::Caller, &ticket).isOk());
  Status lost = error(DDPHOOK_PEER_LOST, "lost");
  EXPECT_EQ(thread.start(job(lost), Place::Caller, &ticket).message(), "lost");
  EXPECT_EQ(thread.start(job(Status::ok()), Place::Thread, &ticket).message(),
            "lost");
  EXPECT_EQ(thread.start(job(Status::ok()), Place::Caller, &ticket).message(),
            "lost");
  EXPECT_TRUE(thread.wait(ticket).isOk()) << "this one ended well";
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(notified, 1);
}

TEST(CommThread, AReasonThatIsKnownExplainsTheFailure) {
  CommThread thread([] {});
  Status status = thread.run([&] {
    thread.abort(error(DDPHOOK_ABORTED, "rank 1 failed"));
    return error(DDPHOOK_PEER_LOST, "a connection broke");
  });
  EXPECT_EQ(status.message(), "rank 1 failed");
}
