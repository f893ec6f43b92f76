// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Joins the job, owns the control connection and the device, and keeps the
// first failure, after which nothing works any more. Modules are in module.h.

#pragma once

#include "backend/backend_store.h"
#include "job/bootstrap.h"
#include "job/node.h"
#include "job/store_collectives.h"
#include "store/store_server.h"
#include "store/tcp_store.h"
#include "trace/observer.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

struct ddphook_module;

namespace ddphook {

class Context {
public:
  /// Joins the job; collective.
  static Status create(const Bootstrap &place,
                       std::unique_ptr<Context> *context);

  /// Leaves the job. Rank 0 waits for the others, at most until the deadline,
  /// because they may still need its store.
  ~Context();

  int rank() const { return place.rank; }
  int worldSize() const { return place.worldSize; }
  double timeoutSeconds() const { return place.timeoutSeconds; }
  const std::string &runId() const { return place.runId; }
  const std::vector<NodeIdentity> &allNodes() const { return nodes; }

  Status barrier();
  Status broadcast(void *data, size_t bytes, int root);

  /// All-gathers with all ranks, in program order. Failures are final.
  Status allGather(const std::string &what, const std::string &mine,
                   std::vector<std::string> *all);

  /// Agrees on work that every rank does alone, but that counts only if it
  /// succeeds on all ranks; collective. Returns `mine` if that is a failure,
  /// and ABORTED, "rank n could not `task`: …", if only others failed; neither
  /// harms the context. A failure to reach the others is final. On success
  /// `all` has every rank's `payload`.
  Status agree(const std::string &what, const char *task, const Status &mine,
               const std::string &payload, std::vector<std::string> *all);

  const ddphook_backend_t &backend() const { return *backendTable; }
  ddphook_device_t *device() const { return openDevice; }
  const ddphook_backend_store_t &storeTable() const { return table; }

  /// Calls a function of the backend for the device.
  template <typename... Parameters, typename... Arguments>
  Status
  call(ddphook_status_t (*ddphook_backend_t::*function)(ddphook_device_t *,
                                                        Parameters...),
       Arguments... arguments) const {
    ddphook_backend_error_t message = {};
    return fromBackendError(
        (backendTable->*function)(openDevice, arguments..., &message), message);
  }

  /// Returns 32 bytes that only this job's ranks can know and that differ for
  /// every `use`; empty in a world of one.
  std::string proofKey(const std::string &use) const;

  /// Runs all work on the caller's queue, or on the device's own again.
  Status setStream(void *stream);
  bool hasCallersStream() const { return isOnCallersStream; }
  /// Waits for the device. Failures are final.
  Status synchronize();

  /// Returns true in a child of the process that created the context. The child
  /// has neither its threads nor its device.
  bool isForked() const { return forks != forkCount.load(); }

  /// Returns true if failure() is not OK. Fast.
  bool hasFailed() const {
    return failed.load(std::memory_order_acquire) || isForked();
  }
  /// Returns the failure after which the context can only be destroyed.
  Status failure() const;

  /// Records a failure of this rank as final and notifies the other ranks.
  /// Returns the failure to report: the one that happened first on any rank.
  Status fail(Status status);

  /// Calls fail() for statuses after which peers may be out of step; returns
  /// others unchanged.
  Status failIfFinal(Status status);

  /// Runs `function`, which returns a Status and is a part of what all ranks
  /// do. An exception is final, because this rank is then out of step.
  template <typename Function>
  Status failIfThrown(Function &&function) {
    bool hasReturned = false;
    Status status = withoutExceptions([&] {
      Status result = function();
      hasReturned = true;
      return result;
    });
    return hasReturned ? status : fail(std::move(status));
  }

  /// The same in a step; if ranks may have diverged, says where each one is.
  Status failInStep(Status status);

  trace::Recorder &recorder() { return observer.recorder(); }
  trace::Observer &observed() { return observer; }

  /// Returns a different number for every module that is loaded.
  int64_t nextModuleNumber() { return moduleNumber++; }

  std::vector<std::unique_ptr<ddphook_module>> modules;

private:
  explicit Context(const Bootstrap &place);
  /// If all ranks of a machine wait for the same, only one of them logs it.
  bool tellsWaits() const { return place.localRank == 0; }
  Deadline deadline() const { return Deadline::after(place.timeoutSeconds); }
  Status enter();
  Status join();
  /// Does the same as fail(), but waits `seconds` for the cause.
  Status failHearing(Status status, double seconds);
  /// Adds to a step's failure where each rank is.
  Status explainDivergence(const Status &status);
  Status openBackend();
  /// Sends rank 0 the part of this rank's trace that rank 0 cannot read.
  void sendTrace(bool isFarewell);
  Status exchangeNodes();
  Status latch(const Status &status, bool tellOthers);

  const unsigned forks = forkCount.load();
  const Bootstrap place;
  std::unique_ptr<StoreServer> server;
  std::unique_ptr<Store> store;
  TcpStore *control = nullptr; // `store`, unless the job has one rank
  ddphook_backend_store_t table = {};
  std::unique_ptr<StoreCollectives> collectives;
  std::vector<NodeIdentity> nodes;
  int threads = 1;

  const ddphook_backend_t *backendTable = nullptr;
  ddphook_device_t *openDevice = nullptr;

  bool isOnCallersStream = false;

  trace::Observer observer;

  int64_t moduleNumber = 0;

  std::atomic<bool> failed{false};
  mutable std::mutex failureMutex;
  Status finalFailure;
};

} // namespace ddphook
