// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every kernel of kernels.h on a device, real or emulated, bit by bit against
// the host backend's: all types, awkward lengths and alignments, in place.

#include "backends/cuda/cuda_kernels_test_util.h"

#include "../../../backends/cuda/kernels/kernels.h"
#include "../../../backends/host/kernels/kernels.h"

#include <functional>
#include <limits>

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

/// Around the lengths of packs and of blocks.
std::vector<int64_t> lengths() {
  std::vector<int64_t> result;
  for (int64_t n = 0; n <= 33; ++n)
    result.push_back(n);
  for (int64_t n : {1000, 2047, 2048, 8191, 8193, 65537})
    result.push_back(n);
  return result;
}

class CudaElementwise : public CudaKernelTest {
protected:
  HostArray randomArray(Dtype type, int64_t n) {
    HostArray array(type, n);
    array.fillWithBits(random);
    return array;
  }

  /// All lengths; short ones with all alignments.
  void forLengths(const std::function<void(int64_t n, int64_t shift)> &body) {
    for (int64_t n : lengths())
      for (int64_t shift : {0, 1, 2, 3, 5, 7}) {
        if (n > 33 && shift > 1)
          continue;
        SCOPED_TRACE(std::to_string(n) + " elements, shifted by " +
                     std::to_string(shift));
        body(n, shift);
        if (HasFailure())
          return;
      }
  }
};

void expectSame(const HostArray &got, const HostArray &want) {
  EXPECT_EQ(got.firstDifference(want), "");
}

TEST_F(CudaElementwise, castsEveryPairOfTypes) {
  for (Dtype from : kTypes)
    for (Dtype to : kTypes) {
      SCOPED_TRACE(std::string(dtypeName(from)) + " to " + dtypeName(to));
      forLengths([&](int64_t n, int64_t shift) {
        const HostArray in = randomArray(from, n);
        HostArray want(to, n);
        host::castArray(in.data(), from, want.data(), to, n);
        // The arrays are shifted alike, then against each other.
        for (int64_t outShift : {shift, (shift * 3 + 1) % 8}) {
          DeviceArray x(in, shift), out(to, n, outShift);
          ASSERT_EQ(castArray(stream, x.data(), from, out.data(), to, n),
                    cudaSuccess);
          expectSame(out.read(), want);
          expectSame(x.read(), in);
        }
        if (dtypeSize(from) == dtypeSize(to)) {
          DeviceArray x(in, shift);
          ASSERT_EQ(castArray(stream, x.data(), from, x.data(), to, n),
                    cudaSuccess);
          expectSame(x.readAs(to), want);
        }
      });
    }
}

/// With the arrays shifted against each other by every number of elements.
TEST_F(CudaElementwise, castsEveryHalf) {
  for (Dtype from : {Dtype::F16, Dtype::BF16}) {
    HostArray in(from, 0x10000);
    for (int64_t i = 0; i < in.size(); ++i)
      in.setBits(i, static_cast<uint64_t>(i));
    for (Dtype to : kTypes) {
      HostArray want(to, in.size());
      host::castArray(in.data(), from, want.data(), to, in.size());
      for (int64_t shift = 0; shift < 8; ++shift) {
        DeviceArray x(in, shift), out(to, in.size(), shift % 3);
        ASSERT_EQ(castArray(stream, x.data(), from, out.data(), to, in.size()),
                  cudaSuccess);
        expectSame(out.read(), want);
      }
    }
  }
}

/// Elements between two addresses that are multiples of 16.
int64_t shiftsOf(Dtype type) { return 16 / dtypeSize(type); }

/// Every address that both arrays may have, and lengths around those of packs
/// and threads; a pair of types for each pair of sizes, and both 16-bit types.
TEST_F(CudaElementwise, castsFromAndToEveryAddress) {
  std::vector<int64_t> counts = {127, 251, 509, 1021, 4099};
  for (int64_t n = 0; n <= 100; ++n)
    counts.push_back(n);
  for (Dtype from : kTypes)
    for (Dtype to : kTypes) {
      if (from == Dtype::BF16 && to != Dtype::F16)
        continue;
      SCOPED_TRACE(std::string(dtypeName(from)) + " to " + dtypeName(to));
      const HostArray in = randomArray(from, 4099);
      for (int64_t shift = 0; shift < shiftsOf(from); ++shift)
        for (int64_t outShift = 0; outShift < shiftsOf(to); ++outShift) {
          DeviceArray x(in, shift);
          for (int64_t n : counts) {
            HostArray want(to, n);
            host::castArray(in.data(), from, want.data(), to, n);
            DeviceArray out(to, n, outShift);
            ASSERT_EQ(castArray(stream, x.data(), from, out.data(), to, n),
                      cudaSuccess);
            ASSERT_EQ(out.read().firstDifference(want), "")
                << "shifted by " << shift << " and " << outShift;
          }
          expectSame(x.read(), in);
        }
    }
}

