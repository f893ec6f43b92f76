//===- socket.h - TCP sockets with deadlines --------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parts of TCP that ranks need to connect: listen, connect, send and
// receive whole buffers by a deadline, or until an interrupt. Collectives do
// not use these functions.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_STORE_SOCKET_H
#define DDPHOOK_RUNTIME_SRC_STORE_SOCKET_H

#include "base/deadline.h"
#include "base/status.h"
#include "store/file_descriptor.h"

#include <cstddef>
#include <string>
#include <sys/socket.h>
#include <vector>

namespace ddphook {

/// Ends waits on sockets from another thread, those to come included.
class Interrupt {
public:
  static Status create(Interrupt *interrupt);

  /// Every wait that was given this one ends as ABORTED. Any thread.
  void raise() const;

  int fd() const { return event.get(); }

private:
  FileDescriptor event;
};

/// Whether `address` is a numeric loopback address or "localhost". Other names
/// may mean the loopback interface here and something else on other machines.
bool isLoopbackAddress(const std::string &address);

/// Whether `address` is, or is the name of, an address of this machine, and of
/// no other one.
bool isOwnAddress(const std::string &address);

/// The numeric addresses at which other machines may reach this one, IPv4
/// first; no loopback addresses, and none that are valid on one link only.
std::vector<std::string> outwardAddresses();

/// Listens on `port` (0: any free one): on the loopback interface alone when
/// isLoopbackAddress(address), otherwise on all interfaces. `boundPort` gets
/// the port.
Status listenOn(const std::string &address, int port, FileDescriptor *socket,
                int *boundPort);

/// Listens at exactly this address; its port may be 0: any free one.
Status listenAt(const sockaddr *address, socklen_t size,
                FileDescriptor *socket);

/// Tries once to connect to any address of `host`. RESOURCE_EXHAUSTED is about
/// this process; everything else may change by itself.
Status connectOnce(const std::string &host, int port, const Deadline &deadline,
                   FileDescriptor *socket);

/// Tries once to connect to this address.
Status connectTo(const sockaddr *address, socklen_t size,
                 const Deadline &deadline, const Interrupt *interrupt,
                 FileDescriptor *socket);

/// Options of every connection between ranks: no delay, and probes after three
/// seconds, which silence.h needs on both ends. Where nobody waits, and so
/// nobody looks, they end the connection to a machine that is gone after 15 s.
void setControlOptions(int socket);

/// Sends all of `data`; DEADLINE_EXCEEDED may leave a part of it sent.
Status sendAll(int socket, const void *data, size_t size,
               const Deadline &deadline, const Interrupt *interrupt = nullptr);

/// Receives exactly `size` bytes; DATA_LOSS when the connection closes first.
Status receiveAll(int socket, void *data, size_t size, const Deadline &deadline,
                  const Interrupt *interrupt = nullptr);

/// The numeric address of this end of a connection.
std::string localAddressOf(int socket);

/// "host:port" of the other end, for messages.
std::string peerNameOf(int socket);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_STORE_SOCKET_H
