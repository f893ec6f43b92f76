// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every wait for a peer ends at our deadline or when the job fails elsewhere. A
// non-blocking communicator never waits inside NCCL. A blocking one does, on
// the caller's thread, until another thread has it aborted. Joining a blocking
// one, and ending any, run on separate threads.

#pragma once

#include "base/collective.h"
#include "base/deadline.h"
#include "base/dtype.h"
#include "base/status.h"
#include "cuda_options.h"
#include "failure_latch.h"

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ddphook::cuda {

/// The maximum duration of an abort that waits only for NCCL.
inline constexpr double abortSeconds = 1;

/// The calls of one communicator that wait for peers. NCCL frees a communicator
/// even while a call uses it, so a thread that frees one waits here first, once
/// NCCL has been asked to end those calls. Any thread may use it.
class NcclCalls {
public:
  void begin() {
    std::lock_guard<std::mutex> lock(mutex);
    ++count;
  }
  void end() {
    std::lock_guard<std::mutex> lock(mutex);
    --count;
    changed.notify_all();
  }
  void waitForNone() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return count == 0; });
  }

private:
  std::mutex mutex;
  std::condition_variable changed;
  int count = 0;
};

/// A communicator, its name, to which NCCL keeps a pointer, and its calls in
/// progress.
struct NcclHandle {
  ncclComm_t communicator = nullptr;
  std::shared_ptr<const std::string> name;
  std::shared_ptr<NcclCalls> calls;
};

/// An abort of communicators in progress.
struct NcclAbort {
  /// Ready once NCCL has told the device's work to end.
  std::future<void> requested;
  /// Ready once NCCL has freed all of them.
  std::future<void> ended;
};

/// Aborts the communicators of one GPU together, each on a thread of its own.
/// NCCL tells a communicator's work to end, and then waits: for calls that may
/// be waiting for the work of another one, and until the device has finished.
NcclAbort abortTogether(const std::vector<NcclHandle> &handles, int device);

/// Logs that NCCL has not ended `what`, which continues in the background.
void logUnended(const std::string &what, bool isCaptured);

class NcclCommunicator {
public:
  /// Collective, on the current device. `ids` are the same on all ranks; the
  /// wait ends early when `failure` is set. After a failure `result` is what
  /// was created; destroying it notifies other ranks.
  static Status create(const std::vector<ncclUniqueId> &ids, int size, int rank,
                       const std::string &name, const CudaOptions &options,
                       const FailureLatch &failure, const Deadline &deadline,
                       std::unique_ptr<NcclCommunicator> *result);
  /// Aborts the communicator if it still exists.
  ~NcclCommunicator();

  /// Enqueues a collective on `stream` and waits until NCCL has done so. If
  /// arrays are cut into parts, every rank has one of `count` elements. Only a
  /// broadcast has a `root`.
  Status enqueue(CollectiveKind kind, const void *in, void *out, int64_t count,
                 Dtype dtype, cudaStream_t stream, const Deadline &deadline,
                 int root = 0);

  /// Returns an asynchronous failure of NCCL, or an error if a call has waited
  /// too long. Any thread may call it.
  Status asyncError();

  /// True if calls wait inside NCCL: another thread must poll asyncError().
  bool isBlocking() const { return blocking; }

  /// Gives up ownership of NCCL's communicator, so that it can be ended; null
  /// if there is none. Later calls fail. Any thread may call it.
  NcclHandle release();

  /// Finalizes the communicator; no collective may be in flight. False if NCCL
  /// has not finished by `deadline`; it then continues in the background.
  bool leave(const Deadline &deadline);

  /// Records that a graph captures a collective: NCCL ends no communicator
  /// before such graphs are destroyed.
  void noteCapture() { captured = true; }
  bool isCaptured() const { return captured; }

  /// Registers memory for collectives with NCCL, until it is forgotten.
  Status registerMemory(void *memory, size_t bytes);
  void forgetMemory(void *memory);

private:
  NcclCommunicator(const std::string &name, int size, bool isBlocking,
                   const FailureLatch &failure)
      : sharedName(std::make_shared<const std::string>(name)),
        name(*sharedName), size(size), blocking(isBlocking), failure(failure) {}
  Status join(const std::vector<ncclUniqueId> &ids, int size, int rank,
              const CudaOptions &options, const Deadline &deadline);
  Status joinElsewhere(const std::vector<ncclUniqueId> &ids, int size, int rank,
                       const CudaOptions &options, const Deadline &deadline);
  Status poll(const Deadline &deadline, const char *what);
  template <typename Function>
  Status launch(CollectiveKind kind, const Deadline &deadline,
                const Function &function);
  template <typename Function>
  Status begin(const std::string &what, const Deadline &deadline,
               const Function &function);
  template <typename Function>
  Status call(const std::string &what, const Deadline &deadline,
              const Function &function);
  Status goneStatus() const;
  Status lateStatus(const std::string &what) const;
  Status inGroup(Status status) const;

  const std::shared_ptr<const std::string> sharedName;
  const std::string &name;
  const int size;
  const bool blocking;
  const FailureLatch &failure;
  const std::shared_ptr<NcclCalls> calls = std::make_shared<NcclCalls>();
  /// Held during NCCL calls but never while waiting, so that the aborting
  /// thread gets it.
  std::mutex mutex;
  ncclComm_t handle = nullptr;
  /// The call of a blocking communicator that has not returned.
  struct Waiting {
    std::string what;
    Deadline deadline;
  };
  std::optional<Waiting> waiting;
  int device = 0;
  std::atomic<bool> captured{false};
  std::map<void *, void *> registered;
};

} // namespace ddphook::cuda
