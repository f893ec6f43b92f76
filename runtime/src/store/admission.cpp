// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "store/admission.h"

#include <cerrno>
#include <fcntl.h>

using namespace ddphook;

/// The time in which a stranger must prove that it has the key.
static constexpr double patienceSeconds = 10;
/// The number of strangers allowed beyond the expected ranks. One more pushes
/// out the oldest. A rank needs only milliseconds to prove itself, so only a
/// faster flood can push one out, and that rank then reconnects.
static constexpr size_t spareStrangers = 128;
/// The number of connections accepted before existing ones are served again.
static constexpr size_t acceptsAtATime = 64;
/// If no descriptors are left: the pause before the next accept, and the age
/// from which a stranger may be evicted.
static constexpr double pauseSeconds = 0.01;
static constexpr double elderSeconds = 1;

static double secondsSince(Deadline::Clock::time_point begin) {
  return std::chrono::duration<double>(Deadline::Clock::now() - begin).count();
}

Admission::Admission(Options options, std::vector<FileDescriptor> sockets)
    : options(std::move(options)), listening(std::move(sockets)),
      reserve(FileDescriptor::opened([this] {
        return ::fcntl(listening.front().get(), F_DUPFD_CLOEXEC, 0);
      })) {}

void Admission::close() {
  listening.clear();
  reserve.reset();
  strangers.clear();
}

void Admission::watch(std::vector<pollfd> *entries) const {
  for (const FileDescriptor &listener : listening)
    entries->push_back({pause.expired() ? listener.get() : -1, POLLIN, 0});
  for (const Stranger &stranger : strangers)
    entries->push_back({stranger.socket.get(), POLLIN, 0});
}

int Admission::patienceMs() const {
  if (!pause.expired())
    return pause.remainingMs();
  return strangers.empty() ? -1 : 100;
}

/// Sets `trouble` if `errorNumber` says that this process has run out of a
/// resource. Otherwise the other end is gone.
static void noteTrouble(int errorNumber, Status *trouble) {
  Status status = systemError(errorNumber, "cannot answer a connection");
  if (errorNumber != EAGAIN && status.code() == DDPHOOK_RESOURCE_EXHAUSTED)
    *trouble = std::move(status);
}

/// Sends a message of the handshake. Returns false if the stranger must be
/// dropped. So small a message always fits into a new connection's buffer.
static bool sendTo(int stranger, const std::string &message, Status *trouble) {
  const ssize_t sent = ::send(stranger, message.data(), message.size(),
                              MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0)
    noteTrouble(errno, trouble);
  return sent == static_cast<ssize_t>(message.size());
}

Status Admission::handle(const pollfd *entries, std::vector<Guest> *guests) {
  const pollfd *ofStrangers = entries + listening.size();
  Status trouble;
  size_t kept = 0;
  for (size_t i = 0; i < strangers.size(); ++i) {
    Stranger &stranger = strangers[i];
    bool stays =
        ofStrangers[i].revents == 0 || hear(stranger, guests, &trouble);
    if (!stays || secondsSince(stranger.arrival) > patienceSeconds)
      continue;
    if (kept != i)
      strangers[kept] = std::move(stranger);
    ++kept;
  }
  strangers.resize(kept);
  DDPHOOK_TRY(trouble);
  for (size_t i = 0; i < listening.size(); ++i)
    if (entries[i].revents != 0)
      DDPHOOK_TRY(acceptSome(listening[i]));
  return Status::ok();
}

/// Reads what the stranger sends. Returns false if it is no longer a stranger.
bool Admission::hear(Stranger &stranger, std::vector<Guest> *guests,
                     Status *trouble) {
  size_t size = AcceptingHandshake::claimSize(options.introductionSize);
  std::string buffer(size - stranger.claim.size(), '\0');
  ssize_t received =
      ::recv(stranger.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (received < 0) {
    const bool isToCome = errno == EAGAIN || errno == EINTR;
    if (!isToCome)
      noteTrouble(errno, trouble);
    return isToCome;
  }
  if (received == 0)
    return false;
  stranger.claim.append(buffer, 0, static_cast<size_t>(received));
  if (stranger.claim.size() < size)
    return true;
  Guest guest;
  std::string verdict;
  bool isGuest =
      stranger.handshake.check(stranger.claim, &guest.introduction, &verdict);
  if (!isGuest) {
    ++refused;
    lastRefusedPeer = peerNameOf(stranger.socket.get());
  }
  if (sendTo(stranger.socket.get(), verdict, trouble) && isGuest) {
    guest.socket = std::move(stranger.socket);
    guests->push_back(std::move(guest));
  }
  return false;
}

/// Drops the oldest stranger if it is old enough. Returns false if it is not.
bool Admission::makeRoom() {
  if (strangers.empty() ||
      secondsSince(strangers.front().arrival) < elderSeconds)
    return false;
  strangers.pop_front();
  return true;
}

Status Admission::acceptSome(const FileDescriptor &listener) {
  for (size_t i = 0; i < acceptsAtATime; ++i) {
    FileDescriptor socket = FileDescriptor::opened([&] {
      return ::accept4(listener.get(), nullptr, nullptr,
                       SOCK_CLOEXEC | SOCK_NONBLOCK);
    });
    if (!socket.isValid()) {
      int reason = errno;
      Status status = systemError(reason, "cannot accept a connection");
      if (reason == EAGAIN || status.code() != DDPHOOK_RESOURCE_EXHAUSTED)
        return Status::ok(); // Nobody waits, or the caller has gone again.
      // The caller stays in the queue and is retried.
      pause = Deadline::after(pauseSeconds);
      if (makeRoom() || !strangers.empty())
        return Status::ok();
      reserve.reset();
      return status;
    }
    Stranger stranger;
    setControlOptions(socket.get());
    DDPHOOK_TRY(
        AcceptingHandshake::begin(options.credentials, &stranger.handshake));
    Status trouble;
    const bool isGreeted =
        sendTo(socket.get(), stranger.handshake.greeting(), &trouble);
    DDPHOOK_TRY(trouble);
    if (!isGreeted)
      continue;
    stranger.socket = std::move(socket);
    strangers.push_back(std::move(stranger));
    if (strangers.size() > options.expected + spareStrangers)
      strangers.pop_front();
  }
  return Status::ok();
}
