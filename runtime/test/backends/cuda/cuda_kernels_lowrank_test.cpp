// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// P = M·Q, Q = Mᵀ·P and M = P·Qᵀ of whole lists, against loops over doubles;
// fused passes against the passes that they fuse, bit by bit. Orthogonalize is
// in cuda_kernels_orthogonalize_test.cpp.
//
// Tolerance: a sum of n products, each rounded to nearest in any order, is off
// by at most n·u·Σ|products| (u: half a unit in the last place of the type that
// is computed in); a 16-bit result is then rounded once more.

#include "backends/cuda/cuda_kernels_lowrank_test_util.h"

#include "../../../backends/cuda/kernels/kernels.h"

#include <algorithm>
#include <functional>
#include <limits>

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

double unitOf(Dtype type) { return type == Dtype::F64 ? 0x1p-53 : 0x1p-24; }

/// How far rounding moves an element of a 16-bit type.
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

/// Element i of a row-major array of doubles.
using Values = std::vector<double>;

/// Checks got[begin + i] = Σ a(i, l)·b(i, l), l < terms; with `isExact` to the
/// last bit.
void expectProducts(Dtype type, const Values &got, int64_t begin, int64_t n,
                    int64_t terms, bool isExact,
                    const std::function<double(int64_t, int64_t)> &a,
                    const std::function<double(int64_t, int64_t)> &b) {
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0, magnitude = 0;
    for (int64_t l = 0; l < terms; ++l) {
      const double product = a(i, l) * b(i, l);
      sum += product;
      magnitude += std::abs(product);
    }
    double bound = static_cast<double>(terms + 2) * unitOf(type) * magnitude;
    bound += roundingOf(type, std::abs(sum) + bound);
    if (isExact) {
      bound = 0;
      sum = toDoubles(toArray(type, {sum}))[0];
    }
    const double value = got[static_cast<size_t>(begin + i)];
    ASSERT_TRUE(std::abs(value - sum) <= bound)
        << "element " << i << ": expected " << sum << " to within " << bound
        << ", but got " << value;
  }
}

/// Elements that belong to no factor are as they were.
void expectGapsKept(const HostArray &got, const TestList &test, bool isP) {
  std::vector<char> isFactor(static_cast<size_t>(got.size()), 0);
  for (const ddphook_matrix_t &m : test.matrices) {
    const int64_t begin = isP ? m.p_offset : m.q_offset;
    const int64_t count = (isP ? m.rows : m.columns) * m.rank;
    std::fill_n(isFactor.begin() + begin, count, 1);
  }
  const HostArray untouched = poisoned(test.type, 1);
  for (int64_t i = 0; i < got.size(); ++i)
    if (!isFactor[static_cast<size_t>(i)])
      ASSERT_EQ(got.bits(i), untouched.bits(0)) << "element " << i;
}

class CudaLowRank : public CudaLowRankTest {
protected:
  /// All types and some ranks, on lists of awkward shapes; aligned ones too.
  void forAll(const std::vector<int64_t> &ranks,
              const std::function<void(const TestList &)> &body) {
    for (Dtype type : kTypes)
      for (int64_t rank : ranks)
        for (int64_t gap : {3, 16}) {
          // Other alignments do not depend on the rank.
          if (gap == 16 && rank != 4 && rank != 33)
            continue;
          SCOPED_TRACE(std::string(dtypeName(type)) + ", rank " +
                       std::to_string(rank) + ", gaps of " +
                       std::to_string(gap));
          body(TestList(type, awkwardShapes(rank), gap));
          if (HasFailure())
            return;
        }
  }

