// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The identity of the node on which a process runs, as a text that ranks
// compare. A node is a machine, unless DDPHOOK_NODE says otherwise. Host names
// do not identify a machine, because containers and clones share them.

#pragma once

#include "base/status.h"

#include <string>
#include <vector>

namespace ddphook {

struct NodeIdentity {
  /// Equal on ranks that `intra_node` and `inter_node` place on one node.
  std::string node;
  /// Equal on ranks that also see each other's processes and shared memory.
  std::string memoryDomain;
};

/// Returns each rank's node, numbered as they first appear: "0,0,1,1".
std::string printNodes(const std::vector<NodeIdentity> &ranks);

/// Uses `nodeOverride` (DDPHOOK_NODE), unless empty, as the node's name.
Status identifyNode(const std::string &nodeOverride, NodeIdentity *identity);

/// Returns a text that is equal on ranks that reach each other through the
/// loopback interface, whatever the name of their node.
Status identifyNetwork(std::string *network);

} // namespace ddphook
