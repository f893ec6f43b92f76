// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "store/store_server.h"

#include "base/threads.h"
#include "store/store_protocol.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::wire;

/// How long new ranks are notified that there can be no store.
static constexpr double farewellSeconds = 2;

using Connection = StoreConnection;

static StoreConnection::Bytes frameOf(const Status &failure) {
  return std::make_shared<const std::string>(
      encodeFrame(Kind::Failure, 0, {}, encodeStatus(failure)));
}

StoreServer::StoreServer(const Options &options,
                         std::vector<FileDescriptor> listening, Interrupt wake,
                         std::string token)
    : token(std::move(token)),
      failureFrame(frameOf(error(DDPHOOK_RESOURCE_EXHAUSTED,
                                 "the store of rank 0 is out of memory"))),
      wake(std::move(wake)),
      admission(std::make_unique<Admission>(
          Admission::Options{storeCredentials(options.secret), Hello::size,
                             static_cast<size_t>(options.worldSize)},
          std::move(listening))),
      roster(options.worldSize, options.runId) {}

void StoreServer::recover(const Status &status) {
  failJob(/*culprit=*/-1, withContext(status, "the store of rank 0"));
  // run() may not get that far. It notices if flush() fails.
  for (Connection &connection : connections)
    (void)connection.flush();
  // Memory may become available again.
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

void StoreServer::run(const Deadline &end) {
  std::vector<pollfd> entries;
  while (!stopNow && !end.expired()) {
    // Read this first, so that everything requested before it is known, too.
    bool mayStop = stopWhenAllLeft;
    takeFailure();
    // Ranks that have yet to join a failed job must learn that it failed.
    bool mayCome = !firstFailure.isOk() && !roster.isComplete() && !hasExpired;
    bool nobodyLeft = connections.empty() && !mayCome;
    if (mayStop && (roster.haveAllLeft() || nobodyLeft))
      break;
    // The next life of the job may have the port as soon as this one ends.
    if (roster.isComplete() && (mayStop || !firstFailure.isOk()))
      admission->close();
    entries.clear();
    entries.push_back({wake.fd(), POLLIN, 0});
    for (Connection &connection : connections) {
      short events = connection.output.empty() ? POLLIN : POLLIN | POLLOUT;
      entries.push_back({connection.socket.get(), events, 0});
    }
    size_t firstStranger = entries.size();
    admission->watch(&entries);
    int patience = roster.hasVacancies() ? 100 : admission->patienceMs();
    if (patience < 0 || patience > Silence::lookMs)
      patience = Silence::lookMs;
    patience = std::min(patience, end.remainingMs());
    if (::poll(entries.data(), entries.size(), patience) < 0 &&
        errno != EINTR) {
      recover(systemError(errno, "cannot wait"));
      continue;
    }
    if (entries[0].revents) {
      uint64_t count;
      if (::read(wake.fd(), &count, sizeof(count)) < 0) {
        // Another thread's wake-up was read already.
      }
    }
    size_t index = 1;
    // The handlers may write to other connections, but never add or remove one.
    for (Connection &connection : connections) {
      short events = entries[index++].revents;
      if (events & (POLLIN | POLLHUP | POLLERR))
        readFrom(connection);
      const Status heard = connection.silence.look(connection.socket.get());
      if (!heard.isOk())
        onEnd(connection, heard.message(), /*mayComeBack=*/false);
    }
    admit(entries.data() + firstStranger);
    if (Status missing = roster.findMissing(); !missing.isOk())
      failJob(/*culprit=*/-1, missing);
    for (Connection &connection : connections)
      writeTo(connection);
    removeClosed();
  }
  for (Connection &connection : connections)
    writeTo(connection);
  connections.clear();
  admission.reset();
  ended = true;
}

/// Fails the job because a rank has failed by itself.
void StoreServer::abortJob(int rank, const Status &status) {
  hasExpired |= status.code() == DDPHOOK_DEADLINE_EXCEEDED;
  failJob(rank,
          error(DDPHOOK_ABORTED, "rank %d failed: %s (%s)", rank,
                status.message().c_str(), ddphook_status_name(status.code())));
}

void StoreServer::takeFailure() {
  Status status;
  {
    std::lock_guard<std::mutex> lock(sharedMutex);
    status = failureOfRankZero;
  }
  if (!status.isOk())
    abortJob(/*rank=*/0, status);
}

/// Admits connections that have the job's secret.
void StoreServer::admit(const pollfd *entries) {
  std::vector<Admission::Guest> guests;
  size_t refusals = admission->refusals();
  Status status = admission->handle(entries, &guests);
  if (admission->refusals() != refusals)
    values.set(refusedKey(),
               concat(admission->refusals(), ", the last one from ",
                      admission->lastRefused()));
  for (Admission::Guest &guest : guests) {
    connections.emplace_back();
    connections.back().socket = std::move(guest.socket);
    std::optional<Hello> hello = Hello::decode(guest.introduction);
    if (hello)
      handleHello(connections.back(), *hello);
    else
      connections.back().isClosed = true;
  }
  if (status.isOk() || roster.isComplete())
    return;
  // A job that is still gathering would only wait for its deadline.
  failJob(/*culprit=*/-1,
          withContext(status, "rank 0 cannot let all ranks join"));
}

void StoreServer::readFrom(Connection &connection) {
  const bool isOpen = connection.receive();
  const int reason = errno;
  // Frames that arrived before the end count.
  parseInput(connection);
  if (!isOpen)
    onEnd(connection,
          reason == 0 ? "its connection closed" : std::strerror(reason));
}

void StoreServer::parseInput(Connection &connection) {
  std::string_view input = connection.input;
  size_t used = 0;
  while (!connection.isClosed && !connection.isTorn && !connection.hasLeft) {
    std::string_view rest = input.substr(used);
    if (rest.size() < Frame::headerSize)
      break;
    std::optional<Frame> frame = Frame::decodeHeader(rest);
    if (!frame) {
      onEnd(connection, "it sent malformed data");
      break;
    }
    if (rest.size() < Frame::headerSize + frame->bodySize())
      break;
    handleFrame(
        connection, *frame, rest.substr(Frame::headerSize, frame->keySize),
        rest.substr(Frame::headerSize + frame->keySize, frame->valueSize));
    used += Frame::headerSize + frame->bodySize();
  }
  connection.input.erase(0, used);
}

void StoreServer::welcomeRankZero() {
  roster.join(0);
  values.set(joinedKey(0), "");
  int ends[2] = {-1, -1};
  rankZero = FileDescriptor::opened([&ends] {
    return ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                        ends) == 0
               ? ends[0]
               : -1;
  });
  connections.emplace_back();
  connections.back().socket = FileDescriptor(ends[1]);
  connections.back().rank = 0;
  connections.back().isClosed = !rankZero.isValid();
}

