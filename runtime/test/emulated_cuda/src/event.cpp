// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An event is a mark in the queue where it was last recorded, and the time when
// that was reached; in a captured stream it is the nodes there.

#include "race_detector.h"
#include "stream.h"

#include <chrono>

using namespace emulated_cuda;

namespace {
struct Recording {
  Mark mark;
  std::chrono::steady_clock::time_point time;
};
} // namespace

struct CUevent_st {
  Device *device = nullptr;
  unsigned flags = 0;
  /// Null before the first time.
  std::shared_ptr<Recording> recording;

  /// The capture in which it was recorded last; it may have ended.
  std::shared_ptr<Capture> capture;
  std::vector<cudaGraphNode_t> nodes;
};

/// Null for a handle that is no event. With hostMutex() held.
static std::set<cudaEvent_t> &events() {
  static auto *events = new std::set<cudaEvent_t>();
  return *events;
}

static cudaError_t check(cudaEvent_t event) {
  return events().count(event) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

/// The last recording of an event that a host thread asks about.
static cudaError_t recordingOf(cudaEvent_t event, Device **device,
                               std::shared_ptr<Recording> *recording) {
  if (cudaError_t error = currentContext(device))
    return error;
  std::lock_guard<std::mutex> lock(hostMutex());
  if (cudaError_t error = check(event))
    return error;
  if (event->capture) {
    event->capture->isInvalidated = true;
    return cudaErrorCapturedEvent;
  }
  *device = event->device;
  *recording = event->recording;
  return cudaSuccess;
}

/// Makes `stream` a part of the capture in which the event was recorded.
static cudaError_t joinCapture(cudaStream_t stream, cudaEvent_t event) {
  if (event->capture->isInvalidated)
    return cudaErrorStreamCaptureInvalidated;
  // The graph is taken out when the capture ends.
  if (!event->capture->graph)
    return cudaErrorInvalidValue;
  if (stream->isLegacy())
    return cudaErrorStreamCaptureImplicit;
  if (stream->capture && stream->capture != event->capture) {
    stream->capture->isInvalidated = event->capture->isInvalidated = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (!stream->capture) {
    stream->capture = event->capture;
    size_t number = stream->capture->streams.size();
    stream->capture->streams[stream] = number;
    stream->tails.clear();
  }
  for (cudaGraphNode_t node : event->nodes)
    stream->tails.push_back(node);
  return cudaSuccess;
}

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  if (!event || (flags & ~(cudaEventBlockingSync | cudaEventDisableTiming)))
    return record(cudaErrorInvalidValue);
  Device *device;
  if (cudaError_t error = currentContext(&device))
    return record(error);
  if (device->failure != cudaSuccess)
    return recordUnlessFailed(*device, cudaSuccess);
  *event = new CUevent_st();
  (*event)->device = device;
  (*event)->flags = flags;
  std::lock_guard<std::mutex> lock(hostMutex());
  events().insert(*event);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Device *device;
  if (cudaError_t error = currentContext(&device))
    return record(error);
  std::lock_guard<std::mutex> lock(hostMutex());
  if (cudaError_t error = check(event))
    return record(error);
  events().erase(event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  std::lock_guard<std::mutex> lock(hostMutex());
  if (cudaError_t error = check(event))
    return record(error);
  cudaStream_t stream;
  if (cudaError_t error = findStream(handle, &stream))
    return record(error);
  if (event->device != stream->device)
    return record(cudaErrorInvalidResourceHandle);
  if (stream->capture) {
    if (stream->capture->isInvalidated)
      return record(cudaErrorStreamCaptureInvalidated);
    event->capture = stream->capture;
    event->nodes = stream->tails;
    return cudaSuccess;
  }
  auto recording = std::make_shared<Recording>();
  // The queue's lock makes the time visible to whoever sees the mark reached.
  if (cudaError_t error = submitLocked(
          stream,
          [recording] {
            // A host thread may free it without having waited.
            race_detector::Ignore ignore;
            recording->time = std::chrono::steady_clock::now();
          },
          &recording->mark))
    return record(error);
  event->capture.reset();
  event->nodes.clear();
  event->recording = std::move(recording);
  return recordUnlessFailed(*stream->device, cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event,
                                unsigned flags) {
  if (flags != cudaEventWaitDefault)
    return record(cudaErrorInvalidValue);
  std::lock_guard<std::mutex> lock(hostMutex());
  if (cudaError_t error = check(event))
    return record(error);
  cudaStream_t stream;
  if (cudaError_t error = findStream(handle, &stream))
    return record(error);
  if (event->capture)
    return record(joinCapture(stream, event));
  if (!event->recording)
    return cudaSuccess;
  if (stream->capture) {
    stream->capture->isInvalidated = true;
    return record(cudaErrorStreamCaptureIsolation);
  }
  if (stream->isLegacy())
    if (cudaError_t error = refuseLegacyDuringCapture(stream->device))
      return record(error);
  std::vector<Mark> marks = implicitMarks(stream);
  marks.push_back(event->recording->mark);
  stream->queue->push(std::move(marks), [] {});
  return recordUnlessFailed(*stream->device, cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Device *device;
  std::shared_ptr<Recording> recording;
  if (cudaError_t error = recordingOf(event, &device, &recording))
    return record(error);
  if (cudaError_t error = refuseDuringCapture())
    return record(error);
  bool isDone = !recording || recording->mark.isReached();
  return recordUnlessFailed(*device, isDone ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Device *device;
  std::shared_ptr<Recording> recording;
  if (cudaError_t error = recordingOf(event, &device, &recording))
    return record(error);
  if (cudaError_t error = refuseDuringCapture())
    return record(error);
  if (recording)
    recording->mark.wait();
  return recordUnlessFailed(*device, cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start,
                                 cudaEvent_t end) {
  Device *device;
  std::shared_ptr<Recording> from, to;
  if (cudaError_t error = recordingOf(start, &device, &from))
    return record(error);
  if (cudaError_t error = recordingOf(end, &device, &to))
    return record(error);
  {
    std::lock_guard<std::mutex> lock(hostMutex());
    if (!ms || !from || !to ||
        ((start->flags | end->flags) & cudaEventDisableTiming))
      return record(cudaErrorInvalidResourceHandle);
  }
  if (!from->mark.isReached() || !to->mark.isReached())
    return recordUnlessFailed(*device, cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(to->time - from->time).count();
  return recordUnlessFailed(*device, cudaSuccess);
}

} // extern "C"
