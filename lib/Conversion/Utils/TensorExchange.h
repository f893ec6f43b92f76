// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives other than all-reduces, as front ends have them: they split
// tensors along any dimension. Those of ddp split memory into contiguous parts,
// so that the import adds reshapes and transposes.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::ddp {

/// Creates the reshapes and transposes, in the tensor and linalg dialects
/// unless a front end has its own.
struct Rearranger {
  virtual ~Rearranger() = default;
  virtual Value reshape(ImplicitLocOpBuilder &builder, Value value,
                        RankedTensorType type) const;
  virtual Value transpose(ImplicitLocOpBuilder &builder, Value value,
                          RankedTensorType type, ArrayRef<int64_t> order) const;
};

struct TensorExchange {
  /// Has one operand and one result.
  Operation *op;
  CollectiveKind kind;
  /// The number of ranks in a group, and of parts.
  int64_t size = 0;
  /// The dimension that is split, and the one along which an all-to-all
  /// concatenates the received parts.
  int64_t dimension = 0, concatDimension = 0;
  /// The position of a broadcast's source in each group.
  int64_t root = 0;
  Reduction reduction = Reduction::Sum;

  /// Returns true if the types are those of a tensor and its equal parts.
  bool hasFittingTypes() const;
  /// Builds the equivalent before `op`. Returns the collective of ddp, and the
  /// value that replaces the result of `op`.
  std::pair<Operation *, Value> build(ProcessGroupOp group,
                                      const Rearranger &rearranger = {}) const;
};

} // namespace mlir::ddp
