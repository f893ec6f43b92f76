// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "job/context.h"

#include "backend/backend_loader.h"
#include "base/log.h"
#include "base/packed_texts.h"
#include "job/processors.h"
#include "job/rendezvous.h"
#include "job/settings.h"
#include "module/module.h"
#include "store/handshake.h"
#include "trace/divergence.h"

#include <algorithm>

using namespace ddphook;

/// How long a rank whose deadline has passed waits to learn where the others
/// are. Running ranks answer within milliseconds, unless the machine has many
/// more threads than processors.
static constexpr double inquirySeconds = 0.7;
/// How long a rank that saw a connection break waits to learn which rank was
/// lost, or a rank that learned of a failure waits for its cause. It usually
/// takes a millisecond; in a step another rank may inquire first.
static constexpr double verdictSeconds = 0.25;
/// How long rank 0 of a failed job waits for the others' traces.
static constexpr double traceSeconds = 0.3;
/// The same if ranks send their traces because there is no common directory. It
/// is also how long a rank tries to send one: the second value if it ends well.
static constexpr double deliverySeconds = 1;
static constexpr double patientDeliverySeconds = 30;
/// How long rank 0 of a failed job keeps its store, so that ranks learn of it.
static constexpr double farewellSeconds = 1;
/// The most time from the deadline of a step until a failed rank has destroyed
/// its context, whatever the others do. Its own computations do not count. The
/// waits of the destructor run at the same time.
static constexpr double mostSecondsAfterDeadline = 2;
static_assert(inquirySeconds + verdictSeconds +
                      std::max({traceSeconds, deliverySeconds,
                                farewellSeconds}) <
                  mostSecondsAfterDeadline,
              "a failed rank may not outlive its deadline by more");

Context::Context(const Bootstrap &place)
    : place(place), observer(place.observation, place.rank, place.worldSize) {}

Status Context::create(const Bootstrap &place,
                       std::unique_ptr<Context> *context) {
  std::unique_ptr<Context> result(new Context(place));
  // Load it before joining: a wrong name must not let ranks wait.
  DDPHOOK_TRY(loadBackend(place.backend, &result->backendTable));
  if (!FileDescriptor::watchForks())
    return Status::outOfMemory();
  Status status = withoutExceptions([&] { return result->enter(); });
  if (!status.isOk())
    return result->fail(std::move(status));
  *context = std::move(result);
  return Status::ok();
}

Status Context::enter() {
  DDPHOOK_TRY(join());
  DDPHOOK_TRY(exchangeNodes());
  DDPHOOK_TRY(openBackend());
  // No rank may continue while another one could not open its device.
  return collectives->barrier("ddphook_context_create", deadline());
}

Status Context::join() {
  if (place.worldSize == 1) {
    store = std::make_unique<MemoryStore>();
  } else {
    const Deadline end = deadline();
    StoreAddress address = {
        {place.masterAddress}, place.masterPort, place.secret};
    std::optional<Rendezvous> rendezvous;
    if (place.hostStore) {
      rendezvous.emplace(place, end, tellsWaits());
      DDPHOOK_TRY(place.rank == 0 ? rendezvous->choose(&address)
                                  : rendezvous->find(&address));
    }
    if (place.rank == 0) {
      DDPHOOK_TRY(StoreServer::start(
          {address.hosts[0], address.port, place.worldSize,
           /*hasRankZero=*/true, place.runId, address.secret},
          &server,
          Deadline::after(
              std::min(StoreServer::takeoverSeconds, place.timeoutSeconds))));
      address.port = server->port();
      if (rendezvous)
        DDPHOOK_TRY(rendezvous->publish(&address));
    }
    const TcpStore::Options options = {
        address.hosts,        address.port, place.rank,
        place.worldSize,      place.runId,  address.secret,
        place.timeoutSeconds, tellsWaits(), server.get()};
    std::unique_ptr<TcpStore> connected;
    DDPHOOK_TRY(server ? TcpStore::attach(options, *server, &connected)
                       : TcpStore::connect(options, end, &connected));
    control = connected.get();
    store = std::move(connected);
    DDPHOOK_TRY(control->waitForAll(end));
  }
  table = toBackendStore(*store);
  collectives = std::make_unique<StoreCollectives>(
      *store, "exchange/", place.rank, place.worldSize, tellsWaits());
  return Status::ok();
}

