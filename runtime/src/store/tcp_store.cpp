// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "store/tcp_store.h"

#include "base/threads.h"
#include "base/wait_scope.h"
#include "store/store_protocol.h"
#include "store/store_server.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <optional>
#include <sys/socket.h>

using namespace ddphook;
using namespace ddphook::wire;

/// The least time for an answer: an expired deadline means "look once".
static constexpr double lookSeconds = 0.5;
/// How long a rank that cannot send waits for the reason.
static constexpr double newsSeconds = 0.1;
/// The time that the receiving thread has to read what arrived before a
/// connection ended. It takes a moment, unless the thread cannot run.
static constexpr double lastNewsSeconds = 2;

/// A question and, later, its answer. The receiving thread may write to it
/// while it is among the store's requests.
struct TcpStore::Request {
  explicit Request(TcpStore &store) : store(store) {
    std::lock_guard<std::mutex> lock(store.mutex);
    id = ++store.lastId;
    store.requests[id] = this;
  }
  ~Request() {
    std::lock_guard<std::mutex> lock(store.mutex);
    store.requests.erase(id);
  }
  Request(const Request &) = delete;
  Request &operator=(const Request &) = delete;

  TcpStore &store;
  uint32_t id = 0;
  bool isAnswered = false;
  bool isMissing = false;
  Status status;
  std::string value;
};

/// Returns the failure of the job after `status` ended the connection.
static Status lossOfRankZero(const Status &status) {
  return peerLost("rank 0 was lost: %s", status.message().c_str());
}

TcpStore::TcpStore(const Options &options, FileDescriptor connected,
                   std::string session)
    : options(options), session(std::move(session)),
      distress(
          encodeFrame(Kind::Abort, 0, {}, encodeStatus(Status::outOfMemory()))),
      farewell(encodeFrame(Kind::Leave, 0, {}, {})),
      socket(std::move(connected)) {}

Status TcpStore::start() {
  Status status = startThread(
      "ddphook-control", &receiver, [this] { receive(); },
      [this](const Status &status) {
        giveUp(status);
        return false;
      });
  if (!status.isOk())
    reportFailure(status);
  return status;
}

TcpStore::~TcpStore() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    isLeaving = true;
  }
  ::shutdown(socket.get(), SHUT_RDWR);
  if (receiver.joinable())
    receiver.join();
}

/// Sends a frame. IO_ERROR: the connection broke; the receiving thread ends.
Status TcpStore::sendFrame(const std::string &frame, const Deadline &deadline) {
  Status status;
  {
    std::lock_guard<std::mutex> lock(sendMutex);
    status = sendAll(socket.get(), frame.data(), frame.size(), deadline);
  }
  if (status.code() != DDPHOOK_IO_ERROR)
    return status;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (breakage.isOk())
      breakage = status;
  }
  // Data that has arrived can still be received.
  ::shutdown(socket.get(), SHUT_RDWR);
  return status;
}

Status TcpStore::send(const std::string &frame, const Deadline &deadline) {
  const Status status = sendFrame(frame, deadline);
  if (status.isOk())
    return status;
  const bool hasBroken = status.code() == DDPHOOK_IO_ERROR;
  Status heard;
  {
    std::unique_lock<std::mutex> lock(mutex);
    const double seconds =
        hasBroken ? std::min(lastNewsSeconds, deadline.remaining()) : 0;
    changed.wait_until(
        lock, Deadline::after(std::max(seconds, newsSeconds)).time(), [&] {
          return !failure.isOk() || (hasBroken && (hasEnded || isLeaving));
        });
    heard = failure;
  }
  if (heard.isOk()) {
    heard = hasBroken ? lossOfRankZero(status)
                      : withContext(status, "the control connection to rank 0");
    fail(heard);
  }
  // A part of the frame may have been sent: the connection is useless now.
  ::shutdown(socket.get(), SHUT_RDWR);
  return heard;
}

Status TcpStore::request(const std::string &frame, const Deadline &deadline,
                         Request *request) {
  Status sent = send(frame);
  std::unique_lock<std::mutex> lock(mutex);
  if (sent.isOk()) {
    Deadline look = Deadline::after(lookSeconds);
    const Deadline::Clock::time_point end =
        std::max(deadline.time(), look.time());
    auto isOver = [&] { return request->isAnswered || !failure.isOk(); };
    while (!changed.wait_until(lock, std::min(end, WaitScope::due()), isOver) &&
           Deadline::Clock::now() < end) {
      // poll() may ask this store who is missing.
      lock.unlock();
      WaitScope::poll();
      lock.lock();
    }
  }
  requests.erase(request->id);
  if (request->isAnswered)
    return request->status;
  if (!failure.isOk())
    return failure;
  if (!sent.isOk())
    return sent;
  return deadlineExceeded("rank 0 did not answer within the deadline");
}

