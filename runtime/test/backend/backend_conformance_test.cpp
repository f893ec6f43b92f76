// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory, element-wise and low-rank calls of a backend's table, against the
// host's kernels. Collectives are in backend_collectives_test.cpp.

#include "backend/backend_test_util.h"

#include "host_backend.h"
#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

using namespace ddphook;
using namespace ddphook::test;

namespace {

using Conformance = BackendTest;
INSTANTIATE_TEST_SUITE_P(, Conformance,
                         testing::Values("host", "cuda_emulated", "cuda"),
                         [](const auto &info) { return info.param; });

constexpr Dtype allTypes[] = {Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64};
/// Around what kernels load at once, and beyond a block.
constexpr int64_t counts[] = {0, 1, 3, 7, 8, 31, 1009, 4099};

int32_t number(Dtype dtype) { return static_cast<int32_t>(dtype); }

} // namespace

TEST_P(Conformance, TableIsWhole) {
  EXPECT_EQ(backend->abi_version,
            static_cast<uint32_t>(DDPHOOK_BACKEND_ABI_VERSION));
  EXPECT_EQ(backend->memory_is_host != 0, isHost());
  EXPECT_STREQ(backend->name, isHost() ? "host" : "cuda");
}

TEST_P(Conformance, MemoryIsAlignedCopiedAndZeroed) {
  runAlone([&](Rank &rank) {
    for (uint64_t bytes : {1ull, 255ull, 4096ull, (5ull << 20) + 3})
      for (uint64_t alignment : {1ull, 64ull, 4096ull, 2ull << 20}) {
        DeviceArray array(rank, bytes, alignment), other(rank, bytes);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(array.get()) % alignment, 0u);
        EXPECT_EQ(array.read(), std::vector<char>(bytes, 0));
        std::vector<char> values(bytes);
        std::iota(values.begin(), values.end(), 1);
        array.write(values);
        EXPECT_EQ(array.read(), values);
        ASSERT_EQ(rank.show(backend->copy(rank.device, array.get(), other.get(),
                                          bytes, &rank.error)),
                  "OK");
        // A part of it, from the middle.
        ASSERT_EQ(rank.show(backend->memory_write(rank.device,
                                                  array.get() + bytes / 2, "x",
                                                  1, &rank.error)),
                  "OK");
        EXPECT_EQ(other.read(), values);
        values[bytes / 2] = 'x';
        EXPECT_EQ(array.read(), values);
        // All of it but the last byte.
        ASSERT_EQ(rank.show(backend->zero(rank.device, array.get(), bytes - 1,
                                          &rank.error)),
                  "OK");
        std::fill(values.begin(), values.end() - 1, 0);
        EXPECT_EQ(array.read(), values);
      }
    DeviceArray nothing(rank, 0);
    EXPECT_EQ(rank.show(backend->synchronize(rank.device, &rank.error)), "OK");
  });
}

TEST_P(Conformance, TooMuchMemory) {
  runAlone([&](Rank &rank) {
    void *memory = nullptr;
    for (uint64_t bytes : {uint64_t(1) << 50, UINT64_MAX - 5})
      EXPECT_EQ(
          backend->memory_alloc(rank.device, bytes, 4096, &memory, &rank.error),
          DDPHOOK_RESOURCE_EXHAUSTED)
          << rank.error.message;
    // The device is unharmed.
    DeviceArray array(rank, 100);
    EXPECT_EQ(array.read(), std::vector<char>(100, 0));
  });
}

TEST_P(Conformance, Casts) {
  const unsigned seed = 11;
  RecordProperty("seed", static_cast<int>(seed));
  runAlone([&](Rank &rank) {
    for (Dtype from : allTypes)
      for (Dtype to : allTypes)
        for (int64_t count : counts) {
          std::vector<char> in = randomValues(from, count, seed, true);
          std::vector<char> expected(
              static_cast<size_t>(count * dtypeSize(to)));
          host::castArray(in.data(), from, expected.data(), to, count);
          DeviceArray source(rank, in);
          DeviceArray result(rank, std::vector<char>(expected.size(), 'Z'));
          ASSERT_EQ(rank.show(backend->cast(rank.device, source.get(),
                                            number(from), result.get(),
                                            number(to), count, &rank.error)),
                    "OK");
          EXPECT_EQ(difference(result.read(), expected, to), "")
              << dtypeName(from) << " to " << dtypeName(to);
        }
  });
}

