// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gram-Schmidt and Householder QR on every instruction set against textbook
// loops over doubles; the roundings of 16-bit types exactly; columns that are
// zero, tiny, huge, not finite, or too many.

#include "backends/host/kernels_test_util.h"
#include "lowrank.h"

#include "ddphook/runtime/compiled.h"

#include <algorithm>

using namespace ddphook;
using namespace ddphook::host;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Row-major, rows x rank.
struct Factor {
  Factor(int64_t rows, int64_t rank)
      : rows(rows), rank(rank), values(static_cast<size_t>(rows * rank)) {}
  double &operator()(int64_t i, int64_t k) {
    return values[static_cast<size_t>(i * rank + k)];
  }
  double operator()(int64_t i, int64_t k) const {
    return values[static_cast<size_t>(i * rank + k)];
  }

  int64_t rows, rank;
  std::vector<double> values;
};

Factor randomFactor(int64_t rows, int64_t rank, std::mt19937_64 &random) {
  Factor factor(rows, rank);
  std::normal_distribution<double> normal;
  for (double &value : factor.values)
    value = normal(random);
  return factor;
}

/// Orthogonalizes with the kernel, apart and in place, which must agree.
Factor orthogonalized(Dtype type, const Factor &factor, double epsilon,
                      int32_t replaced = 0) {
  const int64_t n = factor.rows * factor.rank;
  Array in(type, n, 1), out(type, n, 2);
  for (int64_t i = 0; i < n; ++i)
    in.set(i, factor.values[static_cast<size_t>(i)]);
  const auto bytes = static_cast<size_t>(
      *lowRankScratchBytes(type, {factor.rows, factor.rows, factor.rank}));
  std::vector<char> memory(bytes + 64, '\x5a');
  void *scratch = memory.data();
  size_t space = memory.size();
  std::align(64, bytes, scratch, space);
  orthogonalizeFactor(type, factor.rows, factor.rank, in.data(), out.data(),
                      epsilon, scratch, replaced);
  orthogonalizeFactor(type, factor.rows, factor.rank, in.data(), in.data(),
                      epsilon, scratch, replaced);
  Factor result(factor.rows, factor.rank);
  for (int64_t i = 0; i < n; ++i)
    result.values[static_cast<size_t>(i)] = out[i];
  out.expect([&](int64_t i) { return out[i]; });
  in.expect([&](int64_t i) { return out[i]; });
  return result;
}

/// PyTorch's Gram-Schmidt; `round` is applied to every result.
Factor gramSchmidt(Factor a, double epsilon,
                   const std::function<double(double)> &round) {
  for (int64_t k = 0; k < a.rank; ++k) {
    if (k >= a.rows) {
      for (int64_t i = 0; i < a.rows; ++i)
        a(i, k) = 0;
      continue;
    }
    double squares = 0;
    for (int64_t i = 0; i < a.rows; ++i)
      squares += a(i, k) * a(i, k);
    double norm = round(std::sqrt(squares));
    if (epsilon != 0)
      norm = round(norm + epsilon);
    for (int64_t i = 0; i < a.rows; ++i)
      a(i, k) = round(a(i, k) / norm);
    for (int64_t l = k + 1; l < a.rank; ++l) {
      double sum = 0;
      for (int64_t i = 0; i < a.rows; ++i)
        sum += round(a(i, k) * a(i, l));
      sum = round(sum);
      for (int64_t i = 0; i < a.rows; ++i)
        a(i, l) = round(a(i, l) - round(sum * a(i, k)));
    }
  }
  return a;
}

/// The Q of a QR decomposition by whole reflection matrices, R's diagonal with
/// the sign that the pivot does not have.
Factor householder(const Factor &a) {
  const int64_t n = a.rows;
  Factor r = a, q(n, n);
  for (int64_t i = 0; i < n; ++i)
    q(i, i) = 1;
  for (int64_t k = 0; k < std::min(n, a.rank); ++k) {
    std::vector<double> v(static_cast<size_t>(n));
    double below = 0;
    for (int64_t i = k + 1; i < n; ++i)
      below = std::hypot(below, r(i, k));
    if (below == 0)
      continue;
    const double beta = -std::copysign(std::hypot(r(k, k), below), r(k, k));
    double squares = 0;
    for (int64_t i = k; i < n; ++i) {
      v[static_cast<size_t>(i)] = (r(i, k) - (i == k ? beta : 0)) / beta;
      squares += v[static_cast<size_t>(i)] * v[static_cast<size_t>(i)];
    }
    auto reflectColumn = [&](Factor &x, int64_t column, bool isRow) {
      auto at = [&](int64_t i) -> double & {
        return isRow ? x(column, i) : x(i, column);
      };
      double sum = 0;
      for (int64_t i = k; i < n; ++i)
        sum += v[static_cast<size_t>(i)] * at(i);
      for (int64_t i = k; i < n; ++i)
        at(i) -= 2 * sum / squares * v[static_cast<size_t>(i)];
    };
    for (int64_t l = k; l < r.rank; ++l)
      reflectColumn(r, l, false);
    for (int64_t i = 0; i < n; ++i)
      reflectColumn(q, i, true);
  }
  Factor result(n, a.rank);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < std::min(n, a.rank); ++k)
      result(i, k) = q(i, k);
  return result;
}

