// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The transport for ranks on one machine. It computes what every other
// transport computes, bit for bit (docs/parity.md). It does not decide which
// ranks of a job may use it.
//
// A collective runs chunk by chunk through a small ring of slots per rank in
// one shared segment: a rank casts and divides a chunk straight into its slot,
// the ranks add each other's slots or take what they need from them, and
// convert the result straight into the destination. No bucket-sized temporary
// exists.

#pragma once

#include "../collective_desc.h"
#include "../group_place.h"
#include "base/status.h"
#include "store/store.h"

#include <atomic>
#include <memory>
#include <string>

namespace ddphook::host {

class ShmGroup {
public:
  /// Connects the ranks that use the same `key` of the same store, as processes
  /// or threads, each with its own position in the group.
  /// Collective; ends within `timeoutSeconds`, which also bounds every later
  /// call, or with ABORTED when `isAborted`, if not null, becomes true.
  /// `key` must not have been used before in this store.
  ///
  /// RESOURCE_EXHAUSTED: no memory for the segment, or no file descriptors.
  /// UNSUPPORTED: the ranks do not see each other's processes (other machine,
  /// other PID namespace) or the kernel is too old (Linux 5.3 is needed).
  /// If one rank fails, all do.
  static Status create(Store &store, const std::string &key,
                       const GroupPlace &place, double timeoutSeconds,
                       std::unique_ptr<ShmGroup> *out,
                       const std::atomic<bool> *isAborted = nullptr);

  /// Leaves the group. Peers that still wait for this rank get PEER_LOST.
  virtual ~ShmGroup() = default;

  /// Collective; all ranks must pass the same description (PLAN_MISMATCH if a
  /// difference is noticed). `in` may equal `out` where the kind of collective
  /// allows it; otherwise they must not overlap. One thread of a rank may call
  /// it at a time.
  ///
  /// After a failure every later call fails at once, and `out` holds
  /// unspecified values. PEER_LOST names the rank that died or left, by its
  /// number in the job; DEADLINE_EXCEEDED names the rank that did not arrive in
  /// time; ABORTED passes on the failure of another rank, which also stops a
  /// suspended rank that resumes after the others have given up.
  virtual Status run(const CollectiveDesc &desc, const void *in, void *out) = 0;

  /// Makes the running call and all later ones fail, here and on all other
  /// ranks. May be called from any thread, any number of times.
  virtual void abort() = 0;
};

} // namespace ddphook::host
