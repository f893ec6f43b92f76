// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every kernel of encode.h on a device, real or emulated, bit by bit against
// the host backend's: all codes and types, awkward lengths, parts that begin
// within blocks, both roundings.

#include "backends/cuda/cuda_kernels_encode_test_util.h"

#include "../../../backends/cuda/kernels/encode.h"
#include "../../../backends/host/kernels/encode.h"
#include "base/collective.h"

#include <functional>

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

const Encoding kEncodings[] = {{Code::F16, 0},       {Code::BF16, 0},
                               {Code::I8, 256},      {Code::I8, 32},
                               {Code::I4, 64},       {Code::I4, 96},
                               {Code::F8E4M3FN, 96}, {Code::F8E5M2, 4096}};

/// An array as the host encodes it.
struct HostCodes {
  HostCodes(const Encoding &encoding, int64_t n)
      : codes(static_cast<size_t>(encoding.codeBytes(n)) + 1),
        scales(static_cast<size_t>(encoding.scaleBytes(n)) + 1) {}
  host::EncodedArray place() { return {codes.data(), scales.data()}; }

  std::vector<unsigned char> codes, scales;
};

class CudaEncode : public CudaEncodingTest {
protected:
  /// Calls body(type, n, values) for what an encoding is tried with.
  void forArrays(const std::function<void(const Encoding &, Dtype, int64_t,
                                          Values)> &body) {
    for (const Encoding &encoding : kEncodings)
      for (Dtype type : kTypes)
        for (int64_t n : {1, 2, 3, 31, 95, 257, 1023, 1025, 3001}) {
          const auto values = static_cast<Values>(random() % 4);
          SCOPED_TRACE(encoding.describe() + ", " + std::to_string(n) +
                       " elements of " + dtypeName(type) + ", values " +
                       std::to_string(static_cast<int>(values)));
          body(encoding, type, n, values);
          if (HasFailure())
            return;
        }
  }

  std::optional<Rounding> someRounding(const Encoding &encoding) {
    if (encoding.kind() == CodeKind::CAST || random() % 2 == 0)
      return std::nullopt;
    Rounding rounding = Rounding::ofSum(static_cast<int64_t>(random() >> 1),
                                        static_cast<int64_t>(random() % 1000));
    // The lower word of the counter wraps within the array.
    rounding.first = (int64_t(1) << 34) - 512;
    return rounding;
  }
};

TEST_F(CudaEncode, codesAndScalesAreTheHosts) {
  forArrays([&](const Encoding &encoding, Dtype type, int64_t n,
                Values values) {
    const HostArray in = randomArray(type, n, values);
    const std::optional<Rounding> rounding = someRounding(encoding);
    HostCodes want(encoding, n);
    host::encodeArray(in.data(), type, n, encoding, want.place(), rounding);

    const auto parts = EncodedParts::ofWholeBlocks(encoding, n, 1);
    DeviceArray x(in, static_cast<int64_t>(random() % 4));
    DeviceBytes out(parts.bytes);
    ASSERT_EQ(
        encodeParts(stream, x.data(), type, parts, 1, out.data(), rounding),
        cudaSuccess);
    std::vector<unsigned char> got = out.read();
    if (encoding.kind() == CodeKind::CAST) {
      // NaNs of casts may have other bits.
      HostArray gotCodes(encoding.code == Code::F16 ? Dtype::F16 : Dtype::BF16,
                         n);
      HostArray wantCodes(gotCodes.dtype(), n);
      std::memcpy(gotCodes.data(), got.data(), static_cast<size_t>(2 * n));
      std::memcpy(wantCodes.data(), want.codes.data(),
                  static_cast<size_t>(2 * n));
      return expectSame(gotCodes, wantCodes);
    }
    for (int64_t i = 0; i < encoding.codeBytes(n); ++i)
      ASSERT_EQ(got[static_cast<size_t>(i)], want.codes[static_cast<size_t>(i)])
          << "byte " << i << " of the codes";
    for (int64_t i = 0; i < encoding.scaleBytes(n); ++i)
      ASSERT_EQ(got[static_cast<size_t>(parts.scaleOffset + i)],
                want.scales[static_cast<size_t>(i)])
          << "byte " << i << " of the scales";
  });
}

