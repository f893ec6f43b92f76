//===- lowrank_stages.h - the launches of low-rank compression --*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parameters of the kernels of all stages, and the functions that launch
// them. Each stage has a file of its own; matrix_list.cpp calls them.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_LOWRANK_STAGES_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_LOWRANK_STAGES_H

#include "matrix_tables.h"

#include <cuda_runtime.h>

namespace ddphook::cuda {

/// One launch: its tables on the device, a block a tile.
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

/// The arrays of a step. Which of them a stage uses, and which may be null, is
/// said in compiled.h.
struct StepArrays {
  /// The matrix that is read: G in the first stage, else M.
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
};

/// m = g + e, P = M·Q and the gathered rest: g, e, q, m, pOut, restOut.
cudaError_t launchProject(const StageLaunch &stage, const StepArrays &arrays);
/// Lets it use the shared memory that it needs, on the current device.
cudaError_t allowProjectShared(Dtype type, int bucket);

/// Q = Mᵀ·P: g, pIn, qOut. Where the rows of a matrix are split, writes partial
/// sums to `partials`; launchSum() then adds them up.
cudaError_t launchTransposed(const StageLaunch &stage, const StepArrays &arrays,
                             void *partials);
cudaError_t launchSum(const StageLaunch &stage, void *qOut,
                      const void *partials);

/// out = P·Qᵀ and the rest, err = m - out / divisor: pIn, q, rest, g, out, err.
cudaError_t launchReconstruct(const StageLaunch &stage,
                              const StepArrays &arrays, int64_t divisor);

/// Orthonormal columns of a factor of every matrix.
struct Orthogonalize {
  bool isP;
  /// DDPHOOK_UNIT_COLUMNS and DDPHOOK_INDEPENDENT_COLUMNS.
  int32_t replaced;
  double epsilon;
  const void *in;
  void *out;
  /// Working memory for factors that do not fit into `sharedBytes` of shared
  /// memory.
  void *work;
  int64_t sharedBytes;
  int threads;
  /// Working memory of tall factors.
  double *grams;
};
/// The tall factors, of which the stage has the tiles; those that it refuses
/// are left to launchOrthogonalize(), which does all that are not done.
cudaError_t launchTallOrthogonalize(const StageLaunch &stage,
                                    const Orthogonalize &arguments);
cudaError_t launchOrthogonalize(const StageLaunch &stage,
                                const Orthogonalize &arguments);

/// Bytes of shared memory that orthogonalize needs beside a factor.
int64_t orthogonalizeRoomBytes(Dtype type);
/// Lets it use that many bytes in all, on the current device.
cudaError_t allowOrthogonalizeShared(Dtype type, int64_t bytes);

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_KERNELS_LOWRANK_STAGES_H