TEST_P(Conformance, ArithmeticOfElements) {
  const unsigned seed = 12;
  RecordProperty("seed", static_cast<int>(seed));
  enum Call { Divide, Scale, Add, Subtract };
  GroupOptions options;
  options.options = exactDivision();
  runAlone(
      [&](Rank &rank) {
        for (Dtype dtype : allTypes)
          for (int64_t count : counts)
            for (Call call : {Divide, Scale, Add, Subtract})
              for (bool inPlace : {false, true}) {
                std::vector<char> a = randomValues(dtype, count, seed);
                std::vector<char> b =
                    randomValues(dtype, count, seed + 1, true);
                std::vector<char> expected(a.size());
                DeviceArray left(rank, a), right(rank, b);
                DeviceArray other(rank, std::vector<char>(a.size(), 'Z'));
                DeviceArray &result = inPlace ? left : other;
                ddphook_status_t status = DDPHOOK_INTERNAL;
                if (call == Divide) {
                  host::divideArray(a.data(), expected.data(), dtype, count, 3);
                  status = backend->divide_by_group_size(
                      rank.device, 3, left.get(), result.get(), count,
                      number(dtype), &rank.error);
                } else if (call == Scale) {
                  host::scaleArray(a.data(), expected.data(), dtype, count,
                                   0.3);
                  status =
                      backend->scale(rank.device, 0.3, left.get(), result.get(),
                                     count, number(dtype), &rank.error);
                } else if (call == Add) {
                  host::addArrays(expected.data(), a.data(), b.data(), dtype,
                                  count);
                  status = backend->add(rank.device, left.get(), right.get(),
                                        result.get(), count, number(dtype),
                                        &rank.error);
                } else {
                  host::subtractArrays(expected.data(), a.data(), b.data(),
                                       dtype, count);
                  status = backend->subtract(rank.device, left.get(),
                                             right.get(), result.get(), count,
                                             number(dtype), &rank.error);
                }
                ASSERT_EQ(rank.show(status), "OK");
                EXPECT_EQ(difference(result.read(), expected, dtype), "")
                    << dtypeName(dtype) << " call " << call;
              }
      },
      options);
}

/// As PyTorch does on tensors of the device: on a GPU a product with the
/// rounded inverse.
TEST_P(Conformance, QuotientsAreThoseOfTheDevice) {
  runAlone([&](Rank &rank) {
    for (int64_t size : {3, 5, 6, 7}) {
      const std::vector<char> in = randomValues(Dtype::F32, 5000, 15);
      DeviceArray array(rank, in);
      ASSERT_EQ(rank.show(backend->divide_by_group_size(
                    rank.device, size, array.get(), array.get(), 5000,
                    DDPHOOK_F32, &rank.error)),
                "OK");
      std::vector<float> wanted(5000);
      std::memcpy(wanted.data(), in.data(), in.size());
      for (float &x : wanted)
        x = isHost() ? x / static_cast<float>(size)
                     : x * (1 / static_cast<float>(size));
      std::vector<char> bytes(in.size());
      std::memcpy(bytes.data(), wanted.data(), bytes.size());
      EXPECT_EQ(difference(array.read(), bytes, Dtype::F32), "") << size;
    }
  });
}

TEST_P(Conformance, NonFiniteElements) {
  runAlone([&](Rank &rank) {
    for (Dtype dtype : allTypes)
      for (int64_t count : counts) {
        std::vector<char> values = randomValues(dtype, count, 13);
        DeviceArray array(rank, values);
        auto ask = [&] {
          int32_t result = -1;
          EXPECT_EQ(rank.show(backend->is_finite(rank.device, array.get(),
                                                 count, number(dtype), &result,
                                                 &rank.error)),
                    "OK");
          return result;
        };
        EXPECT_EQ(ask(), 1);
        if (count == 0)
          continue;
        double nan = NAN;
        host::castArray(&nan, Dtype::F64,
                        values.data() + (count - 1) * dtypeSize(dtype), dtype,
                        1);
        array.write(values);
        EXPECT_EQ(ask(), 0);
      }
  });
}

