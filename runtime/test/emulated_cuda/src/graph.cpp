//===- graph.cpp - graphs that run again and again ------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A launch is one operation of its stream, which runs the nodes one after the
// other, in the order in which they were captured. An edge that is missing is
// therefore not seen in a launch; it is seen by TSan when the same calls are
// made on streams.
//
//===----------------------------------------------------------------------===//
#include "stream.h"

using namespace emulated_cuda;

struct CUgraphExec_st {
  Device *device;
  /// Shared with launches that still run when it is destroyed.
  std::shared_ptr<std::vector<Queue::Operation>> operations;
};

extern "C" {

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes,
                              size_t *count) {
  if (!graph || !count)
    return record(cudaErrorInvalidValue);
  if (nodes)
    for (size_t i = 0; i < *count; ++i)
      nodes[i] = i < graph->nodes.size() ? graph->nodes[i].get() : nullptr;
  if (!nodes || *count > graph->nodes.size())
    *count = graph->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  if (!exec || !graph || flags != 0)
    return record(cudaErrorInvalidValue);
  auto operations = std::make_shared<std::vector<Queue::Operation>>();
  for (const std::unique_ptr<CUgraphNode_st> &node : graph->nodes)
    operations->push_back(node->operation);
  *exec = new CUgraphExec_st{graph->device, std::move(operations)};
  return recordUnlessFailed(*graph->device, cudaSuccess);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t handle) {
  if (!exec)
    return record(cudaErrorInvalidValue);
  return submit(handle, [] {});
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  if (!exec)
    return record(cudaErrorInvalidValue);
  return submit(handle, [device = exec->device, operations = exec->operations] {
    for (const Queue::Operation &operation : *operations)
      if (device->failure == cudaSuccess)
        operation();
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (!graph)
    return record(cudaErrorInvalidValue);
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  if (!exec)
    return record(cudaErrorInvalidValue);
  delete exec;
  return cudaSuccess;
}

} // extern "C"
