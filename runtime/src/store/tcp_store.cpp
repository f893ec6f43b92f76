//===- tcp_store.cpp - a rank's end of the control connection -------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The client of StoreServer.
//
//===----------------------------------------------------------------------===//
#include "store/tcp_store.h"

#include "base/threads.h"
#include "base/wait_scope.h"
#include "ddphook/runtime/compiled.h"
#include "store/absent_ranks.h"
#include "store/store_protocol.h"
#include "store/store_server.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sys/socket.h>
#include <vector>

using namespace ddphook;
using namespace ddphook::wire;

/// Even an expired deadline leaves a question this long to be answered: it
/// means "look once", not "do not look".
static constexpr double lookSeconds = 0.5;
/// How long a broken connection is given to tell why it broke.
static constexpr double newsSeconds = 0.1;
/// How long an address has at first to answer as a store, before it is the next
/// one's turn, and how long at most.
static constexpr double firstPatience = 2, longestPatience = 8;

/// A question and, later, its answer.
struct TcpStore::Request {
  bool isAnswered = false;
  bool isMissing = false;
  Status status;
  std::string value;
};

/// Receives the answer to the Hello; `token` is what comes with a welcome.
static Status receiveWelcome(int socket, const Deadline &deadline,
                             bool *isFinal, std::string *token) {
  char header[Frame::headerSize];
  DDPHOOK_RETURN_IF_ERROR(receiveAll(socket, header, sizeof(header), deadline));
  std::optional<Frame> frame =
      Frame::decodeHeader(std::string_view(header, sizeof(header)));
  if (!frame || frame->keySize != 0)
    return error(DDPHOOK_IO_ERROR, "it sent malformed data");
  std::string value(frame->valueSize, '\0');
  DDPHOOK_RETURN_IF_ERROR(
      receiveAll(socket, value.data(), value.size(), deadline));
  if (frame->kind == Kind::Reject) {
    *isFinal = frame->id == 0;
    return decodeStatus(value);
  }
  if (frame->kind != Kind::Welcome || value.size() != tokenSize)
    return error(DDPHOOK_IO_ERROR, "it sent malformed data");
  *token = value;
  return Status::ok();
}

/// One attempt to connect to `address`, where a store has to answer until
/// `answer`, and be welcomed. `isFinal` is set when another one cannot end
/// differently.
static Status tryToJoin(const TcpStore::Options &options,
                        const std::string &address, const Deadline &answer,
                        const Deadline &deadline, FileDescriptor *socket,
                        std::string *session, bool *isFinal) {
  Status connected = connectOnce(address, options.port, answer, socket);
  // Without descriptors or memory, trying again cannot help.
  *isFinal = connected.code() == DDPHOOK_RESOURCE_EXHAUSTED;
  DDPHOOK_RETURN_IF_ERROR(connected);
  setControlOptions(socket->get());
  Hello hello;
  hello.abiVersion = DDPHOOK_ABI_VERSION;
  hello.worldSize = static_cast<uint32_t>(options.worldSize);
  hello.rank = static_cast<uint32_t>(options.rank);
  hello.runId = hashRunId(options.runId);
  Credentials credentials = storeCredentials(options.secret);
  // A store speaks first. Once it has, it may count on this rank.
  Status proved = waitToReceive(socket->get(), answer);
  if (proved.isOk())
    proved = proveOn(socket->get(), credentials, hello.encode(), deadline);
  if (proved.code() == DDPHOOK_BAD_ENVIRONMENT)
    return proved;
  DDPHOOK_RETURN_IF_ERROR(
      withContext(proved, "it did not answer as a ddphook store"));
  std::string token;
  DDPHOOK_RETURN_IF_ERROR(
      receiveWelcome(socket->get(), deadline, isFinal, &token));
  *session = deriveKey(credentials.key, token);
  return Status::ok();
}

/// "node7:29500", or "port 29500 of 10.0.0.1, 10.1.0.1".
static std::string describePlace(const TcpStore::Options &options) {
  if (options.hosts.size() == 1)
    return endpointName(options.hosts[0], options.port);
  std::string text = "port " + std::to_string(options.port);
  for (size_t i = 0; i < options.hosts.size(); ++i)
    text += (i == 0 ? " of " : ", ") + options.hosts[i];
  return text;
}

namespace {

/// The addresses of rank 0, and what each of them failed at.
class Candidates {
public:
  struct Candidate {
    std::string address;
    Status cause;
  };