std::string Context::proofKey(const std::string &use) const {
  return control ? deriveKey(control->sessionKey(), use) : "";
}

Status Context::exchangeNodes() {
  NodeIdentity mine;
  DDPHOOK_TRY(identifyNode(place.nodeOverride, &mine));
  std::vector<std::string> all;
  DDPHOOK_TRY(collectives->allGather(
      "ddphook_context_create (settings, nodes)",
      packTexts({printSettings(place, *backendTable),
                 packTexts({mine.node, mine.memoryDomain,
                            ownProcessors().toText(), observer.introduce()})}),
      deadline(), &all));
  // Compare settings first: another version may encode the rest differently.
  std::vector<std::string> settings;
  for (std::string &text : all) {
    std::vector<std::string> texts = unpackTexts(text);
    texts.resize(2);
    settings.push_back(std::move(texts[0]));
    text = std::move(texts[1]);
  }
  Status differ = compareSettings(settings);
  if (!differ.isOk()) {
    // Every rank finds the difference itself, unless the job fails before it
    // has the settings.
    collectives
        ->barrier("ddphook_context_create (different settings)", deadline())
        .ignore();
    return differ;
  }
  std::vector<ProcessorSet> neighbours;
  std::vector<std::string> introductions;
  size_t self = 0;
  for (const std::string &text : all) {
    const std::vector<std::string> texts = unpackTexts(text);
    std::optional<ProcessorSet> processors;
    if (texts.size() == 4)
      processors = ProcessorSet::parse(texts[2]);
    if (!processors)
      return dataLoss("a rank sent a malformed identity");
    if (nodes.size() == static_cast<size_t>(place.rank))
      self = neighbours.size();
    nodes.push_back({texts[0], texts[1]});
    if (nodes.back().node == mine.node)
      neighbours.push_back(*processors);
    introductions.push_back(texts[3]);
  }
  threads = place.threads > 0
                ? place.threads
                : threadShare(neighbours, self, processorQuota(readSmallFile));
  observer.begin(introductions, place.runId, [this](int64_t *time) {
    return control->serverTime(deadline(), time);
  });
  if (control)
    control->onInquiry([this] {
      return trace::findWhereabouts(observer.recorder()).encode();
    });
  return Status::ok();
}

Status Context::openBackend() {
  if (observer.measuresErrors() && !backendTable->sum_squares)
    log(LogLevel::Warn, "metrics have no errors of compression, because the "
                        "backend '" +
                            std::string(backendTable->name) +
                            "' cannot measure them");
  std::string address;
  if (server)
    address = server->reachedAddress();
  else if (control)
    DDPHOOK_TRY(control->findOwnAddress(&address));
  // Ranks of one machine may have connected to different loopback addresses.
  if (isLoopbackAddress(address))
    address = loopbackAddress();
  ddphook_device_config_t config = {};
  config.struct_size = sizeof(config);
  config.local_rank = place.localRank;
  config.transport = place.transport.c_str();
  config.local_address = address.c_str();
  config.timeout_s = place.timeoutSeconds;
  config.threads = threads;
  config.options = place.backendOptions.c_str();
  config.allocator = place.allocator ? &*place.allocator : nullptr;
  ddphook_backend_error_t message = {};
  DDPHOOK_TRY(fromBackendError(
      backendTable->device_create(&config, &openDevice, &message), message));
  if (control)
    control->onFailure([this](const Status &status) {
      latch(status, /*tellOthers=*/false).ignore();
    });
  return Status::ok();
}

