// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Emits the code of a thread at one position of its kernel's box: loads, the
// ops' bodies with all of their reductions, stores. KernelBody.cpp decides
// which positions a thread has.

#pragma once

#include "KernelAccess.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::ddp {

/// Builds a kernel's index arithmetic and its accesses to arrays. Position
/// numbers have 32 bits if that suffices. Loop counters are indices: LLVM turns
/// them into pointers that advance by a constant.
class KernelBuilder : public ImplicitLocOpBuilder {
public:
  /// Inserts before the operations.
  explicit KernelBuilder(const KernelOps &ops);

  Value number(int64_t value);
  /// Sums and products, which must not overflow; null is zero.
  Value add(Value a, Value b);
  Value add(Value a, int64_t b);
  Value mul(Value a, int64_t factor);
  Value isBelow(Value a, int64_t limit);
  Value toIndex(Value a);
  Value getPosition(gpu::Dimension dimension, bool isThread);
  /// Returns the thread's position along one dimension of the grid, with blocks
  /// `blockSize` apart.
  Value getThread(gpu::Dimension dimension, int64_t blockSize);
  /// Returns the coordinates of a number in a box of these extents. `number`
  /// must be below their product; its last coordinate varies fastest.
  SmallVector<Value> delinearize(Value number, ArrayRef<int64_t> extents);
  /// Begin a conditional block and a loop. The caller restores the insertion
  /// point and terminates the loop.
  void enterIf(Value condition);
  scf::ForOp enterLoop(int64_t extent, int64_t step, ValueRange values);

  /// Returns `lanes` elements from these coordinates on, along coordinate
  /// number `along`, loaded as a vector if possible. Repeats a scalar.
  SmallVector<Value> load(const Access &access, ArrayRef<Value> coordinates,
                          unsigned along, int64_t lanes);
  void store(const Access &access, ArrayRef<Value> coordinates,
             ArrayRef<Value> values);
  /// Returns whether vectors of `lanes` elements of all arrays are aligned.
  Value areAligned(ArrayRef<const Access *> accesses, int64_t lanes);

private:
  Value getFlat(Value array);
  Value getOffset(const Access &access, ArrayRef<Value> coordinates);
  using Element = std::pair<Value, SmallVector<Value>>;
  Element getElement(const Access &access, ArrayRef<Value> coordinates);
  Value loadElement(const Access &access, ArrayRef<Value> coordinates);

  Type numberType;
  /// The arrays as 1-D arrays that begin at their first elements.
  llvm::DenseMap<Value, Value> flat;
};

/// Emits the work at one position, or at `lanes` positions that are adjacent
/// along the last coordinate. Operations see the results of earlier ones, and
/// every element is stored once, at the end.
class PlaceEmitter {
public:
  PlaceEmitter(KernelBuilder &b, SmallVector<Value> place, int64_t lanes = 1)
      : b(b), place(std::move(place)), lanes(lanes) {}

  void run(const KernelOp &op);
  /// Provides values of an operand that were loaded for several positions.
  void give(const Access &access, SmallVector<Value> values) {
    given[&access] = std::move(values);
  }
  /// Returns the array's elements here, either computed or loaded.
  SmallVector<Value> load(const Access &access) {
    return load(access, place, place.empty() ? 0 : place.size() - 1, lanes);
  }
  void set(const Access &access, SmallVector<Value> values);
  void store();

private:
  struct Element {
    const Access *access;
    SmallVector<Value> values;
  };

  SmallVector<Value> load(const Access &access, ArrayRef<Value> coordinates,
                          unsigned along, int64_t count);
  SmallVector<Value> reduce(const KernelOp &op, SmallVector<Value> sums);
  /// Emits the loops of coordinate number `coordinates.size()` and above.
  SmallVector<Value> emitLoops(const KernelOp &op, ArrayRef<Value> coordinates,
                               SmallVector<Value> sums, int64_t step);
  SmallVector<Value> emitBody(const KernelOp &op, ArrayRef<Value> coordinates,
                              ArrayRef<Value> operands);

  KernelBuilder &b;
  SmallVector<Value> place;
  int64_t lanes;
  llvm::MapVector<Value, Element> elements;
  llvm::DenseMap<const Access *, SmallVector<Value>> given;
};

} // namespace mlir::ddp
