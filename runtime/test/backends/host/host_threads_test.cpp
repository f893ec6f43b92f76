// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every call of the host backend that computes, for all types, on devices of
// one, two, three and five threads: the results and what lies around them have
// the same bits. Arrays are large enough to be cut, in sizes that no cut fits.

#include "host_backend.h"

#include "base/dtype.h"
#include "kernels.h"

#include "gtest/gtest.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace ddphook;
using namespace ddphook::host;

namespace {

constexpr Dtype kTypes[] = {Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64};
constexpr int kThreads[] = {1, 2, 3, 5};

using Bytes = std::vector<char>;

/// A device of some threads.
class Device {
public:
  explicit Device(int threads) {
    ddphook_device_config_t config = {};
    config.struct_size = sizeof(config);
    config.transport = "auto";
    config.local_address = "";
    config.timeout_s = 60;
    config.threads = threads;
    config.options = "";
    check(hostBackend().device_create(&config, &device, &error));
  }
  ~Device() { hostBackend().device_destroy(device); }
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;

  void check(ddphook_status_t status) {
    ASSERT_EQ(status, DDPHOOK_OK) << error.message;
  }

  ddphook_device_t *device = nullptr;
  ddphook_backend_error_t error = {};
};

/// An array of a type that begins at an odd place and that nothing is written
/// around.
class Array {
public:
  Array(Dtype type, int64_t count, char fill = 0x5a)
      : type(type), count(count),
        bytes(static_cast<size_t>((count + 2) * dtypeSize(type)), fill) {}

  static Array random(Dtype type, int64_t count, unsigned seed) {
    Array array(type, count);
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(count));
    for (float &value : values)
      value = normal(random);
    castArray(values.data(), Dtype::F32, array.data(), type, count);
    return array;
  }

  void *data() { return bytes.data() + dtypeSize(type); }

  const Dtype type;
  const int64_t count;
  Bytes bytes;
};

/// Runs `compute` with a device of each number of threads; it returns all that
/// it has written.
void expectSameBits(
    const std::function<std::vector<Bytes>(Device &)> &compute) {
  std::vector<Bytes> first;
  for (int threads : kThreads) {
    SCOPED_TRACE(std::to_string(threads) + " threads");
    Device device(threads);
    const std::vector<Bytes> results = compute(device);
    if (first.empty())
      first = results;
    ASSERT_EQ(results.size(), first.size());
    for (size_t i = 0; i < results.size(); ++i)
      EXPECT_TRUE(results[i] == first[i]) << "array " << i;
  }
}

/// What is too small to be cut, and sizes at and around cuts.
const int64_t kCounts[] = {0, 1, 1000, 262144, 600011};

class HostThreads : public testing::TestWithParam<Dtype> {
protected:
  const ddphook_backend_t &backend = hostBackend();
};

INSTANTIATE_TEST_SUITE_P(Types, HostThreads, testing::ValuesIn(kTypes),
                         [](const testing::TestParamInfo<Dtype> &info) {
                           return std::string(dtypeName(info.param));
                         });

TEST_P(HostThreads, elementWise) {
  const Dtype type = GetParam();
  const auto number = static_cast<int32_t>(type);
  for (int64_t count : kCounts) {
    SCOPED_TRACE(std::to_string(count) + " elements");
    Array a = Array::random(type, count, 1), b = Array::random(type, count, 2);
    expectSameBits([&](Device &on) {
      Array divided(type, count), scaled(type, count), sum(type, count),
          difference(type, count), copied(type, count), zeroed(type, count);
      on.check(backend.divide_by_group_size(
          on.device, 3, a.data(), divided.data(), count, number, &on.error));
      on.check(backend.scale(on.device, 0.3, a.data(), scaled.data(), count,
                             number, &on.error));
      on.check(backend.add(on.device, a.data(), b.data(), sum.data(), count,
                           number, &on.error));
      on.check(backend.subtract(on.device, a.data(), b.data(),
                                difference.data(), count, number, &on.error));
      // In place.
      on.check(backend.add(on.device, difference.data(), b.data(),
                           difference.data(), count, number, &on.error));
      on.check(backend.copy(on.device, a.data(), copied.data(),
                            count * dtypeSize(type), &on.error));
      on.check(backend.zero(on.device, zeroed.data(), count * dtypeSize(type),
                            &on.error));
      EXPECT_EQ(copied.bytes, a.bytes);
      return std::vector<Bytes>{divided.bytes,    scaled.bytes, sum.bytes,
                                difference.bytes, copied.bytes, zeroed.bytes};
    });
  }
}

