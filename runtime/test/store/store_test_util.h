// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Starts stores of rank 0 and connects ranks to them, in one process.

#pragma once

#include "base/status_test_util.h"
#include "store/store_server.h"
#include "store/tcp_store.h"

#include <gtest/gtest.h>

namespace ddphook::test {

inline std::unique_ptr<StoreServer> startServer(int worldSize,
                                                const std::string &runId = "") {
  StoreServer::Options options;
  options.worldSize = worldSize;
  options.runId = runId;
  std::unique_ptr<StoreServer> server;
  Status status = StoreServer::start(options, &server);
  EXPECT_EQ(show(status), "OK");
  return server;
}

inline Status tryConnect(const StoreServer &server, int rank, int worldSize,
                         std::unique_ptr<TcpStore> *store,
                         const std::string &runId = "", double seconds = 10) {
  TcpStore::Options options;
  options.port = server.port();
  options.rank = rank;
  options.worldSize = worldSize;
  options.runId = runId;
  options.timeoutSeconds = seconds;
  return TcpStore::connect(options, Deadline::after(seconds), store);
}

inline std::unique_ptr<TcpStore> connect(const StoreServer &server, int rank,
                                         int worldSize) {
  std::unique_ptr<TcpStore> store;
  Status status = tryConnect(server, rank, worldSize, &store);
  EXPECT_EQ(show(status), "OK");
  return store;
}

/// A connection that says nothing of its own.
inline FileDescriptor connectRaw(const StoreServer &server) {
  FileDescriptor socket;
  Status status =
      connectOnce("127.0.0.1", server.port(), Deadline::after(5), &socket);
  EXPECT_EQ(show(status), "OK");
  return socket;
}

} // namespace ddphook::test
