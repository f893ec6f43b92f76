// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The factors of whole lists on a device against the host backend's kernel,
// which is tested against textbook loops: Gram-Schmidt, Householder QR, their
// roundings, zero columns, extreme and non-finite values, factors that fit into
// shared memory and those that do not. Tall factors against the host's in f64.

#include "backends/cuda/cuda_kernels_lowrank_test_util.h"

#include "../../../backends/cuda/kernels/matrix_tables.h"
#include "../../../backends/host/kernels/lowrank.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Settings {
  double epsilon = 0;
  /// DDPHOOK_UNIT_COLUMNS and DDPHOOK_INDEPENDENT_COLUMNS.
  int32_t replaced = 0;
};

/// What the host makes of the factors of a list.
HostArray onHost(const TestList &test, bool isP, const HostArray &in,
                 const Settings &settings) {
  HostArray out = poisoned(test.type, in.size());
  const auto size = dtypeSize(test.type);
  for (const ddphook_matrix_t &m : test.matrices) {
    const int64_t rows = isP ? m.rows : m.columns;
    const int64_t offset = isP ? m.p_offset : m.q_offset;
    const auto bytes = static_cast<size_t>(
        *host::lowRankScratchBytes(test.type, {rows, rows, m.rank}));
    std::vector<char> memory(bytes + 64);
    void *scratch = memory.data();
    size_t space = memory.size();
    std::align(64, bytes, scratch, space);
    host::orthogonalizeFactor(test.type, rows, m.rank,
                              static_cast<const char *>(in.data()) +
                                  offset * size,
                              static_cast<char *>(out.data()) + offset * size,
                              settings.epsilon, scratch, settings.replaced);
  }
  return out;
}

/// The distance of QᵀQ from the identity, over the first `columns` columns.
double deviation(const std::vector<double> &values, int64_t offset,
                 int64_t rows, int64_t rank, int64_t columns) {
  double worst = 0;
  auto at = [&](int64_t i, int64_t k) {
    return values[static_cast<size_t>(offset + i * rank + k)];
  };
  for (int64_t k = 0; k < columns; ++k)
    for (int64_t l = 0; l < columns; ++l) {
      double sum = k == l ? -1 : 0;
      for (int64_t i = 0; i < rows; ++i)
        sum += at(i, k) * at(i, l);
      worst = std::max(worst, std::abs(sum));
    }
  return worst;
}

class CudaOrthogonalize : public CudaLowRankTest {
protected:
  /// Runs P's and Q's factors apart and in place, which must agree.
  HostArray onDevice(const TestList &test, bool isP, const HostArray &in,
                     const Settings &settings) {
    std::unique_ptr<MatrixList> list = test.create();
    DeviceArray x(in, 1), out(test.type, in.size(), 3);
    const int32_t factor =
        (isP ? DDPHOOK_FACTOR_P : DDPHOOK_FACTOR_Q) | settings.replaced;
    EXPECT_EQ(list->orthogonalize(stream, factor, x.data(), out.data(),
                                  settings.epsilon),
              cudaSuccess);
    expectSame(x.read(), in);
    EXPECT_EQ(list->orthogonalize(stream, factor, x.data(), x.data(),
                                  settings.epsilon),
              cudaSuccess);
    const HostArray result = out.read(), inPlace = x.read();
    // What lies between the factors is as it was.
    HostArray want = poisoned(test.type, in.size()), over = in;
    for (const ddphook_matrix_t &m : test.matrices) {
      const int64_t begin = isP ? m.p_offset : m.q_offset;
      const int64_t count = (isP ? m.rows : m.columns) * m.rank;
      for (int64_t i = begin; i < begin + count; ++i) {
        want.setBits(i, result.bits(i));
        over.setBits(i, result.bits(i));
      }
    }
    expectSame(result, want);
    expectSame(inPlace, over);
    return result;
  }

