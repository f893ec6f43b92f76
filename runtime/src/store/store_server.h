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

  /// Listens, and starts the thread.
  static Status start(const Options &options,
                      std::unique_ptr<StoreServer> *server);

  int port() const { return boundPort; }

  /// Frees the descriptor that start() has kept for rank 0's own connection; to
  /// be called right before connecting. RESOURCE_EXHAUSTED when there is none:
  /// rank 0 must not take the server's last one, by which the others hear of
  /// it.
  Status makeRoomForRankZero();

  /// An address of this machine at which a rank of another machine reached it;
  /// empty when none has.
  std::string outwardAddress() const;

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
  FileDescriptor room;
  int boundPort = 0;
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_STORE_STORE_SERVER_H
