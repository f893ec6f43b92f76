// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// As in NCCL, the process that makes a unique id listens for the ranks, and the
// id holds its address. What listens is the runtime's own store.

#pragma once

#include "base/status.h"
#include "nccl.h"
#include "store/tcp_store.h"

#include <atomic>
#include <memory>

namespace emulated_cuda {

/// Starts to listen.
ddphook::Status makeUniqueId(ncclUniqueId *id);

/// A rank's connection. Its waits have no deadline of their own: they end when
/// `isAborted` is set.
class Bootstrap : public ddphook::Store {
public:
  static ddphook::Status connect(const ncclUniqueId &id, int rank,
                                 const std::atomic<bool> &isAborted,
                                 std::unique_ptr<Bootstrap> *bootstrap);
  ~Bootstrap() override;

  ddphook::Status set(const std::string &key,
                      const std::string &value) override;
  ddphook::Status get(const std::string &key, const ddphook::Deadline &deadline,
                      std::string *value) override;
  ddphook::Status add(const std::string &key, int64_t delta,
                      int64_t *result) override;
  ddphook::Status erase(const std::string &key) override;

  /// This rank needs it no longer. The process that made the id waits here for
  /// the `size` ranks and stops listening.
  ddphook::Status finish(int size);

private:
  explicit Bootstrap(const std::atomic<bool> &isAborted)
      : isAborted(isAborted) {}

  const std::atomic<bool> &isAborted;
  std::string runId;
  std::unique_ptr<ddphook::TcpStore> store;
};

} // namespace emulated_cuda
