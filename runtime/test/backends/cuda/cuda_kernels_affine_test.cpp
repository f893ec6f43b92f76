// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every kernel of affine.h on a device, real or emulated, bit by bit against
// the host backend's: bytes and signs of all types, blocks of a warp and of
// many thread blocks, awkward lengths, blocks with infinities and NaNs.

#include "backends/cuda/cuda_kernels_encode_test_util.h"

#include "../../../backends/cuda/kernels/affine.h"
#include "../../../backends/host/kernels/encode.h"
#include "base/collective.h"

#include <algorithm>
#include <functional>

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

const Encoding kEncodings[] = {
    {Code::UI8, 0},   {Code::UI8, 1},    {Code::UI8, 7},    {Code::UI8, 100},
    {Code::UI8, 512}, {Code::UI8, 4097}, {Code::UI8, 6000}, {Code::UI1, 0},
    {Code::UI1, 8},   {Code::UI1, 1000}, {Code::UI1, 1024}, {Code::UI1, 4104}};

/// A rank's codes and scales, as the host makes them, block by block.
struct HostCodes {
  HostCodes(const HostArray &in, const Encoding &encoding)
      : codes(static_cast<size_t>(encoding.codeBytes(in.size())) + 1) {
    const int64_t block = encoding.block == 0 ? in.size() : encoding.block;
    for (int64_t i = 0; i < in.size(); i += block) {
      const int64_t size = std::min(block, in.size() - i);
      const char *x =
          static_cast<const char *>(in.data()) + i * dtypeSize(in.dtype());
      scales.push_back(
          host::findAffineScale(encoding.code, x, in.dtype(), size));
      host::encodeAffine(encoding.code, x, in.dtype(), size, scales.back(),
                         codes.data() + encoding.codeBytes(i));
    }
  }

  std::vector<uint8_t> codes;
  std::vector<AffineScale> scales;
};

class CudaAffine : public CudaEncodingTest {
protected:
  void forArrays(const std::function<void(const Encoding &, Dtype, int64_t,
                                          Values)> &body) {
    for (const Encoding &encoding : kEncodings)
      for (Dtype type : kTypes)
        for (int64_t n :
             {1, 2, 3, 31, 95, 257, 1023, 1025, 3001, 4098, 13001}) {
          // Threads that are emulated take their time, and small blocks have
          // many of them.
          if (n > 4000 &&
              (AffineCodes::of(encoding, n).blocks > 1000 || random() % 3))
            continue;
          const auto values = static_cast<Values>(random() % 6);
          SCOPED_TRACE(encoding.describe() + ", " + std::to_string(n) +
                       " elements of " + dtypeName(type) + ", values " +
                       std::to_string(static_cast<int>(values)));
          body(encoding, type, n, values);
          if (HasFailure())
            return;
        }
  }
  /// As the host's, which divides exactly.
  static AffineCodes codesOf(const Encoding &encoding, int64_t n) {
    return AffineCodes::of(encoding, n, /*isExact=*/true);
  }
  int64_t someShift() { return static_cast<int64_t>(random() % 4); }
};

TEST_F(CudaAffine, codesAndScalesAreTheHosts) {
  DeviceBytes scratch(kAffineScratchBytes);
  forArrays([&](const Encoding &encoding, Dtype type, int64_t n,
                Values values) {
    const HostArray in = randomArray(type, n, values);
    const HostCodes want(in, encoding);
    const AffineCodes codes = codesOf(encoding, n);
    ASSERT_EQ(codes.blocks, static_cast<int64_t>(want.scales.size()));
    ASSERT_LE(codes.bytes, AffineCodes::mostBytes(encoding.bytes(n), 1));
    DeviceArray x(in, someShift());
    DeviceBytes out(codes.bytes);
    ASSERT_EQ(
        encodeAffine(stream, x.data(), type, codes, out.data(), scratch.data()),
        cudaSuccess);
    const std::vector<unsigned char> got = out.read();
    expectSame(x.read(), in);
    const int64_t block = codes.block;
    for (int64_t b = 0; b < codes.blocks; ++b) {
      AffineScale scale = {};
      std::memcpy(&scale, got.data() + codes.scaleOffset + b * sizeof(scale),
                  sizeof(scale));
      const AffineScale &wanted = want.scales[static_cast<size_t>(b)];
      if (std::isnan(wanted.scale)) {
        ASSERT_TRUE(std::isnan(scale.scale)) << "block " << b;
        continue;
      }
      ASSERT_EQ(scale.scale, wanted.scale) << "block " << b;
      ASSERT_EQ(scale.zero, wanted.zero) << "block " << b;
      const int64_t end = std::min(n, (b + 1) * block);
      for (int64_t i = b * block; i < end; ++i) {
        const int64_t bits = encoding.codeBytes(8);
        const auto codeAt = [&](const uint8_t *all) {
          return bits == 8 ? all[i] : all[i / 8] >> (i % 8) & 1;
        };
        ASSERT_EQ(int(codeAt(got.data())), int(codeAt(want.codes.data())))
            << "code " << i;
      }
    }
  });
}