Context::~Context() {
  modules.clear();
  // The thread that learned of a failure may not have done this yet.
  if (hasFailed())
    observer.fail(failure().message());
  observer.close();
  bool isFarewell = !hasFailed();
  if (control)
    sendTrace(isFarewell);
  if (control && isFarewell)
    control->leave();
  collectives.reset();
  // Ends the thread that calls latch(), and with it the last use of the device.
  store.reset();
  const Deadline farewell = Deadline::after(
      isFarewell ? place.timeoutSeconds
                 : std::min(farewellSeconds, place.timeoutSeconds));
  // Merge first: a launcher may kill rank 0 before the farewell is over.
  if (server && !isFarewell && observer.isTracing())
    server->finish(Deadline::after(
        std::min(observer.lacksParts() ? deliverySeconds : traceSeconds,
                 place.timeoutSeconds)));
  // Without memory the parts of the trace remain.
  auto merge = [&] {
    ignoreExceptions([&] {
      observer.merge(server ? server->mailbox().take()
                            : std::map<int, std::string>());
    });
  };
  if (!isFarewell)
    merge();
  if (server)
    server->finish(farewell);
  if (openDevice)
    backendTable->device_destroy(openDevice);
  if (isFarewell)
    merge();
}

void Context::sendTrace(bool isFarewell) {
  Status status = withoutExceptions([&] {
    const std::string part = observer.pack();
    if (part.empty())
      return Status::ok();
    const double seconds =
        isFarewell ? patientDeliverySeconds : deliverySeconds;
    observer.deliver(control->deliver(
        part, Deadline::after(std::min(seconds, place.timeoutSeconds))));
    return Status::ok();
  });
  // Without memory the part remains where it is.
  status.ignore();
}

Status Context::failure() const {
  if (isForked())
    return failedPrecondition(
        "this process was forked from rank %d after the context was "
        "created; only that rank's process can use it",
        place.rank);
  std::lock_guard<std::mutex> lock(failureMutex);
  return finalFailure;
}

/// Records `status` unless another failure came first, and returns the first
/// one. With `tellOthers`, reports it before it aborts the device, whose
/// transports notify their peers, but without the reason.
Status Context::latch(const Status &status, bool tellOthers) {
  if (isForked())
    return failure();
  {
    std::lock_guard<std::mutex> lock(failureMutex);
    if (!finalFailure.isOk())
      return finalFailure;
    finalFailure = status;
    failed.store(true, std::memory_order_release);
  }
  if (control && tellOthers)
    control->reportFailure(status);
  else if (server && tellOthers)
    server->fail(status);
  if (openDevice)
    backendTable->abort(openDevice, status.code(), status.message().c_str());
  observer.fail(status.message());
  return status;
}

Status Context::fail(Status status) {
  return failHearing(std::move(status), verdictSeconds);
}

/// Adds what is known to a failure without a known cause: which rank has left
/// in good order, or that rank 0 does not answer.
static Status explain(const Status &status, const TcpStore::Verdict &verdict,
                      double seconds) {
  std::string more;
  if (verdict.isServerSilent && seconds >= inquirySeconds)
    more = trace::describeSilence(std::nullopt, /*rank=*/-1);
  if (!verdict.departure.empty() &&
      status.message().find(" left the ") == std::string::npos)
    more = verdict.departure;
  return more.empty() ? status
                      : Status(status.code(), status.message() + ": " + more);
}

Status Context::failHearing(Status status, double seconds) {
  // A broken connection or an aborted transport does not say who failed and
  // why; the control connection does.
  bool isSecondHand =
      status.code() == DDPHOOK_PEER_LOST || status.code() == DDPHOOK_ABORTED;
  if (control && isSecondHand && !hasFailed())
    status = withoutExceptions([&] {
      const TcpStore::Verdict verdict = control->verdictWithin(seconds);
      return verdict.failure.isOk() ? explain(status, verdict, seconds)
                                    : verdict.failure;
    });
  return latch(status, /*tellOthers=*/true);
}

/// True if a failure may mean that ranks have diverged.
static bool mayHaveDiverged(ddphook_status_t code) {
  return code == DDPHOOK_DEADLINE_EXCEEDED || code == DDPHOOK_PLAN_MISMATCH ||
         code == DDPHOOK_FAILED_PRECONDITION;
}