  /// Looks names up, again, because they may change.
  void resolve(const std::vector<std::string> &hosts) {
    std::vector<Candidate> old = std::move(all);
    all.clear();
    for (const std::string &host : hosts) {
      std::vector<std::string> addresses;
      Status status = findAddresses(host, &addresses);
      if (!status.isOk())
        all.push_back({"", status});
      for (std::string &address : addresses)
        all.push_back({std::move(address), Status::ok()});
    }
    for (Candidate &candidate : all)
      for (Candidate &known : old)
        if (known.address == candidate.address && candidate.cause.isOk())
          candidate.cause = std::move(known.cause);
  }

  std::string describe() const {
    std::string text;
    for (const auto &[address, cause] : all)
      if (!cause.isOk())
        text += (text.empty() ? "" : "; ") +
                (all.size() == 1 || address.empty() ? "" : address + ": ") +
                cause.message();
    return text;
  }

  std::vector<Candidate> all;
};

} // namespace

Status TcpStore::connect(const Options &options, const Deadline &deadline,
                         std::unique_ptr<TcpStore> *store) {
  const std::string place = describePlace(options);
  double pause = 0.01, patience = firstPatience;
  Candidates candidates;
  std::optional<Deadline> refusalsEnd;
  WaitScope scope(
      [&] {
        const std::string causes = candidates.describe();
        return describeWait(options.rank, {0}, options.worldSize) + " at " +
               place + (causes.empty() ? "" : " (" + causes + ")");
      },
      options.tellsWaits);
  for (;;) {
    candidates.resolve(options.hosts);
    bool isRefused = false;
    size_t left = candidates.all.size();
    for (auto &[address, cause] : candidates.all) {
      const double share = deadline.remaining() / static_cast<double>(left--);
      WaitScope::poll();
      if (address.empty())
        continue;
      FileDescriptor socket;
      bool isFinal = false;
      std::string session;
      Status status = tryToJoin(options, address,
                                Deadline::after(std::min(patience, share)),
                                deadline, &socket, &session, &isFinal);
      if (status.isOk()) {
        store->reset(
            new TcpStore(options, std::move(socket), std::move(session)));
        return status;
      }
      if (isFinal)
        return status;
      // An attempt that was cut short tells less than those before, and a
      // refusal more than all others: rank 0 may have given up since.
      const bool refuses = status.code() == DDPHOOK_BAD_ENVIRONMENT;
      isRefused |= refuses;
      if (refuses || cause.isOk() ||
          (cause.code() != DDPHOOK_BAD_ENVIRONMENT &&
           status.code() != DDPHOOK_DEADLINE_EXCEEDED))
        cause = status;
    }
    if (isRefused && !refusalsEnd)
      refusalsEnd = Deadline::after(StoreServer::takeoverSeconds);
    bool isLast = deadline.remaining() <= pause;
    if (refusalsEnd && (isLast || (isRefused && refusalsEnd->expired())))
      return error(DDPHOOK_BAD_ENVIRONMENT,
                   "rank %d may not join rank 0 at %s: %s", options.rank,
                   place.c_str(), candidates.describe().c_str());
    if (isLast)
      return error(DDPHOOK_DEADLINE_EXCEEDED,
                   "rank %d could not join rank 0 at %s within %g s: %s",
                   options.rank, place.c_str(), options.timeoutSeconds,
                   candidates.describe().c_str());
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    pause = std::min(pause * 1.5, 0.2);
    patience = std::min(2 * patience, longestPatience);
  }
}

Status TcpStore::attach(const Options &options, StoreServer &server,
                        std::unique_ptr<TcpStore> *store) {
  FileDescriptor socket;
  std::string token;
  DDPHOOK_RETURN_IF_ERROR(server.connectRankZero(&socket, &token));
  store->reset(
      new TcpStore(options, std::move(socket),
                   deriveKey(storeCredentials(options.secret).key, token)));
  return Status::ok();
}

TcpStore::TcpStore(const Options &options, FileDescriptor connected,
                   std::string session)
    : options(options), session(std::move(session)),
      socket(std::move(connected)) {
  receiver = startThread("ddphook-control", [this] { receive(); });
}

TcpStore::~TcpStore() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    isLeaving = true;
  }
  ::shutdown(socket.get(), SHUT_RDWR);
  receiver.join();
}

Status TcpStore::send(const std::string &frame, const Deadline &deadline) {
  Status status;
  {
    std::lock_guard<std::mutex> lock(sendMutex);
    status = sendAll(socket.get(), frame.data(), frame.size(), deadline);
  }
  if (status.isOk())
    return status;
  // A part of the frame may be on its way: the connection is of no use now.
  ::shutdown(socket.get(), SHUT_RDWR);
  Status heard = failureWithin(newsSeconds);
  return heard.isOk() ? withContext(status, "the control connection") : heard;
}

