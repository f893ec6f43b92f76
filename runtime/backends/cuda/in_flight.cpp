// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives run on one stream, so they end in the order of their tickets, and
// only the oldest must be polled.

#include "in_flight.h"

#include "base/collective.h"
#include "base/dtype.h"
#include "cuda_error.h"
#include "thread_state.h"

using namespace ddphook;
using namespace ddphook::cuda;

/// The number of collectives in flight, more than the largest networks have
/// buckets per step; the next one waits until the oldest has ended.
static constexpr size_t poolSize = 256;

InFlight::~InFlight() {
  for (const std::unique_ptr<Collective> &collective : all) {
    if (collective->begin)
      (void)cudaEventDestroy(collective->begin);
    if (collective->end)
      (void)cudaEventDestroy(collective->end);
  }
}

Status InFlight::create() {
  for (size_t i = 0; i < poolSize; ++i) {
    auto collective = std::make_unique<Collective>();
    Collective *created = collective.get();
    all.push_back(std::move(collective));
    for (cudaEvent_t *event : {&created->begin, &created->end})
      DDPHOOK_TRY(
          toStatus(cudaEventCreateWithFlags(event, cudaEventDisableTiming),
                   "creating an event"));
    unused.push_back(created);
  }
  return Status::ok();
}

Collective *InFlight::take(bool isCapturing) {
  std::lock_guard<std::mutex> lock(mutex);
  // A capture that ended without waiting for its collectives failed, and
  // nothing refers to their events any more.
  if (!isCapturing)
    releaseCaptured(INT64_MAX);
  if (unused.empty())
    return nullptr;
  Collective *collective = unused.back();
  unused.pop_back();
  collective->deadline.reset();
  collective->isWaited = false;
  return collective;
}

void InFlight::releaseCaptured(int64_t ticket) {
  while (!captured.empty() && captured.front()->ticket <= ticket) {
    unused.push_back(captured.front());
    captured.pop_front();
  }
}

/// Returns the last collective up to `ticket` that has not ended and that
/// nobody has waited for, or null. A capture must not wait again for a
/// collective that was started before it.
Collective *InFlight::find(int64_t ticket) {
  Collective *found = nullptr;
  for (const std::deque<Collective *> *list : {&pending, &captured})
    for (Collective *collective : *list)
      if (collective->ticket <= ticket && !collective->isWaited &&
          (!found || collective->ticket > found->ticket))
        found = collective;
  return found;
}

Status InFlight::wait(int64_t ticket, cudaStream_t stream) {
  std::lock_guard<std::mutex> lock(mutex);
  if (ticket < 1 || ticket > started)
    return invalid("expected a ticket from 1 to %lld, but got %lld",
                   static_cast<long long>(started),
                   static_cast<long long>(ticket));
  if (Collective *last = find(ticket)) {
    DDPHOOK_TRY(toStatus(cudaStreamWaitEvent(stream, last->end, 0),
                         "waiting for a collective"));
    const bool isCaptured =
        !captured.empty() && last->ticket >= captured.front()->ticket;
    for (Collective *each : isCaptured ? captured : pending)
      each->isWaited = each->isWaited || each->ticket <= ticket;
  }
  releaseCaptured(ticket);
  return Status::ok();
}

/// Returns "all-reduce 7 (1000 f32 as f16) of process group 'dp'".
static std::string describe(const Collective &collective) {
  const CollectiveOperation operation = collective.operation;
  std::string text = describeCollective(operation.collectiveKind()) + " " +
                     std::to_string(collective.ticket) + " (" +
                     std::to_string(operation.count) + " " +
                     dtypeName(operation.type());
  if (auto wire = operation.wire())
    text += std::string(" as ") + dtypeName(*wire);
  return text + ") of " + *collective.group;
}

Status InFlight::poll(double timeoutSeconds) {
  std::lock_guard<std::mutex> lock(mutex);
  while (!pending.empty()) {
    Collective *oldest = pending.front();
    cudaError_t state = queryEvent(oldest->end);
    if (state == cudaSuccess) {
      pending.pop_front();
      unused.push_back(oldest);
      ++ended;
      continue;
    }
    if (state != cudaErrorNotReady)
      return toStatus(state, describe(*oldest).c_str());
    // A collective that waits for the caller's kernels is not late: its peers
    // may be waiting for theirs, too.
    if (!oldest->deadline && queryEvent(oldest->begin) == cudaSuccess)
      oldest->deadline = Deadline::after(timeoutSeconds);
    if (oldest->deadline && oldest->deadline->expired())
      return error(DDPHOOK_DEADLINE_EXCEEDED, "%s did not end within %g s",
                   describe(*oldest).c_str(), timeoutSeconds);
    break;
  }
  return Status::ok();
}
