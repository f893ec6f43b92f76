//===- store_connection.h - a rank's connection at the store ----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What StoreServer keeps of a connection, and what is on its way out there. It
// interprets nothing.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_STORE_STORE_CONNECTION_H
#define DDPHOOK_RUNTIME_SRC_STORE_STORE_CONNECTION_H

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "store/silence.h"
#include "store/store_protocol.h"

#include <list>
#include <memory>
#include <string>

namespace ddphook {

struct StoreConnection {
  /// Shared, because one value goes to many ranks.
  using Bytes = std::shared_ptr<const std::string>;

  /// Sends `bytes`, or a frame, after all that was sent before.
  void send(Bytes bytes);
  void send(wire::Kind kind, uint32_t id, std::string_view value = {}) {
    send(std::make_shared<const std::string>(
        wire::encodeFrame(kind, id, {}, value)));
  }
  /// The same for the news that the job has failed. Later calls do nothing. It
  /// needs no memory.
  void sendFailure(const Bytes &frame);
  /// Appends to `input` some of what has come; false: there will be no more,
  /// and errno says why, 0 if the other end has closed it.
  bool receive();
  /// Hands the system as much as it takes now; false: the connection is broken,
  /// and errno says why.
  bool flush();

  FileDescriptor socket;
  int rank = -1; ///< -1: none.
  Silence silence{controlSilenceSeconds};
  bool hasLeft = false;
  /// Set when it is over; the loop then removes it.
  bool isClosed = false;
  /// There was no memory for bytes that had come: what comes later is dropped.
  /// It is read all the same, because closing the connection would otherwise
  /// destroy what is on its way to the other end.
  bool isTorn = false;
  std::string input;
  std::list<Bytes> output;

private:
  size_t sentOfFront = 0;
  /// The element of `output` for sendFailure().
  std::list<Bytes> reserved = std::list<Bytes>(1);
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_STORE_STORE_CONNECTION_H
