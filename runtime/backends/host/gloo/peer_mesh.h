// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Connects all ranks of a group over TCP, and verifies who each peer is.

#pragma once

#include "../group_place.h"
#include "store/socket.h"
#include "store/store.h"

#include <string>
#include <vector>

namespace ddphook::host {

struct PeerMeshOptions {
  GroupPlace place;
  /// The address at which this rank listens; any free port is used.
  sockaddr_storage address = {};
  socklen_t addressSize = 0;
  /// A prefix of keys in the store that only this group uses.
  std::string key;
  /// A secret that all ranks of the group have, and nobody else.
  std::string proofKey;
  double timeoutSeconds = 300;
  /// Ends the attempt early.
  const Interrupt *interrupt = nullptr;
};

/// Connects to the other ranks. `sockets`, indexed by rank, gets a connection
/// to each of them. Fails at the deadline at the latest, whatever the others
/// do; the message names the missing ranks.
Status connectPeers(const PeerMeshOptions &options, Store &store,
                    std::vector<FileDescriptor> *sockets);

} // namespace ddphook::host
