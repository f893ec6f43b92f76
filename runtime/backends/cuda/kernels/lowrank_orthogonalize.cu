// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Modified Gram-Schmidt and Householder QR, as the host backend's lowrank.h
// defines them, with one block per factor. The columns, each contiguous, are in
// shared memory if they fit and otherwise in scratch memory. Thread i mod
// threads loads, computes and stores row i of the factor, so only sums, and
// reads of other threads' elements, need barriers.

#include "lowrank_device.h"
#include "reductions.h"

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

/// The number of inner products with a column that are summed at once.
constexpr int kDots = 8;
constexpr int kMostThreads = 512;

/// Shared memory besides the factor, in numbers and in indices: that of the
/// sums, then that of the maximum and minimum.
constexpr int kSumsRoom = BlockSums<float, kDots, kMostThreads>::kRoom;
constexpr int kRoom = kSumsRoom + blockSumRoom(1);
constexpr int kIndexRoom = 32;

template <class Element>
struct OrthogonalizeArguments {
  using T = ComputeOf<Element>;
  const MatrixEntry *matrices;
  const ElemOf<Element> *in;
  ElemOf<Element> *out;
  T *work;
  /// Numbers of shared memory for the factor.
  int64_t sharedNumbers;
  double epsilon;
  /// Says which factors launchTallOrthogonalize() has done.
  const double *grams;
  bool isP;
  int32_t replaced;
};

/// The numbers of a row that are loaded before the first is used.
template <class Element>
constexpr int kTogether = sizeof(ElemOf<Element>) == 8 ? 2 : 4;

/// The fraction of a column's norm, half of the digits of `Element`: if the
/// projections leave no more, the column is mostly rounding errors.
template <class Element>
__device__ ComputeOf<Element> dependentPart() {
  using T = ComputeOf<Element>;
  T part = 1;
  while (roundTo<Element>(1 + part * part) != 1)
    part /= 2;
  return part;
}

/// The columns of a block, and their arithmetic on the block's threads.
template <class Element>
struct Columns {
  using T = ComputeOf<Element>;

  __device__ T *column(int64_t k) const { return columns + k * stride; }
  /// Returns the calling thread's first element from `begin` on. The number of
  /// threads is a power of two.
  __device__ int64_t mine(int64_t begin) const {
    const int64_t threads = blockDim.x;
    const int64_t i = (begin & -threads) + threadIdx.x;
    return i < begin ? i + threads : i;
  }

  /// Calls fn(i) for the thread's elements of begin … rows - 1.
  template <int kUnroll = 4, class Fn>
  __device__ __forceinline__ void forMine(int64_t begin, const Fn &fn) const {
#pragma unroll kUnroll
    for (int64_t i = mine(begin); i < rows; i += blockDim.x)
      fn(i);
  }

  /// Returns the sum of the thread's squares from element `begin` on.
  __device__ T mySquares(const T *column, int64_t begin) const {
    T sum = 0;
    forMine(begin,
            [&](int64_t i) { sum = multiplyAdd(column[i], column[i], sum); });
    return sum;
  }
  __device__ T norm(const T *column) {
    T values[1] = {mySquares(column, 0)};
    sums.add(values);
    return std::sqrt(values[0]);
  }

  __device__ void load(const ElemOf<Element> *in, int64_t rank) const {
    constexpr int kLength = kTogether<Element>;
    const bool isAligned =
        rank % kLength == 0 && isAlignedForPacks<kLength>(in);
#pragma unroll 1
    for (int64_t i = threadIdx.x; i < rows; i += blockDim.x) {
#pragma unroll 1
      for (int64_t k = 0; k < count; k += kLength) {
        const auto part =
            loadRow<kLength>(in + i * rank + k, count - k, isAligned);
#pragma unroll
        for (int c = 0; c < kLength; ++c)
          if (k + c < count)
            column(k + c)[i] = Element::widen(part.elements[c]);
      }
    }
  }