void expectNear(const Factor &got, const Factor &want, double tolerance) {
  int wrong = 0;
  for (size_t i = 0; i < want.values.size() && wrong < 5; ++i)
    if (!(std::abs(got.values[i] - want.values[i]) <= tolerance)) {
      ++wrong;
      ADD_FAILURE() << "element " << i << " of " << want.rows << " x "
                    << want.rank << ": expected " << want.values[i]
                    << " to within " << tolerance << ", but got "
                    << got.values[i];
    }
}

/// The distance of QᵀQ from the identity.
double deviation(const Factor &q) {
  double worst = 0;
  for (int64_t k = 0; k < q.rank; ++k)
    for (int64_t l = 0; l < q.rank; ++l) {
      double sum = k == l ? -1 : 0;
      for (int64_t i = 0; i < q.rows; ++i)
        sum += q(i, k) * q(i, l);
      worst = std::max(worst, std::abs(sum));
    }
  return worst;
}

class Orthogonalize : public KernelTest {};

INSTANTIATE_TEST_SUITE_P(Targets, Orthogonalize, testing::ValuesIn(targets()),
                         targetNameOf);

TEST_P(Orthogonalize, isPyTorchsGramSchmidt) {
  for (int64_t rank : {1, 2})
    for (int64_t rows : {1, 2, 3, 15, 16, 17, 64, 257, 1024})
      for (double epsilon : {0.0, 1e-8, 0.5}) {
        if (rank > rows)
          continue;
        const Factor a = randomFactor(rows, rank, random);
        auto exact = [](double value) { return value; };
        // The second of two columns in two dimensions is what is left of it.
        const double condition = rows == rank ? 1e3 : 30;
        expectNear(orthogonalized(Dtype::F64, a, epsilon),
                   gramSchmidt(a, epsilon, exact), condition * 1e-15);
        Factor single = a;
        for (double &value : single.values)
          value = static_cast<float>(value);
        expectNear(orthogonalized(Dtype::F32, single, epsilon),
                   gramSchmidt(single, epsilon, exact), condition * 1e-6);
      }
}

TEST_P(Orthogonalize, isLapacksQr) {
  for (int64_t rank : {3, 4, 5, 8, 16, 31})
    for (int64_t rows : {3, 4, 7, 15, 16, 17, 31, 64, 257, 1024}) {
      if (rank > rows || (rank > 8 && rows > 100))
        continue;
      const Factor a = randomFactor(rows, rank, random);
      const Factor want = householder(a);
      ASSERT_LE(deviation(want), 1e-13);
      const Factor wide = orthogonalized(Dtype::F64, a, 1e-3);
      // What is left of the last of as many columns as rows may be small.
      const double condition = rows < rank + 3 ? 1e3 : 30;
      expectNear(wide, want, condition * 1e-14);
      EXPECT_LE(deviation(wide), 1e-13);
      Factor single = a;
      for (double &value : single.values)
        value = static_cast<float>(value);
      const Factor got = orthogonalized(Dtype::F32, single, 0);
      expectNear(got, householder(single), condition * 1e-5);
      EXPECT_LE(deviation(got), 1e-5);
    }
}