Status Context::failInStep(Status status) {
  if (!control || hasFailed() || !recorder().part() ||
      !mayHaveDiverged(status.code()))
    return failHearing(std::move(status), inquirySeconds + verdictSeconds);
  return fail(withoutExceptions([&] { return explainDivergence(status); }));
}

Status Context::explainDivergence(const Status &status) {
  TcpStore::Answers answers;
  Status asked = control->inquire(Deadline::after(inquirySeconds), &answers);
  // Another rank was faster and has reported the reason.
  if (!asked.isOk() && hasFailed())
    return failure();
  std::vector<std::optional<trace::Whereabouts>> ranks;
  for (const std::optional<std::string> &answer : answers.ofRanks)
    ranks.push_back(answer ? trace::Whereabouts::decode(*answer)
                           : std::nullopt);
  const std::string where = answers.isServerSilent
                                ? trace::describeSilence(ranks[rank()], rank())
                                : trace::describeDivergence(ranks);
  return where.empty() ? status
                       : Status(status.code(), status.message() + ": " + where);
}

Status Context::failIfFinal(Status status) {
  switch (status.code()) {
  case DDPHOOK_OK:
  case DDPHOOK_INVALID_ARGUMENT:
  case DDPHOOK_FAILED_PRECONDITION:
  case DDPHOOK_UNSUPPORTED:
  case DDPHOOK_BAD_ENVIRONMENT:
  case DDPHOOK_PLAN_MISMATCH:
    return status;
  default:
    return fail(std::move(status));
  }
}

Status Context::allGather(const std::string &what, const std::string &mine,
                          std::vector<std::string> *all) {
  DDPHOOK_TRY(failure());
  return failIfFinal(collectives->allGather(what, mine, deadline(), all));
}

/// One all-gather of texts: "+" and the payload of a rank that succeeded, or
/// "-" and the reason.
Status Context::agree(const std::string &what, const char *task,
                      const Status &mine, const std::string &payload,
                      std::vector<std::string> *all) {
  DDPHOOK_TRY(allGather(what,
                        mine.isOk()
                            ? "+" + payload
                            : "-" + mine.message() + " (" +
                                  ddphook_status_name(mine.code()) + ")",
                        all));
  DDPHOOK_TRY(mine);
  for (size_t rank = 0; rank < all->size(); ++rank) {
    std::string &text = (*all)[rank];
    const bool isSuccess = !text.empty() && text[0] == '+';
    text.erase(0, 1);
    if (!isSuccess)
      return error(DDPHOOK_ABORTED, "rank %zu could not %s: %s", rank, task,
                   text.c_str());
  }
  return Status::ok();
}

Status Context::setStream(void *stream) {
  DDPHOOK_TRY(failure());
  DDPHOOK_TRY(call(&ddphook_backend_t::stream_set, stream));
  isOnCallersStream = stream != nullptr;
  return Status::ok();
}

Status Context::synchronize() {
  DDPHOOK_TRY(failure());
  return failIfFinal(call(&ddphook_backend_t::synchronize));
}

Status Context::barrier() {
  std::vector<std::string> all;
  return allGather("ddphook_barrier", {}, &all);
}

Status Context::broadcast(void *data, size_t bytes, int root) {
  if (root < 0 || root >= place.worldSize)
    return invalid(
        "ddphook_broadcast: expected a root from 0 to %d, but got %d",
        place.worldSize - 1, root);
  std::string mine = concat(bytes, " bytes from rank ", root);
  std::vector<std::string> all;
  DDPHOOK_TRY(allGather("ddphook_broadcast", mine, &all));
  for (size_t other = 0; other < all.size(); ++other)
    if (all[other] != all[0])
      return invalid("ddphook_broadcast: rank 0 has %s, but rank %zu has %s",
                     all[0].c_str(), other, all[other].c_str());
  return failIfFinal(collectives->broadcast(static_cast<char *>(data), bytes,
                                            root, place.timeoutSeconds));
}
