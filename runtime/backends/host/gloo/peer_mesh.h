//===- peer_mesh.h - a group's connections to each other --------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Connects every rank of a group with every other one over TCP, and verifies
// the identity of each peer.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_PEER_MESH_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_PEER_MESH_H

#include "../group_place.h"
#include "store/socket.h"
#include "store/store.h"

#include <string>
#include <vector>

namespace ddphook::host {

/// One rank's way into a group.
struct PeerMeshOptions {
  GroupPlace place;
  /// The address at which this rank listens; any free port is used.
  sockaddr_storage address = {};
  socklen_t addressSize = 0;
  /// A prefix of keys in the store that this group alone uses.
  std::string key;
  /// What all ranks of the group have, and nobody else.
  std::string proofKey;
  double timeoutSeconds = 300;
  /// Ends it early.
  const Interrupt *interrupt = nullptr;
};

/// Meets the other ranks. `sockets` gets a connection to each of them, at its
/// rank; what is sent on one comes out at that rank. Fails by the deadline at
/// the latest, whatever the others do; the message names who is missing.
Status connectPeers(const PeerMeshOptions &options, Store &store,
                    std::vector<FileDescriptor> *sockets);

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_PEER_MESH_H