  void checkProducts(const TestList &test, bool isExact) {
    auto fill = [&](int64_t n) {
      return isExact ? smallIntegers(test.type, n) : normal(test.type, n);
    };
    const HostArray matrix = fill(test.bucket), factorP = fill(test.p),
                    factorQ = fill(test.q);
    const Values mValues = toDoubles(matrix), pValues = toDoubles(factorP),
                 qValues = toDoubles(factorQ);
    std::unique_ptr<MatrixList> list = test.create();
    ASSERT_TRUE(list);
    DeviceArray m(matrix), p(test.type, test.p), q(factorQ);
    ASSERT_EQ(
        list->matmul(stream, DDPHOOK_MATMUL_P, m.data(), p.data(), q.data()),
        cudaSuccess);
    const HostArray gotP = p.read();
    expectGapsKept(gotP, test, true);
    p.write(factorP);
    DeviceArray newQ(test.type, test.q), newM(test.type, test.bucket);
    ASSERT_EQ(
        list->matmul(stream, DDPHOOK_MATMUL_Q, m.data(), p.data(), newQ.data()),
        cudaSuccess);
    const HostArray gotQ = newQ.read();
    expectGapsKept(gotQ, test, false);
    ASSERT_EQ(
        list->matmul(stream, DDPHOOK_MATMUL_M, newM.data(), p.data(), q.data()),
        cudaSuccess);
    const HostArray gotM = newM.read();
    expectSame(m.read(), matrix);

    const Values outP = toDoubles(gotP), outQ = toDoubles(gotQ),
                 outM = toDoubles(gotM);
    auto at = [](const Values &values, int64_t i) {
      return values[static_cast<size_t>(i)];
    };
    for (const ddphook_matrix_t &x : test.matrices) {
      SCOPED_TRACE(std::to_string(x.rows) + " x " + std::to_string(x.columns));
      expectProducts(
          test.type, outP, x.p_offset, x.rows * x.rank, x.columns, isExact,
          [&](int64_t i, int64_t l) {
            return at(mValues, x.offset + i / x.rank * x.columns + l);
          },
          [&](int64_t i, int64_t l) {
            return at(qValues, x.q_offset + l * x.rank + i % x.rank);
          });
      expectProducts(
          test.type, outQ, x.q_offset, x.columns * x.rank, x.rows, isExact,
          [&](int64_t i, int64_t l) {
            return at(mValues, x.offset + l * x.columns + i / x.rank);
          },
          [&](int64_t i, int64_t l) {
            return at(pValues, x.p_offset + l * x.rank + i % x.rank);
          });
      expectProducts(
          test.type, outM, x.offset, x.rows * x.columns, x.rank, isExact,
          [&](int64_t i, int64_t l) {
            return at(pValues, x.p_offset + i / x.columns * x.rank + l);
          },
          [&](int64_t i, int64_t l) {
            return at(qValues, x.q_offset + i % x.columns * x.rank + l);
          });
    }
    // Pieces, and what is not the list's, are not matrices.
    const HostArray untouched = poisoned(test.type, 1);
    for (const ddphook_piece_t &piece : test.pieces)
      for (int64_t i = 0; i < piece.count; ++i)
        ASSERT_EQ(gotM.bits(piece.offset + i), untouched.bits(0));
    ASSERT_EQ(gotM.bits(0), untouched.bits(0));
    ASSERT_EQ(gotM.bits(test.bucket - 1), untouched.bits(0));
  }
};

TEST_F(CudaLowRank, products) {
  forAll({0, 1, 2, 3, 4, 5, 8, 16, 31, 32, 33, 64},
         [&](const TestList &test) { checkProducts(test, false); });
}

/// Small integers: every sum is exact, so 16-bit results are rounded once.
TEST_F(CudaLowRank, oneRoundingPerElement) {
  forAll({1, 3, 8}, [&](const TestList &test) { checkProducts(test, true); });
}

/// Many warps a row, several ranges of rows up to as many as there may be, and
/// panels that end in the middle.
TEST_F(CudaLowRank, largerMatrices) {
  for (Dtype type : kTypes)
    for (int64_t rank : {1, 4, 16, 32}) {
      SCOPED_TRACE(std::string(dtypeName(type)) + ", rank " +
                   std::to_string(rank));
      checkProducts(TestList(type, {{520, 260, rank}, {4, 5000, rank}}, 16),
                    false);
      checkProducts(TestList(type, {{2000, 67, rank}}, 1), false);
      checkProducts(TestList(type, {{9000, 8, rank}}, 1), false);
    }
}

/// So many rows that every block takes several groups of them, one after the
/// other, through the same buffers.
TEST_F(CudaLowRank, manyRows) {
  checkProducts(TestList(Dtype::F16, {{300000, 44, 1}}, 16), false);
}

TEST_F(CudaLowRank, differentRanksInOneList) {
  for (Dtype type : kTypes) {
    checkProducts(TestList(type,
                           {{20, 30, 1},
                            {64, 64, 4},
                            {7, 9, 0},
                            {40, 33, 12},
                            {50, 70, 40},
                            {3, 100, 3}},
                           5),
                  false);
    // A bucket of many small matrices.
    std::vector<Shape> shapes;
    for (int i = 0; i < 120; ++i)
      shapes.push_back({static_cast<int64_t>(random() % 40),
                        static_cast<int64_t>(random() % 40),
                        static_cast<int64_t>(1 + random() % 4)});
    checkProducts(TestList(type, shapes, 2), false);
  }
}