TEST_F(CudaElementwise, subtractsAtEveryAddress) {
  for (Dtype type : kTypes)
    for (int64_t n : {3, 37, 2053}) {
      const HostArray a = randomArray(type, n), b = randomArray(type, n);
      HostArray want(type, n);
      host::subtractArrays(want.data(), a.data(), b.data(), type, n);
      for (int64_t ofA = 0; ofA < shiftsOf(type); ++ofA)
        for (int64_t ofB = 0; ofB < shiftsOf(type); ++ofB) {
          const int64_t ofOut = (ofA + 3 * ofB) % shiftsOf(type);
          DeviceArray x(a, ofA), y(b, ofB), out(type, n, ofOut);
          for (void *to : {out.data(), x.data()})
            ASSERT_EQ(subtractArrays(stream, to, x.data(), y.data(), type, n),
                      cudaSuccess);
          expectSame(out.read(), want);
          expectSame(x.read(), want);
          expectSame(y.read(), b);
        }
    }
}

/// Floats at and next to every tie of both 16-bit types: on a GPU this compares
/// its own instructions with the host's.
TEST_F(CudaElementwise, castsAndDividesTies) {
  HostArray in(Dtype::F32, 0x10000 * 9);
  for (int64_t h = 0; h < 0x10000; ++h) {
    int64_t i = h * 9;
    for (uint64_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      in.setBits(i++, static_cast<uint64_t>(h) << 16 | low);
    // Ties of f16 have its 10 bits of fraction and one more.
    const uint64_t sign = static_cast<uint64_t>(h & 0x8000) << 16;
    const uint64_t magnitude = (static_cast<uint64_t>(h & 0x7fff) << 13) +
                               (uint64_t(127 - 15) << 23) + 0x1000;
    for (int delta : {-1, 0, 1})
      in.setBits(i++, sign | (magnitude + static_cast<uint64_t>(delta)));
  }
  DeviceArray x(in);
  for (Dtype to : kTypes)
    for (int64_t divisor : {1, 2, 3, 14, 64}) {
      HostArray want(to, in.size());
      host::compressArray(in.data(), Dtype::F32, want.data(), to, in.size(),
                          divisor);
      DeviceArray out(to, in.size());
      ASSERT_EQ(compressArray(stream, x.data(), Dtype::F32, out.data(), to,
                              in.size(), {divisor, /*isExact=*/true}),
                cudaSuccess);
      expectSame(out.read(), want);
    }
}

/// In f32 or f64 as PyTorch's kernel of `div_(W)`: with the host's casts and
/// this file's products.
TEST_F(CudaElementwise, dividesAsPyTorchDoes) {
  for (Dtype type : kTypes) {
    SCOPED_TRACE(dtypeName(type));
    const bool isWide = type == Dtype::F64;
    const Dtype compute = isWide ? Dtype::F64 : Dtype::F32;
    HostArray in = randomArray(type, 0x10000);
    if (dtypeSize(type) == 2)
      for (int64_t i = 0; i < in.size(); ++i)
        in.setBits(i, static_cast<uint64_t>(i));
    HostArray exact(type, in.size());
    for (int64_t divisor : {1, 3, 5, 6, 7, 8, 12, 41, 1000}) {
      HostArray wide(compute, in.size()), want(type, in.size());
      host::castArray(in.data(), type, wide.data(), compute, in.size());
      for (int64_t i = 0; i < in.size(); ++i)
        if (isWide)
          static_cast<double *>(wide.data())[i] *=
              1 / static_cast<double>(divisor);
        else
          static_cast<float *>(wide.data())[i] *=
              1 / static_cast<float>(divisor);
      host::castArray(wide.data(), compute, want.data(), type, in.size());
      DeviceArray x(in), out(type, in.size());
      ASSERT_EQ(compressArray(stream, x.data(), type, out.data(), type,
                              in.size(), divisor),
                cudaSuccess);
      expectSame(out.read(), want);
      host::divideArray(in.data(), exact.data(), type, in.size(), divisor);
      // The two differ in few 16-bit quotients, if any.
      const bool isPower = (divisor & (divisor - 1)) == 0;
      if (dtypeSize(type) > 2)
        EXPECT_EQ(exact.firstDifference(want).empty(), isPower) << divisor;
    }
  }
}

TEST_F(CudaElementwise, dividesEveryHalf) {
  for (Dtype type : {Dtype::F16, Dtype::BF16}) {
    HostArray in(type, 0x10000), want(type, 0x10000);
    for (int64_t i = 0; i < in.size(); ++i)
      in.setBits(i, static_cast<uint64_t>(i));
    for (int64_t divisor : {1, 2, 3, 5, 6, 7, 12, 14, 48, 100, 1000, 4096}) {
      host::divideArray(in.data(), want.data(), type, in.size(), divisor);
      DeviceArray x(in);
      ASSERT_EQ(compressArray(stream, x.data(), type, x.data(), type, in.size(),
                              {divisor, /*isExact=*/true}),
                cudaSuccess);
      expectSame(x.read(), want);
    }
  }
}

TEST_F(CudaElementwise, computesOnEveryLength) {
  for (Dtype type : kTypes) {
    SCOPED_TRACE(dtypeName(type));
    forLengths([&](int64_t n, int64_t shift) {
      const HostArray a = randomArray(type, n), b = randomArray(type, n);
      HostArray want(type, n);
      auto check = [&](DeviceArray &out, cudaError_t error) {
        EXPECT_EQ(error, cudaSuccess);
        expectSame(out.read(), want);
      };
      const int64_t other = (shift * 3 + 1) % 8;
      DeviceArray x(a, shift), y(b, other), out(type, n, shift);

      host::divideArray(a.data(), want.data(), type, n, 7);
      check(out, compressArray(stream, x.data(), type, out.data(), type, n,
                               {7, true}));
      host::scaleArray(a.data(), want.data(), type, n, 0.1);
      check(out, scaleArray(stream, x.data(), out.data(), type, n, 0.1));
      host::addArrays(want.data(), a.data(), b.data(), type, n);
      check(out, addArrays(stream, out.data(), x.data(), y.data(), type, n));
      host::subtractArrays(want.data(), a.data(), b.data(), type, n);
      check(out,
            subtractArrays(stream, out.data(), x.data(), y.data(), type, n));
      expectSame(x.read(), a);
      expectSame(y.read(), b);

      // Into the second operand, then into the first.
      check(y, subtractArrays(stream, y.data(), x.data(), y.data(), type, n));
      y.write(b);
      check(x, subtractArrays(stream, x.data(), x.data(), y.data(), type, n));
      host::scaleArray(b.data(), want.data(), type, n, -3);
      check(y, scaleArray(stream, y.data(), y.data(), type, n, -3));
    });
  }
}

TEST_F(CudaElementwise, compressesEveryPairOfTypes) {
  for (Dtype from : kTypes)
    for (Dtype wire : kTypes)
      for (int64_t divisor : {1, 3, 4})
        for (int64_t n : {0, 1, 33, 5000}) {
          const HostArray in = randomArray(from, n);
          HostArray want(wire, n);
          host::compressArray(in.data(), from, want.data(), wire, n, divisor);
          DeviceArray x(in, 1), out(wire, n, 1);
          ASSERT_EQ(compressArray(stream, x.data(), from, out.data(), wire, n,
                                  {divisor, /*isExact=*/true}),
                    cudaSuccess);
          expectSame(out.read(), want);
        }
}

TEST_F(CudaElementwise, findsOneValueThatIsNotFinite) {
  for (Dtype type : kTypes)
    for (int64_t n : {0, 1, 31, 4097, 20000}) {
      const double inf = std::numeric_limits<double>::infinity();
      for (int64_t place : {int64_t(-1), int64_t(0), n / 2, n - 1}) {
        HostArray zeros(type, n);
        if (place >= 0 && place < n)
          host::castArray(&inf, Dtype::F64,
                          static_cast<char *>(zeros.data()) +
                              place * dtypeSize(type),
                          type, 1);
        DeviceArray x(zeros, 1);
        for (int32_t before : {0, 1}) {
          DeviceValue<int32_t> flag(before);
          ASSERT_EQ(findNonFinite(stream, x.data(), type, n, flag.data()),
                    cudaSuccess);
          EXPECT_EQ(flag.read(), before | (place >= 0 && place < n));
        }
      }
    }
}

/// A captured graph repeats what was launched into it.
TEST_F(CudaElementwise, canBeCaptured) {
  const int64_t n = 3000;
  const HostArray first = randomArray(Dtype::F32, n);
  const HostArray second = randomArray(Dtype::F32, n);
  DeviceArray x(first), wire(Dtype::F16, n), out(Dtype::F32, n);
  cudaStream_t queue;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  ASSERT_EQ(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking),
            cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal),
            cudaSuccess);
  EXPECT_EQ(compressArray(queue, x.data(), Dtype::F32, wire.data(), Dtype::F16,
                          n, {3, /*isExact=*/true}),
            cudaSuccess);
  EXPECT_EQ(
      castArray(queue, wire.data(), Dtype::F16, out.data(), Dtype::F32, n),
      cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(queue, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (const HostArray *in : {&first, &second}) {
    x.write(*in);
    ASSERT_EQ(cudaGraphLaunch(executable, queue), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(queue), cudaSuccess);
    HostArray half(Dtype::F16, n), want(Dtype::F32, n);
    host::compressArray(in->data(), Dtype::F32, half.data(), Dtype::F16, n, 3);
    host::castArray(half.data(), Dtype::F16, want.data(), Dtype::F32, n);
    expectSame(out.read(), want);
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(queue), cudaSuccess);
}

} // namespace