TEST_P(Conformance, SumsOfSquares) {
  runAlone([&](Rank &rank) {
    for (Dtype dtype : allTypes)
      for (int64_t count : counts) {
        const std::vector<char> values = randomValues(dtype, count, 14);
        std::vector<double> wide(static_cast<size_t>(count));
        host::castArray(values.data(), dtype, wide.data(), Dtype::F64, count);
        double expected = 0, result = -1;
        for (double value : wide)
          expected += value * value;
        DeviceArray array(rank, values);
        EXPECT_EQ(rank.show(backend->sum_squares(rank.device, array.get(),
                                                 count, number(dtype), &result,
                                                 &rank.error)),
                  "OK");
        // Its additions may have another order.
        EXPECT_NEAR(result, expected, 1e-12 * expected);
      }
  });
}

namespace {

/// Two matrices with a piece of the rest between them.
struct LowRankCase {
  explicit LowRankCase(int64_t rank) {
    matrices = {{0, 0, 0, 40, 24, rank},
                {970, 40 * rank, 24 * rank, 7, 50, rank}};
    pieces = {{960, 0, 10}};
    list.struct_size = sizeof(list);
    list.end = 1320;
    list.matrices = matrices.data();
    list.matrix_count = 2;
    list.pieces = pieces.data();
    list.piece_count = 1;
    p = 47 * rank;
    q = 74 * rank;
  }
  std::vector<ddphook_matrix_t> matrices;
  std::vector<ddphook_piece_t> pieces;
  ddphook_matrix_list_t list = {};
  int64_t p, q;
};

/// All arrays of one compressed step, from the same random input.
std::vector<std::vector<char>> runLowRank(const ddphook_backend_t &backend,
                                          Rank &rank, const LowRankCase &test,
                                          Dtype dtype) {
  int64_t size = dtypeSize(dtype), n = test.list.end;
  ddphook_matrices_t *matrices = nullptr;
  EXPECT_EQ(
      rank.show(backend.matrices_create(rank.device, &test.list, number(dtype),
                                        &matrices, &rank.error)),
      "OK");
  if (!matrices)
    return {};
  auto poisoned = [&](int64_t count) {
    return std::vector<char>(static_cast<size_t>(count * size), 'Z');
  };
  std::vector<char> small = randomValues(dtype, n, 14);
  DeviceArray g(rank, small), e(rank, randomValues(dtype, n, 15));
  DeviceArray q(rank, randomValues(dtype, test.q, 16));
  DeviceArray m(rank, poisoned(n)), p(rank, poisoned(test.p));
  DeviceArray rest(rank, poisoned(10)), out(rank, poisoned(n));
  DeviceArray err(rank, poisoned(n));
  std::vector<std::vector<char>> results;
  auto check = [&](ddphook_status_t status) {
    EXPECT_EQ(rank.show(status), "OK");
  };
  check(backend.project(rank.device, matrices, g.get(), e.get(), q.get(),
                        m.get(), p.get(), rest.get(), &rank.error));
  results = {m.read(), p.read(), rest.read()};
  check(backend.orthogonalize(rank.device, matrices, DDPHOOK_FACTOR_P, p.get(),
                              p.get(), 1e-3, &rank.error));
  results.push_back(p.read());
  check(backend.matmul(rank.device, matrices, DDPHOOK_MATMUL_Q, m.get(),
                       p.get(), q.get(), &rank.error));
  results.push_back(q.read());
  check(backend.reconstruct(rank.device, matrices, p.get(), q.get(), rest.get(),
                            m.get(), out.get(), err.get(), 2, &rank.error));
  results.push_back(out.read());
  results.push_back(err.read());
  backend.matrices_destroy(rank.device, matrices);
  return results;
}

} // namespace

