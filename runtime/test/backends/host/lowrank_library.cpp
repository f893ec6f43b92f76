// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lets test/parity/test_lowrank.py call the kernels of one matrix.

#include "lowrank.h"

#include "ddphook/runtime/compiled.h"

#include <memory>
#include <vector>

using namespace ddphook;
using namespace ddphook::host;

extern "C" {
__attribute__((visibility("default"))) void
ddphook_test_orthogonalize(int32_t dtype, int64_t rows, int64_t rank,
                           const void *in, void *out, double epsilon);
__attribute__((visibility("default"))) void
ddphook_test_matmul(int32_t dtype, int64_t rows, int64_t columns, int64_t rank,
                    int32_t kind, void *matrix, void *p, void *q);
}

namespace {

class Scratch {
public:
  Scratch(Dtype type, const LowRankShape &shape)
      : bytes(static_cast<size_t>(lowRankScratchBytes(type, shape).value())),
        memory(bytes + 64) {}
  void *get() {
    void *start = memory.data();
    size_t space = memory.size();
    return std::align(64, bytes, start, space);
  }

private:
  size_t bytes;
  std::vector<char> memory;
};

} // namespace

void ddphook_test_orthogonalize(int32_t dtype, int64_t rows, int64_t rank,
                                const void *in, void *out, double epsilon) {
  const auto type = static_cast<Dtype>(dtype);
  Scratch scratch(type, {rows, rows, rank});
  orthogonalizeFactor(type, rows, rank, in, out, epsilon, scratch.get());
}

void ddphook_test_matmul(int32_t dtype, int64_t rows, int64_t columns,
                         int64_t rank, int32_t kind, void *matrix, void *p,
                         void *q) {
  const auto type = static_cast<Dtype>(dtype);
  const LowRankShape shape = {rows, columns, rank};
  Scratch scratch(type, shape);
  if (kind == DDPHOOK_MATMUL_P)
    projectMatrix(type, shape, matrix, nullptr, q, nullptr, p, scratch.get());
  else if (kind == DDPHOOK_MATMUL_Q)
    multiplyTransposed(type, shape, matrix, p, q, scratch.get());
  else
    reconstructMatrix(type, shape, p, q, nullptr, matrix, nullptr, 1,
                      scratch.get());
}
