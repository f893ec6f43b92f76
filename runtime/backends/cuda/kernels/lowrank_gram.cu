//===- lowrank_gram.cu - orthonormal columns of tall factors --------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What lowrank_orthogonalize.cu does with one block a factor, for tall factors
// of f32 on many: the Gram matrix G = AᵀA, a partial sum a tile of rows; then,
// in every block again rather than in a launch of its own, a small matrix X and
// Q = A·X. Of three columns and more X is R⁻¹·S, where R is G's Cholesky factor
// and the signs S make it the Q of Householder's method; of one or two it is
// what Gram-Schmidt does, epsilon included.
//
// Accuracy. G and all that follows are computed in f64, in which a product of
// two f32 is exact, and Q is rounded once. With d the norms of A's columns, an
// element of G, and what Cholesky's method adds, is wrong by at most γ·dₖ·dₗ,
// where γ is 2^-53 times the additions of the longest chain: of 100 000 rows
// about 150 for r = 4, 300 for r = 8, 1700 for r = 32. Hence ‖QᵀQ - 1‖ is at
// most γ·r·spread, where spread = Σ dᵢ²·(R⁻¹)ᵢⱼ², and the rounding of Q. The
// norms of columns do not matter, be they 1e-38 or 1e38. A factor is done here
// if its spread is at most kMostSpread. Up to r = 8 the bound is then no more
// than the rounding of f32, for r = 32 it is 2e-6, and errors of chance signs
// stay far below; so a second pass, as CholeskyQR2 has it, gains nothing.
// Others (columns nearly dependent, zero, not finite) are left to the kernel of
// one block. All ranks have the same factor, add in the same order, and decide
// alike.
//
// Gram-Schmidt's order of additions is not promised to anybody, only what it
// does with columns of zeros and how it adds epsilon. Where the squares of f32
// vanish or overflow, its norms are 0 or infinite, and so are PyTorch's: such
// factors are one block's as well.
//
// f64 is one block's. There γ·spread is a rounding only where columns are
// orthogonal already, so every factor would take the second pass, which is
// twice the launches and reads; and hardly a model has gradients of f64.
//
// Signs. Householder's reflector k maps its column to -sign(α)·norm, where α is
// the column's element k after the reflectors before. The first rows of A·R⁻¹
// have the same α up to a positive factor, and because its columns are
// orthonormal, its reflectors act on those rows as the elimination below. A
// column with nothing below α is not reflected and keeps α's sign; G does not
// tell nothing from little, so columns that consist of α are one block's.
//
//===----------------------------------------------------------------------===//
#include "lowrank_device.h"
#include "reductions.h"

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

constexpr double kMostSpread = 1 << 18;
/// The largest |α| of a column of norm 1, which leaves 0.005 below it. The
/// bound above is that of α's error as well.
constexpr double kMostPivot = 1 - 0x1p-16;
/// Squares of norms that Gram-Schmidt has in f32 without loss.
constexpr double kLeastSquare = 1e-30;
constexpr double kMostSquare = 1e+30;

/// Numbers of a factor that are in shared memory at a time: a chunk of rows.
constexpr int kChunk = 4096;
/// Elements of half a Gram matrix that a thread has at most.
constexpr int kMostPairs = (pairsOf(kMaxBucket) + kThreads - 1) / kThreads;
/// From row to row of a small matrix in shared memory.
constexpr int kRow = kMaxBucket + 1;

struct GramArguments {
  const MatrixEntry *matrices;
  const Tile *tiles;
  const float *in;
  float *out;
  double *grams;
  double epsilon;
  bool isP;
};

/// A tall factor, and what belongs to it in scratch memory.
struct TallFactor {
  __device__ TallFactor(const GramArguments &a, const MatrixEntry &matrix)
      : rank(static_cast<int>(matrix.rank)), pairs(pairsOf(rank)),
        tiles(
            static_cast<int>(gramTiles(a.isP ? matrix.rows : matrix.columns))),
        offset(a.isP ? matrix.pOffset : matrix.qOffset),
        isDone(a.grams + matrix.gramOffset[a.isP]), top(isDone + 1),
        partials(top + rank * rank) {}