  /// Factors near the host's; NaN where it has NaN.
  void expectNearHost(const TestList &test, bool isP, const HostArray &in,
                      const Settings &settings,
                      const std::function<double(int64_t, int64_t)> &limit) {
    const std::vector<double> want = toDoubles(onHost(test, isP, in, settings));
    const std::vector<double> got =
        toDoubles(onDevice(test, isP, in, settings));
    for (const ddphook_matrix_t &m : test.matrices) {
      const int64_t rows = isP ? m.rows : m.columns;
      const int64_t offset = isP ? m.p_offset : m.q_offset;
      for (int64_t i = 0; i < rows * m.rank; ++i) {
        const double x = got[static_cast<size_t>(offset + i)];
        const double y = want[static_cast<size_t>(offset + i)];
        if (std::isnan(y))
          ASSERT_TRUE(std::isnan(x));
        else if (x != y)
          ASSERT_LE(std::abs(x - y), limit(rows, m.rank))
              << "element " << i << " of " << rows << " x " << m.rank
              << ": expected " << y << ", but got " << x;
      }
    }
  }

  /// Factors of f32 near what the host makes of them in f64.
  void expectNearModel(const std::vector<Shape> &shapes, bool isP,
                       const HostArray &in, double limit,
                       const Settings &settings = {}) {
    const TestList test(Dtype::F32, shapes, 2), model(Dtype::F64, shapes, 2);
    const HostArray wide = toArray(Dtype::F64, toDoubles(in));
    const std::vector<double> want =
        toDoubles(onHost(model, isP, wide, settings));
    const std::vector<double> got =
        toDoubles(onDevice(test, isP, in, settings));
    double worst = 0;
    for (const ddphook_matrix_t &m : test.matrices) {
      const int64_t begin = isP ? m.p_offset : m.q_offset;
      const int64_t count = (isP ? m.rows : m.columns) * m.rank;
      for (int64_t i = begin; i < begin + count; ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_FALSE(std::isnan(got[at])) << "element " << i;
        worst = std::max(worst, std::abs(got[at] - want[at]));
      }
    }
    EXPECT_LE(worst, limit);
  }

  /// One factor of a list of its own; gives its elements.
  std::vector<double> single(Dtype type, int64_t rows, int64_t rank,
                             const std::vector<double> &values,
                             const Settings &settings) {
    const TestList test(type, {{rows, 1, rank}}, 0);
    return toDoubles(onDevice(test, true, toArray(type, values), settings));
  }
};

/// How much two sound results may differ: more, when what is left of the last
/// columns is small.
double limitOf(Dtype type, int64_t rows, int64_t rank) {
  const double condition = rows < rank + 3 ? 1e3 : 30;
  switch (type) {
  case Dtype::F64:
    return condition * 1e-14;
  case Dtype::F32:
    return condition * 1e-5;
  case Dtype::F16:
    return rows < rank + 3 ? 2 : 0x1p-8;
  case Dtype::BF16:
    return rows < rank + 3 ? 2 : 0x1p-5;
  }
  return 0;
}

TEST_F(CudaOrthogonalize, isTheHosts) {
  for (Dtype type : kTypes)
    for (int64_t rank : {1, 2, 3, 4, 5, 8, 16, 33}) {
      SCOPED_TRACE(std::string(dtypeName(type)) + ", rank " +
                   std::to_string(rank));
      std::vector<Shape> shapes;
      for (int64_t rows : {0, 1, 2, 3, 4, 15, 16, 17, 31, 33, 64, 257, 1024})
        if (rows == 0 || (rows >= rank && (rank <= 8 || rows <= 64)))
          shapes.push_back({rows, std::max<int64_t>(rank, 30), rank});
      const TestList test(type, shapes, 3);
      for (double epsilon : {0.0, 1e-3}) {
        const Settings settings = {epsilon, 0};
        auto limit = [&](int64_t rows, int64_t rank) {
          return limitOf(type, rows, rank);
        };
        expectNearHost(test, true, normal(type, test.p), settings, limit);
        if (epsilon != 0 || rank > 8)
          continue;
        expectNearHost(test, false, normal(type, test.q), settings, limit);
      }
    }
}

