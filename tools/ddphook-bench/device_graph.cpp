//===- device_graph.cpp - recorded work of a device -----------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Captures on a stream of its own, which is then the device's until the graph
// is destroyed.
//
//===----------------------------------------------------------------------===//
#include "device_graph.h"

#include "backend/backend_store.h"

using namespace ddphook;
using namespace ddphook::bench;

#ifdef DDPHOOK_BENCH_HAS_CUDA

#include <cuda_runtime.h>

static Status check(cudaError_t code) {
  return code == cudaSuccess
             ? Status::ok()
             : error(DDPHOOK_INTERNAL, "%s: %s", cudaGetErrorName(code),
                     cudaGetErrorString(code));
}

namespace {

class CudaGraph : public DeviceGraph {
public:
  explicit CudaGraph(WorkDevice &device) : device(device) {}

  ~CudaGraph() override {
    device.synchronize().ignore();
    setStream(nullptr).ignore();
    if (executable)
      (void)cudaGraphExecDestroy(executable);
    if (graph)
      (void)cudaGraphDestroy(graph);
    if (stream)
      (void)cudaStreamDestroy(stream);
  }

  Status record(const std::function<Status()> &body) {
    DDPHOOK_RETURN_IF_ERROR(
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
    DDPHOOK_RETURN_IF_ERROR(setStream(stream));
    DDPHOOK_RETURN_IF_ERROR(check(
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)));
    const Status status = body();
    const Status ended = check(cudaStreamEndCapture(stream, &graph));
    // Other work runs on the device's own stream.
    DDPHOOK_RETURN_IF_ERROR(setStream(nullptr));
    DDPHOOK_RETURN_IF_ERROR(status);
    DDPHOOK_RETURN_IF_ERROR(ended);
    return check(cudaGraphInstantiate(&executable, graph, 0));
  }

  Status launch() override {
    DDPHOOK_RETURN_IF_ERROR(setStream(stream));
    const Status status = check(cudaGraphLaunch(executable, stream));
    DDPHOOK_RETURN_IF_ERROR(setStream(nullptr));
    return status;
  }

private:
  Status setStream(cudaStream_t to) {
    ddphook_backend_error_t message = {};
    return fromBackendError(
        device.table().stream_set(device.get(), to, &message), message);
  }

  WorkDevice &device;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
};

} // namespace

Status DeviceGraph::capture(WorkDevice &device,
                            const std::function<Status()> &body,
                            std::unique_ptr<DeviceGraph> *graph) {
  if (device.table().memory_is_host)
    return Status::ok();
  auto recorded = std::make_unique<CudaGraph>(device);
  DDPHOOK_RETURN_IF_ERROR(recorded->record(body));
  *graph = std::move(recorded);
  return Status::ok();
}

#else

Status DeviceGraph::capture(WorkDevice &, const std::function<Status()> &,
                            std::unique_ptr<DeviceGraph> *) {
  return Status::ok();
}

#endif