  /// Columns beyond the number of rows become zero.
  __device__ void store(ElemOf<Element> *out, int64_t rank) const {
    constexpr int kLength = kTogether<Element>;
    const bool isAligned =
        rank % kLength == 0 && isAlignedForPacks<kLength>(out);
#pragma unroll 1
    for (int64_t i = threadIdx.x; i < rows; i += blockDim.x) {
#pragma unroll 1
      for (int64_t k = 0; k < rank; k += kLength) {
        Pack<ElemOf<Element>, kLength> part;
#pragma unroll
        for (int c = 0; c < kLength; ++c)
          part.elements[c] =
              Element::narrow(k + c < count ? column(k + c)[i] : T(0));
        storeRow(out + i * rank + k, part, rank - k, isAligned);
      }
    }
  }

  /// Replaces column k by a unit vector minus its projections on the columns
  /// before it, which are orthonormal, normalized. Picks the largest remainder.
  __device__ void makeUnitColumn(int64_t k) {
    T least = static_cast<T>(INFINITY);
    int64_t best = 0;
    forMine(0, [&](int64_t i) {
      T sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += column(l)[i] * column(l)[i];
      if (sum < least) {
        least = sum;
        best = i;
      }
    });
    minOverBlock(least, best, room, indexRoom);
    T *target = column(k);
    forMine(0, [&](int64_t i) {
      T value = i == best ? T(1) : T(0);
      for (int64_t l = 0; l < k; ++l)
        value = multiplyAdd(-column(l)[best], column(l)[i], value);
      target[i] = value;
    });
    const T length = norm(target);
    forMine(0, [&](int64_t i) {
      target[i] = roundTo<Element>(target[i] / length);
    });
  }

  /// Subtracts the projections on column k from the columns after it.
  __device__ void subtractProjections(int64_t k) {
    const T *current = column(k);
#pragma unroll 1
    for (int64_t l = k + 1; l < count; l += kDots) {
      const int together =
          static_cast<int>(count - l < kDots ? count - l : kDots);
      T *later = column(l);
      T factors[kDots] = {};
      forMine<2>(0, [&](int64_t i) {
        const T x = current[i];
#pragma unroll
        for (int c = 0; c < kDots; ++c)
          if (c < together)
            factors[c] += roundTo<Element>(x * later[c * stride + i]);
      });
      sums.add(factors);
#pragma unroll
      for (int c = 0; c < kDots; ++c)
        factors[c] = roundTo<Element>(factors[c]);
      forMine<2>(0, [&](int64_t i) {
        const T x = current[i];
#pragma unroll
        for (int c = 0; c < kDots; ++c)
          if (c < together)
            later[c * stride + i] = roundTo<Element>(
                later[c * stride + i] - roundTo<Element>(factors[c] * x));
      });
    }
  }

  __device__ void gramSchmidt(double epsilon, int32_t replaced) {
    const T more = static_cast<T>(epsilon);
#pragma unroll 1
    for (int64_t k = 0; k < count; ++k) {
      // The column is replaced if its norm is at most this. The divisor is 0 if
      // both the norm and epsilon are.
      T least = -1;
      if ((replaced & DDPHOOK_UNIT_COLUMNS) && roundTo<Element>(more) == 0)
        least = 0;
      if (replaced & DDPHOOK_INDEPENDENT_COLUMNS) {
        const T most =
            dependentPart<Element>() * roundTo<Element>(norm(column(k)));
        least = std::isfinite(most) ? most : -1;
      }
      if (threadIdx.x == 0)
        scalars[k] = least;
    }
#pragma unroll 1
    for (int64_t k = 0; k < count; ++k) {
      T *current = column(k);
      // The barriers of this sum also make `scalars` visible.
      T length = roundTo<Element>(norm(current));
      if (length <= scalars[k]) {
        makeUnitColumn(k);
      } else {
        length = roundTo<Element>(length + more);
        forMine(0, [&](int64_t i) {
          current[i] = roundTo<Element>(current[i] / length);
        });
      }
      subtractProjections(k);
    }
  }

