// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The backend runs on the caller's threads. It restores their current device,
// capture mode and last error when it returns.

#pragma once

#include <cuda_runtime_api.h>

namespace ddphook::cuda {

/// Makes a device current for the calling thread during its lifetime, and then
/// restores the device that the caller had made current. A thread whose device
/// has no context in this process has not made it current. It keeps the new
/// device, because restoring would create a context, which takes hundreds of
/// megabytes of a GPU that another rank uses.
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
/// forbid, during its lifetime.
class RelaxedCapture {
public:
  RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode); }
  ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode); }
  RelaxedCapture(const RelaxedCapture &) = delete;
  RelaxedCapture &operator=(const RelaxedCapture &) = delete;

private:
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
};

/// Call cudaStreamQuery() and cudaEventQuery(), and preserve the calling
/// thread's last error, which is the caller's: CUDA records there even that
/// something is not ready.
cudaError_t queryStream(cudaStream_t stream);
cudaError_t queryEvent(cudaEvent_t event);

} // namespace ddphook::cuda