static Status checkSizes(const std::string &key, const std::string &value) {
  if (key.size() > Frame::maxKeySize || value.size() > Frame::maxValueSize)
    return invalid("key '%.64s' or its value is too large for the store",
                   key.c_str());
  return Status::ok();
}

Status TcpStore::set(const std::string &key, const std::string &value) {
  DDPHOOK_TRY(checkSizes(key, value));
  DDPHOOK_TRY(failureWithin(0));
  return send(encodeFrame(Kind::Set, 0, key, value));
}

Status TcpStore::get(const std::string &key, const Deadline &deadline,
                     std::string *value) {
  DDPHOOK_TRY(checkSizes(key, {}));
  DDPHOOK_TRY(failureWithin(0));
  Status none = deadlineExceeded("no rank set '%s' in time", key.c_str());
  Request answer(*this);
  bool isLook = deadline.expired();
  Status status = request(
      encodeFrame(isLook ? Kind::TryGet : Kind::Get, answer.id, key, {}),
      deadline, &answer);
  if (status.isOk() && answer.isMissing)
    return none;
  if (status.isOk())
    *value = std::move(answer.value);
  if (isLook || status.code() != DDPHOOK_DEADLINE_EXCEEDED)
    return status;
  send(encodeFrame(Kind::Cancel, answer.id, {}, {})).ignore();
  return none;
}

Status TcpStore::exists(const std::string &key, bool *result) {
  DDPHOOK_TRY(checkSizes(key, {}));
  DDPHOOK_TRY(failureWithin(0));
  Request answer(*this);
  DDPHOOK_TRY(request(encodeFrame(Kind::TryGet, answer.id, key, {}),
                      Deadline::after(0), &answer));
  *result = !answer.isMissing;
  return Status::ok();
}

Status TcpStore::add(const std::string &key, int64_t delta, int64_t *result) {
  DDPHOOK_TRY(checkSizes(key, {}));
  DDPHOOK_TRY(failureWithin(0));
  Request answer(*this);
  DDPHOOK_TRY(
      request(encodeFrame(Kind::Add, answer.id, key, std::to_string(delta)),
              Deadline::after(options.timeoutSeconds), &answer));
  *result = std::strtoll(answer.value.c_str(), nullptr, 10);
  return Status::ok();
}

Status TcpStore::erase(const std::string &key) {
  DDPHOOK_TRY(checkSizes(key, {}));
  DDPHOOK_TRY(failureWithin(0));
  return send(encodeFrame(Kind::Erase, 0, key, {}));
}

void TcpStore::reportFailure(const Status &status) {
  std::string frame;
  // Without memory for the reason, report that instead.
  const Status encoded = withoutExceptions([&] {
    frame = encodeFrame(Kind::Abort, 0, {}, encodeStatus(status));
    return Status::ok();
  });
  send(encoded.isOk() ? frame : distress).ignore();
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
  DDPHOOK_TRY(failureWithin(0));
  Request answer(*this);
  DDPHOOK_TRY(
      request(encodeFrame(Kind::Clock, answer.id, {}, {}), deadline, &answer));
  *time = std::strtoll(answer.value.c_str(), nullptr, 10);
  return Status::ok();
}

