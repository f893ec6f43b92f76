// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// P = M·Q, Q = Mᵀ·P and M = P·Qᵀ on every instruction set, for all types and
// awkward sizes, against loops over doubles; fused passes against the passes
// that they fuse, bit by bit.
//
// Tolerance: a sum of n products, each rounded to nearest in any order, is off
// by at most n·u·Σ|products| (u: half a unit in the last place of the type that
// is computed in); a 16-bit result is then rounded once more.

#include "backends/host/kernels_test_util.h"
#include "lowrank.h"

#include <memory>

using namespace ddphook;
using namespace ddphook::host;

namespace {

const LowRankShape kShapes[] = {
    {0, 0, 1},    {0, 5, 2},     {5, 0, 2},     {5, 7, 0},   {1, 1, 1},
    {1, 300, 1},  {300, 1, 1},   {1, 17, 3},    {17, 1, 3},  {2, 3, 8},
    {3, 5, 2},    {7, 16, 1},    {13, 31, 4},   {64, 64, 4}, {37, 129, 5},
    {101, 47, 6}, {53, 61, 7},   {96, 80, 8},   {49, 33, 9}, {50, 97, 16},
    {30, 40, 17}, {19, 23, 40},  {2, 4000, 2},  {200, 9, 3}, {97, 1025, 8},
    {9, 2000, 4}, {31, 100, 11}, {13, 1400, 3}, {7, 900, 5}, {8, 700, 6},
    {11, 600, 7}, {67, 700, 9}};

/// Working memory between bytes that must keep their value.
class Scratch {
public:
  Scratch(Dtype type, const LowRankShape &shape)
      : array(Dtype::F64, (*lowRankScratchBytes(type, shape) + 127) / 8) {
    auto address = reinterpret_cast<uintptr_t>(array.data());
    memory = reinterpret_cast<void *>((address + 63) / 64 * 64);
  }
  void *get() const { return memory; }

private:
  Array array;
  void *memory;
};

double unitOf(Dtype type) { return type == Dtype::F64 ? 0x1p-53 : 0x1p-24; }

/// What a 16-bit element is rounded to, in units of itself and at least.
double roundingOf(Dtype type, double value) {
  switch (type) {
  case Dtype::F16:
    return std::max(std::abs(value) * 0x1p-11, 0x1p-25);
  case Dtype::BF16:
    return std::max(std::abs(value) * 0x1p-8, 0x1p-134);
  default:
    return 0;
  }
}

/// The inner product of a[i * aStep] and b[i * bStep], and how far a rounded
/// one may be off.
struct InnerProduct {
  double value = 0;
  double bound = 0;
};

InnerProduct innerProduct(Dtype type, const Array &a, int64_t aBegin,
                          int64_t aStep, const Array &b, int64_t bBegin,
                          int64_t bStep, int64_t n) {
  InnerProduct result;
  double magnitude = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double product = a[aBegin + i * aStep] * b[bBegin + i * bStep];
    result.value += product;
    magnitude += std::abs(product);
  }
  result.bound = static_cast<double>(n + 2) * unitOf(type) * magnitude;
  result.bound += roundingOf(type, std::abs(result.value) + result.bound);
  return result;
}

void expectNear(const Array &got, int64_t n,
                const std::function<InnerProduct(int64_t)> &expected) {
  int wrong = 0;
  for (int64_t i = 0; i < n && wrong < 5; ++i) {
    const InnerProduct want = expected(i);
    if (!(std::abs(got[i] - want.value) <= want.bound)) {
      ++wrong;
      ADD_FAILURE() << "element " << i << ": expected " << want.value
                    << " to within " << want.bound << ", but got " << got[i];
    }
  }
}

std::string nameOf(Dtype type, const LowRankShape &shape) {
  return std::string(dtypeName(type)) + " " + std::to_string(shape.rows) +
         " x " + std::to_string(shape.columns) + ", rank " +
         std::to_string(shape.rank);
}

bool sameBits(Dtype type, const Array &a, const Array &b, int64_t n) {
  return n == 0 || std::memcmp(a.data(), b.data(),
                               static_cast<size_t>(n * dtypeSize(type))) == 0;
}

/// All arrays of one step on one matrix.
struct Step {
  Step(Dtype type, const LowRankShape &shape)
      : type(type), shape(shape), size(shape.rows * shape.columns),
        pSize(shape.rows * shape.rank), qSize(shape.columns * shape.rank),
        g(type, size, 1), e(type, size, 2), m(type, size, 1), p(type, pSize, 1),
        q(type, qSize, 3), out(type, size, 2), err(type, size, 1),
        scratch(type, shape) {}

  void fill(Array &array, int64_t n, std::mt19937_64 &random) {
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < n; ++i)
      array.set(i, normal(random));
  }

  const Dtype type;
  const LowRankShape shape;
  const int64_t size, pSize, qSize;
  Array g, e, m, p, q, out, err;
  Scratch scratch;
};

