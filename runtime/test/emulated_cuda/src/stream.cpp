// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The legacy stream waits for all blocking streams, and these for it; a stream
// made with cudaStreamNonBlocking is free of that.

#include "stream.h"

using namespace emulated_cuda;

/// A new stream; with hostMutex() held.
static cudaStream_t makeStream(Device *device, unsigned flags, int priority) {
  auto *stream = new CUstream_st();
  stream->device = device;
  stream->queue = Queue::create();
  stream->flags = flags;
  stream->priority = priority;
  return stream;
}

namespace {
/// What cudaStreamPerThread means in one host thread: a blocking stream on each
/// device. Its work goes on when the thread has ended.
struct ThreadStreams {
  std::map<Device *, cudaStream_t> byDevice;

  ~ThreadStreams() {
    std::lock_guard<std::mutex> lock(hostMutex());
    for (auto [device, stream] : byDevice) {
      leaveCapture(stream);
      device->streams.erase(stream);
      stream->queue->close();
      delete stream;
    }
  }
};
} // namespace

/// With hostMutex() held.
static cudaStream_t threadStream(Device *device) {
  static thread_local ThreadStreams streams;
  cudaStream_t &stream = streams.byDevice[device];
  if (!stream) {
    stream = makeStream(device, cudaStreamDefault, 0);
    device->streams.insert(stream);
  }
  return stream;
}

cudaError_t emulated_cuda::findStream(cudaStream_t handle,
                                      cudaStream_t *stream) {
  Device *device;
  if (cudaError_t error = currentContext(&device))
    return error;
  if (!handle || handle == cudaStreamLegacy) {
    if (!device->legacy)
      device->legacy = makeStream(device, cudaStreamDefault, 0);
    *stream = device->legacy;
    return cudaSuccess;
  }
  if (handle == cudaStreamPerThread) {
    *stream = threadStream(device);
    return cudaSuccess;
  }
  for (int i = 0; (device = findDevice(i)); ++i) {
    if (device->streams.count(handle)) {
      *stream = handle;
      return cudaSuccess;
    }
  }
  return cudaErrorInvalidResourceHandle;
}

std::vector<Mark> emulated_cuda::implicitMarks(cudaStream_t stream) {
  std::vector<Mark> marks;
  Device *device = stream->device;
  if (stream->isLegacy()) {
    for (cudaStream_t other : device->streams)
      if (!(other->flags & cudaStreamNonBlocking))
        marks.push_back(other->queue->end());
  } else if (!(stream->flags & cudaStreamNonBlocking) && device->legacy) {
    marks.push_back(device->legacy->queue->end());
  }
  return marks;
}

cudaError_t emulated_cuda::submitLocked(cudaStream_t stream,
                                        Queue::Operation operation,
                                        Mark *mark) {
  if (stream->capture) {
    if (stream->capture->isInvalidated)
      return cudaErrorStreamCaptureInvalidated;
    auto node = std::make_unique<CUgraphNode_st>();
    node->operation = std::move(operation);
    node->lane = stream->capture->streams[stream];
    node->dependencies = std::move(stream->tails);
    stream->tails = {node.get()};
    stream->capture->graph->nodes.push_back(std::move(node));
    return cudaSuccess;
  }
  if (stream->isLegacy())
    if (cudaError_t error = refuseLegacyDuringCapture(stream->device))
      return error;
  Mark end = stream->queue->push(
      implicitMarks(stream),
      [device = stream->device, operation = std::move(operation)] {
        if (device->failure == cudaSuccess)
          operation();
      });
  if (mark)
    *mark = end;
  return cudaSuccess;
}

cudaError_t emulated_cuda::submit(cudaStream_t handle,
                                  Queue::Operation operation, Mark *mark) {
  std::lock_guard<std::mutex> lock(hostMutex());
  cudaStream_t stream;
  if (cudaError_t error = findStream(handle, &stream))
    return record(error);
  if (cudaError_t error = submitLocked(stream, std::move(operation), mark))
    return record(error);
  return recordUnlessFailed(*stream->device, cudaSuccess);
}

