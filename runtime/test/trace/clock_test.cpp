// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A rank asks rank 0 for its time over the control connection.

#include "trace/clock.h"

#include "base/status_test_util.h"
#include "store/store_server.h"
#include "store/tcp_store.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

using namespace ddphook;
using namespace ddphook::test;

TEST(Clock, OfARankThatIsAnHourBehind) {
  StoreServer::Options ofServer;
  ofServer.worldSize = 1;
  std::unique_ptr<StoreServer> server;
  ASSERT_EQ(show(StoreServer::start(ofServer, &server)), "OK");
  TcpStore::Options options;
  options.port = server->port();
  options.worldSize = 1;
  std::unique_ptr<TcpStore> store;
  ASSERT_EQ(show(TcpStore::connect(options, Deadline::after(60), &store)),
            "OK");

  const int64_t hour = 3600000000000;
  auto ownTime = [&] {
    return std::chrono::nanoseconds(
               std::chrono::steady_clock::now().time_since_epoch())
               .count() -
           hour;
  };
  trace::ClockOffset clock;
  ASSERT_EQ(show(trace::measureClock(
                [&](int64_t *time) {
                  return store->serverTime(Deadline::after(60), time);
                },
                ownTime, /*questions=*/20, &clock)),
            "OK");
  EXPECT_GT(clock.uncertainty, 0);
  EXPECT_LE(std::abs(clock.offset - hour), clock.uncertainty);
}
