// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All members are guarded by hostMutex(), and so are the functions that say so.

#pragma once

#include "device.h"
#include "queue.h"

#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

struct CUgraphNode_st {
  emulated_cuda::Queue::Operation operation;
  /// The number of the captured stream that it was given to; the origin's is 0.
  size_t lane = 0;
  std::vector<cudaGraphNode_t> dependencies;
};

struct CUgraph_st {
  emulated_cuda::Device *device = nullptr;
  /// Every node after those that it depends on.
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
};

namespace emulated_cuda {

/// Streams that record what they are given instead of running it.
struct Capture {
  std::unique_ptr<CUgraph_st> graph;
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool isInvalidated = false;
  /// The origin, and those that wait for its events, with numbers from 0.
  std::map<cudaStream_t, size_t> streams;
};

} // namespace emulated_cuda

struct CUstream_st {
  emulated_cuda::Device *device = nullptr;
  std::shared_ptr<emulated_cuda::Queue> queue;
  unsigned flags = 0;
  int priority = 0;

  std::shared_ptr<emulated_cuda::Capture> capture;
  /// What the next operation of a captured stream depends on.
  std::vector<cudaGraphNode_t> tails;

  bool isLegacy() const { return device->legacy == this; }
};

namespace emulated_cuda {

/// The stream of a handle, of any device; null and cudaStreamLegacy: the legacy
/// stream of the calling thread's device; cudaStreamPerThread: the thread's own
/// one there. With hostMutex() held.
cudaError_t findStream(cudaStream_t handle, cudaStream_t *stream);

/// What the next operation of the stream has to wait for because of the legacy
/// stream. With hostMutex() held.
std::vector<Mark> implicitMarks(cudaStream_t stream);

/// Gives the stream an operation, or the graph that captures it. `mark`, unless
/// null, becomes the operation's end when it was not captured.
cudaError_t submit(cudaStream_t handle, Queue::Operation operation,
                   Mark *mark = nullptr);
/// The same with hostMutex() held and a stream that findStream() gave.
cudaError_t submitLocked(cudaStream_t stream, Queue::Operation operation,
                         Mark *mark);

/// Waits for everything that all streams of a device were given.
void waitForDevice(Device *device);

/// For calls that may not come while streams are captured: those that wait,
/// ask, or allocate. An error ends the captures that it concerns.
cudaError_t refuseDuringCapture();
/// The same for a call on one stream. With hostMutex() held.
cudaError_t refuseDuringCaptureLocked(cudaStream_t stream);
/// Forgets the stream, which is being destroyed, in the capture that it takes
/// part in. With hostMutex() held.
void leaveCapture(cudaStream_t stream);
/// cudaErrorStreamCaptureImplicit while a stream is captured for which the
/// legacy stream would have to wait. With hostMutex() held.
cudaError_t refuseLegacyDuringCapture(Device *device);

} // namespace emulated_cuda
