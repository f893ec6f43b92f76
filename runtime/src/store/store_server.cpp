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
#include "ddphook/runtime/compiled.h"
#include "store/admission.h"
#include "store/silence.h"
#include "store/store.h"
#include "store/store_protocol.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <list>
#include <map>
#include <mutex>
#include <poll.h>
#include <set>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace ddphook;
using namespace ddphook::wire;

/// How long a rejected client is given to read why.
static constexpr double farewellSeconds = 2;

namespace {

/// Bytes on their way out; shared, because one value goes to many ranks.
using Bytes = std::shared_ptr<const std::string>;

struct Connection {
  FileDescriptor socket;
  /// -1 when it was rejected; `patience` is then its time to read why.
  int rank = -1;
  Deadline patience = Deadline::after(0);
  Silence silence{controlSilenceSeconds};
  bool isRejected = false;
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
  Loop(const Options &options, FileDescriptor listening, FileDescriptor wake,
       std::string token)
      : options(options), runId(hashRunId(options.runId)),
        token(std::move(token)), wake(std::move(wake)),
        admission(std::make_unique<Admission>(
            Admission::Options{storeCredentials(options.secret), Hello::size,
                               static_cast<size_t>(options.worldSize)},
            std::move(listening))) {}

  void run();

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
  std::string outwardAddress() {
    std::lock_guard<std::mutex> lock(sharedMutex);
    return outward;
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
  void onEnd(Connection &connection, const std::string &reason);
  void removeClosed();

  /// All ranks have joined, though some may be gone again.
  bool isComplete() const {
    return static_cast<int>(joined.size()) == options.worldSize;
  }
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

  const Options options;
  const uint64_t runId;
  /// What only ranks that were welcomed know.
  const std::string token;
  FileDescriptor wake;
  std::unique_ptr<Admission> admission;
  std::atomic<bool> stopNow{false};
  std::atomic<bool> stopWhenAllLeft{false};
  std::atomic<bool> ended{false};

  /// Guards what follows, for other threads.
  std::mutex sharedMutex;
  std::string outward;
  Status failureOfRankZero;

  std::list<Connection> connections;
  std::map<std::string, std::string> values;
  std::map<std::string, std::vector<Waiter>> waiters;
  /// Ranks that joined, and those of them that left or were lost.
  std::set<int> joined;
  std::set<int> gone;
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
    bool allLeft = static_cast<int>(gone.size()) == options.worldSize;
    // Ranks that are still to join a job that failed shall hear of it.
    bool mayCome = !failure.isOk() && !isComplete() && !hasExpired;
    bool nobodyLeft = connections.empty() && !mayCome;
    if (mayStop && (allLeft || nobodyLeft))
      break;
    entries.clear();
    entries.push_back({wake.get(), POLLIN, 0});
    bool hasRejected = false;
    for (Connection &connection : connections) {
      short events = connection.output.empty() ? POLLIN : POLLIN | POLLOUT;
      entries.push_back({connection.socket.get(), events, 0});
      hasRejected |= connection.isRejected;
    }
    size_t firstStranger = entries.size();
    admission->watch(&entries);
    int patience = hasRejected ? 100 : admission->patienceMs();
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
        onEnd(connection, heard.message());
      if (connection.isRejected && connection.patience.expired())
        connection.isClosed = true;
    }
    admit(entries.data() + firstStranger);
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
  if (status.isOk() || isComplete())
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
      // A rejected client's bytes are read, so that closing its connection does
      // not destroy the answer on its way, and dropped.
      if (!connection.isRejected)
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
  while (!connection.isClosed && !connection.isRejected &&
         !connection.hasLeft) {
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

void StoreServer::Loop::handleHello(Connection &connection,
                                    const Hello &hello) {
  int rank = static_cast<int>(hello.rank);
  if (hello.runId != runId)
    return reject(connection, /*mayRetry=*/true,
                  error(DDPHOOK_BAD_ENVIRONMENT,
                        "rank 0 at this address belongs to another job (its "
                        "run id is '%s')",
                        options.runId.c_str()));
  Status status;
  if (hello.abiVersion != DDPHOOK_ABI_VERSION)
    status = error(DDPHOOK_UNSUPPORTED,
                   "rank %d uses version %u of the runtime's ABI, but rank 0 "
                   "version %d",
                   rank, hello.abiVersion, DDPHOOK_ABI_VERSION);
  else if (hello.worldSize != static_cast<uint32_t>(options.worldSize))
    status = error(DDPHOOK_BAD_ENVIRONMENT,
                   "rank %d was started with a world size of %u, but rank 0 "
                   "with %d",
                   rank, hello.worldSize, options.worldSize);
  else if (hello.rank >= hello.worldSize)
    status =
        error(DDPHOOK_BAD_ENVIRONMENT, "expected a rank below %u, but got %u",
              hello.worldSize, hello.rank);
  else if (joined.count(rank))
    status = error(DDPHOOK_BAD_ENVIRONMENT,
                   "rank %d joined twice: two processes were started with the "
                   "same rank",
                   rank);
  if (!status.isOk()) {
    reject(connection, /*mayRetry=*/false, status);
    // A job that is still gathering would only wait for its deadline.
    if (!isComplete())
      failJob(/*culprit=*/-1, status);
    return;
  }
  connection.rank = rank;
  joined.insert(rank);
  std::string address = localAddressOf(connection.socket.get());
  if (!isLoopbackAddress(address)) {
    std::lock_guard<std::mutex> lock(sharedMutex);
    outward = address;
  }
  send(connection, Kind::Welcome, 0, token);
  if (!failure.isOk())
    send(connection, Kind::Failure, 0, encodeStatus(failure));
  setValue(joinedKey(rank), "");
  if (isComplete())
    setValue(allJoinedKey(), "");
}

void StoreServer::Loop::reject(Connection &connection, bool mayRetry,
                               const Status &status) {
  send(connection, Kind::Reject, mayRetry ? 1 : 0, encodeStatus(status));
  connection.isRejected = true;
  connection.patience = Deadline::after(farewellSeconds);
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
    gone.insert(connection.rank);
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

void StoreServer::Loop::onEnd(Connection &connection,
                              const std::string &reason) {
  if (connection.isClosed)
    return;
  connection.isClosed = true;
  if (connection.rank < 0 || connection.hasLeft)
    return;
  gone.insert(connection.rank);
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
                          std::unique_ptr<StoreServer> *result) {
  std::unique_ptr<StoreServer> server(new StoreServer());
  FileDescriptor listening;
  DDPHOOK_RETURN_IF_ERROR(
      listenOn(options.address, options.port, &listening, &server->boundPort));
  FileDescriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.isValid())
    return systemError(errno, "cannot make an eventfd");
  const int loopWake = wake.get();
  std::string token;
  DDPHOOK_RETURN_IF_ERROR(drawSecret(tokenSize, &token));
  server->loop = std::make_unique<Loop>(options, std::move(listening),
                                        std::move(wake), std::move(token));
  // Reserve a descriptor before the thread takes the remaining ones. Start even
  // if there is none, because the other ranks must be told.
  server->room = FileDescriptor(::fcntl(loopWake, F_DUPFD_CLOEXEC, 0));
  server->loop->thread = startThread(
      "ddphook-store", [loop = server->loop.get()] { loop->run(); });
  *result = std::move(server);
  return Status::ok();
}

Status StoreServer::makeRoomForRankZero() {
  if (!room.isValid())
    return systemError(EMFILE, "cannot connect to this rank's own store");
  room.reset();
  return Status::ok();
}

std::string StoreServer::outwardAddress() const {
  return loop->outwardAddress();
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
