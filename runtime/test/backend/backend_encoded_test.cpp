// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Encoded all-reduces, reduce-scatters and all-gathers of ranks as threads,
// over every transport of every backend, to the bit against one process that
// encodes what all ranks have: all codes, both roundings, and errors that are
// fed back.

#include "backend/backend_test_util.h"

#include "../../backends/host/kernels/encode.h"
#include "../../backends/host/kernels/kernels.h"
#include "base/collective.h"

#include <random>

using namespace ddphook;
using namespace ddphook::test;

namespace {

using Encoded = BackendTest;
INSTANTIATE_TEST_SUITE_P(, Encoded,
                         testing::Values("host", "cuda_emulated", "cuda"),
                         [](const auto &info) { return info.param; });

struct Case {
  Encoding encoding;
  Dtype dtype;
  int64_t count;
  CollectiveKind kind;
  bool divide, isStochastic, hasError;
  unsigned seed;

  std::string name() const {
    return describeCollective(kind) + " of " + std::to_string(count) + " " +
           dtypeName(dtype) + " as " + encoding.describe() +
           (divide ? ", mean" : ", sum") +
           (isStochastic ? ", stochastic" : "") +
           (hasError ? ", with an error" : "");
  }
  ddphook_collective_t operation(void *error) const {
    CollectiveOperation result(count, dtype, std::nullopt, divide, encoding);
    result.kind = static_cast<int32_t>(kind);
    if (isStochastic)
      result.rounding = {1, /*share=*/2, /*stream=*/0x123456789abcdef,
                         /*step=*/static_cast<int64_t>(seed)};
    result.error = error;
    return result;
  }
  std::vector<char> values(int rank) const {
    return randomValues(dtype, count, seed + 1000 * static_cast<unsigned>(rank),
                        /*withSpecial=*/seed % 5 == 0);
  }
  /// Returns the input of a rank; poison follows a short part.
  std::vector<char> input(int rank, int ranks) const {
    std::vector<char> result = values(rank);
    if (kind != CollectiveKind::AllGather)
      return result;
    const auto bytes = static_cast<size_t>(dtypeSize(dtype));
    const ElementRange own = partOf(count, ranks, rank);
    result.resize(static_cast<size_t>(own.size()) * bytes);
    result.resize(static_cast<size_t>(partElements(count, ranks)) * bytes,
                  '\xff');
    return result;
  }
  /// What was lost before.
  std::vector<char> error(int rank) const {
    return randomValues(dtype, count,
                        seed + 500 + 1000 * static_cast<unsigned>(rank));
  }
};

/// What a rank has afterwards.
struct Outcome {
  std::vector<char> result, error;
};

/// By the host's kernels: what all ranks have of affine codes, block by block.
std::vector<char> averageOfCodes(const Case &test, int ranks) {
  const Encoding &encoding = test.encoding;
  const int64_t block = encoding.block == 0 ? test.count : encoding.block;
  const int64_t bytes = dtypeSize(test.dtype);
  std::vector<std::vector<char>> values;
  for (int rank = 0; rank < ranks; ++rank)
    values.push_back(test.values(rank));
  std::vector<char> result(static_cast<size_t>(test.count * bytes));
  for (int64_t begin = 0; begin < test.count; begin += block) {
    const int64_t size = std::min(block, test.count - begin);
    std::vector<std::vector<uint8_t>> codes(values.size());
    std::vector<const uint8_t *> sources;
    std::vector<AffineScale> scales;
    for (size_t k = 0; k < values.size(); ++k) {
      const char *in = values[k].data() + begin * bytes;
      scales.push_back(
          host::findAffineScale(encoding.code, in, test.dtype, size));
      codes[k].resize(static_cast<size_t>(encoding.codeBytes(size)));
      host::encodeAffine(encoding.code, in, test.dtype, size, scales.back(),
                         codes[k].data());
      sources.push_back(codes[k].data());
    }
    host::averageAffine(encoding.code, sources.data(), scales.data(), ranks,
                        size, test.divide ? ranks : 1,
                        result.data() + begin * bytes, test.dtype);
  }
  return result;
}

/// By the host's kernels: every rank's part, encoded and decoded.
std::vector<char> decodedParts(const Case &test, int ranks) {
  const int64_t bytes = dtypeSize(test.dtype);
  std::vector<char> result(static_cast<size_t>(test.count * bytes));
  for (int rank = 0; rank < ranks; ++rank) {
    const ElementRange own = partOf(test.count, ranks, rank);
    std::vector<char> memory(
        static_cast<size_t>(test.encoding.bytes(own.size())) + 1);
    const host::EncodedArray codes = {
        memory.data(), memory.data() + test.encoding.codeBytes(own.size())};
    host::encodeArray(test.input(rank, ranks).data(), test.dtype, own.size(),
                      test.encoding, codes);
    host::decodeArray(codes, test.encoding, own.size(),
                      result.data() + own.begin * bytes, test.dtype);
  }
  return result;
}

/// By the host's kernels, of the whole array.
std::vector<Outcome> expected(const Case &test, int ranks) {
  if (test.kind == CollectiveKind::AllGather)
    return std::vector<Outcome>(static_cast<size_t>(ranks),
                                {decodedParts(test, ranks), {}});
  if (test.encoding.isAffine())
    return std::vector<Outcome>(static_cast<size_t>(ranks),
                                {averageOfCodes(test, ranks), {}});
  const Encoding &encoding = test.encoding;
  const ddphook_rounding_t rounding = test.operation(nullptr).rounding;
  std::optional<Rounding> ofSum;
  if (test.isStochastic)
    ofSum =
        Rounding::ofSum(rounding.stream, rounding.step, rounding.share, ranks);
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  std::vector<std::vector<char>> memory;
  std::vector<host::EncodedArray> sources;
  auto room = [&](int64_t bytes) {
    memory.emplace_back(static_cast<size_t>(bytes) + 1);
    return memory.back().data();
  };
  memory.reserve(2 * outcomes.size() + 2);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::optional<Rounding> own =
        ofSum ? std::optional(ofSum->ofRank(rank)) : std::nullopt;
    std::vector<char> values = test.values(rank);
    if (test.hasError) {
      std::vector<char> &error = outcomes[static_cast<size_t>(rank)].error;
      error = test.error(rank);
      host::addArrays(values.data(), values.data(), error.data(), test.dtype,
                      test.count);
      host::encodingError(values.data(), error.data(), test.dtype, test.count,
                          encoding, own);
    }
    char *codes = room(encoding.codeBytes(test.count));
    sources.push_back({codes, room(encoding.scaleBytes(test.count))});
    host::encodeArray(values.data(), test.dtype, test.count, encoding,
                      sources.back(), own);
  }
  char *codes = room(encoding.codeBytes(test.count));
  const host::EncodedArray sum = {codes, room(encoding.scaleBytes(test.count))};
  host::sumEncoded(sources.data(), ranks, encoding, test.count,
                   test.divide ? ranks : 1, sum, ofSum);
  const int64_t bytes = dtypeSize(test.dtype);
  std::vector<char> whole(static_cast<size_t>(test.count * bytes));
  host::decodeArray(sum, encoding, test.count, whole.data(), test.dtype);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<char> &result = outcomes[static_cast<size_t>(rank)].result;
    result = whole;
    if (test.kind == CollectiveKind::AllReduce)
      continue;
    const ElementRange own = partOf(test.count, ranks, rank);
    result.assign(whole.begin() + own.begin * bytes,
                  whole.begin() + own.end * bytes);
    // A short part ends with zeros.
    result.resize(static_cast<size_t>(partElements(test.count, ranks) * bytes),
                  0);
  }
  return outcomes;
}

