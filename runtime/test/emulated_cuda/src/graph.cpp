// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A launch is one operation of its stream. Nodes that were captured on one
// stream run in order, those of different streams on threads of their own: only
// the graph's edges order these, so that TSan sees one that is missing.

#include "race_detector.h"
#include "stream.h"

#include <algorithm>

using namespace emulated_cuda;

namespace {

struct Step {
  Queue::Operation operation;
  size_t lane;
  /// Numbers of steps of other lanes.
  std::vector<size_t> after;
};

/// Which steps of one launch have ended.
class Progress {
public:
  explicit Progress(size_t steps) : latches(steps) {}

  void finish(size_t step) {
    std::lock_guard<std::mutex> lock(latches[step].mutex);
    latches[step].isDone = true;
    latches[step].changed.notify_all();
  }
  void wait(size_t step) {
    std::unique_lock<std::mutex> lock(latches[step].mutex);
    latches[step].changed.wait(lock, [&] { return latches[step].isDone; });
  }

private:
  /// One for each step: steps that nothing orders must not share a lock.
  struct Latch {
    std::mutex mutex;
    std::condition_variable changed;
    bool isDone = false;
  };
  std::vector<Latch> latches;
};

/// What an executable graph consists of; launches hold it.
class Program {
public:
  explicit Program(const CUgraph_st &graph);
  ~Program() {
    for (const std::shared_ptr<Queue> &queue : queues)
      queue->close();
  }

  void run();

private:
  void run(size_t step, Progress &progress);

  Device *const device;
  /// Launches of one graph do not overlap.
  std::mutex launching;
  std::vector<Step> steps;
  /// Of the lanes from 1.
  std::vector<std::shared_ptr<Queue>> queues;
};

} // namespace

Program::Program(const CUgraph_st &graph) : device(graph.device) {
  std::map<cudaGraphNode_t, size_t> numbers;
  size_t lanes = 1;
  for (const std::unique_ptr<CUgraphNode_st> &node : graph.nodes) {
    Step step = {node->operation, node->lane, {}};
    for (cudaGraphNode_t dependency : node->dependencies)
      if (dependency->lane != node->lane)
        step.after.push_back(numbers.at(dependency));
    numbers[node.get()] = steps.size();
    steps.push_back(std::move(step));
    lanes = std::max(lanes, node->lane + 1);
  }
  for (size_t lane = 1; lane < lanes; ++lane)
    queues.push_back(Queue::create());
}

void Program::run(size_t number, Progress &progress) {
  const Step &step = steps[number];
  for (size_t other : step.after)
    progress.wait(other);
  if (device->failure == cudaSuccess)
    step.operation();
  progress.finish(number);
}

void Program::run() {
  std::lock_guard<std::mutex> lock(launching);
  Progress progress(steps.size());
  for (size_t i = 0; i < steps.size(); ++i)
    if (steps[i].lane > 0)
      queues[steps[i].lane - 1]->push(
          {}, [this, i, &progress] { run(i, progress); });
  // This thread is the origin's lane.
  for (size_t i = 0; i < steps.size(); ++i)
    if (steps[i].lane == 0)
      run(i, progress);
  for (const std::shared_ptr<Queue> &queue : queues)
    queue->end().wait();
}

struct CUgraphExec_st {
  std::shared_ptr<Program> program;
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
  *exec = new CUgraphExec_st{std::make_shared<Program>(*graph)};
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
  return submit(handle, [program = exec->program] { program->run(); });
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
  // Launches may have ended without anybody having waited for them.
  race_detector::Hide hide;
  delete exec;
  return cudaSuccess;
}

} // extern "C"
