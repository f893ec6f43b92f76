//===- HLOBuilder.h - builds operations of StableHLO ------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds operations of StableHLO by their names, since nothing of StableHLO is
// linked: only what hooks expand to needs. Values are statically shaped
// tensors.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_DDPTOSTABLEHLO_HLOBUILDER_H
#define DDPHOOK_LIB_CONVERSION_DDPTOSTABLEHLO_HLOBUILDER_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"

namespace mlir::ddp {

using TensorValue = TypedValue<RankedTensorType>;

/// Whether the type is f16 or bf16.
bool isNarrow(Type elementType);

/// Inserts where `builder` does.
class HLOBuilder {
public:
  HLOBuilder(OpBuilder &builder, Location loc) : builder(builder), loc(loc) {}

  Operation *createOp(StringRef name, TypeRange results, ValueRange operands,
                      ArrayRef<NamedAttribute> attributes = {},
                      unsigned numRegions = 0);
  TensorValue create(StringRef name, RankedTensorType type, ValueRange operands,
                     ArrayRef<NamedAttribute> attributes = {});

  /// An attribute of the stablehlo dialect, from its text: opaque, unless the
  /// dialect is StableHLO's own.
  Attribute getAttr(const Twine &text);

  /// A constant of one element, which is repeated.
  TensorValue constant(double value, RankedTensorType type);
  TensorValue constant(int64_t value, RankedTensorType type);
  /// A constant of any elements.
  TensorValue constant(ElementsAttr value);

  /// Of the operands' type: "add", "maximum", …
  TensorValue binary(StringRef name, TensorValue lhs, TensorValue rhs) {
    return create(name, lhs.getType(), {lhs, rhs});
  }
  TensorValue unary(StringRef name, TensorValue value) {
    return create(name, value.getType(), value);
  }
  /// `direction` is EQ, NE, LT, …
  TensorValue compare(StringRef direction, TensorValue lhs, TensorValue rhs);
  /// The elements of `yes` where `condition` holds; it may be one for all.
  TensorValue select(TensorValue condition, TensorValue yes, TensorValue no) {
    return create("select", yes.getType(), {condition, yes, no});
  }

  /// Rounds to nearest even; from f64 to 16 bits by way of f32. No later pass
  /// of XLA takes a rounding to 16 bits away.
  TensorValue convert(TensorValue value, Type elementType);
  /// Keeps XLA from computing a 16-bit value in more bits, and from looking
  /// through any other.
  TensorValue barrier(TensorValue value);
  /// `barrier` of a 16-bit value, others as they are.
  TensorValue keepRounding(TensorValue value);

  TensorValue reshape(TensorValue value, ArrayRef<int64_t> shape);
  /// As a 1-D tensor.
  TensorValue flatten(TensorValue value);
  TensorValue broadcast(TensorValue value, RankedTensorType type,
                        ArrayRef<int64_t> dimensions);
  /// Numbers for the first dimensions of `type`, a 0-D tensor for all elements,
  /// repeated along the others.
  TensorValue repeat(TensorValue numbers, RankedTensorType type) {
    return broadcast(numbers, type,
                     llvm::to_vector(llvm::seq(numbers.getType().getRank())));
  }
  /// begin ≤ index < end in each dimension.
  TensorValue slice(TensorValue value, ArrayRef<int64_t> begin,
                    ArrayRef<int64_t> end);
  TensorValue concatenate(ArrayRef<TensorValue> values, int64_t dimension);

  /// True quotients: XLA multiplies by the inverse of a divisor in which it
  /// sees one number for all elements.
  TensorValue divideBy(TensorValue value, TensorValue numbers);

  /// Contracts these dimensions, accumulating in `elementType`. The first
  /// `numBatch` dimensions of both are the same, and not multiplied with each
  /// other.
  TensorValue dot(TensorValue lhs, int64_t lhsDimension, TensorValue rhs,
                  int64_t rhsDimension, Type elementType, int64_t numBatch = 0);
  /// Reduces these dimensions with "add", "maximum", "and", …; `init`, a 0-D
  /// tensor, is neutral.
  TensorValue reduce(StringRef name, TensorValue value, TensorValue init,
                     ArrayRef<int64_t> dimensions);
  /// The sum over the last dimension.
  TensorValue sum(TensorValue value);
  /// The largest absolute value along the last dimension; 0 of no elements.
  TensorValue largest(TensorValue value);

  /// Sums over the listed groups of ranks; each rank is in one.
  TensorValue allReduce(TensorValue value, DenseIntElementsAttr groups,
                        int64_t channel);

  /// Sums a 1-D tensor over the listed groups; each rank gets its part.
  TensorValue reduceScatter(TensorValue value, DenseIntElementsAttr groups,
                            int64_t channel);
  /// Concatenates the 1-D parts of all ranks of each group.
  TensorValue allGather(TensorValue part, DenseIntElementsAttr groups,
                        int64_t channel);
  /// Sends the i-th slice of the first dimension to rank i of the group, and
  /// returns the slices received.
  TensorValue allToAll(TensorValue parts, DenseIntElementsAttr groups,
                       int64_t channel);
  /// Returns the value of the rank at position `root` of each group.
  TensorValue broadcastFrom(TensorValue value, DenseIntElementsAttr groups,
                            int64_t root, int64_t channel);

private:
  /// Returns the attributes that all collectives have: channel and groups.
  SmallVector<NamedAttribute> getMeeting(DenseIntElementsAttr groups,
                                         int64_t channel);
  /// Adds a block that combines two 0-D tensors to `op`.
  void addReducer(Operation *op, StringRef name, Type elementType);

  OpBuilder &builder;
  Location loc;
};

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_DDPTOSTABLEHLO_HLOBUILDER_H
