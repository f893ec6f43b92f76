// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix lists with their arrays on a device, for tests of the low-rank CUDA
// kernels.

#pragma once

#include "backends/cuda/cuda_kernels_test_util.h"

#include "../../../backends/cuda/kernels/lowrank.h"
#include "../../../backends/host/kernels/kernels.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace ddphook::cuda {

inline HostArray toArray(Dtype type, const std::vector<double> &values) {
  HostArray array(type, static_cast<int64_t>(values.size()));
  host::castArray(values.data(), Dtype::F64, array.data(), type, array.size());
  return array;
}

inline std::vector<double> toDoubles(const HostArray &array) {
  std::vector<double> values(static_cast<size_t>(array.size()));
  host::castArray(array.data(), array.dtype(), values.data(), Dtype::F64,
                  array.size());
  return values;
}

struct Shape {
  int64_t rows, columns, rank;
};

/// Shapes that are empty, thin, prime, round, and longer than what a block, a
/// warp or a chunk takes at once.
inline std::vector<Shape> awkwardShapes(int64_t rank) {
  std::vector<Shape> shapes;
  for (auto [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 0},   {0, 5},    {5, 0},    {1, 1},   {1, 300}, {300, 1},
           {1, 17},  {17, 1},   {2, 3},    {3, 5},   {7, 16},  {13, 31},
           {64, 64}, {37, 129}, {101, 47}, {96, 80}, {9, 700}, {2, 1400},
           {200, 9}, {33, 515}, {128, 128}})
    shapes.push_back({rows, columns, rank});
  return shapes;
}

/// A list: its matrices lie in a bucket with pieces between them, and what it
/// does not cover before and after; its factors lie in another order, apart
/// from each other.
struct TestList {
  TestList(Dtype type, const std::vector<Shape> &shapes, int64_t gap)
      : type(type) {
    int64_t place = gap;
    list.struct_size = sizeof(list);
    list.begin = place;
    int64_t number = 0;
    for (const Shape &shape : shapes) {
      ddphook_matrix_t matrix = {};
      matrix.rows = shape.rows;
      matrix.columns = shape.columns;
      matrix.rank = shape.rank;
      matrix.offset = place;
      place += shape.rows * shape.columns;
      matrices.push_back(matrix);
      if (const int64_t count = number++ % 3 * gap) {
        pieces.push_back({place, rest + 1, count});
        place += count;
        rest += count + 1;
      }
    }
    // One that is longer than a block takes.
    pieces.push_back({place, rest, 5000 + gap});
    place += 5000 + gap;
    rest += 5000 + gap;
    list.end = place;
    bucket = place + gap;
    for (size_t i = matrices.size(); i-- > 0;) {
      matrices[i].p_offset = p;
      p += matrices[i].rows * matrices[i].rank + gap;
      matrices[i].q_offset = q;
      q += matrices[i].columns * matrices[i].rank + gap;
    }
    list.matrices = matrices.data();
    list.matrix_count = static_cast<int64_t>(matrices.size());
    list.pieces = pieces.data();
    list.piece_count = static_cast<int64_t>(pieces.size());
  }
  TestList(const TestList &) = delete;
  TestList &operator=(const TestList &) = delete;

  /// Whether a product is cuBLAS's, which may add in another order where arrays
  /// are aligned differently.
  bool usesCublas() const {
    return std::any_of(
        matrices.begin(), matrices.end(),
        [](const ddphook_matrix_t &matrix) { return matrix.rank > 32; });
  }

  std::unique_ptr<MatrixList> create() const {
    std::unique_ptr<MatrixList> result;
    const Status status = MatrixList::create(list, type, cudaMemory(), &result);
    EXPECT_TRUE(status.isOk()) << status.message();
    return result;
  }

  Dtype type;
  std::vector<ddphook_matrix_t> matrices;
  std::vector<ddphook_piece_t> pieces;
  ddphook_matrix_list_t list = {};
  /// Elements of the arrays.
  int64_t bucket = 0, p = 0, q = 0, rest = 0;
};

class CudaLowRankTest : public CudaKernelTest {
protected:
  HostArray normal(Dtype type, int64_t n) {
    std::normal_distribution<double> distribution;
    std::vector<double> values(static_cast<size_t>(n));
    for (double &value : values)
      value = distribution(random);
    return toArray(type, values);
  }
  /// Odd integers of few bits: their sums are exact and never zero by chance.
  HostArray smallIntegers(Dtype type, int64_t n) {
    std::vector<double> values(static_cast<size_t>(n));
    for (double &value : values)
      value = static_cast<double>(random() % 16) * 2 - 15;
    return toArray(type, values);
  }
};

inline void expectSame(const HostArray &got, const HostArray &want) {
  EXPECT_EQ(got.firstDifference(want), "");
}

/// As long as nothing was written, all bytes are 0xff.
inline HostArray poisoned(Dtype type, int64_t n) {
  HostArray array(type, n);
  std::memset(array.data(), 0xff, static_cast<size_t>(n * dtypeSize(type)));
  return array;
}

} // namespace ddphook::cuda