TEST_P(Conformance, LowRankStep) {
  static const char *const names[] = {"m", "p",   "rest", "orthogonal p",
                                      "q", "out", "err"};
  for (Dtype dtype : {Dtype::F32, Dtype::F64})
    for (int64_t columns : {1, 2, 4}) {
      LowRankCase test(columns);
      std::vector<std::vector<char>> expected, got;
      Rank host;
      host.backend = &host::hostBackend();
      ASSERT_EQ(open(host, {}), "OK");
      expected = runLowRank(*host.backend, host, test, dtype);
      host.backend->device_destroy(host.device);
      runAlone(
          [&](Rank &rank) { got = runLowRank(*backend, rank, test, dtype); });
      ASSERT_EQ(got.size(), expected.size());
      // Sums of at most 50 products, in another order; all relative to the
      // array's largest element.
      const double tolerance = dtype == Dtype::F32 ? 2e-4 : 1e-12;
      for (size_t i = 0; i < got.size(); ++i) {
        std::vector<double> left = toDoubles(got[i], dtype);
        std::vector<double> right = toDoubles(expected[i], dtype);
        double largest = 0, worst = 0;
        for (size_t j = 0; j < left.size(); ++j) {
          largest = std::max(largest, std::fabs(right[j]));
          worst = std::max(worst, std::isnan(left[j])
                                      ? INFINITY
                                      : std::fabs(left[j] - right[j]));
        }
        EXPECT_LE(worst, tolerance * largest)
            << names[i] << ", " << dtypeName(dtype) << ", rank " << columns;
      }
    }
}

TEST_P(Conformance, Streams) {
  runAlone([&](Rank &rank) {
    EXPECT_EQ(rank.show(backend->stream_set(rank.device, nullptr, &rank.error)),
              "OK");
    if (isHost()) {
      int anything = 0;
      EXPECT_EQ(backend->stream_set(rank.device, &anything, &rank.error),
                DDPHOOK_UNSUPPORTED);
    }
  });
}

TEST_P(Conformance, UnknownOptionsAndTransports) {
  auto openWith = [&](const char *options, const char *transport) {
    Rank rank;
    GroupOptions group;
    group.options = options;
    group.transport = transport;
    std::string text = open(rank, group);
    if (rank.device)
      backend->device_destroy(rank.device);
    return text;
  };
  std::string unknown = openWith("pigeons=3", "auto");
  EXPECT_EQ(unknown.find("INVALID_ARGUMENT: "), 0u) << unknown;
  EXPECT_NE(unknown.find("pigeons"), std::string::npos) << unknown;
  EXPECT_EQ(openWith("", "pigeon")
                .find("INVALID_ARGUMENT: expected the "
                      "transport 'auto'"),
            0u);
}

TEST_P(Conformance, KernelsOfModules) {
  if (!backend->kernels_load) {
    EXPECT_EQ(backend->launch, nullptr);
    return;
  }
  // A device each: such a failure is final.
  auto load = [&](const char *code) {
    std::string text;
    runAlone([&](Rank &rank) {
      const char *names[] = {"nothing"};
      ddphook_kernels_t *kernels = nullptr;
      text = rank.show(backend->kernels_load(rank.device, code,
                                             code ? std::strlen(code) + 1 : 0,
                                             names, 1, &kernels, &rank.error));
      if (kernels)
        backend->kernels_unload(rank.device, kernels);
    });
    return text;
  };
  EXPECT_EQ(load(nullptr), "DATA_LOSS: expected the code of 1 kernels, but the "
                           "module has none");
  // No driver takes the first for PTX, and none compiles the second: that is
  // said when the module is loaded, not at the first launch.
  for (const char *code :
       {"not PTX", ".version 8.0\n.target sm_80\n.address_size 64\n"
                   ".visible .entry nothing() { this is nothing; }\n"}) {
    const std::string text = load(code);
    EXPECT_NE(text, "OK") << code;
    EXPECT_NE(text.find("kernel"), std::string::npos) << text;
    EXPECT_EQ(text.find("has none"), std::string::npos) << text;
  }
}