uint32_t TcpStore::enter(Request *request) {
  std::lock_guard<std::mutex> lock(mutex);
  uint32_t id = ++lastId;
  requests[id] = request;
  return id;
}

Status TcpStore::request(uint32_t id, const std::string &frame,
                         const Deadline &deadline, Request *request) {
  Status sent = send(frame);
  std::unique_lock<std::mutex> lock(mutex);
  if (sent.isOk()) {
    Deadline look = Deadline::after(lookSeconds);
    const Deadline::Clock::time_point end =
        std::max(deadline.time(), look.time());
    auto isOver = [&] { return request->isAnswered || !failure.isOk(); };
    while (!changed.wait_until(lock, std::min(end, WaitScope::due()), isOver) &&
           Deadline::Clock::now() < end) {
      // It may ask this store who is missing.
      lock.unlock();
      WaitScope::poll();
      lock.lock();
    }
  }
  requests.erase(id);
  if (request->isAnswered)
    return request->status;
  if (!failure.isOk())
    return failure;
  if (!sent.isOk())
    return sent;
  return error(DDPHOOK_DEADLINE_EXCEEDED,
               "rank 0 did not answer within the deadline");
}

static Status checkSizes(const std::string &key, const std::string &value) {
  if (key.size() > Frame::maxKeySize || value.size() > Frame::maxValueSize)
    return error(DDPHOOK_INVALID_ARGUMENT,
                 "key '%.64s' or its value is too large for the store",
                 key.c_str());
  return Status::ok();
}

Status TcpStore::set(const std::string &key, const std::string &value) {
  DDPHOOK_RETURN_IF_ERROR(checkSizes(key, value));
  DDPHOOK_RETURN_IF_ERROR(failureWithin(0));
  return send(encodeFrame(Kind::Set, 0, key, value));
}

Status TcpStore::get(const std::string &key, const Deadline &deadline,
                     std::string *value) {
  DDPHOOK_RETURN_IF_ERROR(checkSizes(key, {}));
  DDPHOOK_RETURN_IF_ERROR(failureWithin(0));
  Status none =
      error(DDPHOOK_DEADLINE_EXCEEDED, "no rank set '%s' in time", key.c_str());
  Request answer;
  uint32_t id = enter(&answer);
  bool isLook = deadline.expired();
  Status status =
      request(id, encodeFrame(isLook ? Kind::TryGet : Kind::Get, id, key, {}),
              deadline, &answer);
  if (status.isOk() && answer.isMissing)
    return none;
  if (status.isOk())
    *value = std::move(answer.value);
  if (isLook || status.code() != DDPHOOK_DEADLINE_EXCEEDED)
    return status;
  send(encodeFrame(Kind::Cancel, id, {}, {})).ignore();
  return none;
}

Status TcpStore::exists(const std::string &key, bool *result) {
  DDPHOOK_RETURN_IF_ERROR(checkSizes(key, {}));
  DDPHOOK_RETURN_IF_ERROR(failureWithin(0));
  Request answer;
  uint32_t id = enter(&answer);
  DDPHOOK_RETURN_IF_ERROR(request(id, encodeFrame(Kind::TryGet, id, key, {}),
                                  Deadline::after(0), &answer));
  *result = !answer.isMissing;
  return Status::ok();
}

Status TcpStore::add(const std::string &key, int64_t delta, int64_t *result) {
  DDPHOOK_RETURN_IF_ERROR(checkSizes(key, {}));
  DDPHOOK_RETURN_IF_ERROR(failureWithin(0));
  Request answer;
  uint32_t id = enter(&answer);
  DDPHOOK_RETURN_IF_ERROR(
      request(id, encodeFrame(Kind::Add, id, key, std::to_string(delta)),
              Deadline::after(options.timeoutSeconds), &answer));
  *result = std::strtoll(answer.value.c_str(), nullptr, 10);
  return Status::ok();
}

Status TcpStore::erase(const std::string &key) {
  DDPHOOK_RETURN_IF_ERROR(checkSizes(key, {}));
  DDPHOOK_RETURN_IF_ERROR(failureWithin(0));
  return send(encodeFrame(Kind::Erase, 0, key, {}));
}

