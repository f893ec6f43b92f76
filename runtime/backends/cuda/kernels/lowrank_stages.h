// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parameters of the kernels of all stages, and the functions that launch
// them. Each stage has its own file; matrix_list.cpp calls them.

#pragma once

#include "matrix_tables.h"

#include <cuda_runtime.h>

namespace ddphook::cuda {

/// One launch: its tables on the device, with one block per tile.
struct StageLaunch {
  cudaStream_t stream;
  Dtype type;
  int bucket;
  int64_t largestRank;
  const MatrixEntry *matrices;
  const ddphook_piece_t *pieces;
  const Tile *tiles;
  int64_t blocks;
};

/// The arrays of a step. compiled.h says which ones a stage uses, and which may
/// be null.
struct StepArrays {
  /// The matrix to read: G in the first stage, M in the others.
  const void *g = nullptr;
  const void *e = nullptr;
  const void *pIn = nullptr;
  const void *q = nullptr;
  void *m = nullptr;
  void *pOut = nullptr;
  void *qOut = nullptr;
  void *restOut = nullptr;
  const void *rest = nullptr;
  void *out = nullptr;
  void *err = nullptr;
  /// See Divisor in elements.h.
  bool dividesExactly = false;
};

/// m = g + e, P = M·Q and the gathered rest: g, e, q, m, pOut, restOut.
cudaError_t launchProject(const StageLaunch &stage, const StepArrays &arrays);
/// Allows it the shared memory that it needs, on the current device.
cudaError_t allowProjectShared(Dtype type, int bucket);

/// Q = Mᵀ·P: g, pIn, qOut. If the rows of a matrix are split, writes partial
/// sums to `partials`; launchSum() then adds them.
cudaError_t launchTransposed(const StageLaunch &stage, const StepArrays &arrays,
                             void *partials);
cudaError_t launchSum(const StageLaunch &stage, void *qOut,
                      const void *partials);

/// out = P·Qᵀ and the rest, err = m - out / divisor: pIn, q, rest, g, out, err.
cudaError_t launchReconstruct(const StageLaunch &stage,
                              const StepArrays &arrays, int64_t divisor);

/// The arguments for orthonormalizing a factor of every matrix.
struct Orthogonalize {
  bool isP;
  /// DDPHOOK_UNIT_COLUMNS and DDPHOOK_INDEPENDENT_COLUMNS.
  int32_t replaced;
  double epsilon;
  const void *in;
  void *out;
  /// Scratch for factors that do not fit into `sharedBytes` of shared memory.
  void *work;
  int64_t sharedBytes;
  int threads;
  /// Scratch for tall factors.
  double *grams;
};
/// Orthonormalizes the tall factors, whose tiles are the stage's, and leaves
/// the factors that it refuses to launchOrthogonalize(), which does all others.
cudaError_t launchTallOrthogonalize(const StageLaunch &stage,
                                    const Orthogonalize &arguments);
cudaError_t launchOrthogonalize(const StageLaunch &stage,
                                const Orthogonalize &arguments);

/// Returns the bytes of shared memory besides a factor.
int64_t orthogonalizeRoomBytes(Dtype type);
/// Allows it `bytes` of shared memory in total, on the current device.
cudaError_t allowOrthogonalizeShared(Dtype type, int64_t bytes);

} // namespace ddphook::cuda
