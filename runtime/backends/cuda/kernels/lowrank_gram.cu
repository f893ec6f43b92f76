// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does for tall f32 factors, on many blocks, what lowrank_orthogonalize.cu does
// with one block per factor: computes the Gram matrix G = AᵀA, with a partial
// sum per tile of rows; then, in every block instead of a separate launch, a
// small matrix X and Q = A·X. For three or more columns X is R⁻¹·S, where R is
// G's Cholesky factor and the signs S make Q that of Householder's method; for
// one or two columns X does what Gram-Schmidt does, including epsilon.
//
// Accuracy. G and all that follows are computed in f64, in which a product of
// two f32 is exact, and Q is rounded once. With d the norms of A's columns, an
// element of G, and what Cholesky's method adds, has an error of at most
// γ·dₖ·dₗ, where γ is 2^-53 times the additions of the longest chain: for 1e5
// rows about 150 for r = 4, 300 for r = 8, 1700 for r = 32. Hence ‖QᵀQ - 1‖ is
// at most γ·r·spread, where spread = Σ dᵢ²·(R⁻¹)ᵢⱼ², plus the rounding of Q.
// The norms of columns have no influence, from 1e-38 to 1e38. A factor is done
// here if its spread is at most kMostSpread. Up to r = 8 the bound is then no
// more than the rounding of f32, for r = 32 it is 2e-6, and errors with random
// signs are far smaller; so a second pass, as in CholeskyQR2, gains nothing.
// Other factors (columns nearly dependent, zero, not finite) are left to the
// one-block kernel. All ranks have the same factor, add in the same order, and
// decide alike.
//
// Gram-Schmidt's order of additions is not guaranteed, only its treatment of
// zero columns and of epsilon. Where the squares of f32 vanish or overflow, its
// norms are 0 or infinite, as PyTorch's are: the one-block kernel does such
// factors, too.
//
// The one-block kernel does f64. There γ·spread is a rounding only if columns
// are orthogonal already, so every factor would take the second pass, with
// twice the launches and reads; and hardly any model has f64 gradients.
//
// Signs. Householder's reflector k maps its column to -sign(α)·norm, where α is
// the column's element k after the previous reflectors. The first rows of A·R⁻¹
// have the same α up to a positive factor, and because its columns are
// orthonormal, its reflectors act on those rows as the elimination below. A
// column with only zeros below α is not reflected and keeps α's sign; G cannot
// tell zero from small, so the one-block kernel does columns that consist of α.

#include "lowrank_device.h"
#include "reductions.h"

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

constexpr double kMostSpread = 1 << 18;
/// The largest |α| of a column of norm 1, which leaves 0.005 below it. The
/// bound above also holds for the error of α.
constexpr double kMostPivot = 1 - 0x1p-16;
/// Squares of norms that f32 Gram-Schmidt computes without loss.
constexpr double kLeastSquare = 1e-30;
constexpr double kMostSquare = 1e+30;

/// The numbers of a factor in shared memory at a time: a chunk of rows.
constexpr int kChunk = 4096;
/// The maximum number of elements of half a Gram matrix per thread.
constexpr int kMostPairs = (pairsOf(kMaxBucket) + kThreads - 1) / kThreads;
/// The distance between rows of a small matrix in shared memory.
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

/// A tall factor and its data in scratch memory.
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
  /// 1 if the factor is done, else 0.
  double *isDone;
  /// The first rows, row by row, since the result may overwrite them.
  double *top;
  /// Half a Gram matrix per tile, row by row.
  double *partials;
};

/// Copies rows begin … of a factor to shared memory, at most `most` and none
/// from `end` on; returns their number. Starts and ends with a barrier.
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

/// The row and column of an element of half a matrix.
struct Pair {
  __device__ Pair(int number, int rank) {
    for (; number >= rank - row && row < rank; ++row)
      number -= rank - row;
    column = row + number;
  }
  int row = 0;
  int column = 0;
};

/// Computes the partial sum of a tile. The first tile, whose first chunk has
/// more rows than columns, also copies the first rows. Each thread has an
/// element of the Gram matrix and a slice of the rows; for ranks above 22 it
/// has several elements and all rows.
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

/// Small matrices in shared memory, whose rows are kRow numbers apart. Each
/// lane of a warp has a column; all lanes call the functions.
struct SmallMatrices {
  /// Replaces G, whose upper half is in `r`, by R with RᵀR = G. Returns false
  /// if there is none.
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
      // False for a NaN.
      isPositive = isPositive && pivot > 0;
      if (isMine)
        r[k * kRow + lane] = sum / std::sqrt(pivot);
      __syncwarp();
    }
    return isPositive;
  }

  /// Computes x = R⁻¹; returns its spread. `square` is G's diagonal element.
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
  /// which are in `r`. Returns true if all columns are certainly reflected.
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

  /// Returns the sign that a reflector gives a column with that pivot.
  static __device__ double signOf(double pivot) { return pivot < 0 ? 1 : -1; }

  /// Sets x to what Gram-Schmidt does with one or two columns, whose G is in
  /// `r`. Returns false if it cannot. For one thread.
  __device__ bool makeGramSchmidt(double epsilon) const {
    bool isSound = true;
    double dot = 0;
#pragma unroll 1
    for (int k = 0; k < rank; ++k) {
      const double square = r[k * kRow + k];
      double left = square;
      if (k > 0) {
        // The projection on the first column, which epsilon has shortened.
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

/// Numbers of shared memory before the chunk: two matrices and a flag.
constexpr int kSmallRoom = 2 * kMaxBucket * kRow + 1;

/// Computes X; returns true if the factor is sound enough.
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

/// Computes the rows of a tile of Q.
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