Status TcpStore::waitForAll(const Deadline &deadline) {
  std::vector<int> absent;
  WaitScope scope(
      [&] {
        findAbsent(*this, options.worldSize, StoreServer::joinedKey, &absent)
            .ignore();
        return describeWait(options.rank, absent, options.worldSize) +
               " to join at " + describePlace(options);
      },
      options.tellsWaits);
  std::string value;
  Status status = get(StoreServer::allJoinedKey(), deadline, &value);
  if (status.code() != DDPHOOK_DEADLINE_EXCEEDED)
    return status;
  DDPHOOK_RETURN_IF_ERROR(
      findAbsent(*this, options.worldSize, StoreServer::joinedKey, &absent));
  // The last ranks have joined since, for instance while this one was stopped.
  if (absent.empty())
    return Status::ok();
  std::string names = listRanks(absent), refused;
  Status look = get(StoreServer::refusedKey(), Deadline::after(0), &refused);
  if (look.isOk())
    names += "; connections that lacked the job's secret: " + refused;
  else if (look.code() != DDPHOOK_DEADLINE_EXCEEDED)
    return look; // Another rank was faster, and has told all this.
  return error(DDPHOOK_DEADLINE_EXCEEDED,
               "%zu of %d ranks did not join within %g s: rank %s",
               absent.size(), options.worldSize, options.timeoutSeconds,
               names.c_str());
}

void TcpStore::reportFailure(const Status &status) {
  send(encodeFrame(Kind::Abort, 0, {}, encodeStatus(status))).ignore();
}

void TcpStore::onFailure(std::function<void(const Status &)> newCallback) {
  Status known;
  {
    std::lock_guard<std::mutex> lock(mutex);
    callback = newCallback;
    known = failure;
  }
  if (!known.isOk() && newCallback)
    newCallback(known);
}

Status TcpStore::serverTime(const Deadline &deadline, int64_t *time) {
  DDPHOOK_RETURN_IF_ERROR(failureWithin(0));
  Request answer;
  uint32_t id = enter(&answer);
  DDPHOOK_RETURN_IF_ERROR(
      request(id, encodeFrame(Kind::Clock, id, {}, {}), deadline, &answer));
  *time = std::strtoll(answer.value.c_str(), nullptr, 10);
  return Status::ok();
}

/// Where a rank answers an inquiry.
static std::string answerKey(int rank) {
  return "inquiry/" + std::to_string(rank);
}

void TcpStore::onInquiry(std::function<std::string()> answer) {
  std::lock_guard<std::mutex> lock(mutex);
  answerInquiry = std::move(answer);
}

Status TcpStore::inquire(const Deadline &deadline, Answers *answers) {
  const auto size = static_cast<size_t>(options.worldSize);
  const auto self = static_cast<size_t>(options.rank);
  answers->ofRanks.assign(size, std::nullopt);
  // One for each rank, and the time, which the server answers by itself.
  std::vector<Request> questions(size + 1);
  std::vector<uint32_t> ids(size + 1);
  std::string frames = encodeFrame(Kind::Inquire, 0, {}, {});
  for (size_t i = 0; i <= size; ++i) {
    ids[i] = enter(&questions[i]);
    frames += i < size ? encodeFrame(Kind::Get, ids[i],
                                     answerKey(static_cast<int>(i)), {})
                       : encodeFrame(Kind::Clock, ids[i], {}, {});
  }
  const Status sent = send(frames, deadline);
  auto isAnswered = [](const Request &question) { return question.isAnswered; };
  std::unique_lock<std::mutex> lock(mutex);
  if (sent.isOk())
    changed.wait_until(lock, deadline.time(), [&] {
      return !failure.isOk() ||
             std::all_of(questions.begin(), questions.end(), isAnswered);
    });
  for (uint32_t id : ids)
    requests.erase(id);
  if (!failure.isOk())
    return failure;
  answers->isServerSilent = !isAnswered(questions[size]);
  const std::function<std::string()> ownAnswer = answerInquiry;
  lock.unlock();
  if (ownAnswer)
    answers->ofRanks[self] = ownAnswer();
  // What is answered later finds no question.
  for (size_t i = 0; i < size; ++i) {
    DDPHOOK_RETURN_IF_ERROR(questions[i].status);
    if (isAnswered(questions[i]))
      answers->ofRanks[i] = std::move(questions[i].value);
  }
  return sent;
}

