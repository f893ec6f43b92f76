//===- store_server.cpp - rank 0's end of the control connection ----------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A poll loop over non-blocking sockets. All state belongs to its thread; other
// threads only set two atomics and wake it.
//
//===----------------------------------------------------------------------===//
#include "store/store_server.h"

#include "base/threads.h"
#include "store/admission.h"
#include "store/roster.h"
#include "store/silence.h"
#include "store/store.h"
#include "store/store_protocol.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace ddphook;
using namespace ddphook::wire;

namespace {

/// Bytes on their way out; shared, because one value goes to many ranks.
using Bytes = std::shared_ptr<const std::string>;

struct Connection {
  FileDescriptor socket;
  int rank = -1;
  Silence silence{controlSilenceSeconds};
  bool hasLeft = false;
  /// Set when it is over; the loop then removes it.
  bool isClosed = false;
  std::string input;
  std::deque<Bytes> output;
  size_t sentOfFront = 0;
};

struct Waiter {
  Connection *connection;
  uint32_t id;
};

} // namespace

class StoreServer::Loop {
public:
  Loop(const Options &options, std::vector<FileDescriptor> listening,
       FileDescriptor wake, std::string token)
      : token(std::move(token)), wake(std::move(wake)),
        admission(std::make_unique<Admission>(
            Admission::Options{storeCredentials(options.secret), Hello::size,
                               static_cast<size_t>(options.worldSize)},
            std::move(listening))),
        roster(options.worldSize, options.runId) {}

  void run();

  /// Before run(): makes the connection of rank 0, which gets its other end.
  void welcomeRankZero(FileDescriptor *socket);

  /// All of them from other threads.
  void requestStop(bool whenAllLeft) {
    (whenAllLeft ? stopWhenAllLeft : stopNow) = true;
    wakeUp();
  }
  void requestFailure(const Status &status) {
    {
      std::lock_guard<std::mutex> lock(sharedMutex);
      failureOfRankZero = status;
    }
    wakeUp();
  }
  bool hasEnded() const { return ended; }
  std::string reachedAddress() {
    std::lock_guard<std::mutex> lock(sharedMutex);
    return reached;
  }

  std::thread thread;
  Deliveries deliveries;

private:
  void wakeUp() {
    uint64_t one = 1;
    if (::write(wake.get(), &one, sizeof(one)) < 0) {
      // The counter is already above 0: the loop wakes up anyway.
    }
  }
  void takeFailure();
  void admit(const pollfd *entries);
  void readFrom(Connection &connection);
  void writeTo(Connection &connection);
  void parseInput(Connection &connection);
  void handleHello(Connection &connection, const Hello &hello);
  void handleFrame(Connection &connection, const Frame &frame,
                   std::string_view key, std::string_view value);
  void reject(Connection &connection, bool mayRetry, const Status &status);
  void onEnd(Connection &connection, const std::string &reason,
             bool mayComeBack = true);
  void removeClosed();

  void setValue(const std::string &key, std::string value);
  void handleGet(Connection &connection, uint32_t id, const std::string &key);
  void handleAdd(Connection &connection, uint32_t id, const std::string &key,
                 std::string_view summand);
  void abortJob(int rank, const Status &status);
  void failJob(int culprit, const Status &status);
  void failWaiters(const Status &status);
  template <typename FunctionT>
  void eraseWaiters(const FunctionT &isOver) {
    for (auto entry = waiters.begin(); entry != waiters.end();) {
      auto &list = entry->second;
      list.erase(std::remove_if(list.begin(), list.end(), isOver), list.end());
      entry = list.empty() ? waiters.erase(entry) : std::next(entry);
    }
  }

  void send(Connection &connection, Bytes bytes) {
    if (!connection.isClosed)
      connection.output.push_back(std::move(bytes));
  }
  void send(Connection &connection, Kind kind, uint32_t id,
            std::string_view value = {}) {
    send(connection,
         std::make_shared<const std::string>(encodeFrame(kind, id, {}, value)));
  }

  /// What only ranks that were welcomed know.
  const std::string token;
  FileDescriptor wake;
  std::unique_ptr<Admission> admission;
  std::atomic<bool> stopNow{false};
  std::atomic<bool> stopWhenAllLeft{false};
  std::atomic<bool> ended{false};

