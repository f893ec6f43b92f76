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
#include "base/file_descriptor.h"
#include "base/status.h"

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

/// Returns true if `address` is a numeric loopback address or "localhost".
/// Other names may mean the loopback interface here and something else on other
/// machines.
bool isLoopbackAddress(const std::string &address);

/// The loopback address of this machine: 127.0.0.1, or ::1 if it has no IPv4.
std::string loopbackAddress();

/// Returns true if `address` is, or is the name of, an address of this machine,
/// and of no other one.
bool isOwnAddress(const std::string &address);

/// The numeric addresses at which other machines may reach this one, IPv4
/// first; no loopback addresses, and none that are valid on one link only.
std::vector<std::string> outwardAddresses();

/// The numeric addresses of `host`, each once, in the resolver's order.
Status findAddresses(const std::string &host,
                     std::vector<std::string> *addresses);

/// "address:port", with brackets around an IPv6 address.
std::string endpointName(const std::string &address, int port);

/// Listens on `port` (0: any free one) of `address`, a numeric one. If that
/// fails, `reason` gets the value of errno.
Status listenOn(const std::string &address, int port, FileDescriptor *socket,
                int *boundPort, int *reason = nullptr);

/// Listens on `port` of all addresses of `host`, or of none: on the loopback
/// interface alone if isLoopbackAddress(host), otherwise on all interfaces.
/// Waits until `deadline` for a port that somebody else has.
Status listenOnAll(const std::string &host, int port, const Deadline &deadline,
                   std::vector<FileDescriptor> *sockets, int *boundPort);

/// Listens at exactly this address; its port may be 0: any free one.
Status listenAt(const sockaddr *address, socklen_t size, FileDescriptor *socket,
                int *reason = nullptr);

/// Tries once to connect to `address`, a numeric one. RESOURCE_EXHAUSTED is
/// about this process; everything else may change by itself.
Status connectOnce(const std::string &address, int port,
                   const Deadline &deadline, FileDescriptor *socket);

/// Tries once to connect to this address.
Status connectTo(const sockaddr *address, socklen_t size,
                 const Deadline &deadline, const Interrupt *interrupt,
                 FileDescriptor *socket);

/// Waits until there is something to receive, be it the connection's end.
Status waitToReceive(int socket, const Deadline &deadline);

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

/// Finds the numeric address of this end of a connection.
Status findLocalAddress(int socket, std::string *address);

/// "host:port" of the other end, for messages.
std::string peerNameOf(int socket);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_STORE_SOCKET_H
