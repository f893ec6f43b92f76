//===- kernels.h - vectorised array kernels of the host backend -*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The arithmetic of the host backend on contiguous arrays: casts, division by
// the group's size, and sums over ranks. Every function gives the bits of
// docs/parity.md whichever instruction set it runs on; that is chosen at run
// time. Transports and the C ABI are built on these functions; nothing here
// knows of ranks as processes, of buckets or of errors.
//
// Conventions, for all functions:
// - Arrays hold `n` >= 0 elements and are aligned as one element is. Nothing
//   outside them is read or written.
// - Rounding is to nearest even; f64 becomes a 16-bit type through f32, as in
//   PyTorch. 16-bit values are computed with in f32 and rounded once per
//   operation. A NaN stays some NaN; subnormals are kept.
// - Callers run with the default floating-point environment: rounding to
//   nearest, neither flush-to-zero nor denormals-are-zero.
// - The output may be the same array as an input whose elements have the same
//   size; otherwise they must not overlap.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_KERNELS_KERNELS_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_KERNELS_KERNELS_H

#include "base/dtype.h"

#include <cstdint>

namespace ddphook::host {

/// How results are written. Streaming bypasses the caches: 10 to 20 % faster
/// for outputs that are larger than the caches and were not read just before,
/// and better for what a processor with other caches reads next; slower for
/// everything else. The bits are the same.
enum class Stores { Cached, Streaming };

/// out[i] = in[i] in the other type.
void castArray(const void *in, CastDtype inType, void *out, CastDtype outType,
               int64_t n, Stores stores = Stores::Cached);
inline void castArray(const void *in, Dtype inType, void *out, Dtype outType,
                      int64_t n, Stores stores = Stores::Cached) {
  castArray(in, castDtype(inType), out, castDtype(outType), n, stores);
}

/// out[i] = in[i] / divisor, a true division. `divisor` >= 1.
void divideArray(const void *in, void *out, Dtype type, int64_t n,
                 int64_t divisor);

/// out[i] = in[i] * factor, where the factor is first rounded to f32 (kept for
/// f64).
void scaleArray(const void *in, void *out, Dtype type, int64_t n,
                double factor);

/// out[i] = a[i] + b[i].
void addArrays(void *out, const void *a, const void *b, Dtype type, int64_t n);

/// out[i] = a[i] - b[i].
void subtractArrays(void *out, const void *a, const void *b, Dtype type,
                    int64_t n);

/// What a hook puts on the wire, in one pass: wire[i] = RN(RN(in[i]) / divisor)
/// with both roundings to `wireType`; a divisor of 1 means no division.
void compressArray(const void *in, Dtype inType, void *wire, Dtype wireType,
                   int64_t n, int64_t divisor, Stores stores = Stores::Cached);

/// The sum over ranks in a given association: acc = sources[0][i], then
/// acc = RN(sources[k][i] + acc) for k = 1 … count - 1; out[i] = acc.
/// `count` >= 1; `out` may be one of the sources.
void sumRanks(const void *const *sources, int count, void *out, Dtype type,
              int64_t n, Stores stores = Stores::Cached);

/// The same sum of `wireType` elements, stored as `outType`.
void sumRanksDecompress(const void *const *sources, int count, Dtype wireType,
                        void *out, Dtype outType, int64_t n,
                        Stores stores = Stores::Cached);

/// The f32 mean over two ranks without a detour through memory for this rank's
/// own addend: out[i] = x0 + x1, where one of the two is peer[i] and the other
/// own[i] / divisor. `ownIsFirst` says that it is x0. `out` may be `own`.
void addDividedToPeer(const float *own, int64_t divisor, const float *peer,
                      bool ownIsFirst, float *out, int64_t n,
                      Stores stores = Stores::Cached);

/// Whether no element is infinite or NaN.
bool isFiniteArray(const void *in, Dtype type, int64_t n);

/// Copies bytes; the arrays do not overlap.
void copyBytes(void *out, const void *in, int64_t bytes,
               Stores stores = Stores::Cached);

/// The instruction set that the functions above use now: "AVX3", "AVX2", ….
const char *kernelTargetName();

/// The instruction set without which no function above may be called, if this
/// processor lacks it; else null. Only a build for one machine has one.
const char *missingInstructionSet();

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_KERNELS_KERNELS_H