  /// Gives all threads element k of a column and the sum of squares below it.
  __device__ void splitAtPivot(const T *column, int64_t k, T &pivot, T &below) {
    // Negative zeros add nothing, not even to a negative zero. So the sum
    // passes the pivot to all threads, and its thread may overwrite it at once.
    T values[2] = {mySquares(column, k + 1),
                   mine(k) == k ? column[k] : static_cast<T>(-0.0)};
    sums.add(values);
    below = values[0];
    pivot = values[1];
  }

  /// Computes the reflector of a column with its pivot at `k`, as LAPACK's
  /// larfg: H = I - tau·v·vᵀ. v replaces the column from its pivot, 1, on.
  /// Returns tau.
  __device__ T makeReflector(T *column, int64_t k) {
    // Between these bounds squares lose nothing that matters.
    constexpr bool isFloat = sizeof(T) == 4;
    constexpr T tiny = static_cast<T>(isFloat ? 1e-30 : 1e-280);
    constexpr T huge = static_cast<T>(isFloat ? 1e+30 : 1e+280);
    T below, pivot;
    splitAtPivot(column, k, pivot, below);
    bool isZero = false;
    if (!(below >= tiny && below <= huge && pivot * pivot <= huge)) {
      T nonZeros = 0, largest = 0;
      forMine(k, [&](int64_t i) {
        const T magnitude = std::fabs(column[i]);
        nonZeros += i > k && column[i] != 0 ? T(1) : T(0);
        largest = magnitude > largest ? magnitude : largest;
      });
      T found[1] = {nonZeros};
      sums.add(found);
      isZero = found[0] == 0;
      largest = maxOverBlock(largest, room);
      if (!isZero && largest > 0 && std::isfinite(largest)) {
        // Scale by a power of two, so that squares neither overflow nor vanish;
        // the reflector stays the same.
        const int exponent = std::ilogb(largest);
        forMine(k, [&](int64_t i) {
          column[i] = std::ldexp(column[i], -exponent);
        });
        splitAtPivot(column, k, pivot, below);
      }
    }
    T tau = 0;
    if (!isZero) {
      const Reflector<T> scalars = ddphook::cuda::makeReflector(pivot, below);
      tau = scalars.tau;
      forMine(k + 1, [&](int64_t i) { column[i] *= scalars.factor; });
    }
    if (mine(k) == k)
      column[k] = 1;
    return tau;
  }

  /// Applies the reflector to `count` <= kCount columns from `first` on.
  template <int kCount>
  __device__ void reflect(T *first, const T *reflector, int64_t k, T tau,
                          int count) {
    T dots[kCount] = {};
    forMine<2>(k, [&](int64_t i) {
      const T v = reflector[i];
#pragma unroll
      for (int c = 0; c < kCount; ++c)
        if (c < count)
          dots[c] = multiplyAdd(first[c * stride + i], v, dots[c]);
    });
    sums.add(dots);
    forMine<2>(k, [&](int64_t i) {
      const T v = reflector[i];
#pragma unroll
      for (int c = 0; c < kCount; ++c)
        if (c < count)
          first[c * stride + i] =
              multiplyAdd(-tau * dots[c], v, first[c * stride + i]);
    });
  }

  /// Applies reflector k to the columns after it.
  __device__ void reflectLater(int64_t k, T tau) {
#pragma unroll 1
    for (int64_t l = k + 1; l < count; l += kDots) {
      const int64_t left = count - l;
      if (left <= kDots / 2)
        reflect<kDots / 2>(column(l), column(k), k, tau,
                           static_cast<int>(left));
      else
        reflect<kDots>(column(l), column(k), k, tau,
                       static_cast<int>(left < kDots ? left : kDots));
    }
  }

  /// Implements LAPACK's geqr2 and org2r.
  __device__ void householder() {
#pragma unroll 1
    for (int64_t k = 0; k < count; ++k) {
      const T scalar = makeReflector(column(k), k);
      if (threadIdx.x == 0)
        scalars[k] = scalar;
      if (scalar != 0)
        reflectLater(k, scalar);
    }
    __syncthreads();
#pragma unroll 1
    for (int64_t k = count; k-- > 0;) {
      const T scalar = scalars[k];
      if (scalar != 0)
        reflectLater(k, scalar);
      T *current = column(k);
      forMine(0, [&](int64_t i) {
        current[i] = i < k ? T(0) : i == k ? 1 - scalar : -scalar * current[i];
      });
    }
  }

