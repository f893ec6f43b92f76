// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every rank listens, publishes its address through the store, connects to the
// ranks before it, and then accepts the ranks after it. There is no deadlock:
// rank 0 accepts others at once, and rank n as soon as the ranks before it do.

#include "peer_mesh.h"

#include "base/packed_texts.h"
#include "base/wait_scope.h"
#include "store/admission.h"
#include "store/store.h"

#include <arpa/inet.h>
#include <cerrno>
#include <netinet/in.h>

using namespace ddphook;
using namespace ddphook::host;

namespace {

/// The size of a connecting rank's introduction.
constexpr size_t introductionSize = sizeof(uint64_t);

class PeerMesh {
public:
  PeerMesh(const PeerMeshOptions &options, Store &store,
           std::vector<FileDescriptor> &sockets)
      : options(options), store(store), sockets(sockets),
        deadline(Deadline::after(innerSeconds(options.timeoutSeconds))),
        connecting(Deadline::after(
            innerSeconds(innerSeconds(options.timeoutSeconds)))) {}

  Status connect();

private:
  Status listen(FileDescriptor *listening);
  Status connectTo(int peer);
  Status tryToConnect(int peer, const sockaddr_storage &address,
                      socklen_t size);
  Status letIn(std::vector<FileDescriptor> listening);
  std::vector<int> findMissing() const;
  std::string nameAll(std::vector<int> peers) const;

  Credentials credentials(int to) const {
    return {options.proofKey, !options.proofKey.empty(),
            concat("ddphook group ", options.key, " rank ", to)};
  }
  std::string keyOf(int peer) const {
    return concat(options.key, "/address/", peer);
  }

  const PeerMeshOptions &options;
  Store &store;
  std::vector<FileDescriptor> &sockets;
  const Deadline deadline;
  /// The deadline for reaching a peer; shorter, because a rank that cannot
  /// connect knows the reason and the rank that waits for it does not.
  const Deadline connecting;
};

/// Formats an address as "ADDRESS PORT".
std::string encodeAddress(const sockaddr_storage &address) {
  char text[INET6_ADDRSTRLEN] = "";
  uint16_t port = 0;
  if (address.ss_family == AF_INET6) {
    auto &v6 = reinterpret_cast<const sockaddr_in6 &>(address);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    port = v6.sin6_port;
  } else {
    auto &v4 = reinterpret_cast<const sockaddr_in &>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    port = v4.sin_port;
  }
  return concat(text, " ", ntohs(port));
}

/// Parses the address in `text`, of the family of `own`; returns its size or 0.
socklen_t decodeAddress(const std::string &text, const sockaddr_storage &own,
                        sockaddr_storage *address) {
  size_t space = text.find(' ');
  if (space == std::string::npos)
    return 0;
  std::string host = text.substr(0, space);
  auto port = htons(static_cast<uint16_t>(std::atoi(text.c_str() + space)));
  *address = {};
  address->ss_family = own.ss_family;
  if (own.ss_family == AF_INET6) {
    auto &v6 = reinterpret_cast<sockaddr_in6 &>(*address);
    v6.sin6_port = port;
    // A link-local address needs an interface, specific to each machine.
    v6.sin6_scope_id =
        reinterpret_cast<const sockaddr_in6 &>(own).sin6_scope_id;
    return ::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1 ? sizeof(v6)
                                                                   : 0;
  }
  auto &v4 = reinterpret_cast<sockaddr_in &>(*address);
  v4.sin_port = port;
  return ::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1 ? sizeof(v4) : 0;
}

/// Pauses between attempts, or until a signal arrives. Returns false if the
/// deadline has passed or the interrupt was raised.
bool pauseBefore(const Deadline &deadline, const Interrupt *interrupt,
                 double seconds) {
  pollfd entry = {interrupt ? interrupt->fd() : -1, POLLIN, 0};
  int pause = std::min(static_cast<int>(seconds * 1e3), deadline.remainingMs());
  return ::poll(&entry, 1, pause) <= 0 && !deadline.expired();
}

} // namespace

Status PeerMesh::connect() {
  sockets.clear();
  sockets.resize(static_cast<size_t>(options.place.size));
  std::vector<FileDescriptor> listening(1);
  DDPHOOK_TRY(listen(&listening[0]));
  for (int peer = 0; peer < options.place.rank; ++peer)
    DDPHOOK_TRY(connectTo(peer));
  DDPHOOK_TRY(letIn(std::move(listening)));
  // All ranks that need the address have read it.
  store.erase(keyOf(options.place.rank)).ignore();
  return Status::ok();
}

Status PeerMesh::listen(FileDescriptor *listening) {
  DDPHOOK_TRY(listenAt(reinterpret_cast<const sockaddr *>(&options.address),
                       options.addressSize, listening));
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  if (::getsockname(listening->get(), reinterpret_cast<sockaddr *>(&bound),
                    &size) != 0)
    return systemError(errno, "cannot listen");
  return store.set(keyOf(options.place.rank), encodeAddress(bound));
}

