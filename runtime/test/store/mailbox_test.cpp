// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Before and after a failure of the job, and more than there is room for.

#include "base/status_test_util.h"
#include "store/store_server.h"
#include "store/tcp_store.h"

#include <gtest/gtest.h>

#include <map>

using namespace ddphook;
using namespace ddphook::test;

static std::unique_ptr<StoreServer> startServer(int worldSize) {
  StoreServer::Options options;
  options.worldSize = worldSize;
  std::unique_ptr<StoreServer> server;
  EXPECT_EQ(show(StoreServer::start(options, &server)), "OK");
  return server;
}

static std::unique_ptr<TcpStore> connect(const StoreServer &server, int rank,
                                         int worldSize) {
  TcpStore::Options options;
  options.port = server.port();
  options.rank = rank;
  options.worldSize = worldSize;
  std::unique_ptr<TcpStore> store;
  EXPECT_EQ(show(TcpStore::connect(options, Deadline::after(20), &store)),
            "OK");
  return store;
}

TEST(Mailbox, OfRanksToRankZero) {
  auto server = startServer(3);
  auto a = connect(*server, 0, 3), b = connect(*server, 1, 3),
       c = connect(*server, 2, 3);
  const std::string large(5 << 20, 'l');
  EXPECT_EQ(show(b->deliver("before", Deadline::after(20))), "OK");
  EXPECT_EQ(show(b->deliver(large, Deadline::after(20))), "OK");
  // Also when the job has failed.
  a->reportFailure(error(DDPHOOK_RESOURCE_EXHAUSTED, "out of memory"));
  EXPECT_FALSE(c->failureWithin(20).isOk());
  EXPECT_EQ(show(c->deliver("after", Deadline::after(20))), "OK");
  a.reset();
  EXPECT_EQ(server->mailbox().take(),
            (std::map<int, std::string>{{1, large}, {2, "after"}}));
  EXPECT_TRUE(server->mailbox().take().empty());
  server.reset();
  EXPECT_EQ(c->deliver("late", Deadline::after(20)).code(), DDPHOOK_PEER_LOST);
}

TEST(Mailbox, WhatThereIsNoRoomFor) {
  Mailbox full;
  const std::string half(Mailbox::mostBytes / 2, 'h');
  EXPECT_TRUE(full.put(1, half).isOk());
  EXPECT_TRUE(full.put(1, half).isOk());
  EXPECT_TRUE(full.put(2, half).isOk());
  EXPECT_EQ(full.put(3, "x").code(), DDPHOOK_RESOURCE_EXHAUSTED);
  EXPECT_TRUE(full.put(2, "").isOk());
  EXPECT_TRUE(full.put(3, "x").isOk());
}