TEST_P(HostThreads, casts) {
  const Dtype type = GetParam();
  for (int64_t count : kCounts) {
    SCOPED_TRACE(std::to_string(count) + " elements");
    Array a = Array::random(type, count, 3);
    expectSameBits([&](Device &on) {
      std::vector<Bytes> results;
      for (Dtype to : kTypes) {
        Array out(to, count);
        on.check(backend.cast(on.device, a.data(), static_cast<int32_t>(type),
                              out.data(), static_cast<int32_t>(to), count,
                              &on.error));
        results.push_back(out.bytes);
      }
      return results;
    });
  }
}

/// What codes lose: of blocks of many sizes, one of them the whole array.
TEST_P(HostThreads, encodingErrors) {
  const Dtype type = GetParam();
  const std::pair<int32_t, int64_t> encodings[] = {
      {DDPHOOK_ENCODING_I8, 256},   {DDPHOOK_ENCODING_I4, 64},
      {DDPHOOK_ENCODING_UI1, 1024}, {DDPHOOK_ENCODING_UI1, 0},
      {DDPHOOK_ENCODING_UI8, 512},  {DDPHOOK_ENCODING_UI8, 0}};
  for (int64_t count : kCounts) {
    SCOPED_TRACE(std::to_string(count) + " elements");
    Array a = Array::random(type, count, 4);
    expectSameBits([&](Device &on) {
      std::vector<Bytes> results;
      for (auto [encoding, block] : encodings) {
        Array lost(type, count);
        on.check(backend.encoding_error(on.device, a.data(), lost.data(), count,
                                        static_cast<int32_t>(type), encoding,
                                        block, /*rank=*/-1, /*stream=*/-1,
                                        /*step=*/0, &on.error));
        results.push_back(lost.bytes);
      }
      return results;
    });
  }
}

/// The one element that is not finite is found wherever it is.
TEST_P(HostThreads, isFinite) {
  const Dtype type = GetParam();
  const int64_t count = 600011;
  for (int64_t place : {int64_t(-1), int64_t(0), count / 2, count - 1}) {
    Array a = Array::random(type, count, 4);
    const float infinity = std::numeric_limits<float>::infinity();
    if (place >= 0)
      castArray(&infinity, Dtype::F32,
                static_cast<char *>(a.data()) + place * dtypeSize(type), type,
                1);
    for (int threads : kThreads) {
      Device on(threads);
      int32_t result = -1;
      on.check(backend.is_finite(on.device, a.data(), count,
                                 static_cast<int32_t>(type), &result,
                                 &on.error));
      EXPECT_EQ(result, place < 0) << place << ", " << threads << " threads";
    }
  }
}

/// Matrices, one after the other, and what lies between them.
struct List {
  std::vector<ddphook_matrix_t> matrices;
  std::vector<ddphook_piece_t> pieces;
  int64_t elements = 0, packed = 0, q = 0;

  void addMatrix(int64_t rows, int64_t columns, int64_t rank) {
    matrices.push_back({elements, packed, q, rows, columns, rank});
    elements += rows * columns;
    packed += rows * rank;
    q += columns * rank;
  }
  void addPiece(int64_t count) {
    pieces.push_back({elements, packed, count});
    elements += count;
    packed += count;
  }
};

/// The list as the backend takes it; refers to `list`.
ddphook_matrix_list_t viewOf(const List &list) {
  return {sizeof(ddphook_matrix_list_t),
          0,
          list.elements,
          list.matrices.data(),
          static_cast<int64_t>(list.matrices.size()),
          list.pieces.data(),
          static_cast<int64_t>(list.pieces.size())};
}

