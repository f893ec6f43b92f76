//===- node_pipeline.h - hierarchical all-reduces in pieces -----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The stages of a hierarchical all-reduce (docs/hierarchy.md) beside each
// other: while a piece of this rank's share travels between nodes, the ranks of
// a node add up the next ones, and give each other those that have come. Every
// element goes through the same operations as in stages that follow each other.
//
// The thread that runs the collective does the node's stages, another one the
// stage between nodes. Neither can wait for ever: all ranks of a node take the
// pieces of both of its stages in one order, those of a position on all nodes
// take the pieces of theirs in one order, and a piece waits for earlier pieces
// alone.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_NODE_PIPELINE_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_NODE_PIPELINE_H

#include "comm_thread.h"
#include "host_communicator.h"
#include "piece_flow.h"
#include "trace/recorder.h"

namespace ddphook::host {

/// One hierarchical all-reduce. What stages are about is said of whole arrays.
struct StagedReduction {
  HostCommunicator *node, *across;
  /// Over the ranks of the node, and between nodes, of this rank's share.
  CollectiveDesc scatter, reduce, gather;
  /// Ranks of the node.
  int nodeRanks;
  const void *in;
  void *out;
  /// Memory for this rank's share, and, or null, the error of encoding it.
  void *share, *error;
  trace::CollectiveTag scatterTag, reduceTag, gatherTag;

  /// Sets the stages of an all-reduce of `count` elements, of which `share`
  /// says what is done with this rank's share, and takes their tags.
  void setStages(int64_t count, const CollectiveDesc &share);
};

class NodePipeline {
public:
  NodePipeline() = default;

  /// Runs one, on the calling thread and on its own, which starts with the
  /// first one. One at a time; after a failure none any more.
  Status run(const StagedReduction &reduction);

  /// Makes later ones fail. Any thread; ends none that is under way, which
  /// aborting its communicators does.
  void abort(const Status &reason) { network.abort(reason); }

private:
  Status runInNode(const StagedReduction &reduction, int64_t ticket,
                   const int64_t &waited);

  std::unique_ptr<PieceFlow> flow;
  /// Between nodes.
  CommThread network{[] {}, "ddphook-across"};
};

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_NODE_PIPELINE_H