std::vector<Case> allCases() {
  const Encoding all[] = {
      {Code::F16, 0},        {Code::BF16, 0},      {Code::I8, 256},
      {Code::I8, 32},        {Code::I4, 64},       {Code::I4, 96},
      {Code::F8E4M3FN, 256}, {Code::F8E5M2, 4096}, {Code::UI8, 0},
      {Code::UI8, 512},      {Code::UI8, 100},     {Code::UI8, 4097},
      {Code::UI1, 0},        {Code::UI1, 1024}};
  std::mt19937 random(20261125);
  std::vector<Case> cases;
  for (const Encoding &encoding : all) {
    for (Dtype dtype : {Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64})
      for (int64_t count : {0, 1, 3, 257, 1000, 4099}) {
        // Emulated threads take their time.
        if (count == 4099 && dtype != Dtype::F32)
          continue;
        Case test = {};
        test.encoding = encoding;
        test.dtype = dtype;
        test.count = count;
        constexpr CollectiveKind kinds[] = {CollectiveKind::AllReduce,
                                            CollectiveKind::ReduceScatter,
                                            CollectiveKind::AllGather};
        test.kind = kinds[encoding.isAffine() ? 0 : random() % 3];
        test.divide = isReduction(test.kind) && random() % 2 == 0;
        test.isStochastic = isReduction(test.kind) &&
                            encoding.kind() == CodeKind::SCALED &&
                            random() % 2 == 0;
        test.hasError = !encoding.isAffine() &&
                        test.kind == CollectiveKind::AllReduce &&
                        random() % 2 == 0;
        test.seed = static_cast<unsigned>(random() % 100000);
        cases.push_back(test);
      }
  }
  return cases;
}

} // namespace