class LowRankProducts : public KernelTest {
protected:
  void forAll(const std::function<void(Step &)> &body) {
    for (Dtype type : kTypes)
      for (const LowRankShape &shape : kShapes) {
        SCOPED_TRACE(nameOf(type, shape));
        Step step(type, shape);
        step.fill(step.g, step.size, random);
        step.fill(step.e, step.size, random);
        body(step);
      }
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, LowRankProducts, testing::ValuesIn(targets()),
                         targetNameOf);

TEST_P(LowRankProducts, multiplyByQ) {
  forAll([&](Step &s) {
    s.fill(s.q, s.qSize, random);
    projectMatrix(s.type, s.shape, s.g.data(), nullptr, s.q.data(), nullptr,
                  s.p.data(), s.scratch.get());
    expectNear(s.p, s.pSize, [&](int64_t i) {
      const int64_t row = i / s.shape.rank, k = i % s.shape.rank;
      return innerProduct(s.type, s.g, row * s.shape.columns, 1, s.q, k,
                          s.shape.rank, s.shape.columns);
    });
    s.p.expect([&](int64_t i) { return s.p[i]; });
  });
}

TEST_P(LowRankProducts, multiplyTransposedByP) {
  forAll([&](Step &s) {
    s.fill(s.p, s.pSize, random);
    multiplyTransposed(s.type, s.shape, s.g.data(), s.p.data(), s.q.data(),
                       s.scratch.get());
    expectNear(s.q, s.qSize, [&](int64_t i) {
      const int64_t column = i / s.shape.rank, k = i % s.shape.rank;
      return innerProduct(s.type, s.g, column, s.shape.columns, s.p, k,
                          s.shape.rank, s.shape.rows);
    });
    s.q.expect([&](int64_t i) { return s.q[i]; });
  });
}

TEST_P(LowRankProducts, multiplyFactors) {
  forAll([&](Step &s) {
    s.fill(s.p, s.pSize, random);
    s.fill(s.q, s.qSize, random);
    reconstructMatrix(s.type, s.shape, s.p.data(), s.q.data(), nullptr,
                      s.out.data(), nullptr, 1, s.scratch.get());
    expectNear(s.out, s.size, [&](int64_t i) {
      return innerProduct(s.type, s.p, i / s.shape.columns * s.shape.rank, 1,
                          s.q, i % s.shape.columns * s.shape.rank, 1,
                          s.shape.rank);
    });
    s.out.expect([&](int64_t i) { return s.out[i]; });
  });
}

/// m = g + e and P in one pass have the bits of two passes, wherever m lies.
TEST_P(LowRankProducts, projectFused) {
  forAll([&](Step &s) {
    s.fill(s.q, s.qSize, random);
    Array sum(s.type, s.size), p(s.type, s.pSize);
    addArrays(sum.data(), s.g.data(), s.e.data(), s.type, s.size);
    projectMatrix(s.type, s.shape, sum.data(), nullptr, s.q.data(), nullptr,
                  p.data(), s.scratch.get());
    auto check = [&](Array &m) {
      EXPECT_TRUE(sameBits(s.type, m, sum, s.size));
      EXPECT_TRUE(sameBits(s.type, s.p, p, s.pSize));
      m.expect([&](int64_t i) { return m[i]; });
    };
    projectMatrix(s.type, s.shape, s.g.data(), s.e.data(), s.q.data(),
                  s.m.data(), s.p.data(), s.scratch.get());
    check(s.m);
    Array overG(s.type, s.size), overE(s.type, s.size);
    overG.copyFrom(s.g);
    projectMatrix(s.type, s.shape, overG.data(), s.e.data(), s.q.data(),
                  overG.data(), s.p.data(), s.scratch.get());
    check(overG);
    overE.copyFrom(s.e);
    projectMatrix(s.type, s.shape, s.g.data(), overE.data(), s.q.data(),
                  overE.data(), s.p.data(), s.scratch.get());
    check(overE);
  });
}

/// The product and the error in one pass have the bits of three.
TEST_P(LowRankProducts, reconstructFused) {
  forAll([&](Step &s) {
    s.fill(s.p, s.pSize, random);
    s.fill(s.q, s.qSize, random);
    Array out(s.type, s.size), quotient(s.type, s.size), err(s.type, s.size);
    reconstructMatrix(s.type, s.shape, s.p.data(), s.q.data(), nullptr,
                      out.data(), nullptr, 1, s.scratch.get());
    for (int64_t divisor : {1, 2, 3, 7}) {
      divideArray(out.data(), quotient.data(), s.type, s.size, divisor);
      subtractArrays(err.data(), s.g.data(), quotient.data(), s.type, s.size);
      auto check = [&](Array &got) {
        EXPECT_TRUE(sameBits(s.type, s.out, out, s.size));
        EXPECT_TRUE(sameBits(s.type, got, err, s.size));
        got.expect([&](int64_t i) { return got[i]; });
        s.out.expect([&](int64_t i) { return s.out[i]; });
      };
      reconstructMatrix(s.type, s.shape, s.p.data(), s.q.data(), s.g.data(),
                        s.out.data(), s.err.data(), divisor, s.scratch.get());
      check(s.err);
      s.m.copyFrom(s.g);
      reconstructMatrix(s.type, s.shape, s.p.data(), s.q.data(), s.m.data(),
                        s.out.data(), s.m.data(), divisor, s.scratch.get());
      check(s.m);
      // It ends with a page: aligned, if rows are whole blocks.
      Array streamed(s.type, s.size);
      reconstructMatrix(s.type, s.shape, s.p.data(), s.q.data(), s.g.data(),
                        streamed.data(), s.err.data(), divisor, s.scratch.get(),
                        Stores::Streaming);
      EXPECT_TRUE(sameBits(s.type, streamed, out, s.size));
      streamed.expect([&](int64_t i) { return streamed[i]; });
      EXPECT_TRUE(sameBits(s.type, s.err, err, s.size));
      reconstructMatrix(s.type, s.shape, s.p.data(), s.q.data(), nullptr,
                        streamed.data(), nullptr, divisor, s.scratch.get(),
                        Stores::Streaming);
      EXPECT_TRUE(sameBits(s.type, streamed, out, s.size));
    }
  });
}

/// Small integers: every sum is exact, so 16-bit results are rounded once or
/// not at all. They are odd because products of zero may have either sign.
TEST_P(LowRankProducts, oneRoundingPerElement) {
  for (Dtype type : kTypes)
    for (const LowRankShape &shape : kShapes) {
      SCOPED_TRACE(nameOf(type, shape));
      Step s(type, shape);
      auto fill = [&](Array &array, int64_t n) {
        for (int64_t i = 0; i < n; ++i)
          array.set(i, static_cast<double>(random() % 16) * 2 - 15);
      };
      fill(s.g, s.size);
      fill(s.q, s.qSize);
      projectMatrix(type, shape, s.g.data(), nullptr, s.q.data(), nullptr,
                    s.p.data(), s.scratch.get());
      s.p.expect([&](int64_t i) {
        return innerProduct(type, s.g, i / shape.rank * shape.columns, 1, s.q,
                            i % shape.rank, shape.rank, shape.columns)
            .value;
      });
      fill(s.p, s.pSize);
      multiplyTransposed(type, shape, s.g.data(), s.p.data(), s.q.data(),
                         s.scratch.get());
      s.q.expect([&](int64_t i) {
        return innerProduct(type, s.g, i / shape.rank, shape.columns, s.p,
                            i % shape.rank, shape.rank, shape.rows)
            .value;
      });
      fill(s.q, s.qSize);
      reconstructMatrix(type, shape, s.p.data(), s.q.data(), nullptr,
                        s.out.data(), nullptr, 1, s.scratch.get());
      s.out.expect([&](int64_t i) {
        return innerProduct(type, s.p, i / shape.columns * shape.rank, 1, s.q,
                            i % shape.columns * shape.rank, 1, shape.rank)
            .value;
      });
    }
}

/// Ranks compute the same with different processors. Those without a fused
/// multiply-add are left out.
TEST(LowRankTargets, giveTheSameBits) {
  std::vector<int64_t> fused;
  for (int64_t target : targets())
    if (target <= HWY_AVX2)
      fused.push_back(target);
  for (Dtype type : kTypes)
    for (const LowRankShape &shape : kShapes) {
      SCOPED_TRACE(nameOf(type, shape));
      std::unique_ptr<Step> first;
      for (int64_t target : fused) {
        hwy::GetChosenTarget().Update(target);
        std::mt19937_64 random(7);
        auto step = std::make_unique<Step>(type, shape);
        Step &s = *step;
        s.fill(s.g, s.size, random);
        s.fill(s.e, s.size, random);
        s.fill(s.q, s.qSize, random);
        projectMatrix(type, shape, s.g.data(), s.e.data(), s.q.data(),
                      s.m.data(), s.p.data(), s.scratch.get());
        orthogonalizeFactor(type, shape.rows, shape.rank, s.p.data(),
                            s.p.data(), 1e-8, s.scratch.get());
        multiplyTransposed(type, shape, s.m.data(), s.p.data(), s.q.data(),
                           s.scratch.get());
        reconstructMatrix(type, shape, s.p.data(), s.q.data(), s.m.data(),
                          s.out.data(), s.err.data(), 3, s.scratch.get());
        if (first) {
          EXPECT_TRUE(sameBits(type, s.p, first->p, s.pSize));
          EXPECT_TRUE(sameBits(type, s.q, first->q, s.qSize));
          EXPECT_TRUE(sameBits(type, s.out, first->out, s.size));
          EXPECT_TRUE(sameBits(type, s.err, first->err, s.size));
        } else {
          first = std::move(step);
        }
      }
    }
  hwy::GetChosenTarget().DeInit();
}

TEST(LowRankScratch, RefusesWhatHasNoSize) {
  EXPECT_FALSE(
      lowRankScratchBytes(Dtype::F32, {0, int64_t(1) << 62, 1}).has_value());
  EXPECT_FALSE(lowRankScratchBytes(Dtype::F64, {int64_t(1) << 40, 1, 1 << 20})
                   .has_value());
  EXPECT_EQ(lowRankScratchBytes(Dtype::F16, {10, 20, 0}), 0);
}

} // namespace