  int rank;
  int pairs;
  int tiles;
  int64_t offset;
  /// 1 or 0: whether the factor is done.
  double *isDone;
  /// The first rows, row by row, which the result may overwrite.
  double *top;
  /// Half a Gram matrix a tile, row by row.
  double *partials;
};

/// Copies rows begin … of a factor, at most `most` and none from `end` on, to
/// shared memory; gives how many. Between barriers.
__device__ __forceinline__ int stageChunk(const float *factor, int rank,
                                          int64_t begin, int64_t end, int most,
                                          float *staged) {
  const int rows = static_cast<int>(end - begin < most ? end - begin : most);
  const float *source = factor + begin * rank;
  __syncthreads();
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < rows * rank; i += kThreads)
    staged[i] = source[i];
  __syncthreads();
  return rows;
}

/// Row and column of an element of half a matrix.
struct Pair {
  __device__ Pair(int number, int rank) {
    for (; number >= rank - row && row < rank; ++row)
      number -= rank - row;
    column = row + number;
  }
  int row = 0;
  int column = 0;
};

/// The partial sum of a tile, and from the first tile, whose first chunk has
/// more rows than columns, the first rows. Threads have an element of the Gram
/// matrix and a slice of the rows each; of ranks above 22 several elements and
/// all rows.
__global__ void __launch_bounds__(kThreads) addGrams(GramArguments a) {
  const Tile tile = a.tiles[blockIdx.x];
  const TallFactor factor(a, a.matrices[tile.matrix]);
  double *ofSlices = dynamicShared<double>();
  float *staged = reinterpret_cast<float *>(ofSlices + kThreads);
  const int rank = factor.rank, pairs = factor.pairs;
  const int thread = static_cast<int>(threadIdx.x);
  const int slices = pairs < kThreads ? kThreads / pairs : 1;
  const int slice = pairs < kThreads ? thread / pairs : 0;
  const int number = thread - slice * pairs;
  int rowOf[kMostPairs], columnOf[kMostPairs];
#pragma unroll
  for (int c = 0; c < kMostPairs; ++c) {
    const Pair pair(number + c * kThreads, rank);
    rowOf[c] = pair.row;
    columnOf[c] = pair.column;
  }
  double sums[kMostPairs] = {};
  const int most = kChunk / rank;
  for (int64_t begin = tile.begin; begin < tile.end; begin += most) {
    const int rows =
        stageChunk(a.in + factor.offset, rank, begin, tile.end, most, staged);
    if (begin == 0)
      for (int i = thread; i < rank * rank; i += kThreads)
        factor.top[i] = static_cast<double>(staged[i]);
#pragma unroll
    for (int c = 0; c < kMostPairs; ++c) {
      if (slice >= slices || number + c * kThreads >= pairs)
        continue;
      const float *x = staged + rowOf[c], *y = staged + columnOf[c];
#pragma unroll 4
      for (int j = slice * rank; j < rows * rank; j += slices * rank)
        sums[c] = multiplyAdd(static_cast<double>(x[j]),
                              static_cast<double>(y[j]), sums[c]);
    }
  }

  double *partial = factor.partials + int64_t(tile.split) * pairs;
  ofSlices[thread] = sums[0];
  __syncthreads();
#pragma unroll
  for (int c = 0; c < kMostPairs; ++c) {
    const int i = thread + c * kThreads;
    if (i >= pairs)
      continue;
    double sum = c == 0 ? ofSlices[i] : sums[c];
    if (c == 0)
      for (int s = 1; s < slices; ++s)
        sum += ofSlices[s * pairs + i];
    partial[i] = sum;
  }
}

