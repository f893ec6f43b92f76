// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A transport for Gloo's algorithms over connections that were opened without
// Gloo (peer_mesh.h). Gloo's own TCP transport accepts whoever connects first
// as the peer, ends the process if a peer sends something unexpected, waits
// five times the given timeout while it connects, and cannot be cancelled. This
// one has no thread: bytes move while the algorithm waits, and every wait ends
// at its deadline, when a peer is lost, or when it is interrupted.

#pragma once

#include "../group_place.h"
#include "store/socket.h"

#include <gloo/context.h>
#include <gloo/transport/context.h>

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

namespace ddphook::host {

/// Leaves a Gloo algorithm, whose waits have no other way to fail.
class TransportFailure : public std::exception {
public:
  explicit TransportFailure(Status status) : status(std::move(status)) {}
  const char *what() const noexcept override {
    return status.message().c_str();
  }

  const Status status;
};

/// Used by one thread at a time. A message is a header, with its operation and
/// length, and its bytes. Messages from one rank to another are received in the
/// order in which they were sent. After a failure every later wait fails.
class GlooTransport final : public ::gloo::transport::Context {
public:
  /// `sockets` connect to all other ranks. The interrupt must outlive this.
  GlooTransport(const GroupPlace &place, std::vector<FileDescriptor> sockets,
                const Interrupt &interrupt, double timeoutSeconds);
  ~GlooTransport() override;

  std::unique_ptr<::gloo::transport::Pair> &createPair(int rank) override;
  std::unique_ptr<::gloo::transport::UnboundBuffer>
  createUnboundBuffer(void *memory, size_t size) override;

  /// Fails if `rank` has closed its connection, even with messages unread.
  void checkConnected(int rank);

  /// Moves messages until `happened` returns true. The thread that makes it
  /// true makes `event` readable afterwards; this reads the event.
  void moveUntil(const std::function<bool()> &happened, int event);

  void close();

private:
  class Buffer;

  struct Header {
    uint64_t slot;
    uint64_t bytes;
  };

  /// A message in flight, in one direction.
  struct Message {
    Header header;
    char *data;
    Buffer *buffer;
    /// Bytes moved so far, including those of the header.
    size_t moved = 0;
    /// The header of a received message, as the peer sent it.
    Header announced = {};

    size_t size() const { return sizeof(Header) + header.bytes; }
  };

  struct Peer {
    FileDescriptor socket;
    std::deque<Message> outgoing;
    std::deque<Message> incoming;
    Silence silence{dataSilenceSeconds};

    /// The events that poll() should wait for; 0 means none.
    short events() const;
  };

  void send(int to, Message message);
  void receive(int from, Message message);
  /// Waits until `completions` is not 0.
  void await(const size_t &completions, double seconds);
  bool moveAll();
  bool sendSome(int rank);
  bool receiveSome(int rank);
  void block(const Deadline &deadline, double seconds);
  void blockBesideEvent(int event);
  void lookForSilence();
  Peer &peerOf(int rank);
  /// `reason` is an errno, or 0 for the end of the stream.
  [[noreturn]] void failConnection(int rank, int reason);
  [[noreturn]] void failConnection(int rank, const std::string &reason);
  [[noreturn]] void fail(Status status);

  const GroupPlace place;
  std::vector<Peer> peers;
  const Interrupt &interrupt;
  const double timeoutSeconds;
  Status failure;
};

/// Gloo's view of a process group.
class GlooContext final : public ::gloo::Context {
public:
  explicit GlooContext(std::shared_ptr<GlooTransport> transport)
      : Context(transport->rank, transport->size) {
    transportContext_ = std::move(transport);
  }
};

} // namespace ddphook::host
