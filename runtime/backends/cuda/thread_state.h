//===- thread_state.h - what CUDA knows of a thread -------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The backend runs on the caller's threads. Their current device, their capture
// mode and their last error are the caller's again when it returns.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_THREAD_STATE_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_THREAD_STATE_H

#include <cuda_runtime_api.h>

namespace ddphook::cuda {

/// Makes a device the calling thread's current one while it lives. Callers that
/// have made another one current find that again. A thread whose device has no
/// context in this process has not made it current: it keeps the new device,
/// because going back would make a context there, which takes hundreds of
/// megabytes of a GPU that belongs to another rank.
class CurrentDevice {
public:
  explicit CurrentDevice(int number);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice &) = delete;
  CurrentDevice &operator=(const CurrentDevice &) = delete;

private:
  int previous;
  const int mine;
};

/// Lets the calling thread do what a capture elsewhere in the process would
/// forbid, while it lives.
class RelaxedCapture {
public:
  RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode); }
  ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode); }
  RelaxedCapture(const RelaxedCapture &) = delete;
  RelaxedCapture &operator=(const RelaxedCapture &) = delete;

private:
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
};

/// cudaStreamQuery() and cudaEventQuery(), after which the calling thread's
/// last error, which is the caller's, is what it was before: CUDA itself
/// remembers there even that something is not ready.
cudaError_t queryStream(cudaStream_t stream);
cudaError_t queryEvent(cudaEvent_t event);

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_THREAD_STATE_H