/// A step on a list, as compiled code takes it, and the calls that it leaves
/// out.
std::vector<Bytes> step(Device &on, Dtype type, const List &list, Array &g,
                        Array &error, Array &firstQ) {
  const ddphook_backend_t &backend = hostBackend();
  const ddphook_matrix_list_t view = viewOf(list);
  ddphook_matrices_t *matrices = nullptr;
  on.check(backend.matrices_create(on.device, &view, static_cast<int32_t>(type),
                                   &matrices, &on.error));
  Array e = error, q = firstQ;
  Array packed(type, list.packed), out(type, list.elements),
      p(type, list.packed), product(type, list.elements);
  auto orthogonalize = [&](int32_t factor, Array &array) {
    on.check(backend.orthogonalize(on.device, matrices, factor, array.data(),
                                   array.data(), 1e-8, &on.error));
  };
  orthogonalize(
      DDPHOOK_FACTOR_Q | DDPHOOK_UNIT_COLUMNS | DDPHOOK_INDEPENDENT_COLUMNS, q);
  on.check(backend.project(on.device, matrices, g.data(), e.data(), q.data(),
                           e.data(), packed.data(), packed.data(), &on.error));
  const Bytes projected = packed.bytes, sums = e.bytes;
  on.check(backend.matmul(on.device, matrices, DDPHOOK_MATMUL_P, e.data(),
                          p.data(), q.data(), &on.error));
  orthogonalize(DDPHOOK_FACTOR_P, packed);
  on.check(backend.matmul(on.device, matrices, DDPHOOK_MATMUL_Q, e.data(),
                          packed.data(), q.data(), &on.error));
  on.check(backend.matmul(on.device, matrices, DDPHOOK_MATMUL_M, product.data(),
                          packed.data(), q.data(), &on.error));
  on.check(backend.reconstruct(on.device, matrices, packed.data(), q.data(),
                               packed.data(), e.data(), out.data(), e.data(), 3,
                               &on.error));
  backend.matrices_destroy(on.device, matrices);
  return {projected, sums,      packed.bytes,  q.bytes,
          p.bytes,   out.bytes, product.bytes, e.bytes};
}

void expectSameSteps(Dtype type, const List &list) {
  Array g = Array::random(type, list.elements, 5);
  Array e = Array::random(type, list.elements, 6);
  Array q = Array::random(type, list.q, 7);
  expectSameBits([&](Device &on) { return step(on, type, list, g, e, q); });
}

/// Sums over blocks of rows are as exact as one sum: off by at most n·u·Σ|…|.
TEST_P(HostThreads, sumsOfBlocks) {
  const Dtype type = GetParam();
  constexpr int64_t rows = 1301, columns = 389, rank = 4;
  List list;
  list.addMatrix(rows, columns, rank);
  Array m = Array::random(type, rows * columns, 10);
  Array p = Array::random(type, rows * rank, 11), q(type, columns * rank);
  Device on(3);
  ddphook_matrices_t *matrices = nullptr;
  const ddphook_matrix_list_t view = {
      sizeof(view), 0, list.elements, list.matrices.data(), 1, nullptr, 0};
  on.check(backend.matrices_create(on.device, &view, static_cast<int32_t>(type),
                                   &matrices, &on.error));
  on.check(backend.matmul(on.device, matrices, DDPHOOK_MATMUL_Q, m.data(),
                          p.data(), q.data(), &on.error));
  backend.matrices_destroy(on.device, matrices);
  auto toDoubles = [](Array &array) {
    std::vector<double> values(static_cast<size_t>(array.count));
    castArray(array.data(), array.type, values.data(), Dtype::F64, array.count);
    return values;
  };
  const std::vector<double> ms = toDoubles(m), ps = toDoubles(p),
                            qs = toDoubles(q);
  const double unit = type == Dtype::F64 ? 0x1p-53 : 0x1p-24;
  const double rounding = type == Dtype::F16    ? 0x1p-11
                          : type == Dtype::BF16 ? 0x1p-8
                                                : 0;
  for (size_t j = 0; j < columns; ++j)
    for (size_t k = 0; k < rank; ++k) {
      double sum = 0, magnitude = 0;
      for (size_t i = 0; i < rows; ++i) {
        const double product = ms[i * columns + j] * ps[i * rank + k];
        sum += product;
        magnitude += std::abs(product);
      }
      EXPECT_NEAR(qs[j * rank + k], sum,
                  (rows + 2) * unit * magnitude + 2 * rounding * std::abs(sum));
    }
}

/// One matrix that has to be cut, of every rank that kernels distinguish.
TEST_P(HostThreads, oneMatrix) {
  for (int64_t rank : {1, 2, 3, 4, 8, 9, 19})
    for (auto [rows, columns] :
         {std::pair<int64_t, int64_t>{1301, 389}, {4001, 31}, {13, 9001}}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) +
                   ", rank " + std::to_string(rank));
      List list;
      list.addMatrix(rows, columns, rank);
      expectSameSteps(GetParam(), list);
    }
}