/// Small matrices, in shared memory, kRow numbers from row to row. A warp's
/// lane has a column; all lanes call the functions.
struct SmallMatrices {
  /// Replaces G, of which `r` has the upper half, by R with RᵀR = G. Gives
  /// whether there is one.
  __device__ bool factorize(int lane) const {
    bool isPositive = true;
    for (int k = 0; k < rank; ++k) {
      const bool isMine = lane >= k && lane < rank;
      double sum = 0;
      if (isMine) {
        sum = r[k * kRow + lane];
        for (int i = 0; i < k; ++i)
          sum = multiplyAdd(-r[i * kRow + k], r[i * kRow + lane], sum);
      }
      const double pivot = __shfl_sync(kAllLanes, sum, k);
      // Not so for a NaN.
      isPositive = isPositive && pivot > 0;
      if (isMine)
        r[k * kRow + lane] = sum / std::sqrt(pivot);
      __syncwarp();
    }
    return isPositive;
  }

  /// x = R⁻¹; gives its spread, where `square` is G's element of the diagonal.
  __device__ double invert(int lane, double square) const {
    double spread = 0;
    for (int i = rank - 1; i >= 0; --i) {
      const double ofRow = __shfl_sync(kAllLanes, square, i);
      if (i > lane || lane >= rank)
        continue;
      double sum = i == lane ? 1 : 0;
      for (int k = i + 1; k <= lane; ++k)
        sum = multiplyAdd(-r[i * kRow + k], x[k * kRow + lane], sum);
      const double value = sum / r[i * kRow + i];
      x[i * kRow + lane] = value;
      spread += ofRow * value * value;
    }
    for (int offset = 16; offset > 0; offset /= 2)
      spread += __shfl_xor_sync(kAllLanes, spread, offset);
    return spread;
  }

  /// Gives the columns of x the signs that follow from the first rows of A·x,
  /// which `r` has. Gives whether all columns are reflected for certain.
  __device__ bool setSigns(int lane) const {
    for (int k = 0; k < rank; ++k) {
      if (lane > k && lane < rank) {
        const double pivot = r[k * kRow + k];
        const double factor = r[k * kRow + lane] / (pivot - signOf(pivot));
        for (int i = k + 1; i < rank; ++i)
          r[i * kRow + lane] =
              multiplyAdd(-r[i * kRow + k], factor, r[i * kRow + lane]);
      }
      __syncwarp();
    }
    const double pivot = lane < rank ? r[lane * kRow + lane] : 0;
    for (int i = 0; i <= lane && lane < rank; ++i)
      x[i * kRow + lane] *= signOf(pivot);
    return __all_sync(kAllLanes, std::fabs(pivot) <= kMostPivot);
  }

  /// Of what a reflector makes of a column with that pivot.
  static __device__ double signOf(double pivot) { return pivot < 0 ? 1 : -1; }

  /// x is what Gram-Schmidt does with one or two columns, of which `r` has G.
  /// Gives whether it can. For one thread.
  __device__ bool makeGramSchmidt(double epsilon) const {
    bool isSound = true;
    double dot = 0;
#pragma unroll 1
    for (int k = 0; k < rank; ++k) {
      const double square = r[k * kRow + k];
      double left = square;
      if (k > 0) {
        // On the first column, which epsilon has made shorter than 1.
        dot = r[1] * x[0];
        left -= dot * dot * (2 - r[0] * x[0] * x[0]);
      }
      isSound = isSound && left >= kLeastSquare && square <= kMostSquare &&
                square <= kMostSpread * left;
      x[k * kRow + k] = 1 / (std::sqrt(left) + epsilon);
    }
    if (rank == 2)
      x[1] = -dot * x[0] * x[kRow + 1];
    return isSound;
  }

  int rank;
  double *r;
  double *x;
};

/// Numbers of shared memory before the chunk: two matrices, and a flag.
constexpr int kSmallRoom = 2 * kMaxBucket * kRow + 1;

