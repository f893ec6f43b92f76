// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A connection of StoreServer with its pending input and output.

#pragma once

#include "base/deadline.h"
#include "store/socket.h"
#include "store/store_protocol.h"

#include <list>
#include <memory>
#include <string>

namespace ddphook {

struct StoreConnection {
  /// Shared, because one value goes to many ranks.
  using Bytes = std::shared_ptr<const std::string>;

  /// Sends `bytes`, or a frame, after everything sent before.
  void send(Bytes bytes);
  void send(wire::Kind kind, uint32_t id, std::string_view value = {}) {
    send(std::make_shared<const std::string>(
        wire::encodeFrame(kind, id, {}, value)));
  }
  /// Sends news of the job's failure, once. It needs no memory.
  void sendFailure(const Bytes &frame);
  /// Appends some of the received bytes to `input`. Returns false at the end;
  /// errno says why and is 0 if the other end closed the connection.
  bool receive();
  /// Sends what the system accepts now. False if broken; errno says why.
  bool flush();

  FileDescriptor socket;
  int rank = -1; ///< -1: none.
  Silence silence{controlSilenceSeconds};
  bool hasLeft = false;
  /// Marks the connection for removal by the loop.
  bool isClosed = false;
  /// True if there was no memory for received bytes. Later bytes are read and
  /// dropped, because closing a connection with unread bytes would destroy
  /// output on its way to the other end.
  bool isTorn = false;
  std::string input;
  std::list<Bytes> output;

private:
  size_t sentOfFront = 0;
  /// The element of `output` for sendFailure().
  std::list<Bytes> reserved = std::list<Bytes>(1);
};

} // namespace ddphook
