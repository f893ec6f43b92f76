// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Overlaps the stages of a hierarchical all-reduce (docs/hierarchy.md): while a
// piece of this rank's part travels between nodes, the ranks of a node add up
// the next pieces and gather those that have arrived. Every element goes
// through the same operations as in consecutive stages.
//
// The calling thread runs the node's stages, another thread the stage between
// nodes. Neither can wait forever: all ranks of a node process the pieces of
// both of its stages in one order, the ranks of a position on all nodes process
// the pieces of theirs in one order, and a piece only waits for earlier pieces.

#pragma once

#include "comm_thread.h"
#include "host_communicator.h"
#include "piece_flow.h"
#include "trace/recorder.h"

namespace ddphook::host {

/// One hierarchical all-reduce. The stages describe whole arrays.
struct StagedReduction {
  HostCommunicator *node, *across;
  /// Stages in the node, between nodes (on this rank's part), in the node.
  CollectiveDesc scatter, reduce, gather;
  int nodeRanks;
  const void *in;
  void *out;
  /// Memory for this rank's part, and the error of encoding it, or null.
  void *share, *error;
  trace::CollectiveTag scatterTag, reduceTag, gatherTag;

  /// Sets the stages of an all-reduce of `count` elements and takes their trace
  /// tags. `share` describes the all-reduce of this rank's part.
  void setStages(int64_t count, const CollectiveDesc &share);
};

class NodePipeline {
public:
  NodePipeline() = default;

  /// Runs a reduction on the calling thread and on a second one, which the
  /// first call creates. Runs one at a time, and none after a failure.
  Status run(const StagedReduction &reduction);

  /// Makes later reductions fail. Any thread may call it. It does not end a
  /// running one; aborting its communicators does.
  void abort(const Status &reason) { network.abort(reason); }

private:
  Status runInNode(const StagedReduction &reduction, int64_t ticket,
                   const int64_t &waited);

  std::unique_ptr<PieceFlow> flow;
  /// Runs the stage between nodes.
  CommThread network{[] {}, "ddphook-across"};
};

} // namespace ddphook::host