TEST_F(CudaOrthogonalize, columnsAreOrthonormal) {
  for (Dtype type : {Dtype::F32, Dtype::F64})
    for (int64_t rank : {3, 4, 8, 32, 40}) {
      const int64_t rows = 200;
      const HostArray in = normal(type, rows * rank);
      const std::vector<double> got =
          single(type, rows, rank, toDoubles(in), Settings());
      EXPECT_LE(deviation(got, 0, rows, rank, rank),
                type == Dtype::F32 ? 1e-5 : 1e-13);
    }
}

/// Factors of 227 KB and more are worked on in scratch memory.
TEST_F(CudaOrthogonalize, factorsThatAreLargerThanSharedMemory) {
  for (Dtype type : {Dtype::F32, Dtype::F64, Dtype::BF16}) {
    const int64_t rows = type == Dtype::F64 ? 8000 : 16000;
    const TestList test(type, {{40, 3, 4}, {rows, 5, 4}, {30, 2, 4}}, 1);
    expectNearHost(
        test, true, normal(type, test.p), Settings(),
        [&](int64_t rows, int64_t rank) { return limitOf(type, rows, rank); });
  }
}

/// Small integers: every sum is exact, so the roundings alone matter, and they
/// are the host's.
TEST_F(CudaOrthogonalize, roundsLikeSixteenBits) {
  for (Dtype type : {Dtype::F16, Dtype::BF16})
    for (int64_t rows : {1, 2, 5, 33, 130}) {
      const TestList test(type, {{rows, 1, 1}}, 0);
      HostArray in = smallIntegers(type, rows);
      for (double epsilon : {0.0, 0.01}) {
        const Settings settings = {epsilon, 0};
        expectSame(onDevice(test, true, in, settings),
                   onHost(test, true, in, settings));
      }
    }
  // Worked out by hand: first column (3, 4), second (7, 1).
  for (Dtype type : {Dtype::F16, Dtype::BF16}) {
    auto rn = [&](double value) {
      return toDoubles(toArray(type, {value}))[0];
    };
    const double c0 = rn(0.6), c1 = rn(0.8);
    const double s = rn(rn(7 * c0) + rn(1 * c1));
    const double d0 = rn(7 - rn(s * c0)), d1 = rn(1 - rn(s * c1));
    const double norm = rn(std::sqrt(d0 * d0 + d1 * d1));
    const std::vector<double> want = {c0, rn(d0 / norm), c1, rn(d1 / norm)};
    EXPECT_EQ(single(type, 2, 2, {3, 7, 4, 1}, Settings()), want);
  }
}

TEST_F(CudaOrthogonalize, zeroColumns) {
  for (Dtype type : kTypes) {
    std::vector<double> a = toDoubles(normal(type, 40));
    for (size_t i = 0; i < a.size(); i += 2)
      a[i] = 0;
    for (double value : single(type, 20, 2, a, {0, 0}))
      EXPECT_TRUE(std::isnan(value));
    const std::vector<double> kept = single(type, 20, 2, a, {1e-3, 0});
    for (size_t i = 0; i < kept.size(); i += 2) {
      EXPECT_EQ(kept[i], 0);
      EXPECT_NE(kept[i + 1], 0);
    }
    // A unit vector instead, the first of those that are equally far.
    const std::vector<double> unit =
        single(type, 20, 2, a, {0, DDPHOOK_UNIT_COLUMNS});
    for (size_t i = 0; i < unit.size(); i += 2)
      EXPECT_EQ(unit[i], i == 0 ? 1 : 0);
  }
  for (Dtype type : {Dtype::F32, Dtype::F64}) {
    // Nothing to reflect: the columns of the identity.
    const std::vector<double> got =
        single(type, 20, 4, std::vector<double>(80, 0.0), Settings());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(got[i], i / 4 == i % 4 ? 1 : 0);
    std::vector<double> a = toDoubles(normal(type, 100));
    for (size_t i = 2; i < a.size(); i += 5)
      a[i] = 0;
    EXPECT_LE(deviation(single(type, 20, 5, a, Settings()), 0, 20, 5, 5), 1e-5);
  }
}

