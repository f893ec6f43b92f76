// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Uploads a list's tables, with the scratch memory of its stages in the same
// allocation, and launches the stages.

#include "lowrank.h"

#include <algorithm>
#include <cstring>

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

/// Packs tables contiguously, each aligned, as one block of bytes.
class Packer {
public:
  template <class T>
  int64_t add(const std::vector<T> &values) {
    const int64_t begin = reserve(values.size() * sizeof(T));
    bytes.resize(static_cast<size_t>(end));
    if (!values.empty())
      std::memcpy(bytes.data() + begin, values.data(),
                  values.size() * sizeof(T));
    return begin;
  }
  /// Reserves space to which nothing is copied; only after all tables.
  int64_t reserve(uint64_t size) {
    const int64_t begin = end;
    end += static_cast<int64_t>((size + 255) / 256 * 256);
    return begin;
  }
  const std::vector<char> &tables() const { return bytes; }
  int64_t size() const { return end; }

private:
  std::vector<char> bytes;
  int64_t end = 0;
};

/// Copies from pageable host memory, and returns when everything is on the
/// device. After cudaMemcpy() a part may be in flight, and streams like the
/// backend's do not wait for it.
cudaError_t uploadAndWait(void *to, const std::vector<char> &from) {
  cudaStream_t stream = nullptr;
  cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (code)
    return code;
  code = cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice,
                         stream);
  if (!code)
    code = cudaStreamSynchronize(stream);
  (void)cudaStreamDestroy(stream);
  return code;
}

/// Finds the largest shared memory of a block on the current device.
cudaError_t largestSharedBytes(int *bytes) {
  int device = 0;
  if (cudaError_t error = cudaGetDevice(&device))
    return error;
  return cudaDeviceGetAttribute(bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                device);
}

Status cudaFailure(cudaError_t code, const char *what) {
  // Clear the error, so that later launches do not report it.
  (void)cudaGetLastError();
  return error(code == cudaErrorMemoryAllocation ? DDPHOOK_RESOURCE_EXHAUSTED
                                                 : DDPHOOK_INTERNAL,
               "expected %s to succeed, but got %s: %s", what,
               cudaGetErrorName(code), cudaGetErrorString(code));
}

} // namespace

Status MatrixList::create(const ddphook_matrix_list_t &list, Dtype type,
                          MemorySource &memory,
                          std::unique_ptr<MatrixList> *result) {
  int limit = 0;
  if (cudaError_t code = largestSharedBytes(&limit))
    return cudaFailure(code, "reading a device's attributes");
  const int64_t shared = limit - orthogonalizeRoomBytes(type);
  std::optional<MatrixTables> tables = makeMatrixTables(list, type, shared);
  if (!tables)
    return error(DDPHOOK_RESOURCE_EXHAUSTED,
                 "expected memory for the factors of %lld matrices, but they "
                 "are too large",
                 static_cast<long long>(list.matrix_count));
  cudaError_t code = allowOrthogonalizeShared(type, limit);
  if (!code)
    code = allowProjectShared(type, tables->bucket);
  if (code)
    return cudaFailure(code, "setting a kernel's shared memory");
  std::unique_ptr<MatrixList> created(new MatrixList(type, *tables));
  for (int isP : {0, 1})
    for (const MatrixEntry &matrix : tables->matrices) {
      const int64_t rows = isP ? matrix.rows : matrix.columns;
      const int64_t bytes =
          orthogonalizeWork(rows, matrix.rank).value_or(0) * computeSize(type);
      if (bytes <= shared)
        created->sharedBytes[isP] = std::max(created->sharedBytes[isP], bytes);
    }
  DDPHOOK_TRY(created->upload(*tables, memory));
  *result = std::move(created);
  return Status::ok();
}

Status MatrixList::upload(const MatrixTables &tables, MemorySource &source) {
  // Each thread has four rows of a factor, if there are enough threads.
  threads = 64;
  while (threads < 512 && threads * 4 < tables.largestFactorRows)
    threads *= 2;
  Packer packer;
  const int64_t matricesAt = packer.add(tables.matrices);
  const int64_t piecesAt = packer.add(tables.pieces);
  constexpr int kStages = 6;
  const StageTiles *from[kStages] = {&tables.project,     &tables.transposed,
                                     &tables.sum,         &tables.reconstruct,
                                     &tables.gram[false], &tables.gram[true]};
  Stage *to[kStages] = {&projectStage,      &transposedStage,
                        &sumStage,          &reconstructStage,
                        &gramStages[false], &gramStages[true]};
  int64_t tilesAt[kStages];
  for (int i = 0; i < kStages; ++i)
    tilesAt[i] = packer.add(from[i]->tiles);
  const auto size = static_cast<uint64_t>(computeSize(type));
  const int64_t partialsAt =
      packer.reserve(static_cast<uint64_t>(tables.partials) * size);
  const int64_t workAt =
      packer.reserve(static_cast<uint64_t>(tables.work) * size);
  const int64_t gramsAt =
      packer.reserve(static_cast<uint64_t>(tables.grams) * sizeof(double));
  if (packer.size() == 0)
    return Status::ok();
  if (!tables.wide.empty())
    DDPHOOK_TRY(WideProducts::create(type, tables.wide, source, &wide));
  DDPHOOK_TRY(buffer.allocate(source, static_cast<uint64_t>(packer.size())));
  char *memory = buffer.get();
  if (!packer.tables().empty())
    if (cudaError_t code = uploadAndWait(memory, packer.tables()))
      return cudaFailure(code, "copying a matrix list to the device");
  matrices = reinterpret_cast<const MatrixEntry *>(memory + matricesAt);
  pieces = reinterpret_cast<const ddphook_piece_t *>(memory + piecesAt);
  for (int i = 0; i < kStages; ++i)
    *to[i] = {reinterpret_cast<const Tile *>(memory + tilesAt[i]),
              from[i]->matrixTiles, from[i]->listTiles,
              static_cast<int64_t>(from[i]->tiles.size())};
  partials = memory + partialsAt;
  work = memory + workAt;
  grams = reinterpret_cast<double *>(memory + gramsAt);
  return Status::ok();
}

