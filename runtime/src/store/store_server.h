//===- store_server.h - rank 0's end of the control connection --*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One thread that serves the job's key-value store over TCP and watches the
// ranks: a connection that closes without a farewell is a lost rank, and all
// others hear of it at once. It serves only connections that have proved to
// have the job's secret (admission.h), and checks everything that it receives.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_STORE_STORE_SERVER_H
#define DDPHOOK_RUNTIME_SRC_STORE_STORE_SERVER_H

#include "base/status.h"
#include "store/deliveries.h"
#include "store/socket.h"

#include <cstdint>
#include <memory>
#include <string>

namespace ddphook {

class StoreServer {
public:
  struct Options {
    /// The address under which the other ranks know this machine.
    std::string address = "127.0.0.1";
    /// 0: any free one.
    int port = 0;
    int worldSize = 1;
    /// Rank 0 is in this process and joins by TcpStore::attach(), nobody else.
    bool hasRankZero = false;
    std::string runId;
    /// Empty: everybody is let in.
    std::string secret;
  };

  /// The key that exists as soon as `rank` is connected, and the one that
  /// exists as soon as all are.
  static std::string joinedKey(int rank);
  static const char *allJoinedKey();
  /// The key that exists as soon as somebody without the job's secret was
  /// turned away; its value says how often, and who was the last.
  static const char *refusedKey();

  /// How long a job tries to take over from another one: rank 0 whose port is
  /// taken, and ranks that are refused.
  static constexpr double takeoverSeconds = 10;

  /// Listens, and starts the thread. Waits until `deadline` for a port that
  /// somebody else has.
  static Status start(const Options &options,
                      std::unique_ptr<StoreServer> *server,
                      const Deadline &deadline = Deadline::after(0));

  int port() const { return boundPort; }

  /// Gives rank 0's own connection, and the token that ranks are welcomed with.
  /// RESOURCE_EXHAUSTED if there were too few descriptors for it when the
  /// server started.
  Status connectRankZero(FileDescriptor *socket, std::string *token);

  /// The address of this machine at which another rank has reached it, if
  /// possible one of another machine; empty if none has.
  std::string reachedAddress() const;

  /// The failure of the job, if it has failed, for rank 0 whose own connection
  /// has broken.
  Status failure() const;

  /// What ranks have left by TcpStore::deliver().
  Deliveries &deliveries();

  /// Tells all ranks, those that are still to join included, that rank 0 has
  /// failed: for rank 0 when it has no connection of its own to say so.
  void fail(const Status &status);

  /// Waits until every rank has left or was lost, at most until `deadline`, and
  /// ends the thread. Without this call the destructor ends it at once.
  void finish(const Deadline &deadline);

  ~StoreServer();

private:
  class Loop;
  StoreServer();

  std::unique_ptr<Loop> loop;
  std::string token;
  FileDescriptor rankZero;
  int boundPort = 0;
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_STORE_STORE_SERVER_H
