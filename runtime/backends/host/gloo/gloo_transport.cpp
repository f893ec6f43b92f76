// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See gloo_transport.h. Every wait moves all messages that can move, so no two
// ranks wait for each other to receive.

#include "gloo_transport.h"

#include "base/wait_scope.h"
#include "trace/ring.h"

#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <optional>
#include <poll.h>
#include <sys/eventfd.h>

using namespace ddphook;
using namespace ddphook::host;

namespace {

/// Only says that a rank is connected: algorithms on unbound buffers ask this.
class Connected final : public ::gloo::transport::Pair {
public:
  const ::gloo::transport::Address &address() const override { refuse(); }
  void connect(const std::vector<char> &) override { refuse(); }
  void close() override {}
  void setSync(bool, bool) override { refuse(); }
  std::unique_ptr<::gloo::transport::Buffer> createSendBuffer(int, void *,
                                                              size_t) override {
    refuse();
  }
  std::unique_ptr<::gloo::transport::Buffer> createRecvBuffer(int, void *,
                                                              size_t) override {
    refuse();
  }
  void send(::gloo::transport::UnboundBuffer *, uint64_t, size_t,
            size_t) override {
    refuse();
  }
  void recv(::gloo::transport::UnboundBuffer *, uint64_t, size_t,
            size_t) override {
    refuse();
  }

private:
  [[noreturn]] static void refuse() {
    throw TransportFailure(internalError("only unbound buffers are supported"));
  }
};

} // namespace

class GlooTransport::Buffer final : public ::gloo::transport::UnboundBuffer {
public:
  Buffer(GlooTransport &transport, void *memory, size_t size)
      : UnboundBuffer(memory, size), transport(transport) {}

  void send(int rank, uint64_t slot, size_t offset, size_t bytes) override {
    transport.send(rank, message(slot, offset, bytes));
  }
  void recv(int rank, uint64_t slot, size_t offset, size_t bytes) override {
    transport.receive(rank, message(slot, offset, bytes));
  }
  void recv(std::vector<int>, uint64_t, size_t, size_t) override {
    transport.fail(internalError("a receive from any rank is not supported"));
  }

  bool waitSend(int *, std::chrono::milliseconds timeout) override {
    transport.await(sent, seconds(timeout));
    --sent;
    return true;
  }
  bool waitRecv(int *, std::chrono::milliseconds timeout) override {
    transport.await(received, seconds(timeout));
    --received;
    return true;
  }
  // The transport's interrupt ends waits.
  void abortWaitSend() override {}
  void abortWaitRecv() override {}

  /// Messages that have moved but have not been waited for.
  size_t sent = 0, received = 0;

private:
  Message message(uint64_t slot, size_t offset, size_t bytes) {
    if (bytes == kUnspecifiedByteCount)
      bytes = size - offset;
    return {{slot, bytes}, static_cast<char *>(ptr) + offset, this, 0, {}};
  }
  double seconds(std::chrono::milliseconds timeout) const {
    if (timeout == ::gloo::transport::kUnsetTimeout)
      return transport.timeoutSeconds;
    return std::chrono::duration<double>(timeout).count();
  }

  GlooTransport &transport;
};

GlooTransport::GlooTransport(const GroupPlace &place,
                             std::vector<FileDescriptor> sockets,
                             const Interrupt &interrupt, double timeoutSeconds)
    : Context(place.rank, place.size), place(place), peers(sockets.size()),
      interrupt(interrupt), timeoutSeconds(timeoutSeconds) {
  for (size_t peer = 0; peer < sockets.size(); ++peer)
    if (sockets[peer].isValid()) {
      peers[peer].socket = std::move(sockets[peer]);
      pairs_[peer] = std::make_unique<Connected>();
    }
}

GlooTransport::~GlooTransport() = default;

std::unique_ptr<::gloo::transport::Pair> &GlooTransport::createPair(int) {
  fail(internalError("connections are not created one by one"));
}

std::unique_ptr<::gloo::transport::UnboundBuffer>
GlooTransport::createUnboundBuffer(void *memory, size_t size) {
  return std::make_unique<Buffer>(*this, memory, size);
}

void GlooTransport::close() {
  for (Peer &peer : peers)
    peer.socket.reset();
  if (failure.isOk())
    failure = error(DDPHOOK_ABORTED, "the group was closed");
}