/// Every operation of a 16-bit type is rounded. Values are small integers, so
/// that sums are exact and only these roundings matter.
TEST_P(Orthogonalize, roundsLikeSixteenBits) {
  for (Dtype type : {Dtype::F16, Dtype::BF16})
    for (int64_t rank : {1, 2, 3, 5, 8})
      for (int64_t rows : {1, 2, 5, 16, 33, 64, 130})
        for (double epsilon : {0.0, 0.01}) {
          if (rank > 1 && rows < rank + 1)
            continue;
          Factor a(rows, rank);
          // Quotients that are powers of two leave sums exact too; others test
          // the first column.
          for (double &value : a.values)
            value = static_cast<double>(random() % 15) - 7;
          a(0, 0) = 8;
          const Factor want =
              gramSchmidt(a, roundTo(Dtype::F32, epsilon),
                          [&](double value) { return roundTo(type, value); });
          const Factor got = orthogonalized(type, a, epsilon);
          // The first column depends on exact sums alone.
          for (int64_t i = 0; i < rows; ++i)
            EXPECT_EQ(got(i, 0), want(i, 0)) << "row " << i;
          // Later ones on sums of rounded products, which are exact in f32 as
          // long as they have few bits; a unit of the type otherwise.
          const double unit = type == Dtype::F16 ? 0x1p-10 : 0x1p-7;
          for (int64_t k = 1; k < rank && rows > 2 * rank; ++k)
            for (int64_t i = 0; i < rows; ++i)
              EXPECT_NEAR(got(i, k), want(i, k), 2 * unit)
                  << "row " << i << ", column " << k;
        }
}

/// A case worked out by hand, where each of the roundings changes the result.
TEST_P(Orthogonalize, sixteenBitExample) {
  // First column (3, 4): norm 5, quotients RN(0.6) and RN(0.8).
  // Second (7, 1): s = RN(RN(7·c0) + RN(1·c1)), and so on.
  for (Dtype type : {Dtype::F16, Dtype::BF16}) {
    auto rn = [&](double value) { return roundTo(type, value); };
    Factor a(2, 2);
    a(0, 0) = 3, a(1, 0) = 4, a(0, 1) = 7, a(1, 1) = 1;
    const double c0 = rn(0.6), c1 = rn(0.8);
    const double s = rn(rn(7 * c0) + rn(1 * c1));
    const double d0 = rn(7 - rn(s * c0)), d1 = rn(1 - rn(s * c1));
    const double norm = rn(std::sqrt(d0 * d0 + d1 * d1));
    const Factor got = orthogonalized(type, a, 0);
    EXPECT_EQ(got(0, 0), c0);
    EXPECT_EQ(got(1, 0), c1);
    EXPECT_EQ(got(0, 1), rn(d0 / norm));
    EXPECT_EQ(got(1, 1), rn(d1 / norm));
  }
}

TEST_P(Orthogonalize, zeroColumns) {
  for (Dtype type : kTypes) {
    Factor a = randomFactor(20, 2, random);
    for (int64_t i = 0; i < a.rows; ++i)
      a(i, 0) = 0;
    // 0 / 0, and what is taken from the second column with it.
    const Factor got = orthogonalized(type, a, 0);
    for (double value : got.values)
      EXPECT_TRUE(std::isnan(value));
    const Factor kept = orthogonalized(type, a, 1e-3);
    for (int64_t i = 0; i < a.rows; ++i) {
      EXPECT_EQ(kept(i, 0), 0);
      EXPECT_NE(kept(i, 1), 0);
    }
  }
  for (Dtype type : {Dtype::F32, Dtype::F64}) {
    // Nothing to reflect: the columns of the identity.
    const Factor got = orthogonalized(type, Factor(20, 4), 0);
    for (int64_t i = 0; i < got.rows; ++i)
      for (int64_t k = 0; k < got.rank; ++k)
        EXPECT_EQ(got(i, k), i == k ? 1 : 0);
    Factor a = randomFactor(20, 5, random);
    for (int64_t i = 0; i < a.rows; ++i)
      a(i, 2) = 0;
    for (double &value : a.values)
      value = roundTo(type, value);
    EXPECT_LE(deviation(orthogonalized(type, a, 0)), 1e-5);
  }
}

/// Only what would not be finite is replaced; an epsilon keeps zeros.
TEST_P(Orthogonalize, unitColumns) {
  for (Dtype type : kTypes)
    for (double epsilon : {0.0, 1e-3, 1e-30}) {
      Factor a = randomFactor(20, 2, random);
      for (double &value : a.values)
        value = roundTo(type, value);
      auto expectFinite = [&] {
        const Factor want = orthogonalized(type, a, epsilon);
        const Factor got =
            orthogonalized(type, a, epsilon, DDPHOOK_UNIT_COLUMNS);
        if (std::all_of(want.values.begin(), want.values.end(),
                        [](double value) { return std::isfinite(value); }))
          EXPECT_EQ(got.values, want.values);
        else
          EXPECT_LE(deviation(got), isHalf(type) ? 0.05 : 1e-5);
      };
      expectFinite();
      for (int64_t i = 0; i < a.rows; ++i)
        a(i, 0) = 0;
      expectFinite();
      // Its squares vanish.
      a(3, 0) = type == Dtype::F64 ? 1e-200 : type == Dtype::F16 ? 0 : 1e-30;
      expectFinite();
    }
}

