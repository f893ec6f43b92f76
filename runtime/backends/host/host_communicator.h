// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A rank's end of a process group, over the transport that suits its ranks.

#pragma once

#include "base/status.h"
#include "collective_desc.h"
#include "ddphook/runtime/backend.h"
#include "gloo/gloo_group.h"
#include "group_place.h"
#include "shm/shm_group.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>

namespace ddphook::host {

enum class Transport { Auto, SharedMemory, Gloo };

/// Parses the name of a transport; INVALID_ARGUMENT lists the valid ones.
Status parseTransport(const std::string &name, Transport *transport);

class HostCommunicator {
public:
  /// Collective. `makeDevice` provides the process's Gloo device when it is
  /// needed. Aborting that device and setting `isAborted` end the waits.
  Status join(const ddphook_communicator_config_t &config, Transport transport,
              double timeoutSeconds,
              const std::function<Status(GlooDevice **)> &makeDevice,
              const std::atomic<bool> &isAborted);

  int rank() const { return place.rank; }
  int size() const { return place.size; }

  /// A failure names the group if it is a part of the job.
  Status run(const CollectiveDesc &desc, const void *in, void *out);

  /// See GlooGroup; the ranks must be on several machines.
  Status runInPieces(const CollectiveDesc &desc, void *array, void *error,
                     PieceFlow &flow);
  int64_t pieceElements(const CollectiveDesc &desc) const {
    return gloo ? gloo->pieceElements(desc) : desc.count;
  }

  /// Makes the running and all later calls fail soon. Any thread may call it.
  void abort() {
    if (shm)
      shm->abort();
    if (gloo)
      gloo->abort();
  }

  /// Makes peers that wait for this rank fail. Not during another call.
  void close() {
    if (gloo)
      gloo->close();
  }

private:
  GroupPlace place;
  std::unique_ptr<ShmGroup> shm;
  std::unique_ptr<GlooGroup> gloo;
};

} // namespace ddphook::host
