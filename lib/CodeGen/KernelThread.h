//===- KernelThread.h - code of one thread of a kernel ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Emits what a thread does at one place of its kernel's box: loads, the ops'
// bodies with all of their reductions, stores. KernelBody.cpp decides which
// places a thread has.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_LIB_CODEGEN_KERNELTHREAD_H
#define DDPHOOK_LIB_CODEGEN_KERNELTHREAD_H

#include "KernelAccess.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::ddp {

/// Builds index arithmetic of a kernel and accesses to its arrays. Places are
/// numbers of 32 bits where that is enough. Counters of loops are indices: LLVM
/// makes pointers of them, which move by a constant.
class KernelBuilder : public ImplicitLocOpBuilder {
public:
  /// Inserts before the operations.
  explicit KernelBuilder(const KernelOps &ops);

  Value number(int64_t value);
  /// Sums and products, none of which overflows; null is zero.
  Value add(Value a, Value b);
  Value add(Value a, int64_t b);
  Value mul(Value a, int64_t factor);
  Value isBelow(Value a, int64_t limit);
  Value toIndex(Value a);
  Value getPosition(gpu::Dimension dimension, bool isThread);
  /// Position of the thread along one dimension of the grid, whose blocks are
  /// `blockSize` apart.
  Value getThread(gpu::Dimension dimension, int64_t blockSize);
  /// Places in a box of these extents, the last one first; `number` may be
  /// anything below their product.
  SmallVector<Value> delinearize(Value number, ArrayRef<int64_t> extents);
  /// Begin a conditional block and a loop; whoever calls them restores the
  /// place, and ends the loop.
  void enterIf(Value condition);
  scf::ForOp enterLoop(int64_t extent, int64_t step, ValueRange values);

  /// Elements of the array at these coordinates and behind them, along
  /// coordinate number `along`, as a vector if it has those; a scalar `lanes`
  /// times.
  SmallVector<Value> load(const Access &access, ArrayRef<Value> coordinates,
                          unsigned along, int64_t lanes);
  void store(const Access &access, ArrayRef<Value> coordinates,
             ArrayRef<Value> values);
  /// Whether vectors of `lanes` elements of all these arrays are aligned.
  Value areAligned(ArrayRef<const Access *> accesses, int64_t lanes);

private:
  Value getFlat(Value array);
  Value getOffset(const Access &access, ArrayRef<Value> coordinates);
  using Element = std::pair<Value, SmallVector<Value>>;
  Element getElement(const Access &access, ArrayRef<Value> coordinates);
  Value loadElement(const Access &access, ArrayRef<Value> coordinates);

  Type numberType;
  /// The arrays in one dimension, from their first elements on.
  llvm::DenseMap<Value, Value> flat;
};

/// The work at one place, or at several that follow each other along the last
/// coordinate (`lanes`). Operations see what the ones before them computed,
/// and every element is stored once, at the end.
class PlaceEmitter {
public:
  PlaceEmitter(KernelBuilder &b, SmallVector<Value> place, int64_t lanes = 1)
      : b(b), place(std::move(place)), lanes(lanes) {}

  void run(const KernelOp &op);
  /// Values of an operand that were loaded with those of other places.
  void give(const Access &access, SmallVector<Value> values) {
    given[&access] = std::move(values);
  }
  /// The array's elements of the place, whoever computed them.
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
  /// The loops from that of coordinate number `coordinates.size()` inwards.
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

#endif // DDPHOOK_LIB_CODEGEN_KERNELTHREAD_H