/// X, and whether the factor is sound enough.
__device__ bool makeTransform(const TallFactor &factor, double epsilon,
                              double *shared) {
  const int rank = factor.rank;
  const SmallMatrices small = {rank, shared, shared + kMaxBucket * kRow};
  double *isSound = shared + 2 * kMaxBucket * kRow;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < factor.pairs; i += kThreads) {
    double sum = factor.partials[i];
#pragma unroll 8
    for (int t = 1; t < factor.tiles; ++t)
      sum += factor.partials[int64_t(t) * factor.pairs + i];
    const Pair pair(i, rank);
    small.r[pair.row * kRow + pair.column] = sum;
  }
  __syncthreads();
  if (rank <= 2) {
    if (thread == 0)
      *isSound = small.makeGramSchmidt(epsilon) ? 1 : 0;
    __syncthreads();
    return *isSound != 0;
  }
  if (thread < 32) {
    const double square = thread < rank ? small.r[thread * kRow + thread] : 0;
    const bool isPositive = small.factorize(thread);
    const double spread = small.invert(thread, square);
    if (thread == 0)
      *isSound = isPositive && spread <= kMostSpread ? 1 : 0;
  }
  __syncthreads();
  if (*isSound == 0)
    return false;
  for (int i = thread; i < rank * rank; i += kThreads) {
    const int row = i / rank, column = i % rank;
    double sum = 0;
    for (int k = 0; k <= column; ++k)
      sum = multiplyAdd(factor.top[row * rank + k], small.x[k * kRow + column],
                        sum);
    small.r[row * kRow + column] = sum;
  }
  __syncthreads();
  if (thread < 32) {
    const bool isReflected = small.setSigns(thread);
    if (thread == 0)
      *isSound = isReflected ? 1 : 0;
  }
  __syncthreads();
  return *isSound != 0;
}

/// The rows of a tile of Q.
__global__ void __launch_bounds__(kThreads) applyTransforms(GramArguments a) {
  const Tile tile = a.tiles[blockIdx.x];
  const TallFactor factor(a, a.matrices[tile.matrix]);
  double *shared = dynamicShared<double>();
  const bool isSound = makeTransform(factor, a.epsilon, shared);
  const int thread = static_cast<int>(threadIdx.x);
  if (tile.split == 0 && thread == 0)
    *factor.isDone = isSound ? 1 : 0;
  if (!isSound)
    return;
  const double *x = shared + kMaxBucket * kRow;
  float *staged = reinterpret_cast<float *>(shared + kSmallRoom);
  const int rank = factor.rank;
  const int together = kThreads / rank;
  const int row = thread / rank, column = thread % rank;
  const int most = kChunk / rank;
  for (int64_t begin = tile.begin; begin < tile.end; begin += most) {
    const int rows =
        stageChunk(a.in + factor.offset, rank, begin, tile.end, most, staged);
    float *out = a.out + factor.offset + begin * rank;
    for (int j = row; j < rows && row < together; j += together) {
      double sum = 0;
      for (int k = 0; k <= column; ++k)
        sum = multiplyAdd(static_cast<double>(staged[j * rank + k]),
                          x[k * kRow + column], sum);
      out[j * rank + column] = static_cast<float>(sum);
    }
  }
}

} // namespace

cudaError_t
ddphook::cuda::launchTallOrthogonalize(const StageLaunch &stage,
                                       const Orthogonalize &arguments) {
  if (stage.blocks == 0)
    return cudaSuccess;
  const GramArguments values = {stage.matrices,
                                stage.tiles,
                                static_cast<const float *>(arguments.in),
                                static_cast<float *>(arguments.out),
                                arguments.grams,
                                arguments.epsilon,
                                arguments.isP};
  constexpr int64_t chunkBytes = int64_t(kChunk) * sizeof(float);
  if (cudaError_t code =
          launch(stage.stream, stage.blocks, kThreads,
                 kThreads * sizeof(double) + chunkBytes, addGrams, values))
    return code;
  return launch(stage.stream, stage.blocks, kThreads,
                kSmallRoom * sizeof(double) + chunkBytes, applyTransforms,
                values);
}