/// A whole reduction: what ranks exchange is copied here.
TEST_F(CudaEncode, reductionsAreTheHosts) {
  forArrays([&](const Encoding &encoding, Dtype type, int64_t n,
                Values values) {
    const auto ranks = static_cast<int64_t>(1 + random() % 4);
    const bool isScatter = random() % 2 == 0;
    const int64_t divisor = random() % 2 == 0 ? ranks : 1;
    const std::optional<Rounding> rounding = someRounding(encoding);
    auto ofRank = [&](int64_t rank) {
      return rounding
                 ? std::optional(rounding->ofRank(static_cast<int32_t>(rank)))
                 : std::nullopt;
    };
    SCOPED_TRACE(std::to_string(ranks) + " ranks" +
                 (isScatter ? ", scattered" : ""));
    const EncodedParts parts =
        isScatter ? EncodedParts::ofScatter(encoding, n, ranks)
                  : EncodedParts::ofWholeBlocks(encoding, n, ranks);
    ASSERT_LE(parts.bytes * ranks,
              EncodedParts::mostBytes(encoding.bytes(n), ranks));

    std::vector<HostCodes> codes;
    std::vector<host::EncodedArray> sources;
    DeviceBytes received(parts.bytes * ranks * ranks);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const HostArray in = randomArray(type, n, values);
      codes.emplace_back(encoding, n);
      host::encodeArray(in.data(), type, n, encoding, codes.back().place(),
                        ofRank(rank));
      DeviceArray x(in);
      DeviceBytes sent(parts.bytes * ranks);
      ASSERT_EQ(encodeParts(stream, x.data(), type, parts, ranks, sent.data(),
                            ofRank(rank)),
                cudaSuccess);
      for (int64_t to = 0; to < ranks; ++to)
        ASSERT_EQ(
            cudaMemcpy(received.data() + (to * ranks + rank) * parts.bytes,
                       sent.data() + to * parts.bytes,
                       static_cast<size_t>(parts.bytes),
                       cudaMemcpyDeviceToDevice),
            cudaSuccess);
    }
    HostCodes sum(encoding, n);
    for (HostCodes &each : codes)
      sources.push_back(each.place());
    host::sumEncoded(sources.data(), static_cast<int>(ranks), encoding, n,
                     divisor, sum.place(), rounding);
    HostArray want(type, n);
    host::decodeArray(sum.place(), encoding, n, want.data(), type);

    DeviceBytes summed(parts.bytes * ranks);
    for (int64_t rank = 0; rank < ranks; ++rank)
      ASSERT_EQ(sumPart(stream, received.data() + rank * ranks * parts.bytes,
                        ranks, parts, rank, divisor,
                        summed.data() + rank * parts.bytes, rounding),
                cudaSuccess);
    const auto shift = static_cast<int64_t>(random() % 4);
    if (!isScatter) {
      DeviceArray out(type, n, shift);
      ASSERT_EQ(
          decodeParts(stream, summed.data(), parts, 0, ranks, out.data(), type),
          cudaSuccess);
      return expectSame(out.read(), want);
    }
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const ElementRange range = partOf(n, ranks, rank);
      HostArray wantPart(type, range.size());
      for (int64_t i = range.begin; i < range.end; ++i)
        wantPart.setBits(i - range.begin, want.bits(i));
      DeviceArray out(type, range.size(), shift);
      ASSERT_EQ(decodeParts(stream, summed.data() + rank * parts.bytes, parts,
                            rank, 1, out.data(), type),
                cudaSuccess);
      expectSame(out.read(), wantPart);
    }
  });
}

TEST_F(CudaEncode, errorsAreTheHosts) {
  forArrays([&](const Encoding &encoding, Dtype type, int64_t n,
                Values values) {
    const HostArray in = randomArray(type, n, values);
    const std::optional<Rounding> rounding = someRounding(encoding);
    HostArray want(type, n);
    host::encodingError(in.data(), want.data(), type, n, encoding, rounding);
    const auto shift = static_cast<int64_t>(random() % 4);
    DeviceArray x(in, shift), out(type, n, (shift + 1) % 4);
    ASSERT_EQ(encodingError(stream, x.data(), out.data(), type, n, encoding,
                            rounding),
              cudaSuccess);
    expectSame(out.read(), want);
    expectSame(x.read(), in);
    ASSERT_EQ(
        encodingError(stream, x.data(), x.data(), type, n, encoding, rounding),
        cudaSuccess);
    expectSame(x.read(), want);
  });
}

TEST_F(CudaEncode, nothingIsDoneForNothing) {
  for (const Encoding &encoding : kEncodings) {
    const auto parts = EncodedParts::ofWholeBlocks(encoding, 0, 3);
    EXPECT_EQ(parts.bytes, 0);
    EXPECT_EQ(encodeParts(stream, nullptr, Dtype::F32, parts, 3, nullptr, {}),
              cudaSuccess);
    EXPECT_EQ(sumPart(stream, nullptr, 3, parts, 0, 3, nullptr, {}),
              cudaSuccess);
    EXPECT_EQ(decodeParts(stream, nullptr, parts, 0, 3, nullptr, Dtype::F32),
              cudaSuccess);
    EXPECT_EQ(
        encodingError(stream, nullptr, nullptr, Dtype::F32, 0, encoding, {}),
        cudaSuccess);
  }
}

} // namespace
