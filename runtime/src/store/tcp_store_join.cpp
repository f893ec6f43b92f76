// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Connects to rank 0, trying its addresses in order until one of them welcomes
// this rank.

#include "base/wait_scope.h"
#include "ddphook/runtime/compiled.h"
#include "store/store_protocol.h"
#include "store/store_server.h"
#include "store/tcp_store.h"

#include <algorithm>
#include <optional>
#include <vector>

using namespace ddphook;
using namespace ddphook::wire;

/// How long an address may at first, and at most, take to answer as a store.
static constexpr double firstPatience = 2, longestPatience = 8;

/// Receives the answer to the Hello; `token` comes with a welcome.
static Status receiveWelcome(int socket, const Deadline &deadline,
                             bool *isFinal, std::string *token) {
  char header[Frame::headerSize];
  DDPHOOK_TRY(receiveAll(socket, header, sizeof(header), deadline));
  std::optional<Frame> frame =
      Frame::decodeHeader(std::string_view(header, sizeof(header)));
  if (!frame || frame->keySize != 0)
    return error(DDPHOOK_IO_ERROR, "it sent malformed data");
  std::string value(frame->valueSize, '\0');
  DDPHOOK_TRY(receiveAll(socket, value.data(), value.size(), deadline));
  if (frame->kind == Kind::Reject) {
    *isFinal = frame->id == 0;
    return decodeStatus(value);
  }
  if (frame->kind != Kind::Welcome || value.size() != tokenSize)
    return error(DDPHOOK_IO_ERROR, "it sent malformed data");
  *token = value;
  return Status::ok();
}

/// Tries once to join at `address`, where a store has to answer until `answer`.
/// Sets `isFinal` if another attempt cannot end differently.
static Status tryToJoin(const TcpStore::Options &options,
                        const std::string &address, const Deadline &answer,
                        const Deadline &deadline, FileDescriptor *socket,
                        std::string *session, bool *isFinal) {
  DDPHOOK_TRY(connectOnce(address, options.port, answer, socket));
  setControlOptions(socket->get());
  const Hello hello = {
      DDPHOOK_ABI_VERSION, static_cast<uint32_t>(options.worldSize),
      static_cast<uint32_t>(options.rank), hashRunId(options.runId)};
  Credentials credentials = storeCredentials(options.secret);
  // A store speaks first. Once it has, it may count on this rank.
  Status proved = waitToReceive(socket->get(), answer);
  if (proved.isOk())
    proved = proveOn(socket->get(), credentials, hello.encode(), deadline);
  if (proved.code() == DDPHOOK_BAD_ENVIRONMENT)
    return proved;
  DDPHOOK_TRY(withContext(proved, "it did not answer as a ddphook store"));
  std::string token;
  DDPHOOK_TRY(receiveWelcome(socket->get(), deadline, isFinal, &token));
  *session = deriveKey(credentials.key, token);
  return Status::ok();
}

/// Returns "node7:29500" or "port 29500 of 10.0.0.1, 10.1.0.1".
static std::string describePlace(const TcpStore::Options &options) {
  if (options.hosts.size() == 1)
    return endpointName(options.hosts[0], options.port);
  std::string text = "port " + std::to_string(options.port);
  for (size_t i = 0; i < options.hosts.size(); ++i)
    text += (i == 0 ? " of " : ", ") + options.hosts[i];
  return text;
}

namespace {

/// The addresses of rank 0, and the failure of each.
class Candidates {
public:
  struct Candidate {
    std::string address;
    Status cause;
  };

  /// Looks the names up again, because they may change.
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
        return (*store)->start();
      }
      // If descriptors or memory ran out, trying again cannot help.
      if (isFinal || status.code() == DDPHOOK_RESOURCE_EXHAUSTED)
        return status;
      // An attempt that was cut short says less than earlier ones. A refusal
      // says more than all others, because rank 0 may have given up since.
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
      return badEnvironment("rank %d may not join rank 0 at %s: %s",
                            options.rank, place.c_str(),
                            candidates.describe().c_str());
    if (isLast)
      return deadlineExceeded(
          "rank %d could not join rank 0 at %s within %g s: %s", options.rank,
          place.c_str(), options.timeoutSeconds, candidates.describe().c_str());
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    pause = std::min(pause * 1.5, 0.2);
    patience = std::min(2 * patience, longestPatience);
  }
}

Status TcpStore::attach(const Options &options, StoreServer &server,
                        std::unique_ptr<TcpStore> *store) {
  FileDescriptor socket;
  std::string token;
  DDPHOOK_TRY(server.connectRankZero(&socket, &token));
  store->reset(
      new TcpStore(options, std::move(socket),
                   deriveKey(storeCredentials(options.secret).key, token)));
  return (*store)->start();
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
  DDPHOOK_TRY(
      findAbsent(*this, options.worldSize, StoreServer::joinedKey, &absent));
  // The last ranks have joined since, for instance while this one was stopped.
  if (absent.empty())
    return Status::ok();
  std::string names = listRanks(absent), refused;
  Status look = get(StoreServer::refusedKey(), Deadline::after(0), &refused);
  if (look.isOk())
    names += "; connections that lacked the job's secret: " + refused;
  else if (look.code() != DDPHOOK_DEADLINE_EXCEEDED)
    return look; // Another rank was faster and has reported all this.
  return deadlineExceeded("%zu of %d ranks did not join within %g s: rank %s",
                          absent.size(), options.worldSize,
                          options.timeoutSeconds, names.c_str());
}
