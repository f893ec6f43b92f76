//===- nccl_communicator.h - a communicator of NCCL -------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every wait for a peer ends at our deadline or when the job fails elsewhere.
// A non-blocking communicator waits for none inside NCCL. A blocking one does,
// on the caller's thread, until NCCL is told to abort by another one; it joins
// on a thread of its own, as do all communicators that are ended.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_NCCL_COMMUNICATOR_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_NCCL_COMMUNICATOR_H

#include "base/collective.h"
#include "base/deadline.h"
#include "base/dtype.h"
#include "base/status.h"
#include "cuda_options.h"
#include "failure_latch.h"
#include "nccl_calls.h"

#include <nccl.h>

#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ddphook::cuda {

/// How long an abort may take that waits for nothing but NCCL.
inline constexpr double abortSeconds = 1;

/// A communicator, its name, to which NCCL keeps a pointer, and who is in a
/// call of it.
struct NcclHandle {
  ncclComm_t communicator = nullptr;
  std::shared_ptr<const std::string> name;
  std::shared_ptr<NcclCalls> calls;
};

/// An abort of communicators under way.
struct NcclAbort {
  /// Ready when NCCL has told the device's work to end.
  std::future<void> requested;
  /// Ready when NCCL has freed all of them.
  std::future<void> ended;
};

/// Aborts communicators of one GPU together: NCCL frees one when the device has
/// done all that it was given, which may be behind a collective of another one.
NcclAbort abortTogether(std::vector<NcclHandle> handles, int device);

/// One line: NCCL has not ended `what`, and is left alone with it.
void logUnended(const std::string &what, bool isCaptured);

class NcclCommunicator {
public:
  /// Collective, on the current device. `ids` are the same on all ranks;
  /// waiting ends early when `failure` is set. After a failure `result` is what
  /// came into being, whose end other ranks notice.
  static Status create(const std::vector<ncclUniqueId> &ids, int size, int rank,
                       const std::string &name, const CudaOptions &options,
                       const FailureLatch &failure, const Deadline &deadline,
                       std::unique_ptr<NcclCommunicator> *result);
  /// Aborts what is left of it.
  ~NcclCommunicator();

  // Each puts a collective on `stream`, and waits until NCCL has done that. Of
  // what is cut into parts every rank has `part` elements.
  Status allReduce(const void *in, void *out, int64_t count, Dtype dtype,
                   cudaStream_t stream, const Deadline &deadline);
  Status reduceScatter(const void *in, void *out, int64_t part, Dtype dtype,
                       cudaStream_t stream, const Deadline &deadline);
  Status allGather(const void *in, void *out, int64_t part, Dtype dtype,
                   cudaStream_t stream, const Deadline &deadline);
  Status allToAll(const void *in, void *out, int64_t part, int size,
                  Dtype dtype, cudaStream_t stream, const Deadline &deadline);
  Status broadcast(const void *in, void *out, int64_t count, int root,
                   Dtype dtype, cudaStream_t stream, const Deadline &deadline);

  /// What NCCL found out meanwhile, or that a call waits for too long. Any
  /// thread.
  Status asyncError();

  /// Its calls wait inside NCCL: somebody has to look for asyncError().
  bool isBlocking() const { return blocking; }

  /// Gives NCCL's communicator away, to be ended; null when there is none any
  /// more. Later calls fail. Any thread.
  NcclHandle release();

  /// Leaves in good order, when nothing is under way. False: NCCL has not come
  /// to an end by `deadline`, and goes on alone.
  bool leave(const Deadline &deadline);

  /// A graph is capturing a collective, and NCCL ends no communicator before
  /// such graphs are destroyed.
  void noteCapture() { captured = true; }
  bool isCaptured() const { return captured; }

  /// Tells NCCL of memory that collectives work on, until it is forgotten.
  Status registerMemory(void *memory, size_t bytes);
  void forgetMemory(void *memory);

private:
  NcclCommunicator(const std::string &name, bool isBlocking,
                   const FailureLatch &failure)
      : sharedName(std::make_shared<const std::string>(name)),
        name(*sharedName), blocking(isBlocking), failure(failure) {}
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
  const bool blocking;
  const FailureLatch &failure;
  const std::shared_ptr<NcclCalls> calls = std::make_shared<NcclCalls>();
  /// Held during calls of NCCL, never while waiting: the thread that aborts
  /// gets its turn.
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

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_NCCL_COMMUNICATOR_H