void GlooTransport::fail(Status status) {
  if (failure.isOk())
    failure = std::move(status);
  // The memory of messages in flight is about to be freed.
  for (Peer &peer : peers) {
    peer.outgoing.clear();
    peer.incoming.clear();
  }
  throw TransportFailure(failure);
}

void GlooTransport::failConnection(int rank, int reason) {
  if (reason != 0 && reason != ECONNRESET && reason != EPIPE)
    failConnection(rank, std::strerror(reason));
  // The peer's process has ended or failed; another rank knows why.
  fail(peerLost("%s closed its connection", place.nameOf(rank).c_str()));
}

/// Both ranks may be alive, and only they know of this. So it is not PEER_LOST,
/// which makes a rank ask what the others know.
void GlooTransport::failConnection(int rank, const std::string &reason) {
  fail(error(DDPHOOK_IO_ERROR, "the connection between %s and %s broke: %s",
             place.nameOf(place.rank).c_str(), place.nameOf(rank).c_str(),
             reason.c_str()));
}

/// Fails if a peer that this rank waits for has been silent for too long.
void GlooTransport::lookForSilence() {
  const auto now = Silence::Clock::now();
  for (int rank = 0; rank < size; ++rank) {
    Peer &peer = peers[rank];
    if (peer.events() == 0)
      continue;
    const Status heard = peer.silence.look(peer.socket.get(), now);
    if (!heard.isOk())
      failConnection(rank, heard.message());
  }
}

GlooTransport::Peer &GlooTransport::peerOf(int rank) {
  if (!failure.isOk())
    fail(failure);
  return peers.at(static_cast<size_t>(rank));
}

short GlooTransport::Peer::events() const {
  return static_cast<short>((incoming.empty() ? 0 : POLLIN) |
                            (outgoing.empty() ? 0 : POLLOUT));
}

void GlooTransport::send(int to, Message message) {
  Peer &peer = peerOf(to);
  peer.outgoing.push_back(message);
  // The system usually accepts it at once.
  if (peer.outgoing.size() == 1)
    sendSome(to);
}

void GlooTransport::receive(int from, Message message) {
  peerOf(from).incoming.push_back(message);
}

void GlooTransport::await(const size_t &completions, double seconds) {
  Deadline deadline = Deadline::after(seconds);
  while (completions == 0) {
    if (!failure.isOk())
      fail(failure);
    if (!moveAll())
      block(deadline, seconds);
  }
}

void GlooTransport::checkConnected(int rank) {
  pollfd entry = {peerOf(rank).socket.get(), POLLRDHUP, 0};
  if (::poll(&entry, 1, /*timeout=*/0) > 0 && entry.revents)
    failConnection(rank, 0);
}

void GlooTransport::moveUntil(const std::function<bool()> &happened,
                              int event) {
  while (!happened()) {
    if (!failure.isOk())
      fail(failure);
    if (!moveAll())
      blockBesideEvent(event);
  }
}

/// Waits until something can move or the event is raised.
void GlooTransport::blockBesideEvent(int event) {
  std::vector<pollfd> entries = {{interrupt.fd(), POLLIN, 0},
                                 {event, POLLIN, 0}};
  for (const Peer &peer : peers)
    if (const short events = peer.events())
      entries.push_back({peer.socket.get(), events, 0});
  const int ready = ::poll(entries.data(), entries.size(), Silence::lookMs);
  if (ready < 0 && errno != EINTR)
    fail(systemError(errno, "cannot wait for a peer"));
  if (ready > 0 && entries[0].revents)
    fail(error(DDPHOOK_ABORTED, "the group was aborted on this rank"));
  if (ready > 0 && entries[1].revents) {
    eventfd_t count;
    ::eventfd_read(event, &count);
  }
  lookForSilence();
}

/// Moves what can move now; returns false if nothing could.
bool GlooTransport::moveAll() {
  bool hasMoved = false;
  for (int rank = 0; rank < size; ++rank) {
    hasMoved |= sendSome(rank);
    hasMoved |= receiveSome(rank);
  }
  return hasMoved;
}

