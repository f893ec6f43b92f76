//===- KernelAccess.h - where threads of a kernel find elements -*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The iterations of the linalg ops of one kernel in common coordinates, and
// their operands as flat arrays with a stride for each coordinate. From this
// follows how wide indices have to be, and what can be read as vectors. Emits
// nothing.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_LIB_CODEGEN_KERNELACCESS_H
#define DDPHOOK_LIB_CODEGEN_KERNELACCESS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::ddp {

/// What an instruction for vectors moves at most.
inline constexpr int64_t kVectorBytes = 16;
/// Elements of a vector at most: more of one byte would be too few threads.
inline constexpr int64_t kMaxLanes = 8;

/// Which element of an operand an iteration accesses.
struct Access {
  Value operand;
  /// From the loops' indices, and the coordinates that those are.
  AffineMap map;
  SmallVector<unsigned> coordinates;
  /// Of an array's elements, counted from its first one: element `start`, and
  /// the distance to that of the next iteration along each coordinate.
  SmallVector<int64_t> strides;
  int64_t start = 0;
  /// Whether `strides` say all of it. If not, only the map does.
  bool isLinear = false;
  /// Whether the operation reads it at all.
  bool isRead = true;

  bool isArray() const { return isa<MemRefType>(operand.getType()); }
  /// Bytes of an element that vectors can have; 0 if they cannot.
  int64_t getVectorBytes() const;
};

/// One operation of a kernel. The coordinates of an iteration are those of the
/// kernel's box, then those of the operation's reductions.
struct KernelOp {
  linalg::LinalgOp op;
  /// One for each operand, those of the results last.
  SmallVector<Access, 4> accesses;
  unsigned numInits;
  /// The coordinate that is a loop's index.
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

/// Operations whose results have the same elements: a thread that has a place
/// in the box computes all of them there, one after the other.
struct KernelOps {
  explicit KernelOps(ArrayRef<linalg::LinalgOp> group);

  SmallVector<int64_t> box;
  SmallVector<KernelOp, 2> ops;

  /// Where the code of all of them goes.
  Operation *getFirst() const { return linalg::LinalgOp(ops.front().op); }
  int64_t countElements() const;
  /// Makes one coordinate of neighbouring ones along which every array is
  /// contiguous. Loops have no coordinates of their own then, so nothing
  /// happens where an operation needs them.
  void collapse();
  /// Whether 32 bits are enough for the numbers of the threads and of the
  /// elements at a place. What loops add to that, and addresses, has 64 bits in
  /// any case.
  bool fits32Bits() const;
  /// Elements along the last coordinate that a thread can read and write as
  /// vectors of up to 16 bytes; 1 if it cannot.
  int64_t countLanes() const;
};

/// The extents of `op`'s first result, which are those of its kernel's box.
SmallVector<int64_t> getKernelBox(linalg::LinalgOp op);

/// Whether vectors of `lanes` elements along `coordinate` lie one behind the
/// other from an array's beginning on, so that all are aligned if that is.
bool hasVectors(const Access &access, unsigned coordinate, int64_t lanes);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CODEGEN_KERNELACCESS_H