/// Zero columns that become unit vectors do so as on the host.
TEST_F(CudaOrthogonalize, unitColumns) {
  for (Dtype type : kTypes)
    for (int64_t rank : {1, 2, 3, 5}) {
      const int64_t rows = 37;
      const TestList test(type, {{rows, 1, rank}, {300, 1, rank}}, 2);
      HostArray in = normal(type, test.p);
      for (const ddphook_matrix_t &m : test.matrices)
        for (int64_t i = 0; i < m.rows; ++i)
          in.setBits(m.p_offset + i * rank + rank - 1, 0);
      expectNearHost(test, true, in, {0, DDPHOOK_UNIT_COLUMNS},
                     [&](int64_t rows, int64_t rank) {
                       return limitOf(type, rows, rank);
                     });
    }
}

/// Columns that depend on those before them become orthonormal; where none
/// does, no bit changes.
TEST_F(CudaOrthogonalize, independentColumns) {
  const Settings independent = {0, DDPHOOK_INDEPENDENT_COLUMNS};
  for (Dtype type : kTypes)
    for (int64_t rows : {37, 300, 40000}) {
      std::vector<double> a = toDoubles(normal(type, 2 * rows));
      EXPECT_EQ(single(type, rows, 2, a, independent),
                single(type, rows, 2, a, Settings()));
      for (size_t i = 0; i < a.size(); i += 2)
        a[i + 1] = 3 * a[i];
      EXPECT_LE(deviation(single(type, rows, 2, a, independent), 0, rows, 2, 2),
                dtypeSize(type) == 2 ? 0.1 : 1e-5);
    }
}

TEST_F(CudaOrthogonalize, moreColumnsThanRows) {
  for (Dtype type : kTypes)
    for (int64_t rows : {1, 2, 3, 5})
      for (int64_t rank : {2, 3, 6, 20, 70}) {
        if (rank <= rows)
          continue;
        const std::vector<double> got = single(
            type, rows, rank, toDoubles(normal(type, rows * rank)), Settings());
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t k = rows; k < rank; ++k)
            EXPECT_EQ(got[static_cast<size_t>(i * rank + k)], 0);
        // Gram-Schmidt in 16 bits loses what is small after cancellation.
        if (dtypeSize(type) > 2)
          EXPECT_LE(deviation(got, 0, rows, rank, rows), 1e-3);
      }
}

/// Squares of such numbers overflow or vanish; QR is not disturbed by that.
TEST_F(CudaOrthogonalize, extremeMagnitudes) {
  for (Dtype type : {Dtype::F32, Dtype::F64})
    for (int exponent : {-140, -100, -70, 0, 70, 120}) {
      const TestList test(type, {{50, 1, 4}}, 0);
      std::vector<double> a = toDoubles(normal(Dtype::F32, 200));
      for (double &value : a)
        value = std::ldexp(value, exponent);
      const double tolerance = exponent < -130 ? 1e-1 : 1e-5;
      expectNearHost(test, true, toArray(type, a), Settings(),
                     [&](int64_t, int64_t) { return tolerance; });
      // A pivot that dwarfs what is below it still changes its sign.
      std::vector<double> pivot = toDoubles(normal(Dtype::F32, 200));
      pivot[0] = std::ldexp(1, 60);
      EXPECT_NEAR(single(type, 50, 4, pivot, Settings())[0], -1, 1e-6);
    }
}

TEST_F(CudaOrthogonalize, valuesThatAreNotFinite) {
  for (Dtype type : kTypes)
    for (int64_t rank : {1, 2, 4})
      for (double bad : {kNaN, kInfinity}) {
        std::vector<double> a = toDoubles(normal(type, 40 * rank));
        a[static_cast<size_t>(7 * rank)] = bad;
        const std::vector<double> got = single(type, 40, rank, a, Settings());
        EXPECT_TRUE(std::any_of(got.begin(), got.end(),
                                [](double x) { return std::isnan(x); }));
      }
}