TEST_P(Encoded, Bits) {
  // All that there are.
#define DDPHOOK_ENCODING(NAME, name, bits, KIND, value)                        \
  EXPECT_TRUE(backend->encodings >> value & 1) << #name;
#include "ddphook/runtime/encodings.inc"
  const std::vector<Case> cases = allCases();
  ASSERT_GT(cases.size(), 100u);
  for (const char *transport : {"shm", "gloo"}) {
    GroupOptions options;
    options.options = exactDivision();
    options.maxEncodedBytes = 4099 * 2;
    options.maxGatheredBytes = 4 * (4099 + 41 * sizeof(AffineScale));
    if (isHost())
      options.transport = transport;
    else if (std::string(transport) == "gloo")
      continue;
    for (int ranks = 1; ranks <= 4; ++ranks) {
      bool hasRun = runGroup(
          ranks,
          [&](Rank &rank) {
            for (const Case &test : cases) {
              SCOPED_TRACE(test.name() + ", rank " +
                           std::to_string(rank.index) + " of " +
                           std::to_string(ranks) + ", " + options.transport);
              const Outcome want =
                  expected(test, ranks)[static_cast<size_t>(rank.index)];
              const std::vector<char> values = test.input(rank.index, ranks);
              DeviceArray in(rank, values);
              DeviceArray out(rank, std::vector<char>(want.result.size(), 'Z'));
              DeviceArray error(rank, test.hasError ? test.error(rank.index)
                                                    : std::vector<char>());
              const bool isInPlace =
                  test.kind == CollectiveKind::AllReduce && test.seed % 2 == 0;
              const ddphook_collective_t operation =
                  test.operation(test.hasError ? error.get() : nullptr);
              ASSERT_EQ(rank.show(rank.backend->collective(
                            rank.device, rank.communicator, &operation,
                            in.get(), isInPlace ? in.get() : out.get(),
                            /*ticket=*/nullptr, &rank.error)),
                        "OK");
              EXPECT_EQ(difference((isInPlace ? in : out).read(), want.result,
                                   test.dtype),
                        "");
              if (!isInPlace)
                EXPECT_EQ(in.read(), values);
              if (test.hasError)
                EXPECT_EQ(difference(error.read(), want.error, test.dtype), "");
              if (testing::Test::HasFailure())
                return;
            }
          },
          options);
      if (!hasRun)
        GTEST_SKIP() << "no " << ranks << " GPUs; passed with fewer ranks";
    }
  }
}

TEST_P(Encoded, WithoutRoomIsRefused) {
  for (const Encoding &encoding :
       {Encoding{Code::I8, 256}, Encoding{Code::UI8, 512}}) {
    Case test = {};
    test.encoding = encoding;
    test.dtype = Dtype::F32;
    test.count = 100000;
    GroupOptions options;
    (encoding.isAffine() ? options.maxGatheredBytes : options.maxEncodedBytes) =
        10000;
    runGroup(
        1,
        [&](Rank &rank) {
          DeviceArray in(rank, test.values(0));
          const ddphook_collective_t operation = test.operation(nullptr);
          const std::string refused = rank.show(rank.backend->collective(
              rank.device, rank.communicator, &operation, in.get(), in.get(),
              /*ticket=*/nullptr, &rank.error));
          // The host makes room when it needs some.
          const char *want =
              isHost() ? "OK" : "INVALID_ARGUMENT: expected at most ";
          EXPECT_EQ(refused.find(want), 0u) << refused;
        },
        options);
  }
}