/// m = g + e, P and the rest in one pass have the bits of several, wherever m
/// lies and however the arrays are aligned.
TEST_F(CudaLowRank, projectFused) {
  forAll({0, 1, 4, 33}, [&](const TestList &test) {
    const Dtype type = test.type;
    const HostArray g = normal(type, test.bucket),
                    e = normal(type, test.bucket), q = normal(type, test.q);
    std::unique_ptr<MatrixList> list = test.create();
    ASSERT_TRUE(list);
    // Apart: the sum only where the list is.
    HostArray sum = poisoned(type, test.bucket),
              rest = poisoned(type, test.rest);
    const auto size = dtypeSize(type);
    auto at = [&](const HostArray &array, int64_t i) {
      return const_cast<char *>(static_cast<const char *>(array.data())) +
             i * size;
    };
    host::addArrays(at(sum, test.list.begin), at(g, test.list.begin),
                    at(e, test.list.begin), type,
                    test.list.end - test.list.begin);
    for (const ddphook_piece_t &piece : test.pieces)
      std::memcpy(at(rest, piece.rest_offset), at(sum, piece.offset),
                  static_cast<size_t>(piece.count * size));
    DeviceArray deviceQ(q), whole(sum), wantP(type, test.p);
    ASSERT_EQ(list->matmul(stream, DDPHOOK_MATMUL_P, whole.data(), wantP.data(),
                           deviceQ.data()),
              cudaSuccess);
    const HostArray p = wantP.read();
    auto outside = [&](const HostArray &original) {
      HostArray want = original;
      std::memcpy(
          at(want, test.list.begin), at(sum, test.list.begin),
          static_cast<size_t>((test.list.end - test.list.begin) * size));
      return want;
    };
    for (int64_t shift : {0, 1}) {
      if (shift > 0 && test.usesCublas())
        continue;
      DeviceArray gotP(type, test.p, shift), gotRest(type, test.rest, shift);
      DeviceArray x(g, shift), y(e), m(type, test.bucket, 2 * shift);
      auto run = [&](DeviceArray &into) {
        ASSERT_EQ(list->project(stream, x.data(), y.data(), deviceQ.data(),
                                into.data(), gotP.data(), gotRest.data()),
                  cudaSuccess);
        expectSame(gotP.read(), p);
        expectSame(gotRest.read(), rest);
      };
      run(m);
      expectSame(m.read(), outside(poisoned(type, test.bucket)));
      expectSame(x.read(), g);
      expectSame(y.read(), e);
      run(y);
      expectSame(y.read(), outside(e));
      y.write(e);
      run(x);
      expectSame(x.read(), outside(g));
      // Without error feedback M is g.
      ASSERT_EQ(list->project(stream, whole.data(), nullptr, deviceQ.data(),
                              nullptr, gotP.data(), gotRest.data()),
                cudaSuccess);
      expectSame(gotP.read(), p);
      expectSame(gotRest.read(), rest);
    }
  });
}