/// The least number of rows of a factor that many blocks work on.
int64_t tallRows(int64_t rank) {
  int64_t rows = 1;
  while (!isTall(Dtype::F32, rows, rank))
    ++rows;
  return rows;
}

/// Half a unit in the last place of 1: elements of tall factors are less, and
/// are rounded once.
constexpr double kRounded = 0x1p-24;

TEST_F(CudaOrthogonalize, tallFactorsAreTheModels) {
  for (int64_t rank : {3, 4, 5, 8, 16, 22, 23, 32}) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    const int64_t rows = tallRows(rank);
    const std::vector<Shape> shapes = {
        {rows, 3, rank}, {rows + 77, 2, rank}, {2 * rows + 1, 0, rank}};
    const std::vector<Shape> others = {{3, rows, rank}, {2, rows + 77, rank}};
    const int64_t numbers = (4 * rows + 100) * rank + 10;
    const HostArray in = normal(Dtype::F32, numbers);
    expectNearModel(others, false, in, kRounded);
    expectNearModel({shapes[0], shapes[1], shapes[2]}, true, in, kRounded);
  }
}

/// Beside factors that one block works on, of which some have fewer rows than
/// columns.
TEST_F(CudaOrthogonalize, tallFactorsBesideOthers) {
  const TestList test(Dtype::F32,
                      {{1, 2, 4},
                       {5000, 1, 4},
                       {3, 5, 4},
                       {70, 1, 2},
                       {9000, 3, 3},
                       {6000, 2, 1},
                       {800, 2, 40},
                       {0, 3, 4}},
                      3);
  expectNearHost(test, true, normal(Dtype::F32, test.p), Settings(),
                 [&](int64_t rows, int64_t rank) {
                   return limitOf(Dtype::F32, rows, rank);
                 });
}

TEST_F(CudaOrthogonalize, hundredThousandRows) {
  const std::vector<Shape> shapes = {{100000, 1, 4}};
  expectNearModel(shapes, true, normal(Dtype::F32, 400000), kRounded);
}

TEST_F(CudaOrthogonalize, tallColumnsOfAnyMagnitude) {
  const int64_t rank = 6, rows = tallRows(rank) + 5;
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<double> a = toDoubles(normal(Dtype::F32, rows * rank));
    const int exponents[] = {-140, -100, 0, 60, 100, 124};
    for (size_t i = 0; i < a.size(); ++i)
      a[i] = std::ldexp(a[i], exponents[(i + static_cast<size_t>(turn)) % 6]);
    expectNearModel({{rows, 1, rank}}, true, toArray(Dtype::F32, a), kRounded);
  }
}

/// From columns that are almost orthogonal to such that f32 hardly tells apart.
TEST_F(CudaOrthogonalize, tallColumnsThatAreNearlyDependent) {
  const int64_t rank = 4, rows = tallRows(rank) + 1;
  for (int digits : {1, 2, 3, 4, 5, 6}) {
    SCOPED_TRACE("digits " + std::to_string(digits));
    const double apart = std::pow(10, -digits);
    std::vector<double> a = toDoubles(normal(Dtype::F32, rows * rank));
    for (size_t i = 0; i < a.size(); i += 4)
      a[i + 2] = a[i] - a[i + 1] + apart * a[i + 2];
    const HostArray in = toArray(Dtype::F32, a);
    const std::vector<double> got =
        single(Dtype::F32, rows, rank, toDoubles(in), Settings());
    EXPECT_LE(deviation(got, 0, rows, rank, rank), 1e-5);
    // One block's arithmetic is f32's.
    const double limit = digits <= 2 ? kRounded : 1e-6 / apart;
    expectNearModel({{rows, 1, rank}}, true, in, limit);
  }
}