void emulated_cuda::waitForDevice(Device *device) {
  std::vector<Mark> marks;
  {
    std::lock_guard<std::mutex> lock(hostMutex());
    if (device->legacy)
      marks.push_back(device->legacy->queue->end());
    for (cudaStream_t stream : device->streams)
      marks.push_back(stream->queue->end());
  }
  for (const Mark &mark : marks)
    mark.wait();
}

/// What the stream was given until now, and what of the other streams that has
/// to wait for.
static cudaError_t endOfStream(cudaStream_t handle, Device **device,
                               std::vector<Mark> *marks) {
  std::lock_guard<std::mutex> lock(hostMutex());
  cudaStream_t stream;
  if (cudaError_t error = findStream(handle, &stream))
    return error;
  if (cudaError_t error = refuseDuringCaptureLocked(stream))
    return error;
  *device = stream->device;
  *marks = implicitMarks(stream);
  marks->push_back(stream->queue->end());
  return cudaSuccess;
}

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags,
                                         int priority) {
  if (!stream || (flags & ~cudaStreamNonBlocking))
    return record(cudaErrorInvalidValue);
  Device *device;
  if (cudaError_t error = currentContext(&device))
    return record(error);
  if (device->failure != cudaSuccess)
    return recordUnlessFailed(*device, cudaSuccess);
  std::lock_guard<std::mutex> lock(hostMutex());
  // A priority outside of the device's range is clamped to it.
  *stream = makeStream(device, flags,
                       priority > 0 ? 0 : (priority < -5 ? -5 : priority));
  device->streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  std::lock_guard<std::mutex> lock(hostMutex());
  cudaStream_t stream;
  if (cudaError_t error = findStream(handle, &stream))
    return record(error);
  if (stream->isLegacy() || handle == cudaStreamPerThread)
    return record(cudaErrorInvalidResourceHandle);
  leaveCapture(stream);
  stream->device->streams.erase(stream);
  // Returns at once; what the stream was given still runs.
  stream->queue->close();
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *flags) {
  std::lock_guard<std::mutex> lock(hostMutex());
  cudaStream_t stream;
  if (cudaError_t error = findStream(handle, &stream))
    return record(error);
  *flags = stream->flags;
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority) {
  std::lock_guard<std::mutex> lock(hostMutex());
  cudaStream_t stream;
  if (cudaError_t error = findStream(handle, &stream))
    return record(error);
  *priority = stream->priority;
  return cudaSuccess;
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *device) {
  std::lock_guard<std::mutex> lock(hostMutex());
  cudaStream_t stream;
  if (cudaError_t error = findStream(handle, &stream))
    return record(error);
  *device = stream->device->number;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Device *device;
  std::vector<Mark> marks;
  if (cudaError_t error = endOfStream(handle, &device, &marks))
    return record(error);
  for (const Mark &mark : marks)
    mark.wait();
  return recordUnlessFailed(*device, cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  Device *device;
  std::vector<Mark> marks;
  if (cudaError_t error = endOfStream(handle, &device, &marks))
    return record(error);
  cudaError_t result = cudaSuccess;
  for (const Mark &mark : marks)
    if (!mark.isReached())
      result = cudaErrorNotReady;
  return recordUnlessFailed(*device, result);
}

cudaError_t cudaDeviceSynchronize(void) {
  Device *device;
  if (cudaError_t error = currentContext(&device))
    return record(error);
  if (cudaError_t error = refuseDuringCapture())
    return record(error);
  waitForDevice(device);
  return recordUnlessFailed(*device, cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function,
                               void *data) {
  if (!function)
    return record(cudaErrorInvalidValue);
  return submit(stream, [=] { function(data); });
}

} // extern "C"
