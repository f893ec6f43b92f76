// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the environment asks for. Every test runs in a process of its own, which
// reads its environment once.

#include "cuda.h"
#include "cuda_runtime.h"
#include "nccl_test_util.h"

#include <csignal>
#include <cstring>
#include <set>
#include <thread>

using namespace emulated_cuda_test;

namespace {

using Environment = std::vector<std::pair<const char *, const char *>>;

void runWith(const Environment &environment,
             const std::function<std::string()> &function, int signal = 0) {
  SharedId id;
  runAll(1, id,
         [&](int) {
           for (auto [name, value] : environment)
             setenv(name, value, 1);
           return function();
         },
         {signal});
}

__global__ void nothing() {}

cudaError_t launchOn(cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.stream = stream;
  return cudaLaunchKernelEx(&config, nothing);
}

TEST(Device, ThereMayBeNone) {
  runWith({{"EMULATED_CUDA_DEVICES", "0"}}, []() -> std::string {
    int count = -1;
    void *memory;
    cudaStream_t stream;
    EXPECT_TEXT(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    EXPECT_TEXT(count, 0);
    EXPECT_TEXT(cudaSetDevice(0), cudaErrorNoDevice);
    EXPECT_TEXT(cudaMalloc(&memory, 16), cudaErrorNoDevice);
    EXPECT_TEXT(cudaStreamCreate(&stream), cudaErrorNoDevice);
    EXPECT_TEXT(launchOn(nullptr), cudaErrorNoDevice);
    EXPECT_TEXT(std::string(cudaGetErrorName(cudaGetLastError())),
                "cudaErrorNoDevice");
    return "";
  });
}

TEST(Device, ItsDriverMayBeTooOld) {
  runWith({{"EMULATED_CUDA_DRIVER", "12080"}}, []() -> std::string {
    int count, version;
    EXPECT_TEXT(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    REQUIRE_CUDA(cudaDriverGetVersion(&version));
    EXPECT_TEXT(version, 12080);
    REQUIRE_CUDA(cudaRuntimeGetVersion(&version));
    EXPECT_TEXT(version, 13000);
    return "";
  });
}

TEST(Device, SeveralAreToldApart) {
  runWith({{"EMULATED_CUDA_DEVICES", "3"}}, []() -> std::string {
    int count, current;
    REQUIRE_CUDA(cudaGetDeviceCount(&count));
    EXPECT_TEXT(count, 3);
    std::set<std::string> uuids, addresses;
    for (int i = 0; i < count; ++i) {
      cudaDeviceProp prop;
      char address[16];
      REQUIRE_CUDA(cudaGetDeviceProperties(&prop, i));
      REQUIRE_CUDA(cudaDeviceGetPCIBusId(address, sizeof(address), i));
      uuids.insert(std::string(prop.uuid.bytes, 16));
      addresses.insert(address);
    }
    EXPECT_TEXT(uuids.size(), 3u);
    EXPECT_TEXT(addresses.size(), 3u);
    EXPECT_TEXT(cudaSetDevice(3), cudaErrorInvalidDevice);
    REQUIRE_CUDA(cudaSetDevice(2));
    REQUIRE_CUDA(cudaGetDevice(&current));
    EXPECT_TEXT(current, 2);
    // Streams and memory belong to the device on which they were made.
    cudaStream_t stream;
    void *memory;
    REQUIRE_CUDA(cudaStreamCreate(&stream));
    REQUIRE_CUDA(cudaMalloc(&memory, 4096));
    cudaPointerAttributes attributes;
    REQUIRE_CUDA(cudaPointerGetAttributes(&attributes, memory));
    EXPECT_TEXT(attributes.device, 2);
    REQUIRE_CUDA(cudaSetDevice(1));
    size_t free, total;
    REQUIRE_CUDA(cudaMemGetInfo(&free, &total));
    EXPECT_TEXT(free, total);
    EXPECT_TEXT(launchOn(stream), cudaErrorInvalidResourceHandle);
    REQUIRE_CUDA(cudaMemsetAsync(memory, 0, 4096, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    REQUIRE_CUDA(cudaFree(memory));
    REQUIRE_CUDA(cudaStreamDestroy(stream));
    return "";
  });
}

TEST(Device, ACallThatNeedsAContextMakesOne) {
  runWith({{"EMULATED_CUDA_DEVICES", "3"}}, []() -> std::string {
    void *function = nullptr;
    REQUIRE_CUDA(cudaGetDriverEntryPointByVersion(
        "cuDevicePrimaryCtxGetState", &function, 7000, cudaEnableDefault));
    auto contexts = [&] {
      std::string text;
      for (int i = 0; i < 3; ++i) {
        unsigned flags;
        int isActive;
        reinterpret_cast<decltype(&cuDevicePrimaryCtxGetState)>(function)(
            i, &flags, &isActive);
        text += isActive ? '1' : '0';
      }
      return text;
    };
    int count, current;
    cudaDeviceProp prop;
    REQUIRE_CUDA(cudaGetDeviceCount(&count));
    REQUIRE_CUDA(cudaGetDevice(&current));
    REQUIRE_CUDA(cudaGetDeviceProperties(&prop, 1));
    EXPECT_TEXT(contexts(), "000");
    REQUIRE_CUDA(cudaSetDevice(1));
    EXPECT_TEXT(contexts(), "010");
    cudaEvent_t event;
    REQUIRE_CUDA(cudaEventCreate(&event));
    std::string other;
    std::thread([&] {
      // A thread that has chosen nothing has device 0.
      cudaEventQuery(event);
      other = contexts();
    }).join();
    EXPECT_TEXT(other, "110");
    return "";
  });
}

TEST(Device, OneGpuIsTheSameInAllProcesses) {
  auto uuid = [](int device) {
    cudaDeviceProp prop;
    return cudaGetDeviceProperties(&prop, device)
               ? std::string()
               : std::string(prop.uuid.bytes, 16);
  };
  std::string expected("emulated-GPU\x02\0\0\0", 16);
  runWith({{"EMULATED_CUDA_DEVICES", "3"}}, [=]() -> std::string {
    EXPECT_TEXT(uuid(2), expected);
    return "";
  });
  runWith({{"EMULATED_CUDA_FIRST_DEVICE", "2"}}, [=]() -> std::string {
    EXPECT_TEXT(uuid(0), expected);
    return "";
  });
}

TEST(Device, AttributesAgreeWithTheProperties) {
  runWith({{"EMULATED_CUDA_CAPABILITY", "103"}}, []() -> std::string {
    cudaDeviceProp prop;
    int value;
    REQUIRE_CUDA(cudaGetDeviceProperties(&prop, 0));
    EXPECT_TEXT(prop.major * 10 + prop.minor, 103);
    REQUIRE_CUDA(
        cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
    EXPECT_TEXT(value, prop.major);
    REQUIRE_CUDA(
        cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
    EXPECT_TEXT(value, prop.multiProcessorCount);
    REQUIRE_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrL2CacheSize, 0));
    EXPECT_TEXT(value, prop.l2CacheSize);
    EXPECT_TEXT(cudaDeviceGetAttribute(&value, cudaDevAttrL2CacheSize, 1),
                cudaErrorInvalidDevice);
    EXPECT_TEXT(
        cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(127), 0),
        cudaErrorInvalidValue);
    return "";
  });
}

TEST(Device, ItsMemoryMayBeSmall) {
  runWith({{"EMULATED_CUDA_MEMORY", "1000"}}, []() -> std::string {
    void *a, *b;
    REQUIRE_CUDA(cudaMalloc(&a, 900));
    EXPECT_TEXT(cudaMalloc(&b, 101), cudaErrorMemoryAllocation);
    REQUIRE_CUDA(cudaMalloc(&b, 100));
    REQUIRE_CUDA(cudaFree(a));
    return "";
  });
}

TEST(Fault, TheNthAllocationFails) {
  runWith({{"EMULATED_CUDA_FAULT", "malloc:3,host_malloc"}},
          []() -> std::string {
            void *memory;
            EXPECT_TEXT(cudaMallocHost(&memory, 8), cudaErrorMemoryAllocation);
            REQUIRE_CUDA(cudaMallocHost(&memory, 8));
            REQUIRE_CUDA(cudaMalloc(&memory, 8));
            REQUIRE_CUDA(cudaMalloc(&memory, 8));
            EXPECT_TEXT(cudaMalloc(&memory, 8), cudaErrorMemoryAllocation);
            REQUIRE_CUDA(cudaMalloc(&memory, 8));
            return "";
          });
}

TEST(Fault, TheNthLaunchFails) {
  runWith({{"EMULATED_CUDA_FAULT", "launch:2"}}, []() -> std::string {
    REQUIRE_CUDA(launchOn(nullptr));
    EXPECT_TEXT(launchOn(nullptr), cudaErrorLaunchOutOfResources);
    REQUIRE_CUDA(launchOn(nullptr));
    REQUIRE_CUDA(cudaDeviceSynchronize());
    return "";
  });
}

TEST(Fault, AKernelsFailureStays) {
  for (const char *fault : {"kernel:2", "memcpy:2"}) {
    runWith({{"EMULATED_CUDA_FAULT", fault}}, []() -> std::string {
      int *memory, *pinned;
      cudaStream_t stream;
      REQUIRE_CUDA(cudaMalloc(&memory, 4));
      REQUIRE_CUDA(cudaMallocHost(&pinned, 4));
      REQUIRE_CUDA(cudaStreamCreate(&stream));
      *pinned = 1;
      REQUIRE_CUDA(launchOn(stream));
      REQUIRE_CUDA(
          cudaMemcpyAsync(memory, pinned, 4, cudaMemcpyHostToDevice, stream));
      REQUIRE_CUDA(cudaStreamSynchronize(stream));
      *pinned = 2;
      // The failure may come before the second call, and be its error already.
      launchOn(stream);
      cudaMemcpyAsync(memory, pinned, 4, cudaMemcpyHostToDevice, stream);
      EXPECT_TEXT(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
      EXPECT_TEXT(*memory, 1);
      EXPECT_TEXT(
          cudaMemcpyAsync(memory, pinned, 4, cudaMemcpyHostToDevice, stream),
          cudaErrorIllegalAddress);
      EXPECT_TEXT(launchOn(stream), cudaErrorIllegalAddress);
      EXPECT_TEXT(cudaMalloc(&memory, 4), cudaErrorIllegalAddress);
      EXPECT_TEXT(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
      EXPECT_TEXT(cudaGetLastError(), cudaErrorIllegalAddress);
      EXPECT_TEXT(cudaGetLastError(), cudaErrorIllegalAddress);
      return "";
    });
  }
}

TEST(Fault, MayBeForOneRank) {
  runWith({{"EMULATED_CUDA_FAULT", "malloc@1"}}, []() -> std::string {
    void *memory;
    REQUIRE_CUDA(cudaMalloc(&memory, 8));
    return "";
  });
}

TEST(Fault, AWordThatIsNoneEndsTheProcess) {
  for (const char *fault : {"mallok:1", "malloc:x", "malloc:0"}) {
    runWith(
        {{"EMULATED_CUDA_FAULT", fault}},
        []() -> std::string {
          void *memory;
          cudaMalloc(&memory, 8);
          return "";
        },
        SIGABRT);
  }
}

} // namespace
