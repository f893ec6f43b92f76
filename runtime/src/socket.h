//===- socket.h - TCP sockets with deadlines --------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The little of TCP that the control connection needs: listen, connect with
// retries, send and receive whole buffers by a deadline. Collectives do not
// travel here.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_SOCKET_H
#define DDPHOOK_RUNTIME_SRC_SOCKET_H

#include "deadline.h"
#include "status.h"

#include <cstddef>
#include <string>

namespace ddphook {

/// Owns a file descriptor.
class FileDescriptor {
public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd(fd) {}
  FileDescriptor(FileDescriptor &&other) : fd(other.release()) {}
  FileDescriptor &operator=(FileDescriptor &&other);
  ~FileDescriptor() { reset(); }

  int get() const { return fd; }
  bool isValid() const { return fd >= 0; }
  int release();
  void reset();

private:
  int fd = -1;
};

/// Whether `address` is a numeric loopback address or "localhost". Other names
/// may mean the loopback interface here and something else on other machines.
bool isLoopbackAddress(const std::string &address);

/// Listens on `port` (0: any free one): on the loopback interface alone when
/// isLoopbackAddress(address), otherwise on all interfaces. `boundPort` gets
/// the port.
Status listenOn(const std::string &address, int port, FileDescriptor *socket,
                int *boundPort);

/// Tries once to connect to any address of `host`.
Status connectOnce(const std::string &host, int port, const Deadline &deadline,
                   FileDescriptor *socket);

/// Options of every control connection: no delay, and probes that notice within
/// some 15 s that a peer's machine is gone.
void setControlOptions(int socket);

/// Sends all of `data`; DEADLINE_EXCEEDED may leave a part of it sent.
Status sendAll(int socket, const void *data, size_t size,
               const Deadline &deadline);

/// Receives exactly `size` bytes; DATA_LOSS when the connection closes first.
Status receiveAll(int socket, void *data, size_t size,
                  const Deadline &deadline);

/// The numeric address of this end of a connection.
std::string localAddressOf(int socket);

/// "host:port" of the other end, for messages.
std::string peerNameOf(int socket);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_SOCKET_H
