//===- node.h - which ranks share a machine ---------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The identity of the machine that a process runs on, as a text that ranks
// compare. Names of machines alone are no identity: containers and clones share
// them.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_JOB_NODE_H
#define DDPHOOK_RUNTIME_SRC_JOB_NODE_H

#include "base/status.h"

#include <string>

namespace ddphook {

struct MachineIdentity {
  /// Equal on ranks that count as one machine in `intra_node` and `inter_node`.
  std::string node;
  /// Equal on ranks that, in addition, see each other's processes and shared
  /// memory.
  std::string memoryDomain;
};

/// `nodeOverride`, when not empty, stands for the machine itself
/// (DDPHOOK_NODE).
Status identifyMachine(const std::string &nodeOverride,
                       MachineIdentity *identity);
} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_JOB_NODE_H