/// A whole reduction: what ranks gather is made in its place.
TEST_F(CudaAffine, averagesAreTheHosts) {
  DeviceBytes scratch(kAffineScratchBytes);
  forArrays([&](const Encoding &encoding, Dtype type, int64_t n,
                Values values) {
    const auto ranks = static_cast<int64_t>(1 + random() % 4);
    const int64_t divisor = random() % 2 == 0 ? ranks : 1;
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const AffineCodes codes = codesOf(encoding, n);
    std::vector<HostCodes> wanted;
    DeviceBytes gathered(codes.bytes * ranks);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const HostArray in = randomArray(type, n, values);
      wanted.emplace_back(in, encoding);
      DeviceArray x(in, someShift());
      ASSERT_EQ(encodeAffine(stream, x.data(), type, codes,
                             gathered.data() + rank * codes.bytes,
                             scratch.data()),
                cudaSuccess);
    }
    HostArray want(type, n);
    for (int64_t b = 0; b < codes.blocks; ++b) {
      const int64_t begin = b * codes.block;
      std::vector<const uint8_t *> sources;
      std::vector<AffineScale> scales;
      for (const HostCodes &each : wanted) {
        sources.push_back(each.codes.data() + encoding.codeBytes(begin));
        scales.push_back(each.scales[static_cast<size_t>(b)]);
      }
      host::averageAffine(
          encoding.code, sources.data(), scales.data(), static_cast<int>(ranks),
          std::min(codes.block, n - begin), divisor,
          static_cast<char *>(want.data()) + begin * dtypeSize(type), type);
    }
    DeviceArray out(type, n, someShift());
    ASSERT_EQ(averageAffine(stream, gathered.data(), ranks, codes, divisor,
                            out.data(), type),
              cudaSuccess);
    expectSame(out.read(), want);
  });
}

TEST_F(CudaAffine, errorsAreTheHosts) {
  DeviceBytes scratch(kAffineScratchBytes);
  forArrays([&](const Encoding &encoding, Dtype type, int64_t n,
                Values values) {
    const HostArray in = randomArray(type, n, values);
    HostArray want(type, n);
    host::encodingError(in.data(), want.data(), type, n, encoding);
    const int64_t shift = someShift();
    DeviceArray x(in, shift), out(type, n, (shift + 1) % 4);
    const AffineCodes codes = codesOf(encoding, n);
    ASSERT_EQ(
        affineError(stream, x.data(), out.data(), type, codes, scratch.data()),
        cudaSuccess);
    expectSame(out.read(), want);
    expectSame(x.read(), in);
    ASSERT_EQ(
        affineError(stream, x.data(), x.data(), type, codes, scratch.data()),
        cudaSuccess);
    expectSame(x.read(), want);
  });
}

