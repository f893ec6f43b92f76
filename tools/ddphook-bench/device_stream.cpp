//===- device_stream.cpp - time and graphs of a device's work -------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Uses the CUDA runtime that the backend has loaded: this program is not linked
// with it, so that it starts on machines without CUDA.
//
//===----------------------------------------------------------------------===//
#include "device_stream.h"

#include "backend/backend_store.h"
#include "measure.h"

using namespace ddphook;
using namespace ddphook::bench;

Status DeviceStream::time(const std::function<Status()> &body, int64_t calls,
                          CallTimes *times) {
  DDPHOOK_RETURN_IF_ERROR(device.synchronize());
  const double begin = now();
  for (int64_t i = 0; i < calls; ++i)
    DDPHOOK_RETURN_IF_ERROR(body());
  const double returned = now();
  DDPHOOK_RETURN_IF_ERROR(device.synchronize());
  times->device = (now() - begin) / static_cast<double>(calls);
  times->host = (returned - begin) / static_cast<double>(calls);
  return Status::ok();
}

Status DeviceStream::capture(const std::function<Status()> &,
                             std::unique_ptr<DeviceGraph> *) {
  return Status::ok();
}

#ifdef DDPHOOK_BENCH_HAS_CUDA

#include <cuda_runtime_api.h>

#include <dlfcn.h>
#include <link.h>

#include <cstring>

namespace {

/// Work that takes longer is considered lost.
constexpr double kLongestSeconds = 60;

/// The functions of the CUDA runtime that this file calls, under the names that
/// the header gives their versions.
#define DDPHOOK_CUDA_CALLS(CALL)                                               \
  CALL(cudaGetErrorName)                                                       \
  CALL(cudaGetErrorString)                                                     \
  CALL(cudaStreamCreateWithFlags)                                              \
  CALL(cudaStreamDestroy)                                                      \
  CALL(cudaStreamBeginCapture)                                                 \
  CALL(cudaStreamEndCapture)                                                   \
  CALL(cudaGraphInstantiate)                                                   \
  CALL(cudaGraphLaunch)                                                        \
  CALL(cudaGraphExecDestroy)                                                   \
  CALL(cudaGraphDestroy)                                                       \
  CALL(cudaEventCreate)                                                        \
  CALL(cudaEventRecord)                                                        \
  CALL(cudaEventQuery)                                                         \
  CALL(cudaEventElapsedTime)                                                   \
  CALL(cudaEventDestroy)

#define DDPHOOK_TEXT_OF(name) #name
#define DDPHOOK_EXPANDED_TEXT_OF(name) DDPHOOK_TEXT_OF(name)

struct CudaCalls {
#define DDPHOOK_DECLARE(name) decltype(&::name) name##Call = nullptr;
  DDPHOOK_CUDA_CALLS(DDPHOOK_DECLARE)
#undef DDPHOOK_DECLARE

  /// Sets `missing` to the name of a function that does not exist, if any.
  static CudaCalls of(void *library, std::string *missing) {
    CudaCalls calls;
    auto find = [&](const char *name) {
      void *symbol = ::dlsym(library, name);
      if (!symbol && missing->empty())
        *missing = name;
      return symbol;
    };
#define DDPHOOK_FIND(name)                                                     \
  calls.name##Call = reinterpret_cast<decltype(calls.name##Call)>(             \
      find(DDPHOOK_EXPANDED_TEXT_OF(name)));
    DDPHOOK_CUDA_CALLS(DDPHOOK_FIND)
#undef DDPHOOK_FIND
    return calls;
  }

  Status check(cudaError_t code, const char *what) const {
    return code == cudaSuccess ? Status::ok()
                               : error(DDPHOOK_INTERNAL, "%s: %s: %s", what,
                                       cudaGetErrorNameCall(code),
                                       cudaGetErrorStringCall(code));
  }
};

/// Returns the path of the CUDA runtime in this process, or an empty text.
std::string findCudaRuntime() {
  std::string path;
  ::dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *result) {
        if (!std::strstr(info->dlpi_name, "/libcudart.so"))
          return 0;
        *static_cast<std::string *>(result) = info->dlpi_name;
        return 1;
      },
      &path);
  return path;
}

class CudaGraph : public DeviceGraph {
public:
  CudaGraph(const CudaCalls &cuda, WorkDevice &device, cudaStream_t stream)
      : cuda(cuda), device(device), stream(stream) {}
  ~CudaGraph() override {
    device.synchronize().ignore();
    if (executable)
      (void)cuda.cudaGraphExecDestroyCall(executable);
    if (graph)
      (void)cuda.cudaGraphDestroyCall(graph);
  }

  Status record(const std::function<Status()> &body) {
    DDPHOOK_RETURN_IF_ERROR(
        cuda.check(cuda.cudaStreamBeginCaptureCall(
                       stream, cudaStreamCaptureModeThreadLocal),
                   "beginning a capture"));
    const Status status = body();
    const Status ended = cuda.check(
        cuda.cudaStreamEndCaptureCall(stream, &graph), "ending a capture");
    DDPHOOK_RETURN_IF_ERROR(status);
    DDPHOOK_RETURN_IF_ERROR(ended);
    return cuda.check(cuda.cudaGraphInstantiateCall(&executable, graph, 0),
                      "instantiating a graph");
  }

