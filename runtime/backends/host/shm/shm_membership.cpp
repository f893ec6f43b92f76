// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "shm_membership.h"

#include "base/file_descriptor.h"
#include "base/wait_scope.h"
#include "trace/ring.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace ddphook;
using namespace ddphook::host;

PeerMonitor::~PeerMonitor() {
  for (int file : files)
    if (file >= 0)
      close(file);
}

Status PeerMonitor::watch(const std::vector<pid_t> &pids,
                          const GroupPlace &place) {
  files.assign(pids.size(), -1);
  for (size_t rank = 0; rank < pids.size(); ++rank) {
    if (pids[rank] == getpid())
      continue;
    files[rank] = aboveStandard(syscall(SYS_pidfd_open, pids[rank], 0));
    if (files[rank] >= 0)
      continue;
    if (errno == ESRCH)
      return peerLost("%s (process %ld) died", place.nameOf(rank).c_str(),
                      static_cast<long>(pids[rank]));
    if (errno == ENOSYS || errno == EPERM)
      return unsupported("cannot watch other processes with pidfd_open: %s",
                         std::strerror(errno));
    return systemError(errno, "cannot watch process %ld",
                       static_cast<long>(pids[rank]));
  }
  return Status::ok();
}

bool PeerMonitor::hasDied(int rank) const {
  int file = files[rank];
  pollfd request{file, POLLIN, 0};
  return file >= 0 && poll(&request, 1, 0) > 0;
}

ShmMembership::~ShmMembership() {
  if (joined)
    mine().left.store(1, std::memory_order_release);
}

//===----------------------------------------------------------------------===//
// Failures.
//===----------------------------------------------------------------------===//

void ShmMembership::tellOthers(const Status &status) {
  std::lock_guard<std::mutex> lock(tellMutex);
  if (toldOthers)
    return;
  toldOthers = true;
  std::snprintf(mine().failure, sizeof(mine().failure), "%s",
                status.message().c_str());
  int32_t none = 0;
  segment.header().failedRank.compare_exchange_strong(
      none, rank + 1, std::memory_order_acq_rel);
}

bool ShmMembership::fail(Status status) {
  latched = std::move(status);
  if (joined)
    tellOthers(latched);
  return false;
}

bool ShmMembership::hasFailed() {
  if (!latched.isOk())
    return true;
  if (joiningAborted && joiningAborted->load(std::memory_order_relaxed))
    abort();
  if (abortedHere.load(std::memory_order_relaxed)) {
    latched = error(DDPHOOK_ABORTED, "the group was aborted on this rank");
    return true;
  }
  if (!joined)
    return false;
  int32_t failed = segment.header().failedRank.load(std::memory_order_acquire);
  if (failed == 0)
    return false;
  latched = error(DDPHOOK_ABORTED, "%s failed first: %s",
                  place.nameOf(failed - 1).c_str(),
                  segment.control(failed - 1).failure);
  return true;
}

void ShmMembership::abort() {
  abortedHere.store(true, std::memory_order_relaxed);
  if (joined)
    tellOthers(Status(DDPHOOK_ABORTED, "the group was aborted there"));
}

//===----------------------------------------------------------------------===//
// Waiting.
//===----------------------------------------------------------------------===//

bool ShmMembership::allReached(Counter kind, uint64_t goal) const {
  return forPeers([&](int peer) {
    return counter(kind, peer).load(std::memory_order_acquire) >= goal;
  });
}

std::string ShmMembership::describeWait(int peer) const {
  return place.describeWait(place.nameOf(peer)) + " in shared memory";
}

bool ShmMembership::awaitAll(Counter kind, uint64_t goal) {
  return forPeers([&](int peer) { return await(kind, goal, peer); });
}