/// More long blocks than scratch has room for at a time, and a long one with as
/// many slices as there may be.
TEST_F(CudaAffine, manyBlocksTakeTurns) {
  DeviceBytes scratch(kAffineScratchBytes);
  for (const int64_t block : {4097, 0}) {
    const Encoding encoding = {Code::UI8, block};
    SCOPED_TRACE(encoding.describe());
    const int64_t n = block == 0 ? 4'300'001 : 2050 * block - 1;
    const HostArray in = randomArray(Dtype::BF16, n, Values::Wide);
    HostArray want(Dtype::BF16, n);
    host::encodingError(in.data(), want.data(), Dtype::BF16, n, encoding);
    DeviceArray x(in);
    ASSERT_EQ(affineError(stream, x.data(), x.data(), Dtype::BF16,
                          codesOf(encoding, n), scratch.data()),
              cudaSuccess);
    expectSame(x.read(), want);
  }
}

/// A number rounded to a type, as the host casts.
float rounded(float x, Dtype type) {
  uint64_t bits = 0;
  host::castArray(&x, Dtype::F32, &bits, type, 1);
  host::castArray(&bits, type, &x, Dtype::F32, 1);
  return x;
}

/// What PyTorch's hook computes on a CUDA tensor of one block, in plain floats:
/// the length of a range times the rounded 1 / 255, quotients by a scale of the
/// elements' type, and a sum times the rounded 1 / W.
TEST_F(CudaAffine, dividesAsPyTorchDoes) {
  DeviceBytes scratch(kAffineScratchBytes);
  int differences = 0;
  for (const Dtype type : {Dtype::F32, Dtype::F16, Dtype::BF16})
    for (const int64_t n : {1000, 5001})
      for (const int ranks : {1, 3, 5, 6, 7}) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(n) +
                     " elements of " + dtypeName(type));
        const AffineCodes codes = AffineCodes::of({Code::UI8, 0}, n);
        DeviceBytes gathered(codes.bytes * ranks);
        HostArray sum(Dtype::F32, n), want(type, n);
        auto *sums = static_cast<float *>(sum.data());
        std::fill_n(sums, n, 0.0f);
        for (int rank = 0; rank < ranks; ++rank) {
          const HostArray in = randomArray(type, n, Values::Wide);
          HostArray wide(Dtype::F32, n);
          host::castArray(in.data(), type, wide.data(), Dtype::F32, n);
          const auto *x = static_cast<const float *>(wide.data());
          const float least = std::min(0.0f, *std::min_element(x, x + n));
          const float most = std::max(0.0f, *std::max_element(x, x + n));
          const float step = std::max((most - least) * (1 / 255.0f), 0x1p-23f);
          differences += step != std::max((most - least) / 255, 0x1p-23f);
          const float zero = std::min(-std::rint(least / step), 255.0f);
          for (int64_t i = 0; i < n; ++i) {
            const float q = rounded(x[i] / rounded(step, type), type);
            const float code = rounded(std::rint(q) + zero, type);
            sums[i] += step * (std::min(std::max(code, 0.0f), 255.0f) - zero);
          }
          DeviceArray device(in, someShift());
          ASSERT_EQ(encodeAffine(stream, device.data(), type, codes,
                                 gathered.data() + rank * codes.bytes,
                                 scratch.data()),
                    cudaSuccess);
        }
        host::scaleArray(sums, sums, Dtype::F32, n,
                         1 / static_cast<float>(ranks));
        host::castArray(sums, Dtype::F32, want.data(), type, n);
        DeviceArray out(type, n);
        ASSERT_EQ(averageAffine(stream, gathered.data(), ranks, codes, ranks,
                                out.data(), type),
                  cudaSuccess);
        expectSame(out.read(), want);
      }
  EXPECT_GT(differences, 0);
}

TEST_F(CudaAffine, nothingIsDoneForNothing) {
  for (const Encoding &encoding : kEncodings) {
    const AffineCodes codes = AffineCodes::of(encoding, 0);
    EXPECT_EQ(codes.bytes, 0);
    EXPECT_EQ(
        encodeAffine(stream, nullptr, Dtype::F32, codes, nullptr, nullptr),
        cudaSuccess);
    EXPECT_EQ(averageAffine(stream, nullptr, 3, codes, 3, nullptr, Dtype::F32),
              cudaSuccess);
    EXPECT_EQ(affineError(stream, nullptr, nullptr, Dtype::F32, codes, nullptr),
              cudaSuccess);
  }
}

} // namespace