Status PeerMesh::tryToConnect(int peer, const sockaddr_storage &address,
                              socklen_t size) {
  FileDescriptor socket;
  DDPHOOK_TRY(ddphook::connectTo(reinterpret_cast<const sockaddr *>(&address),
                                 size, connecting, options.interrupt, &socket));
  setControlOptions(socket.get());
  std::string introduction;
  putNumber<uint64_t>(introduction, options.place.rank);
  DDPHOOK_TRY(proveOn(socket.get(), credentials(peer), introduction, connecting,
                      options.interrupt));
  sockets[peer] = std::move(socket);
  return Status::ok();
}

Status PeerMesh::connectTo(int peer) {
  std::string text;
  Status cause;
  WaitScope scope([&] {
    return options.place.describeWait(options.place.nameOf(peer)) +
           (text.empty() ? "" : " at " + text) +
           (cause.isOk() ? "" : " (" + cause.message() + ")");
  });
  DDPHOOK_TRY(options.place.getFrom(peer, store, keyOf(peer), connecting,
                                    options.timeoutSeconds, &text));
  sockaddr_storage address;
  socklen_t size = decodeAddress(text, options.address, &address);
  if (size == 0)
    return invalid("expected %s to have an address like this rank's, %s, but "
                   "got '%s'",
                   options.place.nameOf(peer).c_str(),
                   encodeAddress(options.address).c_str(), text.c_str());
  do {
    WaitScope::poll();
    Status status = tryToConnect(peer, address, size);
    // Only network failures may be temporary. If the deadline cut this attempt
    // short, earlier failures explain more. The best explanation is the reason
    // with which a peer refused this rank, even if the peer has gone by now.
    if (status.isOk() || status.code() == DDPHOOK_ABORTED ||
        status.code() == DDPHOOK_RESOURCE_EXHAUSTED)
      return status;
    if (cause.isOk() || status.code() == DDPHOOK_BAD_ENVIRONMENT ||
        (status.code() != DDPHOOK_DEADLINE_EXCEEDED &&
         cause.code() != DDPHOOK_BAD_ENVIRONMENT))
      cause = status;
  } while (pauseBefore(connecting, options.interrupt, /*seconds=*/0.05));
  if (!connecting.expired())
    return error(DDPHOOK_ABORTED, "interrupted");
  return deadlineExceeded("%s, at %s, could not be reached within %g s: %s",
                          options.place.nameOf(peer).c_str(), text.c_str(),
                          options.timeoutSeconds, cause.message().c_str());
}

/// Returns the ranks that have yet to connect to this one.
std::vector<int> PeerMesh::findMissing() const {
  std::vector<int> missing;
  for (int peer = options.place.rank + 1; peer < options.place.size; ++peer)
    if (!sockets[peer].isValid())
      missing.push_back(peer);
  return missing;
}

/// Returns "ranks 1, 2", with their numbers in the job.
std::string PeerMesh::nameAll(std::vector<int> peers) const {
  for (int &peer : peers)
    peer = options.place.jobRank(peer);
  return nameRanks(peers);
}

Status PeerMesh::letIn(std::vector<FileDescriptor> listening) {
  Admission admission({credentials(options.place.rank), introductionSize,
                       static_cast<size_t>(options.place.size)},
                      std::move(listening));
  WaitScope scope([&] {
    return options.place.describeWait(nameAll(findMissing())) + " over TCP";
  });
  for (;;) {
    const std::vector<int> missing = findMissing();
    if (missing.empty())
      return Status::ok();
    if (deadline.expired())
      return deadlineExceeded(
          "not all ranks of the group connected within %g s: %s %s "
          "missing",
          options.timeoutSeconds, nameAll(missing).c_str(),
          missing.size() == 1 ? "is" : "are");
    WaitScope::poll();
    std::vector<pollfd> entries = {
        {options.interrupt ? options.interrupt->fd() : -1, POLLIN, 0}};
    admission.watch(&entries);
    const int patience = admission.patienceMs(),
              remaining = WaitScope::patienceMs(deadline.remainingMs());
    if (::poll(entries.data(), entries.size(),
               patience < 0 ? remaining : std::min(patience, remaining)) < 0) {
      if (errno == EINTR)
        continue;
      return systemError(errno, "cannot wait for connections");
    }
    if (entries[0].revents)
      return error(DDPHOOK_ABORTED, "interrupted");
    std::vector<Admission::Guest> guests;
    DDPHOOK_TRY(admission.handle(entries.data() + 1, &guests));
    for (Admission::Guest &guest : guests) {
      const auto peer = takeNumber<uint64_t>(guest.introduction);
      // A peer that connects a second time has abandoned its first connection.
      if (peer > uint64_t(options.place.rank) &&
          peer < uint64_t(options.place.size))
        sockets[peer] = std::move(guest.socket);
    }
  }
}

Status host::connectPeers(const PeerMeshOptions &options, Store &store,
                          std::vector<FileDescriptor> *sockets) {
  return PeerMesh(options, store, *sockets).connect();
}