TEST_P(Orthogonalize, independentColumns) {
  for (Dtype type : kTypes)
    for (int64_t rows : {3, 40, 3000})
      for (double epsilon : {0.0, 1e-30}) {
        Factor a = randomFactor(rows, 2, random);
        for (double &value : a.values)
          value = roundTo(type, value);
        EXPECT_EQ(orthogonalized(type, a, epsilon, DDPHOOK_INDEPENDENT_COLUMNS)
                      .values,
                  orthogonalized(type, a, epsilon).values);
        for (int64_t i = 0; i < rows; ++i)
          a(i, 1) = roundTo(type, 3 * a(i, 0));
        EXPECT_LE(deviation(orthogonalized(type, a, epsilon,
                                           DDPHOOK_INDEPENDENT_COLUMNS)),
                  isHalf(type) ? 0.1 : 1e-5);
        // What is not finite stays so.
        a(1, 0) = std::numeric_limits<double>::infinity();
        const Factor bad =
            orthogonalized(type, a, epsilon, DDPHOOK_INDEPENDENT_COLUMNS);
        EXPECT_TRUE(
            std::any_of(bad.values.begin(), bad.values.end(),
                        [](double value) { return std::isnan(value); }));
      }
}

TEST_P(Orthogonalize, moreColumnsThanRows) {
  for (Dtype type : kTypes)
    for (int64_t rows : {1, 2, 3, 5})
      for (int64_t rank : {2, 3, 4, 6, 20}) {
        if (rank <= rows)
          continue;
        const Factor got =
            orthogonalized(type, randomFactor(rows, rank, random), 0);
        Factor head(rows, rows);
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t k = 0; k < rank; ++k)
            if (k < rows)
              head(i, k) = got(i, k);
            else
              EXPECT_EQ(got(i, k), 0);
        // Gram-Schmidt in 16 bits loses what is small after cancellation.
        if (!isHalf(type)) {
          EXPECT_LE(deviation(head), 1e-3);
        }
      }
}

/// Squares of such numbers overflow or vanish; QR is not disturbed by that.
TEST_P(Orthogonalize, extremeMagnitudes) {
  for (Dtype type : {Dtype::F32, Dtype::F64})
    for (int exponent : {-140, -100, -70, 0, 70, 120}) {
      const Factor a = randomFactor(50, 4, random);
      Factor scaledUp = a;
      for (double &value : scaledUp.values)
        value = roundTo(type, std::ldexp(static_cast<float>(value), exponent));
      const double tolerance = exponent < -130 ? 1e-1 : 1e-5;
      Factor want = householder(a);
      expectNear(orthogonalized(type, scaledUp, 0), want, tolerance);
      // A pivot that dwarfs what is below it still changes its sign.
      Factor pivot = a;
      pivot(0, 0) = roundTo(type, std::ldexp(1, 60));
      for (double &value : pivot.values)
        value = roundTo(type, value);
      EXPECT_NEAR(orthogonalized(type, pivot, 0)(0, 0), -1, 1e-6);
    }
}

/// What product a zero comes from is nobody's promise, so its sign decides
/// nothing.
TEST_P(Orthogonalize, pivotsThatAreZero) {
  for (Dtype type : {Dtype::F32, Dtype::F64})
    for (int64_t rank : {3, 8})
      for (int64_t zeros : {1, 2, 3}) {
        Factor a = randomFactor(40, rank, random);
        for (double &value : a.values)
          value = roundTo(type, value);
        std::fill_n(a.values.begin(), zeros * rank, 0.0);
        const Factor want = orthogonalized(type, a, 0);
        std::fill_n(a.values.begin(), zeros * rank, -0.0);
        EXPECT_EQ(orthogonalized(type, a, 0).values, want.values);
      }
}

TEST_P(Orthogonalize, valuesThatAreNotFinite) {
  for (Dtype type : kTypes)
    for (int64_t rank : {1, 2, 4})
      for (double bad : {kNaN, std::numeric_limits<double>::infinity()}) {
        Factor a = randomFactor(40, rank, random);
        a(7, 0) = bad;
        const Factor got = orthogonalized(type, a, 0);
        bool sawNaN = false;
        for (double value : got.values)
          sawNaN |= std::isnan(value);
        EXPECT_TRUE(sawNaN);
      }
}

} // namespace
