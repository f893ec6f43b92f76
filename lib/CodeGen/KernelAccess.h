// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The iterations of a kernel's linalg ops in common coordinates, and their
// operands as flat arrays with a stride for each coordinate. This determines
// the width of indices, and what can be read as vectors. Emits no code.

#pragma once

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::ddp {

/// The most bytes that a vector instruction moves.
inline constexpr int64_t kVectorBytes = 16;
/// The most elements of a vector: more one-byte elements leave too few threads.
inline constexpr int64_t kMaxLanes = 8;

/// The element of an operand that an iteration accesses.
struct Access {
  Value operand;
  /// Maps the loops' indices, which are these coordinates, to an element.
  AffineMap map;
  SmallVector<unsigned> coordinates;
  /// In elements of an array: the offset `start` from the first one, and the
  /// distance between iterations along each coordinate.
  SmallVector<int64_t> strides;
  int64_t start = 0;
  /// True if `strides` describe the access completely; otherwise use the map.
  bool isLinear = false;
  /// True if the operation reads the operand.
  bool isRead = true;

  bool isArray() const { return isa<MemRefType>(operand.getType()); }
  /// Returns the bytes of an element if vectors of it exist, else 0.
  int64_t getVectorBytes() const;
};

/// One operation of a kernel. The coordinates of an iteration are those of the
/// kernel's box, followed by those of the operation's reductions.
struct KernelOp {
  linalg::LinalgOp op;
  /// One for each operand, those of the results last.
  SmallVector<Access, 4> accesses;
  unsigned numInits;
  /// For each loop, the coordinate that is its index.
  SmallVector<unsigned> coordinates;
  /// Extents of the reductions, outermost first.
  SmallVector<int64_t> reductions;

  ArrayRef<Access> getInits() const {
    return ArrayRef(accesses).take_back(numInits);
  }
  bool isWritten(const Access &access) const {
    return &access >= getInits().begin();
  }
};

/// Operations whose results have the same shape: the thread of a position in
/// the box computes their elements there, one operation after the other.
struct KernelOps {
  explicit KernelOps(ArrayRef<linalg::LinalgOp> group);

  SmallVector<int64_t> box;
  SmallVector<KernelOp, 2> ops;

  /// Returns the operation before which all code is inserted.
  Operation *getFirst() const { return linalg::LinalgOp(ops.front().op); }
  int64_t countElements() const;
  /// Merges adjacent coordinates along which every array is contiguous. Does
  /// nothing if an operation needs the indices of its loops.
  void collapse();
  /// Returns true if 32 bits suffice for thread numbers and element offsets of
  /// positions. Offsets that loops add, and addresses, always have 64 bits.
  bool fits32Bits() const;
  /// Returns the number of elements along the last coordinate that a thread can
  /// access as vectors of up to 16 bytes, or 1.
  int64_t countLanes() const;
};

/// Returns the shape of `op`'s first result, which is its kernel's box.
SmallVector<int64_t> getKernelBox(linalg::LinalgOp op);

/// Returns true if an array consists of vectors of `lanes` elements along
/// `coordinate` from its beginning, so that all are aligned if the array is.
bool hasVectors(const Access &access, unsigned coordinate, int64_t lanes);

} // namespace mlir::ddp