TEST_F(CudaOrthogonalize, tallColumnsThatAreDependentOrZero) {
  for (int64_t rows : {tallRows(5), int64_t(20000)})
    for (bool isZero : {false, true}) {
      const int64_t rank = 5;
      std::vector<double> a = toDoubles(normal(Dtype::F32, rows * rank));
      for (size_t i = 0; i < a.size(); i += 5)
        a[i + 3] = isZero ? 0 : 2 * a[i + 1];
      const std::vector<double> q = single(Dtype::F32, rows, rank, a, {});
      EXPECT_LE(deviation(q, 0, rows, rank, rank), 1e-5);
      // Its columns still span those of the factor.
      for (int64_t k = 0; k < rank; ++k) {
        std::vector<double> dots(5);
        for (size_t i = 0; i < a.size(); ++i)
          dots[i % 5] += q[i] * a[i / 5 * 5 + static_cast<size_t>(k)];
        for (size_t i = 0; i < a.size(); i += 5) {
          double rest = a[i + static_cast<size_t>(k)];
          for (size_t l = 0; l < 5; ++l)
            rest -= dots[l] * q[i + l];
          ASSERT_LE(std::abs(rest), 1e-3) << "row " << i / 5;
        }
      }
    }
  // Nothing to reflect: the columns of the identity.
  const int64_t rows = tallRows(4);
  const std::vector<double> zeros(static_cast<size_t>(rows * 4));
  const std::vector<double> got = single(Dtype::F32, rows, 4, zeros, {});
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], i / 4 == i % 4 ? 1 : 0);
}

TEST_F(CudaOrthogonalize, tallFactorsThatAreNotFinite) {
  const int64_t rows = tallRows(4);
  for (double bad : {kNaN, kInfinity}) {
    std::vector<double> a = toDoubles(normal(Dtype::F32, rows * 4));
    a[static_cast<size_t>(rows * 2 + 1)] = bad;
    const std::vector<double> got = single(Dtype::F32, rows, 4, a, {});
    EXPECT_TRUE(std::any_of(got.begin(), got.end(),
                            [](double x) { return std::isnan(x); }));
  }
}

/// With one or two columns, and an epsilon that is small or large beside them.
TEST_F(CudaOrthogonalize, tallGramSchmidt) {
  for (int64_t rank : {1, 2})
    for (int64_t more : {-1, 0, 1, 300}) {
      const int64_t rows = tallRows(rank) + more;
      const HostArray in = normal(Dtype::F32, rows * rank);
      for (double epsilon : {0.0, 1e-3, 100.0}) {
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(rank));
        expectNearModel({{rows, 1, rank}}, true, in, more < 0 ? 1e-6 : kRounded,
                        {epsilon, 0});
      }
    }
}

/// Where squares of f32 vanish or overflow, columns are nearly dependent, zero
/// or not finite, many blocks leave Gram-Schmidt to one: its NaNs, zeros and
/// unit vectors are the host's.
TEST_F(CudaOrthogonalize, tallGramSchmidtOfHardColumns) {
  for (int64_t rank : {1, 2}) {
    const int64_t rows = tallRows(rank) + 9;
    const std::vector<double> a = toDoubles(normal(Dtype::F32, rows * rank));
    const auto last = static_cast<size_t>(rank - 1);
    for (double factor : {1e-42, 1e-22, 1e-12, 1e12, 1e22, 0.0, kNaN}) {
      std::vector<double> changed = a;
      for (size_t i = last; i < a.size(); i += static_cast<size_t>(rank))
        changed[i] *= factor;
      const HostArray in = toArray(Dtype::F32, changed);
      const TestList test(Dtype::F32, {{rows, 1, rank}}, 0);
      for (const Settings &settings :
           {Settings{}, Settings{1e-3, 0}, Settings{0, DDPHOOK_UNIT_COLUMNS}}) {
        SCOPED_TRACE("factor " + std::to_string(factor));
        expectNearHost(test, true, in, settings,
                       [](int64_t, int64_t) { return 1e-5; });
      }
    }
  }
  const int64_t rows = tallRows(2);
  std::vector<double> a = toDoubles(normal(Dtype::F32, rows * 2));
  for (int digits : {1, 2, 3, 4}) {
    for (size_t i = 0; i < a.size(); i += 2)
      a[i + 1] = a[i] + std::pow(10, -digits) * a[i + 1];
    const double limit = digits <= 2 ? kRounded : 1e-5 * std::pow(10, digits);
    expectNearModel({{rows, 1, 2}}, true, toArray(Dtype::F32, a), limit);
    a = toDoubles(normal(Dtype::F32, rows * 2));
  }
}

