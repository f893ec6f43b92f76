// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Since CUDA 12, cudaSetDevice() creates the device's primary context. The
// driver's function that tells if there is one is looked up at run time, so
// that this library can be loaded without a driver.

#include "thread_state.h"

#include "detached_call.h"

#include <cuda.h>

#include <optional>

using namespace ddphook;
using namespace ddphook::cuda;

/// Returns the driver's function; null if no driver has it.
static decltype(&cuDevicePrimaryCtxGetState) findGetState() {
  void *function = nullptr;
  // The version of CUDA that introduced the function.
  if (cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function,
                                       7000, cudaEnableDefault,
                                       nullptr) != cudaSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<decltype(&cuDevicePrimaryCtxGetState)>(function);
}

static bool hasContext(int device) {
  static const auto getState = findGetState();
  unsigned flags = 0;
  int isActive = 0;
  return getState && getState(device, &flags, &isActive) == CUDA_SUCCESS &&
         isActive;
}

CurrentDevice::CurrentDevice(int number) : mine(number) {
  if (cudaGetDevice(&previous) != cudaSuccess)
    previous = mine;
  if (previous != mine)
    (void)cudaSetDevice(mine);
}

CurrentDevice::~CurrentDevice() {
  if (previous != mine && hasContext(previous))
    (void)cudaSetDevice(previous);
}

/// Queries, and clears the error that CUDA remembers.
template <typename Handle>
static cudaError_t ask(cudaError_t (*query)(Handle), Handle handle) {
  const cudaError_t state = query(handle);
  if (state != cudaSuccess)
    (void)cudaGetLastError();
  return state;
}

/// Queries on another thread, for a caller that has not yet retrieved an error
/// of this one: a query here would replace that error, and nothing restores it.
template <typename Handle>
static cudaError_t askElsewhere(cudaError_t (*query)(Handle), Handle handle) {
  int device = 0;
  (void)cudaGetDevice(&device);
  std::optional<cudaError_t> state;
  const std::future<void> call = callDetached("ddphook-query", [&] {
    enterDevice(device);
    state = query(handle);
  });
  if (call.valid())
    call.wait();
  return state ? *state : ask(query, handle);
}

cudaError_t cuda::queryStream(cudaStream_t stream) {
  // cudaStreamPerThread is another stream on each thread, so query it here.
  return cudaPeekAtLastError() == cudaSuccess || stream == cudaStreamPerThread
             ? ask(cudaStreamQuery, stream)
             : askElsewhere(cudaStreamQuery, stream);
}

cudaError_t cuda::queryEvent(cudaEvent_t event) {
  return cudaPeekAtLastError() == cudaSuccess
             ? ask(cudaEventQuery, event)
             : askElsewhere(cudaEventQuery, event);
}