StageLaunch MatrixList::launchOf(cudaStream_t stream, const Stage &stage,
                                 int64_t blocks) const {
  return {stream,   type,   bucket,      largestRank,
          matrices, pieces, stage.tiles, blocks};
}

cudaError_t MatrixList::matmul(cudaStream_t stream, ddphook_matmul_kind_t kind,
                               void *matrix, void *p, void *q) {
  StepArrays arrays;
  cudaError_t code = cudaErrorInvalidValue;
  switch (kind) {
  case DDPHOOK_MATMUL_P:
    arrays.g = matrix;
    arrays.q = q;
    arrays.pOut = p;
    code = launchProject(
        launchOf(stream, projectStage, projectStage.matrixTiles), arrays);
    break;
  case DDPHOOK_MATMUL_Q:
    arrays.g = matrix;
    arrays.pIn = p;
    arrays.qOut = q;
    code = launchTransposed(
        launchOf(stream, transposedStage, transposedStage.matrixTiles), arrays,
        partials);
    if (!code)
      code = launchSum(launchOf(stream, sumStage, sumStage.matrixTiles), q,
                       partials);
    break;
  case DDPHOOK_MATMUL_M:
    arrays.pIn = p;
    arrays.q = q;
    arrays.out = matrix;
    code = launchReconstruct(
        launchOf(stream, reconstructStage, reconstructStage.matrixTiles),
        arrays, 1);
    break;
  }
  if (code || !wide)
    return code;
  return wide->multiply(stream, kind, matrix, matrix, p, p, q, q);
}

cudaError_t MatrixList::orthogonalize(cudaStream_t stream, int32_t factor,
                                      const void *in, void *out,
                                      double epsilon) {
  const bool isP = (factor & DDPHOOK_FACTOR_Q) == 0;
  const int32_t replaced = factor & ~DDPHOOK_FACTOR_Q;
  const Orthogonalize arguments = {isP,  replaced,         epsilon, in,   out,
                                   work, sharedBytes[isP], threads, grams};
  const Stage &tall = gramStages[isP];
  if (cudaError_t code = launchTallOrthogonalize(
          launchOf(stream, tall, static_cast<int64_t>(tall.allTiles)),
          arguments))
    return code;
  return launchOrthogonalize(launchOf(stream, Stage(), matrixCount), arguments);
}

cudaError_t MatrixList::project(cudaStream_t stream, const void *g,
                                const void *e, const void *q, void *m, void *p,
                                void *rest) {
  StepArrays arrays;
  arrays.g = g;
  arrays.e = e;
  arrays.q = q;
  arrays.m = m;
  arrays.pOut = p;
  arrays.restOut = rest;
  // For wide matrices the kernel computes the sum, then cuBLAS the product.
  const int64_t tiles = e ? projectStage.allTiles : projectStage.listTiles;
  const cudaError_t code =
      launchProject(launchOf(stream, projectStage, tiles), arrays);
  if (code || !wide)
    return code;
  return wide->multiply(stream, DDPHOOK_MATMUL_P, e ? m : g, nullptr, nullptr,
                        p, q, nullptr);
}

cudaError_t MatrixList::reconstruct(cudaStream_t stream, const void *p,
                                    const void *q, const void *rest,
                                    const void *m, void *out, void *err,
                                    int64_t divisor) {
  StepArrays arrays;
  arrays.pIn = p;
  arrays.q = q;
  arrays.rest = rest;
  arrays.g = m;
  arrays.out = out;
  arrays.err = err;
  arrays.dividesExactly = dividesExactly;
  // For wide matrices cuBLAS computes the product, then the kernel the error.
  if (wide)
    if (cudaError_t code = wide->multiply(stream, DDPHOOK_MATMUL_M, nullptr,
                                          out, p, nullptr, q, nullptr))
      return code;
  const int64_t tiles =
      err ? reconstructStage.allTiles : reconstructStage.listTiles;
  return launchReconstruct(launchOf(stream, reconstructStage, tiles), arrays,
                           divisor);
}