/// Columns with nothing below their pivot are not reflected, and keep its sign.
TEST_F(CudaOrthogonalize, tallColumnsThatAreNotReflected) {
  for (int64_t rank : {3, 8, 32})
    for (double sign : {1, -1}) {
      const int64_t rows = tallRows(rank) + 3;
      std::vector<double> a(static_cast<size_t>(rows * rank));
      for (int64_t i = 0; i < rank; ++i)
        for (int64_t k = i; k < rank; ++k)
          a[static_cast<size_t>(i * rank + k)] =
              i == k ? sign * static_cast<double>(i + 1) : 0.5;
      const std::vector<double> got = single(Dtype::F32, rows, rank, a, {});
      for (size_t i = 0; i < got.size(); ++i) {
        const auto columns = static_cast<size_t>(rank);
        ASSERT_EQ(got[i], i / columns == i % columns ? 1 : 0);
      }
      // One that is, and others that are not.
      for (int64_t i = 0; i < rows; ++i)
        a[static_cast<size_t>(i * rank)] = i < rank ? 1 : 1e-2;
      expectNearModel({{rows, 1, rank}}, true, toArray(Dtype::F32, a), 1e-6);
    }
}

/// What product a zero comes from is nobody's promise, so its sign decides
/// nothing.
TEST_F(CudaOrthogonalize, pivotsThatAreZero) {
  for (int64_t rank : {3, 8})
    for (int64_t rows : {int64_t(40), tallRows(rank)})
      for (int64_t zeros : {1, 2, 3}) {
        std::vector<double> a = toDoubles(normal(Dtype::F32, rows * rank));
        std::fill_n(a.begin(), zeros * rank, 0.0);
        const std::vector<double> want = single(Dtype::F32, rows, rank, a, {});
        std::fill_n(a.begin(), zeros * rank, -0.0);
        EXPECT_EQ(single(Dtype::F32, rows, rank, a, {}), want);
      }
}

/// Nothing of a call is left for the next: factors in turn sound and not.
TEST_F(CudaOrthogonalize, tallFactorsAgainAndAgain) {
  const std::vector<Shape> shapes = {
      {tallRows(4), 2, 4}, {300, 2, 4}, {tallRows(8) + 70, 1, 8}};
  const TestList test(Dtype::F32, shapes, 2);
  std::unique_ptr<MatrixList> list = test.create();
  for (int turn = 0; turn < 6; ++turn) {
    HostArray in = normal(Dtype::F32, test.p);
    for (size_t m = 0; m < shapes.size(); ++m)
      if ((turn >> m) % 2) {
        const ddphook_matrix_t &matrix = test.matrices[m];
        for (int64_t i = 0; i < matrix.rows; ++i)
          in.setBits(matrix.p_offset + i * matrix.rank + 1, 0);
      }
    DeviceArray x(in);
    EXPECT_EQ(
        list->orthogonalize(stream, DDPHOOK_FACTOR_P, x.data(), x.data(), 0),
        cudaSuccess);
    const HostArray got = x.read(), alone = onDevice(test, true, in, {});
    for (const ddphook_matrix_t &m : test.matrices)
      for (int64_t i = 0; i < m.rows * m.rank; ++i)
        ASSERT_EQ(got.bits(m.p_offset + i), alone.bits(m.p_offset + i))
            << "turn " << turn << ", element " << i << " of " << m.rows;
  }
}

} // namespace