/// The product, the error and the rest in one pass have the bits of several.
TEST_F(CudaLowRank, reconstructFused) {
  forAll({0, 1, 4, 33}, [&](const TestList &test) {
    const Dtype type = test.type;
    const HostArray m = normal(type, test.bucket), p = normal(type, test.p),
                    q = normal(type, test.q), rest = normal(type, test.rest);
    std::unique_ptr<MatrixList> list = test.create();
    ASSERT_TRUE(list);
    DeviceArray deviceP(p), deviceQ(q), deviceRest(rest);
    DeviceArray product(type, test.bucket);
    ASSERT_EQ(list->matmul(stream, DDPHOOK_MATMUL_M, product.data(),
                           deviceP.data(), deviceQ.data()),
              cudaSuccess);
    HostArray out = product.read();
    const auto size = dtypeSize(type);
    auto at = [&](const HostArray &array, int64_t i) {
      return const_cast<char *>(static_cast<const char *>(array.data())) +
             i * size;
    };
    for (const ddphook_piece_t &piece : test.pieces)
      std::memcpy(at(out, piece.offset), at(rest, piece.rest_offset),
                  static_cast<size_t>(piece.count * size));
    const int64_t begin = test.list.begin, count = test.list.end - begin;
    for (int64_t divisor : {1, 3, -3})
      for (int64_t shift : {0, 1}) {
        if (shift > 0 && test.usesCublas())
          continue;
        HostArray quotient(type, test.bucket),
            err = poisoned(type, test.bucket);
        // Written through at(), which clang-tidy does not see.
        // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
        HostArray over = m;
        // Below 0 as PyTorch does on this device.
        list->dividesExactly = divisor > 0;
        if (divisor > 0)
          host::divideArray(at(out, begin), at(quotient, begin), type, count,
                            divisor);
        else
          host::scaleArray(at(out, begin), at(quotient, begin), type, count,
                           type == Dtype::F64 ? 1.0 / 3 : 1.0f / 3);
        host::subtractArrays(at(err, begin), at(m, begin), at(quotient, begin),
                             type, count);
        std::memcpy(at(over, begin), at(err, begin),
                    static_cast<size_t>(count * size));
        DeviceArray x(m, shift), gotOut(type, test.bucket),
            gotErr(type, test.bucket, 2 * shift);
        auto run = [&](const void *from, void *into) {
          ASSERT_EQ(list->reconstruct(stream, deviceP.data(), deviceQ.data(),
                                      deviceRest.data(), from, gotOut.data(),
                                      into, std::abs(divisor)),
                    cudaSuccess);
          expectSame(gotOut.read(), out);
        };
        run(x.data(), gotErr.data());
        expectSame(gotErr.read(), err);
        expectSame(x.read(), m);
        run(x.data(), x.data());
        expectSame(x.read(), over);
        run(nullptr, nullptr);
      }
  });
}

/// What is in other rows does not matter, not even that it is no number.
TEST_F(CudaLowRank, rowsOfPDependOnTheirRowsAlone) {
  for (Dtype type : kTypes)
    for (int64_t rank : {1, 4, 32}) {
      const TestList test(type, {{45, 301, rank}, {70, 64, rank}}, 4);
      std::unique_ptr<MatrixList> list = test.create();
      ASSERT_TRUE(list);
      HostArray m = normal(type, test.bucket);
      DeviceArray x(m), q(normal(type, test.q)), p(type, test.p);
      auto run = [&] {
        EXPECT_EQ(list->matmul(stream, DDPHOOK_MATMUL_P, x.data(), p.data(),
                               q.data()),
                  cudaSuccess);
        return p.read();
      };
      const HostArray before = run();
      const HostArray nan = poisoned(type, 1);
      for (const ddphook_matrix_t &matrix : test.matrices)
        for (int64_t i = 0; i < matrix.rows * matrix.columns; ++i)
          if (i / matrix.columns % 2)
            m.setBits(matrix.offset + i, nan.bits(0));
      x.write(m);
      const HostArray after = run();
      for (const ddphook_matrix_t &matrix : test.matrices)
        for (int64_t i = 0; i < matrix.rows * rank; ++i)
          if (i / rank % 2)
            ASSERT_TRUE(after.isNaN(matrix.p_offset + i));
          else
            ASSERT_EQ(after.bits(matrix.p_offset + i),
                      before.bits(matrix.p_offset + i));
    }
}

/// An infinity of M is one of P wherever rows begin, also where most lanes of a
/// warp have no columns.
TEST_F(CudaLowRank, infinitiesOfMAreInfinitiesOfP) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (Dtype type : kTypes)
    for (int64_t rank : {1, 4})
      for (int64_t columns : {8, 136})
        for (int64_t gap : {0, 1, 2, 3}) {
          SCOPED_TRACE(std::string(dtypeName(type)) + ", rank " +
                       std::to_string(rank) + ", " + std::to_string(columns) +
                       " columns, gaps of " + std::to_string(gap));
          const TestList test(type, {{20, columns, rank}}, gap);
          std::unique_ptr<MatrixList> list = test.create();
          ASSERT_TRUE(list);
          const ddphook_matrix_t &matrix = test.matrices.front();
          Values values(static_cast<size_t>(test.bucket), 1);
          for (int64_t row = 0; row < matrix.rows; ++row)
            values[static_cast<size_t>(matrix.offset + row * columns +
                                       row * 7 % columns)] = kInfinity;
          DeviceArray m(toArray(type, values)), p(type, test.p),
              q(toArray(type, Values(static_cast<size_t>(test.q), 1)));
          ASSERT_EQ(list->matmul(stream, DDPHOOK_MATMUL_P, m.data(), p.data(),
                                 q.data()),
                    cudaSuccess);
          const Values got = toDoubles(p.read());
          for (int64_t i = 0; i < matrix.rows * rank; ++i)
            ASSERT_EQ(got[static_cast<size_t>(matrix.p_offset + i)], kInfinity)
                << "element " << i;
        }
}

