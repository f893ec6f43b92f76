// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Uses the CUDA runtime that the backend has loaded: this program is not linked
// with it, so that it starts on machines without CUDA.

#include "device_stream.h"

#include "bench.h"

using namespace ddphook;
using namespace ddphook::bench;

Status DeviceStream::time(const Body &body, int64_t calls, CallTimes *times) {
  DDPHOOK_TRY(context.synchronize());
  const double begin = now();
  for (int64_t i = 0; i < calls; ++i)
    DDPHOOK_TRY(body());
  const double returned = now();
  DDPHOOK_TRY(context.synchronize());
  times->device = (now() - begin) / static_cast<double>(calls);
  times->host = (returned - begin) / static_cast<double>(calls);
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

  /// Finds them in this process's CUDA runtime, if there is one.
  Status find(bool *isFound) {
    std::string path;
    ::dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *result) {
          if (!std::strstr(info->dlpi_name, "/libcudart.so"))
            return 0;
          *static_cast<std::string *>(result) = info->dlpi_name;
          return 1;
        },
        &path);
    *isFound = !path.empty();
    if (!*isFound)
      return Status::ok();
    void *library = ::dlopen(path.c_str(), RTLD_NOLOAD | RTLD_LAZY);
#define DDPHOOK_FIND(name)                                                     \
  name##Call = reinterpret_cast<decltype(name##Call)>(                         \
      library ? ::dlsym(library, DDPHOOK_EXPANDED_TEXT_OF(name)) : nullptr);   \
  if (!name##Call)                                                             \
    return unsupported("expected %s to have %s; build ddphook-bench with the " \
                       "toolkit that the backend was built with",              \
                       path.c_str(), DDPHOOK_EXPANDED_TEXT_OF(name));
    DDPHOOK_CUDA_CALLS(DDPHOOK_FIND)
#undef DDPHOOK_FIND
    return Status::ok();
  }

  Status check(cudaError_t code, const char *what) const {
    return code == cudaSuccess
               ? Status::ok()
               : internalError("%s: error %d: %s", what, static_cast<int>(code),
                               cudaGetErrorStringCall(code));
  }
};

class CudaStream : public DeviceStream {
public:
  CudaStream(Context &context, const CudaCalls &cuda)
      : DeviceStream(context), cuda(cuda) {}
  ~CudaStream() override {
    context.synchronize().ignore();
    context.setStream(nullptr).ignore();
    for (cudaGraphExec_t graph : graphs)
      (void)cuda.cudaGraphExecDestroyCall(graph);
    for (cudaEvent_t event : {first, last})
      if (event)
        (void)cuda.cudaEventDestroyCall(event);
    if (stream)
      (void)cuda.cudaStreamDestroyCall(stream);
  }

  Status create() {
    DDPHOOK_TRY(cuda.check(
        cuda.cudaStreamCreateWithFlagsCall(&stream, cudaStreamNonBlocking),
        "making a stream"));
    for (cudaEvent_t *event : {&first, &last})
      DDPHOOK_TRY(
          cuda.check(cuda.cudaEventCreateCall(event), "making an event"));
    return context.setStream(stream);
  }

  Status time(const Body &body, int64_t calls, CallTimes *times) override {
    DDPHOOK_TRY(context.synchronize());
    DDPHOOK_TRY(cuda.check(cuda.cudaEventRecordCall(first, stream),
                           "recording an event"));
    const double begin = now();
    for (int64_t i = 0; i < calls; ++i)
      DDPHOOK_TRY(body());
    const double returned = now();
    DDPHOOK_TRY(cuda.check(cuda.cudaEventRecordCall(last, stream),
                           "recording an event"));
    DDPHOOK_TRY(spin());
    float milliseconds = 0;
    DDPHOOK_TRY(
        cuda.check(cuda.cudaEventElapsedTimeCall(&milliseconds, first, last),
                   "asking for a time"));
    times->device = 1e-3 * milliseconds / static_cast<double>(calls);
    times->host = (returned - begin) / static_cast<double>(calls);
    return Status::ok();
  }

  Status capture(const Body &body, Body *replay) override {
    DDPHOOK_TRY(context.synchronize());
    DDPHOOK_TRY(cuda.check(cuda.cudaStreamBeginCaptureCall(
                               stream, cudaStreamCaptureModeThreadLocal),
                           "beginning a capture"));
    const Status status = body();
    cudaGraph_t graph = nullptr;
    DDPHOOK_TRY(cuda.check(cuda.cudaStreamEndCaptureCall(stream, &graph),
                           "ending a capture"));
    DDPHOOK_TRY(status);
    cudaGraphExec_t executable = nullptr;
    const Status made =
        cuda.check(cuda.cudaGraphInstantiateCall(&executable, graph, 0),
                   "instantiating a graph");
    (void)cuda.cudaGraphDestroyCall(graph);
    DDPHOOK_TRY(made);
    graphs.push_back(executable);
    *replay = [this, executable] {
      return cuda.check(cuda.cudaGraphLaunchCall(executable, stream),
                        "launching a graph");
    };
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
        return deadlineExceeded("expected the device to be done within %g s",
                                kLongestSeconds);
    }
  }

  const CudaCalls cuda;
  cudaStream_t stream = nullptr;
  cudaEvent_t first = nullptr, last = nullptr;
  std::vector<cudaGraphExec_t> graphs;
};

} // namespace

#endif

Status DeviceStream::open(Context &context,
                          std::unique_ptr<DeviceStream> *stream) {
#ifdef DDPHOOK_BENCH_HAS_CUDA
  CudaCalls calls;
  bool isFound = false;
  DDPHOOK_TRY(calls.find(&isFound));
  if (isFound) {
    auto opened = std::make_unique<CudaStream>(context, calls);
    DDPHOOK_TRY(opened->create());
    *stream = std::move(opened);
    return Status::ok();
  }
#endif
  stream->reset(new DeviceStream(context));
  return Status::ok();
}
