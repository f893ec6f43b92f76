// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// With how many loads and stores the element-wise kernels read and write
// arrays, counted by the emulated device. The ideal is accesses of 16 bytes;
// every byte is read and written once, wherever arrays begin.

#include "backends/cuda/cuda_kernels_test_util.h"

#include "../../../backends/cuda/kernels/kernels.h"

#include "emulated_cuda/traffic.h"

#include <algorithm>
#include <functional>

using namespace ddphook;
using namespace ddphook::cuda;
using emulated_cuda::Accesses;
using emulated_cuda::Traffic;

namespace {

constexpr int64_t kWidest = 16;
/// Whole accesses of every type, and more than a block has.
constexpr int64_t kCount = 30000;
/// What is before the first aligned element and after the last.
constexpr int64_t kEdges = 32;

int64_t shiftsOf(Dtype type) { return kWidest / dtypeSize(type); }
int64_t idealOf(Dtype type) { return kCount * dtypeSize(type) / kWidest; }

/// An input that begins `shift` elements after a multiple of 16 bytes.
struct Input {
  Dtype type;
  int64_t shift;
};

/// Bytes of the widest access to an array that is `shift` elements from a
/// multiple of 16 bytes.
int64_t widthOf(const Input &input, int64_t head) {
  int64_t bytes = kWidest;
  while ((input.shift + head) * dtypeSize(input.type) % bytes)
    bytes /= 2;
  return bytes;
}

/// The fewest loads of whole packs from all inputs where an output has aligned
/// ones; with 8 elements or fewer before them.
int64_t leastLoads(const std::vector<Input> &inputs, const Input &output) {
  int64_t least = INT64_MAX;
  for (int64_t head = 0; head < 8; ++head) {
    if (widthOf(output, head) != kWidest)
      continue;
    int64_t loads = 0;
    for (const Input &input : inputs)
      loads += kCount * dtypeSize(input.type) / widthOf(input, head);
    least = std::min(least, loads);
  }
  return least;
}

class CudaAccesses : public CudaKernelTest {
protected:
  /// Of the one launch that `body` makes.
  Traffic count(const std::function<cudaError_t()> &body) {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    emulated_cuda::recordTraffic(true);
    EXPECT_EQ(body(), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const std::vector<Traffic> launches = emulated_cuda::takeTraffic();
    emulated_cuda::recordTraffic(false);
    EXPECT_EQ(launches.size(), 1u);
    return launches.empty() ? Traffic() : launches[0];
  }
};

void expectAccesses(const Accesses &got, int64_t bytes, int64_t count) {
  EXPECT_EQ(got.bytes, static_cast<uint64_t>(bytes));
  EXPECT_LE(got.count, static_cast<uint64_t>(count));
}

TEST_F(CudaAccesses, ofAlignedCastsAreTheIdeal) {
  for (Dtype from : kTypes)
    for (Dtype to : kTypes)
      for (int64_t divisor : {1, 2, 3}) {
        SCOPED_TRACE(std::string(dtypeName(from)) + " to " + dtypeName(to));
        DeviceArray in(HostArray(from, kCount)), out(to, kCount);
        const Traffic got = count([&] {
          return compressArray(stream, in.data(), from, out.data(), to, kCount,
                               {divisor, /*isExact=*/true});
        });
        expectAccesses(got.loads, kCount * dtypeSize(from), idealOf(from));
        expectAccesses(got.stores, kCount * dtypeSize(to), idealOf(to));
      }
}

TEST_F(CudaAccesses, ofShiftedCastsAreAsWideAsTheirAddressesAllow) {
  for (Dtype from : kTypes)
    for (Dtype to : kTypes) {
      SCOPED_TRACE(std::string(dtypeName(from)) + " to " + dtypeName(to));
      for (int64_t ofIn = 0; ofIn < shiftsOf(from); ++ofIn)
        for (int64_t ofOut = 0; ofOut < shiftsOf(to); ++ofOut) {
          DeviceArray in(HostArray(from, kCount), ofIn);
          DeviceArray out(to, kCount, ofOut);
          const Traffic got = count([&] {
            return castArray(stream, in.data(), from, out.data(), to, kCount);
          });
          const int64_t least = leastLoads({{from, ofIn}}, {to, ofOut});
          expectAccesses(got.loads, kCount * dtypeSize(from), least + kEdges);
          expectAccesses(got.stores, kCount * dtypeSize(to),
                         idealOf(to) + kEdges);
        }
    }
}

TEST_F(CudaAccesses, ofSumsAreAsWideAsTheirAddressesAllow) {
  for (Dtype type : kTypes) {
    SCOPED_TRACE(dtypeName(type));
    const HostArray zeros(type, kCount);
    for (int64_t ofA = 0; ofA < shiftsOf(type); ++ofA)
      for (int64_t ofB : {int64_t(0), ofA, shiftsOf(type) / 2}) {
        DeviceArray a(zeros, ofA), b(zeros, ofB), out(type, kCount);
        const Traffic got = count([&] {
          return addArrays(stream, out.data(), a.data(), b.data(), type,
                           kCount);
        });
        const std::vector<Input> inputs = {{type, ofA}, {type, ofB}};
        const int64_t least = leastLoads(inputs, {type, 0});
        expectAccesses(got.loads, 2 * kCount * dtypeSize(type), least + kEdges);
        expectAccesses(got.stores, kCount * dtypeSize(type), idealOf(type));
      }
  }
}

TEST_F(CudaAccesses, ofTheSearchForInfinitiesAreTheIdeal) {
  for (Dtype type : kTypes) {
    DeviceValue<int32_t> flag(0);
    for (int64_t shift = 0; shift < shiftsOf(type); ++shift) {
      DeviceArray in(HostArray(type, kCount), shift);
      const Traffic got = count([&] {
        return findNonFinite(stream, in.data(), type, kCount, flag.data());
      });
      expectAccesses(got.loads, kCount * dtypeSize(type),
                     idealOf(type) + kEdges);
      expectAccesses(got.stores, 0, 0);
    }
  }
}

} // namespace