bool ShmMembership::await(Counter kind, uint64_t goal, int peer) {
  auto reached = [&] {
    return counter(kind, peer).load(std::memory_order_acquire) >= goal;
  };
  trace::PeerWait recorded;
  const Deadline::Clock::time_point start = Deadline::Clock::now();
  // Ranks that share a processor must hand it to each other. Among themselves
  // they yield some hundred times here, but next to other programs only once or
  // twice: a yield forfeits a time slice, and newer kernels remember that, so
  // that a rank that yields often runs seconds later.
  constexpr std::chrono::microseconds yieldTime(100);
  do {
    if (reached())
      return true;
    if (hasFailed())
      return false;
    sched_yield();
  } while (Deadline::Clock::now() - start < yieldTime);
  WaitScope scope([&] { return describeWait(peer); }, true, start);
  for (;;) {
    WaitScope::poll();
    if (reached())
      return true;
    if (hasFailed())
      return false;
    // A rank's work before it died or left still counts, so check once more.
    if (segment.control(peer).left.load(std::memory_order_acquire))
      return reached() ||
             fail(peerLost("%s left the group", place.nameOf(peer).c_str()));
    if (monitor.hasDied(peer))
      return reached() ||
             fail(peerLost("%s (process %d) died", place.nameOf(peer).c_str(),
                           segment.control(peer).pid.load()));
    if (deadline.expired())
      return reached() || fail(place.lateness(peer, timeoutSeconds));
    // Poll long waits less often, at a cost of about 1 % of the wait.
    std::this_thread::sleep_for(std::clamp<std::chrono::nanoseconds>(
        (Deadline::Clock::now() - start) / 100, std::chrono::microseconds(50),
        std::chrono::milliseconds(1)));
  }
}

//===----------------------------------------------------------------------===//
// Joining.
//===----------------------------------------------------------------------===//

namespace {

/// Encodes a status as the value of a key; `detail` accompanies success.
std::string encodeStatus(const Status &status, const std::string &detail) {
  return concat(status.code(), " ", status.isOk() ? detail : status.message());
}

Status decodeStatus(const std::string &text, std::string *detail) {
  size_t space = text.find(' ');
  if (space == std::string::npos)
    return internalError("expected a status, but got '%s'", text.c_str());
  auto code = static_cast<ddphook_status_t>(std::atoi(text.c_str()));
  *detail = text.substr(space + 1);
  return code == DDPHOOK_OK ? Status::ok() : Status(code, *detail);
}

} // namespace

/// Gets what rank `peer`, or rank 0 for all, has set.
Status ShmMembership::getFrom(int peer, Store &store, const std::string &key,
                              std::string *text) {
  WaitScope scope([&] { return describeWait(peer); });
  return place.getFrom(peer, store, key, deadline, timeoutSeconds, text);
}

/// Every rank waits for every other rank's success: if one fails, all do.
Status ShmMembership::exchangeSegment(Store &store, const std::string &key) {
  Status own;
  std::string address, text;
  if (rank == 0) {
    own = segment.create(size, &address);
    DDPHOOK_TRY(store.set(key + "/segment", encodeStatus(own, address)));
  } else {
    DDPHOOK_TRY(getFrom(0, store, key + "/segment", &text));
    own = withContext(decodeStatus(text, &address), place.nameOf(0));
    if (own.isOk())
      own = segment.open(size, address);
  }
  if (own.isOk())
    own = segment.reserve(rank);
  DDPHOOK_TRY(store.set(concat(key, "/rank", rank),
                        encodeStatus(own, std::to_string(getpid()))));
  DDPHOOK_TRY(own);
  std::vector<pid_t> pids;
  for (int peer = 0; peer < size; ++peer) {
    std::string pid;
    DDPHOOK_TRY(getFrom(peer, store, concat(key, "/rank", peer), &text));
    DDPHOOK_TRY(withContext(decodeStatus(text, &pid), place.nameOf(peer)));
    pids.push_back(static_cast<pid_t>(std::atol(pid.c_str())));
  }
  segment.finish();
  mine().pid.store(getpid());
  joined = true;
  return monitor.watch(pids, place);
}

bool ShmMembership::barrier() {
  set(&RankControl::barrier, ++barriers);
  return awaitAll(&RankControl::barrier, barriers);
}

Status ShmMembership::join(Store &store, const std::string &key,
                           const std::atomic<bool> *isAborted) {
  if (size == 1)
    return Status::ok();
  deadline = Deadline::after(innerSeconds(timeoutSeconds));
  joiningAborted = isAborted;
  Status exchanged = exchangeSegment(store, key);
  if (!exchanged.isOk()) {
    fail(exchanged);
    return exchanged;
  }
  // A rank that reaches the second barrier was alive when all had opened its
  // pidfd, so no pidfd can refer to a later process with the same ID.
  if (!barrier() || !barrier())
    return latched;
  joiningAborted = nullptr;
  store.erase(concat(key, "/rank", rank)).ignore();
  if (rank == 0)
    store.erase(key + "/segment").ignore();
  return Status::ok();
}