/// Compilers put the matrices of a bucket into lists as they like: what becomes
/// of one does not depend on the others in its list.
TEST_P(HostThreads, othersInTheList) {
  const Dtype type = GetParam();
  constexpr int64_t rows = 1301, columns = 389, rank = 4;
  Array m = Array::random(type, rows * columns, 12);
  Array p = Array::random(type, rows * rank, 13);
  Device on(2);
  auto multiply = [&](int others) {
    List list;
    for (int i = 0; i <= others; ++i)
      list.addMatrix(i == 0 ? rows : 4 * rows, columns, rank);
    Array allM(type, list.elements, 0), allP(type, list.packed, 0),
        q(type, list.q);
    const int64_t size = dtypeSize(type);
    std::memcpy(allM.data(), m.data(),
                static_cast<size_t>(rows * columns * size));
    std::memcpy(allP.data(), p.data(), static_cast<size_t>(rows * rank * size));
    const ddphook_matrix_list_t view = viewOf(list);
    ddphook_matrices_t *matrices = nullptr;
    on.check(backend.matrices_create(
        on.device, &view, static_cast<int32_t>(type), &matrices, &on.error));
    on.check(backend.matmul(on.device, matrices, DDPHOOK_MATMUL_Q, allM.data(),
                            allP.data(), q.data(), &on.error));
    backend.matrices_destroy(on.device, matrices);
    const char *first = static_cast<const char *>(q.data());
    return Bytes(first, first + columns * rank * size);
  };
  const Bytes alone = multiply(0);
  for (int others : {1, 3})
    EXPECT_TRUE(multiply(others) == alone) << others << " others";
}

/// Matrices of many sizes, with pieces between them, one of which has to be
/// cut, and matrices without elements.
TEST_P(HostThreads, manyMatrices) {
  List list;
  for (int64_t i = 0; i < 60; ++i) {
    list.addMatrix(1 + i * 7 % 97, 1 + i * 31 % 113, 1 + i % 9);
    list.addPiece(i * 13 % 29);
  }
  list.addPiece(200003);
  list.addMatrix(0, 7, 2);
  list.addMatrix(7, 0, 2);
  list.addMatrix(7, 5, 0);
  list.addMatrix(1800, 301, 4);
  list.addMatrix(1, 1, 1);
  expectSameSteps(GetParam(), list);
}

/// Without error feedback M is G, and a list may have no matrix or nothing.
TEST_P(HostThreads, withoutFeedback) {
  const Dtype type = GetParam();
  for (bool hasMatrices : {true, false}) {
    List list;
    if (hasMatrices)
      list.addMatrix(301, 299, 4);
    list.addPiece(hasMatrices ? 70001 : 0);
    Array g = Array::random(type, list.elements, 8);
    Array q = Array::random(type, list.q, 9);
    expectSameBits([&](Device &on) {
      const ddphook_matrix_list_t view = viewOf(list);
      ddphook_matrices_t *matrices = nullptr;
      on.check(backend.matrices_create(
          on.device, &view, static_cast<int32_t>(type), &matrices, &on.error));
      Array packed(type, list.packed), out(type, list.elements);
      on.check(backend.project(on.device, matrices, g.data(), nullptr, q.data(),
                               nullptr, packed.data(), packed.data(),
                               &on.error));
      on.check(backend.reconstruct(on.device, matrices, packed.data(), q.data(),
                                   packed.data(), nullptr, out.data(), nullptr,
                                   1, &on.error));
      backend.matrices_destroy(on.device, matrices);
      return std::vector<Bytes>{packed.bytes, out.bytes};
    });
  }
}

TEST(HostThreadsDevice, RefusesNoThreads) {
  ddphook_device_config_t config = {};
  config.struct_size = sizeof(config);
  config.transport = "auto";
  config.local_address = "";
  config.timeout_s = 60;
  config.options = "";
  ddphook_device_t *device = nullptr;
  ddphook_backend_error_t error = {};
  EXPECT_EQ(hostBackend().device_create(&config, &device, &error),
            DDPHOOK_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "expected at least 1 thread, but got 0");
}

} // namespace