  Status launch() override {
    return cuda.check(cuda.cudaGraphLaunchCall(executable, stream),
                      "launching a graph");
  }

private:
  const CudaCalls &cuda;
  WorkDevice &device;
  const cudaStream_t stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
};

class CudaStream : public DeviceStream {
public:
  CudaStream(WorkDevice &device, const CudaCalls &cuda)
      : DeviceStream(device), cuda(cuda) {}
  ~CudaStream() override {
    device.synchronize().ignore();
    setStream(nullptr).ignore();
    for (cudaEvent_t event : {first, last})
      if (event)
        (void)cuda.cudaEventDestroyCall(event);
    if (stream)
      (void)cuda.cudaStreamDestroyCall(stream);
  }

  Status create() {
    DDPHOOK_RETURN_IF_ERROR(cuda.check(
        cuda.cudaStreamCreateWithFlagsCall(&stream, cudaStreamNonBlocking),
        "making a stream"));
    for (cudaEvent_t *event : {&first, &last})
      DDPHOOK_RETURN_IF_ERROR(
          cuda.check(cuda.cudaEventCreateCall(event), "making an event"));
    return setStream(stream);
  }

  Status time(const std::function<Status()> &body, int64_t calls,
              CallTimes *times) override {
    DDPHOOK_RETURN_IF_ERROR(device.synchronize());
    DDPHOOK_RETURN_IF_ERROR(cuda.check(cuda.cudaEventRecordCall(first, stream),
                                       "recording an event"));
    const double begin = now();
    for (int64_t i = 0; i < calls; ++i)
      DDPHOOK_RETURN_IF_ERROR(body());
    const double returned = now();
    DDPHOOK_RETURN_IF_ERROR(cuda.check(cuda.cudaEventRecordCall(last, stream),
                                       "recording an event"));
    DDPHOOK_RETURN_IF_ERROR(spin());
    float milliseconds = 0;
    DDPHOOK_RETURN_IF_ERROR(
        cuda.check(cuda.cudaEventElapsedTimeCall(&milliseconds, first, last),
                   "asking for a time"));
    times->device = 1e-3 * milliseconds / static_cast<double>(calls);
    times->host = (returned - begin) / static_cast<double>(calls);
    return Status::ok();
  }

  Status capture(const std::function<Status()> &body,
                 std::unique_ptr<DeviceGraph> *graph) override {
    DDPHOOK_RETURN_IF_ERROR(device.synchronize());
    auto recorded = std::make_unique<CudaGraph>(cuda, device, stream);
    DDPHOOK_RETURN_IF_ERROR(recorded->record(body));
    *graph = std::move(recorded);
    return Status::ok();
  }

private:
  /// Waits without a pause. The backend's synchronization sleeps, and the
  /// device would reduce its clocks before the next sample.
  Status spin() const {
    const double begin = now();
    for (;;) {
      const cudaError_t code = cuda.cudaEventQueryCall(last);
      if (code != cudaErrorNotReady)
        return cuda.check(code, "waiting for an event");
      if (now() - begin > kLongestSeconds)
        return error(DDPHOOK_DEADLINE_EXCEEDED,
                     "expected the device to be done within %g s",
                     kLongestSeconds);
    }
  }

  Status setStream(cudaStream_t to) {
    ddphook_backend_error_t message = {};
    return fromBackendError(
        device.table().stream_set(device.get(), to, &message), message);
  }

  const CudaCalls cuda;
  cudaStream_t stream = nullptr;
  cudaEvent_t first = nullptr, last = nullptr;
};

} // namespace

Status DeviceStream::open(WorkDevice &device,
                          std::unique_ptr<DeviceStream> *stream) {
  const std::string path = findCudaRuntime();
  if (device.table().memory_is_host || path.empty()) {
    stream->reset(new DeviceStream(device));
    return Status::ok();
  }
  void *library = ::dlopen(path.c_str(), RTLD_NOLOAD | RTLD_LAZY);
  std::string missing;
  const CudaCalls calls = CudaCalls::of(library, &missing);
  if (!library || !missing.empty())
    return error(DDPHOOK_UNSUPPORTED,
                 "expected %s to have %s; build ddphook-bench with the "
                 "toolkit that the backend was built with",
                 path.c_str(), missing.c_str());
  auto opened = std::make_unique<CudaStream>(device, calls);
  DDPHOOK_RETURN_IF_ERROR(opened->create());
  *stream = std::move(opened);
  return Status::ok();
}

#else

Status DeviceStream::open(WorkDevice &device,
                          std::unique_ptr<DeviceStream> *stream) {
  stream->reset(new DeviceStream(device));
  return Status::ok();
}

#endif