  T *columns;
  /// `count` numbers, written by the first thread: factors of reflectors, or
  /// the norms up to which columns are replaced.
  T *scalars;
  int64_t stride;
  int64_t rows;
  int64_t count;
  BlockSums<T, kDots, kMostThreads> sums;
  /// Shared memory for the maximum and minimum.
  T *room;
  int64_t *indexRoom;
};

/// Orthonormalizes a factor per block; `kIsReflected`: Householder if rank > 2.
template <class Element, bool kIsReflected>
__global__ void __launch_bounds__(kMostThreads, 1)
    orthogonalizeFactors(OrthogonalizeArguments<Element> a) {
  using T = ComputeOf<Element>;
  const MatrixEntry matrix =
      a.matrices[a.matrices[blockIdx.x].factorInTurn[a.isP]];
  const int64_t rows = a.isP ? matrix.rows : matrix.columns;
  const int64_t offset = a.isP ? matrix.pOffset : matrix.qOffset;
  const int64_t rank = matrix.rank;
  const int64_t gram = a.isP ? matrix.gramOffset[1] : matrix.gramOffset[0];
  if (rows == 0 || rank == 0 || (gram != kNotTall && a.grams[gram] != 0))
    return;
  Columns<Element> work;
  int64_t *shared = dynamicShared<int64_t>();
  work.indexRoom = shared;
  work.sums.room = reinterpret_cast<T *>(shared + kIndexRoom);
  work.room = work.sums.room + kSumsRoom;
  // Odd, so that the elements of a row are in different banks.
  work.stride = rows | 1;
  work.rows = rows;
  // Columns beyond the number of rows have no direction left.
  work.count = rows < rank ? rows : rank;
  const bool isShared = (work.stride + 1) * work.count <= a.sharedNumbers;
  work.columns = isShared ? work.sums.room + kRoom : a.work + matrix.workOffset;
  work.scalars = work.columns + work.stride * work.count;

  work.load(a.in + offset, rank);
  if (kIsReflected && rank > 2)
    work.householder();
  else
    work.gramSchmidt(a.epsilon, a.replaced);
  work.store(a.out + offset, rank);
}

/// Calls fn(kernel) with the kernel of a type.
template <class Fn>
cudaError_t withKernel(Dtype type, const Fn &fn) {
  return withElement(type, [&](auto element) {
    using Element = decltype(element);
    return fn(element,
              orthogonalizeFactors<Element, sizeof(ElemOf<Element>) != 2>);
  });
}

} // namespace

int64_t ddphook::cuda::orthogonalizeRoomBytes(Dtype type) {
  return kIndexRoom * int64_t(sizeof(int64_t)) + kRoom * computeSize(type);
}

cudaError_t ddphook::cuda::allowOrthogonalizeShared(Dtype type, int64_t bytes) {
  return withKernel(type, [&](auto, auto kernel) {
    return cudaFuncSetAttribute(kernel,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(bytes));
  });
}

cudaError_t ddphook::cuda::launchOrthogonalize(const StageLaunch &stage,
                                               const Orthogonalize &arguments) {
  return withKernel(stage.type, [&](auto element, auto kernel) {
    using Element = decltype(element);
    using T = ComputeOf<Element>;
    const OrthogonalizeArguments<Element> values = {
        stage.matrices,
        static_cast<const ElemOf<Element> *>(arguments.in),
        static_cast<ElemOf<Element> *>(arguments.out),
        static_cast<T *>(arguments.work),
        arguments.sharedBytes / int64_t(sizeof(T)),
        arguments.epsilon,
        arguments.grams,
        arguments.isP,
        arguments.replaced};
    return launch(stage.stream, stage.blocks, arguments.threads,
                  orthogonalizeRoomBytes(stage.type) + arguments.sharedBytes,
                  kernel, values);
  });
}
