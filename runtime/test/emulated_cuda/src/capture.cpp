// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A call that may not come during a capture fails, and ends it: its
// cudaStreamEndCapture() then gives an error and no graph, as on a device.

#include "stream.h"

using namespace emulated_cuda;

static thread_local cudaStreamCaptureMode threadMode =
    cudaStreamCaptureModeGlobal;

/// Those under way. With hostMutex() held.
static std::set<std::shared_ptr<Capture>> &captures() {
  static auto *captures = new std::set<std::shared_ptr<Capture>>();
  return *captures;
}

static cudaError_t refuseLocked() {
  if (threadMode == cudaStreamCaptureModeRelaxed)
    return cudaSuccess;
  bool isRefused = false;
  for (const std::shared_ptr<Capture> &capture : captures()) {
    if (capture->mode == cudaStreamCaptureModeRelaxed)
      continue;
    bool isOwn = capture->thread == std::this_thread::get_id();
    bool isGlobal = capture->mode == cudaStreamCaptureModeGlobal &&
                    threadMode == cudaStreamCaptureModeGlobal;
    if (isOwn || isGlobal)
      isRefused = capture->isInvalidated = true;
  }
  return isRefused ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t emulated_cuda::refuseDuringCapture() {
  std::lock_guard<std::mutex> lock(hostMutex());
  return refuseLocked();
}

cudaError_t emulated_cuda::refuseDuringCaptureLocked(cudaStream_t stream) {
  if (stream->capture) {
    stream->capture->isInvalidated = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  if (stream->isLegacy())
    if (cudaError_t error = refuseLegacyDuringCapture(stream->device))
      return error;
  return refuseLocked();
}

cudaError_t emulated_cuda::refuseLegacyDuringCapture(Device *device) {
  for (cudaStream_t stream : device->streams) {
    if (stream->capture && !(stream->flags & cudaStreamNonBlocking)) {
      stream->capture->isInvalidated = true;
      return cudaErrorStreamCaptureImplicit;
    }
  }
  return cudaSuccess;
}

/// Makes the capture's streams ordinary ones again. With hostMutex() held.
static void release(const std::shared_ptr<Capture> &capture) {
  capture->graph.reset();
  for (auto [captured, number] : capture->streams) {
    captured->capture.reset();
    captured->tails.clear();
  }
  captures().erase(capture);
}

void emulated_cuda::leaveCapture(cudaStream_t stream) {
  std::shared_ptr<Capture> capture = stream->capture;
  if (!capture)
    return;
  capture->isInvalidated = true;
  if (capture->origin == stream)
    release(capture);
  else
    capture->streams.erase(stream);
}

/// Whether everything that the other streams of a capture were given comes
/// before what its origin has now.
static bool isJoined(const Capture &capture) {
  std::set<cudaGraphNode_t> before;
  std::vector<cudaGraphNode_t> next = capture.origin->tails;
  while (!next.empty()) {
    cudaGraphNode_t node = next.back();
    next.pop_back();
    if (before.insert(node).second)
      for (cudaGraphNode_t dependency : node->dependencies)
        next.push_back(dependency);
  }
  for (auto [stream, number] : capture.streams)
    for (cudaGraphNode_t node : stream->tails)
      if (!before.count(node))
        return false;
  return true;
}

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle,
                                   cudaStreamCaptureMode mode) {
  std::lock_guard<std::mutex> lock(hostMutex());
  cudaStream_t stream;
  if (cudaError_t error = findStream(handle, &stream))
    return record(error);
  if (stream->isLegacy())
    return record(cudaErrorStreamCaptureUnsupported);
  if (stream->capture)
    return record(cudaErrorIllegalState);
  auto capture = std::make_shared<Capture>();
  capture->graph = std::make_unique<CUgraph_st>();
  capture->graph->device = stream->device;
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->streams = {{stream, 0}};
  stream->capture = capture;
  stream->tails.clear();
  captures().insert(capture);
  return recordUnlessFailed(*stream->device, cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph) {
  std::lock_guard<std::mutex> lock(hostMutex());
  if (!graph)
    return record(cudaErrorInvalidValue);
  *graph = nullptr;
  cudaStream_t stream;
  if (cudaError_t error = findStream(handle, &stream))
    return record(error);
  std::shared_ptr<Capture> capture = stream->capture;
  if (!capture)
    return record(cudaErrorIllegalState);
  if (capture->origin != stream)
    return record(cudaErrorStreamCaptureUnmatched);
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id())
    return record(cudaErrorStreamCaptureWrongThread);
  cudaError_t error = cudaSuccess;
  if (capture->isInvalidated)
    error = cudaErrorStreamCaptureInvalidated;
  else if (!isJoined(*capture))
    error = cudaErrorStreamCaptureUnjoined;
  else
    *graph = capture->graph.release();
  release(capture);
  return recordUnlessFailed(*stream->device, error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle,
                                  cudaStreamCaptureStatus *status) {
  std::lock_guard<std::mutex> lock(hostMutex());
  cudaStream_t stream;
  if (!status)
    return record(cudaErrorInvalidValue);
  if (cudaError_t error = findStream(handle, &stream))
    return record(error);
  if (stream->isLegacy())
    for (cudaStream_t other : stream->device->streams)
      if (other->capture && !(other->flags & cudaStreamNonBlocking))
        return record(cudaErrorStreamCaptureImplicit);
  *status = !stream->capture ? cudaStreamCaptureStatusNone
            : stream->capture->isInvalidated
                ? cudaStreamCaptureStatusInvalidated
                : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
  if (!mode || *mode > cudaStreamCaptureModeRelaxed)
    return record(cudaErrorInvalidValue);
  std::swap(*mode, threadMode);
  return cudaSuccess;
}

} // extern "C"
