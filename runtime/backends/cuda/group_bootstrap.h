// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Before NCCL connects a process group, its ranks exchange their GPU and NCCL
// versions through the job's store, so that cases that NCCL would refuse, or
// wait for in vain, give a clear message on every rank.

#pragma once

#include "base/deadline.h"
#include "base/status.h"
#include "cuda_options.h"
#include "ddphook/runtime/backend.h"
#include "device_choice.h"

#include <nccl.h>

#include <vector>

namespace ddphook::cuda {

/// A rank's introduction.
struct RankIdentity {
  std::string uuid;
  int capability = 0;
  int ncclVersion = 0;
  /// Its NCCL_HOSTID, which NCCL uses as the name of its machine.
  std::string hostId = {};
};

/// Returns UNSUPPORTED if these ranks cannot form a group: an old NCCL,
/// different versions of it, different compute capabilities (they could give
/// different bits), or two ranks on one GPU unless `canShareGpu` or the host
/// ids differ. `worldRanks` are for the message.
Status checkIdentities(const std::vector<RankIdentity> &ranks,
                       const int32_t *worldRanks, bool canShareGpu);

/// Collective: exchanges identities, and gives every rank the unique ids for
/// NCCL, or the first rank's reason for refusing.
Status agreeOnIds(const ddphook_communicator_config_t &config,
                  const CudaOptions &options, const DeviceChoice &device,
                  const Deadline &deadline, std::vector<ncclUniqueId> *ids);

} // namespace ddphook::cuda