Status TcpStore::deliver(const std::string &value, const Deadline &deadline) {
  DDPHOOK_RETURN_IF_ERROR(checkSizes({}, value));
  Request answer;
  const uint32_t id = enter(&answer);
  const Status sent = send(encodeFrame(Kind::Deliver, id, {}, value), deadline);
  std::unique_lock<std::mutex> lock(mutex);
  if (sent.isOk())
    changed.wait_until(lock, deadline.time(),
                       [&] { return answer.isAnswered || hasEnded; });
  requests.erase(id);
  if (answer.isAnswered)
    return answer.status;
  if (!sent.isOk())
    return sent;
  return hasEnded ? error(DDPHOOK_PEER_LOST, "rank 0 has ended")
                  : error(DDPHOOK_DEADLINE_EXCEEDED,
                          "rank 0 did not take it within the deadline");
}

Status TcpStore::failureWithin(double seconds) {
  std::unique_lock<std::mutex> lock(mutex);
  if (seconds > 0)
    changed.wait_until(lock, Deadline::after(seconds).time(),
                       [&] { return !failure.isOk(); });
  return failure;
}

TcpStore::Verdict TcpStore::verdictWithin(double seconds) {
  const Deadline deadline = Deadline::after(seconds);
  // Nobody sets that key: the answer is that a rank has left.
  Request time, departure;
  const uint32_t ids[] = {enter(&time), enter(&departure)};
  const Status sent = send(encodeFrame(Kind::Clock, ids[0], {}, {}) +
                               encodeFrame(Kind::Get, ids[1], "departure", {}),
                           deadline);
  Verdict verdict;
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait_until(lock, deadline.time(), [&] { return !failure.isOk(); });
  for (uint32_t id : ids)
    requests.erase(id);
  verdict.failure = failure;
  verdict.isServerSilent = sent.isOk() && !time.isAnswered;
  if (departure.isAnswered)
    verdict.departure = departure.status.message();
  return verdict;
}

void TcpStore::leave() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    isLeaving = true;
  }
  std::string frame = encodeFrame(Kind::Leave, 0, {}, {});
  std::lock_guard<std::mutex> lock(sendMutex);
  sendAll(socket.get(), frame.data(), frame.size(), Deadline::after(1))
      .ignore();
}

void TcpStore::fail(const Status &status) {
  std::function<void(const Status &)> notify;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!failure.isOk() || isLeaving)
      return;
    failure = status;
    notify = callback;
  }
  changed.notify_all();
  if (notify)
    notify(status);
}

/// Receives one frame and does what it says.
Status TcpStore::receiveFrame(std::string *key, std::string *value) {
  const Deadline never = Deadline::after(1e18);
  char header[Frame::headerSize];
  DDPHOOK_RETURN_IF_ERROR(
      receiveAll(socket.get(), header, sizeof(header), never));
  std::optional<Frame> frame =
      Frame::decodeHeader(std::string_view(header, sizeof(header)));
  if (!frame)
    return error(DDPHOOK_DATA_LOSS, "it sent malformed data");
  key->resize(frame->keySize);
  value->resize(frame->valueSize);
  DDPHOOK_RETURN_IF_ERROR(
      receiveAll(socket.get(), key->data(), key->size(), never));
  DDPHOOK_RETURN_IF_ERROR(
      receiveAll(socket.get(), value->data(), value->size(), never));
  if (frame->kind == Kind::Failure) {
    fail(decodeStatus(*value));
    return Status::ok();
  }
  if (frame->kind == Kind::Inquiry) {
    std::function<std::string()> answer;
    {
      std::lock_guard<std::mutex> lock(mutex);
      answer = answerInquiry;
    }
    return answer ? send(encodeFrame(Kind::Set, 0, answerKey(options.rank),
                                     answer()))
                  : Status::ok();
  }
  bool isAnswer = frame->kind == Kind::Value || frame->kind == Kind::Missing ||
                  frame->kind == Kind::Error;
  if (!isAnswer)
    return error(DDPHOOK_DATA_LOSS, "it sent malformed data");
  std::lock_guard<std::mutex> lock(mutex);
  auto found = requests.find(frame->id);
  if (found == requests.end())
    return Status::ok(); // The question's deadline has passed.
  Request &answered = *found->second;
  answered.isAnswered = true;
  answered.isMissing = frame->kind == Kind::Missing;
  if (frame->kind == Kind::Error)
    answered.status = decodeStatus(*value);
  answered.value = std::move(*value);
  changed.notify_all();
  return Status::ok();
}

void TcpStore::receive() {
  std::string key, value;
  for (;;) {
    Status status = receiveFrame(&key, &value);
    if (status.isOk())
      continue;
    fail(error(DDPHOOK_PEER_LOST, "rank 0 was lost: %s",
               status.message().c_str()));
    {
      std::lock_guard<std::mutex> lock(mutex);
      hasEnded = true;
    }
    changed.notify_all();
    return;
  }
}
