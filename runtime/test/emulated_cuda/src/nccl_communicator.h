// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What lies behind an ncclComm_t. Operations in streams and in graphs hold it:
// they may come to run after it was destroyed.

#pragma once

#include "base/status.h"
#include "nccl.h"
#include "shm_group.h"
#include "stream.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace emulated_cuda {

struct Collective {
  const void *in;
  void *out;
  ddphook::host::CollectiveDesc desc;
  cudaStream_t stream;
  /// Of an all-to-all, in place of the two: what goes to each rank, and where
  /// that of each goes.
  std::vector<const void *> sends = {};
  std::vector<void *> receives = {};
};

class Communicator : public std::enable_shared_from_this<Communicator> {
public:
  Communicator(int rank, int size, Device *device, bool isBlocking)
      : rank(rank), size(size), device(device), isBlocking(isBlocking) {}
  const int rank;
  const int size;
  Device *const device;
  const bool isBlocking;

  /// Begins `work`. For a blocking communicator the calling thread does it, and
  /// its result is given; another one starts a thread for it, and gives
  /// ncclInProgress.
  ncclResult_t start(std::function<ncclResult_t()> work);

  // What start() is given.
  ncclResult_t join(const ncclUniqueId &id);
  ncclResult_t submit(const Collective &operation);
  ncclResult_t finalize();

  /// The last result, or what has gone wrong since.
  ncclResult_t state();
  /// What keeps a call from being made now; or ncclSuccess.
  ncclResult_t notReady();

  /// Ends what waits for a peer; does not wait for that.
  void requestAbort();
  /// Waits until the thread of the last call has ended.
  void waitForJob();
  /// Ends the process where a call of another thread's would use what is freed.
  void refuseCallers();
  /// The rest of an abort: waits until nothing can use the communicator.
  void finishAbort();
  /// Leaves: waits for that as well, and, as the last rank of its process, for
  /// the other ranks to leave.
  void destroy();

  /// A graph refers to the communicator from now on; and does no longer.
  void holdForGraph();
  void dropForGraph();

private:
  ddphook::Status exchange(const ncclUniqueId &id);
  ddphook::Status checkGpus(ddphook::Store &store);
  ncclResult_t runHere(const std::function<ncclResult_t()> &work);
  bool meetPeers();
  void run(const Collective &operation);
  ddphook::Status sum(ddphook::host::ShmGroup &group,
                      const Collective &operation);
  ddphook::Status move(ddphook::host::ShmGroup *group,
                       const Collective &operation);
  void waitUntilUnused();
  void abortGroups();
  bool isLastOfProcess();
  void stall();
  void fail(ncclResult_t result);

  std::mutex mutex;
  std::condition_variable changed;
  ncclResult_t result = ncclSuccess;
  int runningCount = 0;
  /// Calls of NCCL that have not returned, of a blocking communicator.
  int callerCount = 0;
  int graphCount = 0;
  std::atomic<bool> isAborted{false};
  bool isDuplicate = false;
  /// Null in a communicator of one rank.
  std::shared_ptr<ddphook::host::ShmGroup> group;
  /// Where blocking calls meet those of the other ranks.
  std::shared_ptr<ddphook::host::ShmGroup> connection;
  /// Where ranks that leave meet, and what ranks of one process have in common.
  std::shared_ptr<ddphook::host::ShmGroup> departure;
  std::string key;
  /// The last collective in a stream, and that stream.
  Mark lastCollective;
  cudaStream_t lastStream = nullptr;
};

/// Remembers a message for ncclGetLastError() and gives the result back.
ncclResult_t recordNccl(ncclResult_t result, const std::string &message);

} // namespace emulated_cuda

struct ncclComm {
  std::shared_ptr<emulated_cuda::Communicator> impl;
};
