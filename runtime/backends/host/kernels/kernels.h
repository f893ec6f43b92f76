// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The arithmetic of the host backend on contiguous arrays: casts, division by
// the group's size, and sums over ranks. Every function gives the bits of
// docs/parity.md on any instruction set, which is chosen at run time.
// Transports and the C ABI use these functions, which know nothing of
// processes, buckets or errors.
//
// Conventions for all functions:
// - Arrays hold `n` >= 0 elements and are aligned like one element. Nothing
//   outside them is read or written.
// - Rounding is to nearest even; f64 becomes a 16-bit type through f32, as in
//   PyTorch. 16-bit values are computed in f32 and rounded once per operation.
//   A NaN stays some NaN; subnormals are kept.
// - Callers use the default floating-point environment: rounding to nearest,
//   neither flush-to-zero nor denormals-are-zero.
// - The output may be the same array as an input whose elements have the same
//   size; otherwise they must not overlap.

#pragma once

#include "base/dtype.h"

#include <cstdint>
#include <vector>

namespace ddphook::host {

/// Returns the address of element `index`; null if there is no array.
template <class Type>
const char *elementAt(const void *array, Type type, int64_t index) {
  return array ? static_cast<const char *>(array) + index * dtypeSize(type)
               : nullptr;
}
template <class Type>
char *elementAt(void *array, Type type, int64_t index) {
  return array ? static_cast<char *>(array) + index * dtypeSize(type) : nullptr;
}

/// How results are written. Streaming bypasses the caches: 10 to 20 % faster
/// for outputs that are larger than the caches and were not read just before,
/// better if a processor with other caches reads them next, and slower for
/// everything else. The bits are the same.
enum class Stores { Cached, Streaming };

/// Converts in[i] to out[i].
void castArray(const void *in, CastDtype inType, void *out, CastDtype outType,
               int64_t n, Stores stores = Stores::Cached);
inline void castArray(const void *in, Dtype inType, void *out, Dtype outType,
                      int64_t n, Stores stores = Stores::Cached) {
  castArray(in, castDtype(inType), out, castDtype(outType), n, stores);
}

/// Computes out[i] = in[i] / divisor, a true division. `divisor` >= 1.
void divideArray(const void *in, void *out, Dtype type, int64_t n,
                 int64_t divisor);

/// Computes out[i] = in[i] * factor, where the factor is first rounded to f32
/// (but not for f64).
void scaleArray(const void *in, void *out, Dtype type, int64_t n,
                double factor);

/// Computes out[i] = a[i] + b[i].
void addArrays(void *out, const void *a, const void *b, Dtype type, int64_t n);

/// Computes out[i] = a[i] - b[i].
void subtractArrays(void *out, const void *a, const void *b, Dtype type,
                    int64_t n);

/// Computes what a hook sends, in one pass: wire[i] = RN(RN(in[i]) / divisor),
/// with both roundings to `wireType`; a divisor of 1 means no division.
void compressArray(const void *in, Dtype inType, void *wire, Dtype wireType,
                   int64_t n, int64_t divisor, Stores stores = Stores::Cached);

/// Sums over ranks in the given order: acc = sources[0][i], then acc =
/// RN(sources[k][i] + acc) for k = 1 … count - 1; out[i] = acc. `count` >= 1;
/// `out` may be one of the sources.
void sumRanks(const void *const *sources, int count, void *out, Dtype type,
              int64_t n, Stores stores = Stores::Cached);

/// Computes the same sum of `wireType` elements, stored as `outType`.
void sumRanksDecompress(const void *const *sources, int count, Dtype wireType,
                        void *out, Dtype outType, int64_t n,
                        Stores stores = Stores::Cached);

/// Computes the f32 mean over two ranks without storing this rank's addend:
/// out[i] = x0 + x1, where one of them is peer[i] and the other is own[i] /
/// divisor, which is x0 if `ownIsFirst`. `out` may be `own`.
void addDividedToPeer(const float *own, int64_t divisor, const float *peer,
                      bool ownIsFirst, float *out, int64_t n,
                      Stores stores = Stores::Cached);

// The functions sparsify and densify of compiled.h, for f32 arrays.

/// Elements that may be among the largest, and their indices, which ascend.
struct Candidates {
  std::vector<float> values;
  std::vector<int32_t> places;
  int64_t count = 0;
  uint32_t least = 0; ///< No magnitude is smaller.
};

/// Writes to `entries` the `keep` elements of `in` of largest magnitude,
/// ordered by index, followed by their indices, as int32_t. `rest` is `in` with
/// zeros at these and, if `keep` > 0, where `in` is not finite; it may be `in`.
/// 0 <= `keep` <= `n` < 2^31. `scratch` is faster if it is used again.
void takeLargest(const float *in, int64_t n, int64_t keep, void *entries,
                 float *rest, Candidates &scratch);

/// Computes out[i] = the sum of the entries with index i in all `parts` results
/// of takeLargest(), which are contiguous. Returns false, with `out` undefined,
/// if the indices of a result do not ascend within the array.
bool addEntries(const void *entries, int64_t parts, int64_t keep, float *out,
                int64_t n);

/// True if no element is infinite or NaN.
bool isFiniteArray(const void *in, Dtype type, int64_t n);

/// Copies bytes; the arrays must not overlap.
void copyBytes(void *out, const void *in, int64_t bytes,
               Stores stores = Stores::Cached);

/// Returns the instruction set that the functions above use: "AVX3", "AVX2", ….
const char *kernelTargetName();

/// Returns the instruction set that all functions above require, if this
/// processor lacks it, or null. Only a build for one machine requires one.
const char *missingInstructionSet();

} // namespace ddphook::host