bool GlooTransport::sendSome(int rank) {
  Peer &peer = peers[rank];
  bool hasMoved = false;
  while (!peer.outgoing.empty()) {
    Message &message = peer.outgoing.front();
    iovec parts[2] = {{&message.header, sizeof(Header)},
                      {message.data, message.header.bytes}};
    msghdr bytes = {};
    bytes.msg_iov = parts;
    bytes.msg_iovlen = 2;
    if (message.moved < sizeof(Header)) {
      parts[0] = {reinterpret_cast<char *>(&message.header) + message.moved,
                  sizeof(Header) - message.moved};
    } else {
      bytes.msg_iov = parts + 1;
      bytes.msg_iovlen = 1;
      parts[1] = {message.data + (message.moved - sizeof(Header)),
                  message.size() - message.moved};
    }
    ssize_t sent =
        ::sendmsg(peer.socket.get(), &bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent < 0 && errno == EAGAIN)
      break;
    if (sent < 0)
      failConnection(rank, errno);
    hasMoved = true;
    message.moved += static_cast<size_t>(sent);
    if (message.moved < message.size())
      continue;
    ++message.buffer->sent;
    peer.outgoing.pop_front();
  }
  return hasMoved;
}

bool GlooTransport::receiveSome(int rank) {
  Peer &peer = peers[rank];
  bool hasMoved = false;
  while (!peer.incoming.empty()) {
    Message &message = peer.incoming.front();
    bool isHeader = message.moved < sizeof(Header);
    char *begin =
        isHeader ? reinterpret_cast<char *>(&message.announced) + message.moved
                 : message.data + (message.moved - sizeof(Header));
    size_t wanted =
        (isHeader ? sizeof(Header) : message.size()) - message.moved;
    ssize_t received = ::recv(peer.socket.get(), begin, wanted, MSG_DONTWAIT);
    if (received < 0 && errno == EINTR)
      continue;
    if (received < 0 && errno == EAGAIN)
      break;
    if (received <= 0)
      failConnection(rank, received == 0 ? 0 : errno);
    hasMoved = true;
    message.moved += static_cast<size_t>(received);
    if (message.moved == sizeof(Header) &&
        (message.announced.slot != message.header.slot ||
         message.announced.bytes != message.header.bytes))
      fail(failedPrecondition(
          "expected %" PRIu64 " bytes of operation %" PRIx64
          " from %s, but got %" PRIu64 " bytes of operation %" PRIx64,
          message.header.bytes, message.header.slot, place.nameOf(rank).c_str(),
          message.announced.bytes, message.announced.slot));
    if (message.moved < message.size())
      continue;
    ++message.buffer->received;
    peer.incoming.pop_front();
  }
  return hasMoved;
}

/// Waits until something can move.
void GlooTransport::block(const Deadline &deadline, double seconds) {
  std::vector<pollfd> entries = {{interrupt.fd(), POLLIN, 0}};
  int waitedFor = -1;
  bool isMoving = false;
  for (int rank = 0; rank < size; ++rank) {
    const Peer &peer = peers[rank];
    const short events = peer.events();
    if (events == 0)
      continue;
    entries.push_back({peer.socket.get(), events, 0});
    waitedFor = rank;
    isMoving |= !peer.incoming.empty() && peer.incoming.front().moved > 0;
  }
  if (waitedFor < 0)
    fail(internalError("waited for a message that no rank sends"));
  WaitScope scope([&] {
    return place.describeWait(place.nameOf(waitedFor)) + " over TCP";
  });
  // A message that has begun to arrive is not a wait for a peer.
  std::optional<trace::PeerWait> recorded;
  if (!isMoving)
    recorded.emplace();
  int ready = 0;
  do {
    WaitScope::poll();
    ready = ::poll(entries.data(), entries.size(),
                   WaitScope::patienceMs(
                       std::min(deadline.remainingMs(), Silence::lookMs)));
    if (ready >= 0)
      lookForSilence();
  } while (ready == 0 && !deadline.expired());
  if (ready < 0 && errno != EINTR)
    fail(systemError(errno, "cannot wait for a peer"));
  if (ready > 0 && entries[0].revents)
    fail(error(DDPHOOK_ABORTED, "the group was aborted on this rank"));
  if (ready <= 0 && deadline.expired())
    fail(deadlineExceeded("%s did not answer within %g s",
                          place.nameOf(waitedFor).c_str(), seconds));
}