  /// Guards what follows, for other threads.
  std::mutex sharedMutex;
  std::string reached;
  Status failureOfRankZero;

  std::list<Connection> connections;
  std::map<std::string, std::string> values;
  std::map<std::string, std::vector<Waiter>> waiters;
  Roster roster;
  /// Not OK once a rank has left or was lost: an answer to waits for keys that
  /// can then never come.
  Status leftStatus;
  /// The first failure of the job.
  Status failure;
  /// A rank has waited for as long as it may: who is not here does not come.
  bool hasExpired = false;
};

void StoreServer::Loop::run() {
  std::vector<pollfd> entries;
  while (!stopNow) {
    // Read first: what was asked for before it is then known, too.
    bool mayStop = stopWhenAllLeft;
    takeFailure();
    // Ranks that are still to join a job that failed shall hear of it.
    bool mayCome = !failure.isOk() && !roster.isComplete() && !hasExpired;
    bool nobodyLeft = connections.empty() && !mayCome;
    if (mayStop && (roster.haveAllLeft() || nobodyLeft))
      break;
    // The next life of the job may have the port as soon as this one ends.
    if (roster.isComplete() && (mayStop || !failure.isOk()))
      admission->close();
    entries.clear();
    entries.push_back({wake.get(), POLLIN, 0});
    for (Connection &connection : connections) {
      short events = connection.output.empty() ? POLLIN : POLLIN | POLLOUT;
      entries.push_back({connection.socket.get(), events, 0});
    }
    size_t firstStranger = entries.size();
    admission->watch(&entries);
    int patience = roster.hasVacancies() ? 100 : admission->patienceMs();
    if (!connections.empty() && (patience < 0 || patience > Silence::lookMs))
      patience = Silence::lookMs;
    if (::poll(entries.data(), entries.size(), patience) < 0 && errno != EINTR)
      break;
    if (entries[0].revents) {
      uint64_t count;
      if (::read(wake.get(), &count, sizeof(count)) < 0) {
        // Somebody else's wake-up was read already.
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

/// A rank has failed by itself.
void StoreServer::Loop::abortJob(int rank, const Status &status) {
  hasExpired |= status.code() == DDPHOOK_DEADLINE_EXCEEDED;
  failJob(rank,
          error(DDPHOOK_ABORTED, "rank %d failed: %s (%s)", rank,
                status.message().c_str(), ddphook_status_name(status.code())));
}

void StoreServer::Loop::takeFailure() {
  std::lock_guard<std::mutex> lock(sharedMutex);
  if (!failureOfRankZero.isOk())
    abortJob(/*rank=*/0, failureOfRankZero);
}

/// Lets those in that have the job's secret.
void StoreServer::Loop::admit(const pollfd *entries) {
  std::vector<Admission::Guest> guests;
  size_t refusals = admission->refusals();
  Status status = admission->handle(entries, &guests);
  if (admission->refusals() != refusals)
    setValue(refusedKey(), std::to_string(admission->refusals()) +
                               ", the last one from " +
                               admission->lastRefused());
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

void StoreServer::Loop::readFrom(Connection &connection) {
  char buffer[65536];
  // Bounded, so that one busy rank cannot keep the others waiting.
  for (int round = 0; round < 16; ++round) {
    ssize_t received =
        ::recv(connection.socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (received > 0) {
      connection.input.append(buffer, static_cast<size_t>(received));
      if (static_cast<size_t>(received) == sizeof(buffer))
        continue;
      break;
    }
    if (received < 0 && (errno == EAGAIN || errno == EINTR))
      break;
    // Frames that came before the end count.
    parseInput(connection);
    onEnd(connection,
          received == 0 ? "its connection closed" : std::strerror(errno));
    return;
  }
  parseInput(connection);
}

void StoreServer::Loop::parseInput(Connection &connection) {
  std::string_view input = connection.input;
  size_t used = 0;
  while (!connection.isClosed && !connection.hasLeft) {
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

void StoreServer::Loop::welcomeRankZero(FileDescriptor *socket) {
  roster.join(0);
  setValue(joinedKey(0), "");
  int ends[2] = {-1, -1};
  *socket = FileDescriptor::opened([&ends] {
    return ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                        ends) == 0
               ? ends[0]
               : -1;
  });
  connections.emplace_back();
  connections.back().socket = FileDescriptor(ends[1]);
  connections.back().rank = 0;
  connections.back().isClosed = !socket->isValid();
}

void StoreServer::Loop::handleHello(Connection &connection,
                                    const Hello &hello) {
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
  std::string address = localAddressOf(connection.socket.get());
  {
    std::lock_guard<std::mutex> lock(sharedMutex);
    if (reached.empty() || !isLoopbackAddress(address))
      reached = address;
  }
  send(connection, Kind::Welcome, 0, token);
  if (!failure.isOk())
    send(connection, Kind::Failure, 0, encodeStatus(failure));
  setValue(joinedKey(rank), "");
  if (roster.isComplete())
    setValue(allJoinedKey(), "");
}

/// Says why, and closes the connection. So little always has room, and since
/// the client has said nothing more, nothing keeps it from reading this.
void StoreServer::Loop::reject(Connection &connection, bool mayRetry,
                               const Status &status) {
  const std::string frame =
      encodeFrame(Kind::Reject, mayRetry ? 1 : 0, {}, encodeStatus(status));
  connection.isClosed = true;
  if (::send(connection.socket.get(), frame.data(), frame.size(),
             MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    // It is gone already.
  }
}

void StoreServer::Loop::handleFrame(Connection &connection, const Frame &frame,
                                    std::string_view key,
                                    std::string_view value) {
  std::string name(key);
  switch (frame.kind) {
  case Kind::Set:
    return setValue(name, std::string(value));
  case Kind::Get:
    return handleGet(connection, frame.id, name);
  case Kind::TryGet: {
    auto found = values.find(name);
    if (found == values.end())
      return send(connection, Kind::Missing, frame.id);
    return send(connection, Kind::Value, frame.id, found->second);
  }
  case Kind::Cancel:
    return eraseWaiters([&](const Waiter &waiter) {
      return waiter.connection == &connection && waiter.id == frame.id;
    });
  case Kind::Add:
    return handleAdd(connection, frame.id, name, value);
  case Kind::Erase:
    values.erase(name);
    return;
  case Kind::Abort:
    return abortJob(connection.rank, decodeStatus(value));
  case Kind::Leave:
    connection.hasLeft = true;
    roster.leave(connection.rank);
    leftStatus =
        error(DDPHOOK_PEER_LOST, "rank %d has left the job", connection.rank);
    return failWaiters(leftStatus);
  case Kind::Clock: {
    const std::chrono::nanoseconds time =
        std::chrono::steady_clock::now().time_since_epoch();
    return send(connection, Kind::Value, frame.id,
                std::to_string(time.count()));
  }
  case Kind::Inquire:
    for (Connection &other : connections)
      if (other.rank >= 0)
        send(other, Kind::Inquiry, 0);
    return;
  case Kind::Deliver:
    if (Status full = deliveries.put(connection.rank, std::string(value));
        !full.isOk())
      return send(connection, Kind::Error, frame.id, encodeStatus(full));
    return send(connection, Kind::Value, frame.id);
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

void StoreServer::Loop::setValue(const std::string &key, std::string value) {
  auto waiting = waiters.find(key);
  if (waiting != waiters.end()) {
    for (const Waiter &waiter : waiting->second)
      send(*waiter.connection, Kind::Value, waiter.id, value);
    waiters.erase(waiting);
  }
  values[key] = std::move(value);
}

void StoreServer::Loop::handleGet(Connection &connection, uint32_t id,
                                  const std::string &key) {
  auto found = values.find(key);
  if (found != values.end())
    return send(connection, Kind::Value, id, found->second);
  if (!leftStatus.isOk())
    return send(connection, Kind::Error, id, encodeStatus(leftStatus));
  waiters[key].push_back({&connection, id});
}

void StoreServer::Loop::handleAdd(Connection &connection, uint32_t id,
                                  const std::string &key,
                                  std::string_view summand) {
  int64_t delta = 0, sum = 0;
  auto found = values.find(key);
  const std::string text(summand);
  Status status = addToCounter(key, &text, 0, &delta);
  if (status.isOk())
    status = addToCounter(key, found == values.end() ? nullptr : &found->second,
                          delta, &sum);
  if (!status.isOk())
    return send(connection, Kind::Error, id, encodeStatus(status));
  std::string value = std::to_string(sum);
  send(connection, Kind::Value, id, value);
  setValue(key, std::move(value));
}

void StoreServer::Loop::failJob(int culprit, const Status &status) {
  if (!failure.isOk())
    return;
  failure = status;
  Bytes frame = std::make_shared<const std::string>(
      encodeFrame(Kind::Failure, 0, {}, encodeStatus(status)));
  for (Connection &connection : connections)
    if (connection.rank >= 0 && connection.rank != culprit &&
        !connection.hasLeft)
      send(connection, frame);
}

void StoreServer::Loop::failWaiters(const Status &status) {
  std::string encoded = encodeStatus(status);
  for (auto &entry : waiters)
    for (const Waiter &waiter : entry.second)
      send(*waiter.connection, Kind::Error, waiter.id, encoded);
  waiters.clear();
}

void StoreServer::Loop::onEnd(Connection &connection, const std::string &reason,
                              bool mayComeBack) {
  if (connection.isClosed)
    return;
  connection.isClosed = true;
  if (connection.rank < 0 || connection.hasLeft)
    return;
  if (mayComeBack && failure.isOk() && roster.vacate(connection.rank, reason)) {
    values.erase(joinedKey(connection.rank));
    return;
  }
  roster.leave(connection.rank);
  failJob(connection.rank, error(DDPHOOK_PEER_LOST, "rank %d was lost: %s",
                                 connection.rank, reason.c_str()));
}

void StoreServer::Loop::writeTo(Connection &connection) {
  while (!connection.isClosed && !connection.output.empty()) {
    const std::string &front = *connection.output.front();
    ssize_t sent = ::send(
        connection.socket.get(), front.data() + connection.sentOfFront,
        front.size() - connection.sentOfFront, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno != EAGAIN && errno != EINTR)
        onEnd(connection, std::strerror(errno));
      return;
    }
    connection.sentOfFront += static_cast<size_t>(sent);
    if (connection.sentOfFront == front.size()) {
      connection.output.pop_front();
      connection.sentOfFront = 0;
    }
  }
}

void StoreServer::Loop::removeClosed() {
  for (auto connection = connections.begin();
       connection != connections.end();) {
    if (!connection->isClosed) {
      ++connection;
      continue;
    }
    eraseWaiters([&](const Waiter &waiter) {
      return waiter.connection == &*connection;
    });
    connection = connections.erase(connection);
  }
}

StoreServer::StoreServer() = default;

std::string StoreServer::joinedKey(int rank) {
  return "joined/" + std::to_string(rank);
}

const char *StoreServer::allJoinedKey() { return "joined/all"; }

const char *StoreServer::refusedKey() { return "joined/refused"; }

Status StoreServer::start(const Options &options,
                          std::unique_ptr<StoreServer> *result,
                          const Deadline &deadline) {
  std::unique_ptr<StoreServer> server(new StoreServer());
  std::vector<FileDescriptor> listening;
  DDPHOOK_RETURN_IF_ERROR(
      withContext(listenOnAll(options.address, options.port, deadline,
                              &listening, &server->boundPort),
                  "the store of rank 0"));
  FileDescriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.isValid())
    return systemError(errno, "cannot make an eventfd");
  DDPHOOK_RETURN_IF_ERROR(drawSecret(tokenSize, &server->token));
  server->loop = std::make_unique<Loop>(options, std::move(listening),
                                        std::move(wake), server->token);
  // Start even if there are no descriptors for it, because the other ranks must
  // be told.
  if (options.hasRankZero)
    server->loop->welcomeRankZero(&server->rankZero);
  server->loop->thread = startThread(
      "ddphook-store", [loop = server->loop.get()] { loop->run(); });
  *result = std::move(server);
  return Status::ok();
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
  return loop->reachedAddress();
}

Deliveries &StoreServer::deliveries() { return loop->deliveries; }

void StoreServer::fail(const Status &status) { loop->requestFailure(status); }

void StoreServer::finish(const Deadline &deadline) {
  loop->requestStop(/*whenAllLeft=*/true);
  while (!loop->hasEnded() && !deadline.expired())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

StoreServer::~StoreServer() {
  if (!loop)
    return;
  loop->requestStop(/*whenAllLeft=*/false);
  if (loop->thread.joinable())
    loop->thread.join();
}