void StoreServer::handleHello(Connection &connection, const Hello &hello) {
  const Roster::Decision decision = roster.decide(hello);
  if (!decision.refusal.isOk()) {
    reject(connection, decision.mayRetry, decision.refusal);
    if (decision.endsJob)
      failJob(/*culprit=*/-1, decision.refusal);
    return;
  }
  const int rank = static_cast<int>(hello.rank);
  connection.rank = rank;
  roster.join(rank);
  std::string address;
  const Status found = findLocalAddress(connection.socket.get(), &address);
  {
    std::lock_guard<std::mutex> lock(sharedMutex);
    if (reached.empty() || !isLoopbackAddress(address))
      reached = address;
  }
  connection.send(Kind::Welcome, 0, token);
  if (!firstFailure.isOk())
    connection.sendFailure(failureFrame);
  else if (!found.isOk())
    failJob(/*culprit=*/-1, withContext(found, "the store of rank 0"));
  values.set(joinedKey(rank), "");
  if (roster.isComplete())
    values.set(allJoinedKey(), "");
}

/// Sends the reason and closes the connection. A message this small always fits
/// into the send buffer. The client has sent nothing more, so it will read it.
void StoreServer::reject(Connection &connection, bool mayRetry,
                         const Status &status) {
  const std::string frame =
      encodeFrame(Kind::Reject, mayRetry ? 1 : 0, {}, encodeStatus(status));
  connection.isClosed = true;
  if (::send(connection.socket.get(), frame.data(), frame.size(),
             MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    // The client is gone already.
  }
}

void StoreServer::handleFrame(Connection &connection, const Frame &frame,
                              std::string_view key, std::string_view value) {
  std::string name(key);
  switch (frame.kind) {
  case Kind::Set:
    return values.set(name, std::string(value));
  case Kind::Get:
    return values.get(connection, frame.id, name, leftStatus);
  case Kind::TryGet:
    return values.tryGet(connection, frame.id, name);
  case Kind::Cancel:
    return values.forget(connection, frame.id);
  case Kind::Add:
    return values.add(connection, frame.id, name, value);
  case Kind::Erase:
    return values.erase(name);
  case Kind::Abort:
    return abortJob(connection.rank, decodeStatus(value));
  case Kind::Leave:
    connection.hasLeft = true;
    roster.leave(connection.rank);
    leftStatus = peerLost("rank %d has left the job", connection.rank);
    return values.failAll(leftStatus);
  case Kind::Clock: {
    const std::chrono::nanoseconds time =
        std::chrono::steady_clock::now().time_since_epoch();
    return connection.send(Kind::Value, frame.id, std::to_string(time.count()));
  }
  case Kind::Inquire:
    for (Connection &other : connections)
      if (other.rank >= 0)
        other.send(Kind::Inquiry, 0);
    return;
  case Kind::Deliver:
    if (Status full = deliveries.put(connection.rank, std::string(value));
        !full.isOk())
      return connection.send(Kind::Error, frame.id, encodeStatus(full));
    return connection.send(Kind::Value, frame.id);
  case Kind::Welcome:
  case Kind::Reject:
  case Kind::Value:
  case Kind::Missing:
  case Kind::Error:
  case Kind::Failure:
  case Kind::Inquiry:
    return onEnd(connection, "it sent malformed data");
  }
}

void StoreServer::failJob(int culprit, const Status &status) {
  if (!firstFailure.isOk())
    return;
  {
    std::lock_guard<std::mutex> lock(sharedMutex);
    firstFailure = status;
  }
  ignoreExceptions([&] { failureFrame = frameOf(status); });
  for (Connection &connection : connections)
    if (connection.rank >= 0 && connection.rank != culprit &&
        !connection.hasLeft)
      connection.sendFailure(failureFrame);
}

void StoreServer::onEnd(Connection &connection, const std::string &reason,
                        bool mayComeBack) {
  if (connection.isClosed)
    return;
  connection.isClosed = true;
  if (connection.rank < 0 || connection.hasLeft)
    return;
  if (mayComeBack && firstFailure.isOk() &&
      roster.vacate(connection.rank, reason)) {
    values.erase(joinedKey(connection.rank));
    return;
  }
  roster.leave(connection.rank);
  failJob(connection.rank,
          peerLost("rank %d was lost: %s", connection.rank, reason.c_str()));
}

void StoreServer::writeTo(Connection &connection) {
  if (!connection.isClosed && !connection.flush())
    onEnd(connection, std::strerror(errno));
}

void StoreServer::removeClosed() {
  for (auto connection = connections.begin();
       connection != connections.end();) {
    if (!connection->isClosed) {
      ++connection;
      continue;
    }
    values.forget(*connection);
    connection = connections.erase(connection);
  }
}

std::string StoreServer::joinedKey(int rank) {
  return "joined/" + std::to_string(rank);
}

const char *StoreServer::allJoinedKey() { return "joined/all"; }

const char *StoreServer::refusedKey() { return "joined/refused"; }

Status StoreServer::start(const Options &options,
                          std::unique_ptr<StoreServer> *result,
                          const Deadline &deadline) {
  std::vector<FileDescriptor> listening;
  int port = 0;
  DDPHOOK_TRY(withContext(
      listenOnAll(options.address, options.port, deadline, &listening, &port),
      "the store of rank 0"));
  Interrupt wake;
  DDPHOOK_TRY(Interrupt::create(&wake));
  std::string token;
  DDPHOOK_TRY(drawSecret(tokenSize, &token));
  std::unique_ptr<StoreServer> server(new StoreServer(
      options, std::move(listening), std::move(wake), std::move(token)));
  server->boundPort = port;
  // Start even without descriptors for it: the other ranks must learn of it.
  if (options.hasRankZero)
    server->welcomeRankZero();
  StoreServer *const self = server.get();
  Status started = startThread(
      "ddphook-store", &self->thread, [self] { self->run(); },
      [self](const Status &status) {
        self->recover(status);
        return true;
      });
  if (started.isOk()) {
    *result = std::move(server);
    return started;
  }
  // Notify ranks that arrive.
  self->fail(started);
  self->run(Deadline::after(farewellSeconds));
  return started;
}

Status StoreServer::connectRankZero(FileDescriptor *socket,
                                    std::string *welcomeToken) {
  if (!rankZero.isValid())
    return systemError(EMFILE, "cannot connect to this rank's own store");
  *socket = std::move(rankZero);
  *welcomeToken = token;
  return Status::ok();
}

std::string StoreServer::reachedAddress() const {
  std::lock_guard<std::mutex> lock(sharedMutex);
  return reached;
}

Status StoreServer::failure() const {
  std::lock_guard<std::mutex> lock(sharedMutex);
  return firstFailure;
}

void StoreServer::fail(const Status &status) {
  {
    std::lock_guard<std::mutex> lock(sharedMutex);
    failureOfRankZero = status;
  }
  wake.raise();
}

void StoreServer::requestStop(std::atomic<bool> &how) {
  how = true;
  wake.raise();
}

void StoreServer::finish(const Deadline &deadline) {
  requestStop(stopWhenAllLeft);
  while (!ended && !deadline.expired())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

StoreServer::~StoreServer() {
  requestStop(stopNow);
  if (thread.joinable())
    thread.join();
}