/// A step in a graph, launched twice, does what the calls do; nothing of the
/// first is left in the second.
TEST_F(CudaLowRank, canBeCaptured) {
  auto captureAndReplay = [&](const TestList &test) {
    std::unique_ptr<MatrixList> list = test.create();
    ASSERT_TRUE(list);
    const Dtype type = test.type;
    const HostArray zeros(type, test.bucket), q0 = normal(type, test.q);
    const HostArray inputs[] = {normal(type, test.bucket),
                                normal(type, test.bucket)};
    DeviceArray g(type, test.bucket), e(type, test.bucket), p(type, test.p),
        q(type, test.q), rest(type, test.rest), out(type, test.bucket);
    auto step = [&](cudaStream_t queue) {
      EXPECT_EQ(list->project(queue, g.data(), e.data(), q.data(), e.data(),
                              p.data(), rest.data()),
                cudaSuccess);
      EXPECT_EQ(
          list->orthogonalize(queue, DDPHOOK_FACTOR_P, p.data(), p.data(), 0),
          cudaSuccess);
      EXPECT_EQ(
          list->matmul(queue, DDPHOOK_MATMUL_Q, e.data(), p.data(), q.data()),
          cudaSuccess);
      EXPECT_EQ(list->reconstruct(queue, p.data(), q.data(), rest.data(),
                                  e.data(), out.data(), e.data(), 2),
                cudaSuccess);
    };
    auto start = [&](const HostArray &input) {
      g.write(input);
      e.write(zeros);
      q.write(q0);
    };
    cudaStream_t queue;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    ASSERT_EQ(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking),
              cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal),
              cudaSuccess);
    step(queue);
    ASSERT_EQ(cudaStreamEndCapture(queue, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    for (const HostArray &input : inputs) {
      start(input);
      step(stream);
      const HostArray wantOut = out.read(), wantError = e.read(),
                      wantQ = q.read();
      start(input);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      ASSERT_EQ(cudaGraphLaunch(executable, queue), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(queue), cudaSuccess);
      expectSame(out.read(), wantOut);
      expectSame(e.read(), wantError);
      expectSame(q.read(), wantQ);
    }
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(queue), cudaSuccess);
  };
  for (int64_t rank : {4, 40})
    captureAndReplay(TestList(
        Dtype::F32, {{300, 200, rank}, {1000, 90, rank}, {64, 64, rank}}, 8));
}

TEST_F(CudaLowRank, emptyLists) {
  ddphook_matrix_list_t none = {};
  none.struct_size = sizeof(none);
  std::unique_ptr<MatrixList> list;
  ASSERT_TRUE(MatrixList::create(none, Dtype::F32, cudaMemory(), &list).isOk());
  EXPECT_EQ(list->matmul(stream, DDPHOOK_MATMUL_Q, nullptr, nullptr, nullptr),
            cudaSuccess);
  EXPECT_EQ(list->orthogonalize(stream, DDPHOOK_FACTOR_Q, nullptr, nullptr, 0),
            cudaSuccess);
  EXPECT_EQ(list->project(stream, nullptr, nullptr, nullptr, nullptr, nullptr,
                          nullptr),
            cudaSuccess);
  EXPECT_EQ(list->reconstruct(stream, nullptr, nullptr, nullptr, nullptr,
                              nullptr, nullptr, 1),
            cudaSuccess);
}

TEST_F(CudaLowRank, refusesWhatDoesNotFit) {
  ddphook_matrix_t matrix = {};
  matrix.columns = int64_t(1) << 40;
  ddphook_matrix_list_t huge = {};
  huge.struct_size = sizeof(huge);
  huge.matrices = &matrix;
  huge.matrix_count = 1;
  for (int64_t rank : {int64_t(1), int64_t(1) << 40}) {
    matrix.rank = rank;
    std::unique_ptr<MatrixList> list;
    const Status status =
        MatrixList::create(huge, Dtype::F32, cudaMemory(), &list);
    EXPECT_EQ(status.code(), DDPHOOK_RESOURCE_EXHAUSTED) << status.message();
    EXPECT_FALSE(list);
  }
}

} // namespace