/// Returns the key at which a rank answers an inquiry.
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
  // One question per rank, and the time, which the server itself answers.
  std::deque<Request> questions;
  std::string frames = encodeFrame(Kind::Inquire, 0, {}, {});
  for (size_t i = 0; i <= size; ++i) {
    const uint32_t id = questions.emplace_back(*this).id;
    frames += i < size ? encodeFrame(Kind::Get, id, answerKey(i), {})
                       : encodeFrame(Kind::Clock, id, {}, {});
  }
  const Status sent = send(frames, deadline);
  auto isAnswered = [](const Request &question) { return question.isAnswered; };
  std::unique_lock<std::mutex> lock(mutex);
  if (sent.isOk())
    changed.wait_until(lock, deadline.time(), [&] {
      return !failure.isOk() ||
             std::all_of(questions.begin(), questions.end(), isAnswered);
    });
  for (const Request &question : questions)
    requests.erase(question.id);
  if (!failure.isOk())
    return failure;
  answers->isServerSilent = !isAnswered(questions[size]);
  const std::function<std::string()> ownAnswer = answerInquiry;
  lock.unlock();
  if (ownAnswer)
    answers->ofRanks[self] = ownAnswer();
  // Later answers find no question.
  for (size_t i = 0; i < size; ++i) {
    DDPHOOK_TRY(questions[i].status);
    if (isAnswered(questions[i]))
      answers->ofRanks[i] = std::move(questions[i].value);
  }
  return sent;
}

Status TcpStore::deliver(const std::string &value, const Deadline &deadline) {
  DDPHOOK_TRY(checkSizes({}, value));
  Request answer(*this);
  const Status sent =
      send(encodeFrame(Kind::Deliver, answer.id, {}, value), deadline);
  std::unique_lock<std::mutex> lock(mutex);
  const bool isLate = sent.code() == DDPHOOK_DEADLINE_EXCEEDED;
  // A connection that cannot send a message ends.
  if (!isLate)
    changed.wait_until(lock, deadline.time(),
                       [&] { return answer.isAnswered || hasEnded; });
  requests.erase(answer.id);
  if (answer.isAnswered)
    return answer.status;
  if (isLate)
    return sent;
  return hasEnded
             ? peerLost("rank 0 has ended")
             : deadlineExceeded("rank 0 did not accept it within the deadline");
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
  Request time(*this), departure(*this);
  const Status sent =
      send(encodeFrame(Kind::Clock, time.id, {}, {}) +
               encodeFrame(Kind::Get, departure.id, "departure", {}),
           deadline);
  Verdict verdict;
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait_until(lock, deadline.time(), [&] { return !failure.isOk(); });
  for (const Request *question : {&time, &departure})
    requests.erase(question->id);
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
  std::lock_guard<std::mutex> lock(sendMutex);
  sendAll(socket.get(), farewell.data(), farewell.size(), Deadline::after(1))
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

/// Receives one frame and acts on it.
Status TcpStore::receiveFrame(std::string *key, std::string *value) {
  const Deadline never = Deadline::after(1e18);
  char header[Frame::headerSize];
  DDPHOOK_TRY(receiveAll(socket.get(), header, sizeof(header), never));
  std::optional<Frame> frame =
      Frame::decodeHeader(std::string_view(header, sizeof(header)));
  if (!frame)
    return dataLoss("it sent malformed data");
  key->resize(frame->keySize);
  value->resize(frame->valueSize);
  DDPHOOK_TRY(receiveAll(socket.get(), key->data(), key->size(), never));
  DDPHOOK_TRY(receiveAll(socket.get(), value->data(), value->size(), never));
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
    if (!answer)
      return Status::ok();
    const Status sent =
        sendFrame(encodeFrame(Kind::Set, 0, answerKey(options.rank), answer()),
                  Deadline::after(options.timeoutSeconds));
    // A broken connection may still deliver news.
    return sent.code() == DDPHOOK_IO_ERROR ? Status::ok() : sent;
  }
  bool isAnswer = frame->kind == Kind::Value || frame->kind == Kind::Missing ||
                  frame->kind == Kind::Error;
  if (!isAnswer)
    return dataLoss("it sent malformed data");
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

/// Ends the connection, which may have lost bytes.
void TcpStore::giveUp(const Status &status) {
  fail(status);
  reportFailure(status);
  end();
}

void TcpStore::end() {
  ::shutdown(socket.get(), SHUT_RDWR);
  {
    std::lock_guard<std::mutex> lock(mutex);
    hasEnded = true;
  }
  changed.notify_all();
}

void TcpStore::receive() {
  std::string key, value;
  for (;;) {
    Status status = receiveFrame(&key, &value);
    if (status.isOk())
      continue;
    const Status known =
        options.ownServer ? options.ownServer->failure() : Status::ok();
    {
      // A failed send says more than the disconnection that it caused.
      std::lock_guard<std::mutex> lock(mutex);
      if (!breakage.isOk())
        status = breakage;
    }
    fail(known.isOk() ? lossOfRankZero(status) : known);
    return end();
  }
}
