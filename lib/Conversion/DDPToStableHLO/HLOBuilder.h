// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds the StableHLO operations that hooks expand to by name, because
// StableHLO is not linked. Values are statically shaped tensors.

#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::ddp {

using TensorValue = TypedValue<RankedTensorType>;

/// Returns true if the type is f16 or bf16.
bool isNarrow(Type elementType);

class HLOBuilder : public ImplicitLocOpBuilder {
public:
  using ImplicitLocOpBuilder::ImplicitLocOpBuilder;

  Operation *createOp(StringRef name, TypeRange results, ValueRange operands,
                      ArrayRef<NamedAttribute> attributes = {},
                      unsigned numRegions = 0);
  TensorValue create(StringRef name, RankedTensorType type, ValueRange operands,
                     ArrayRef<NamedAttribute> attributes = {});

  /// Returns an attribute of the stablehlo dialect from its text. It is opaque
  /// unless the dialect is StableHLO's own.
  Attribute getAttr(const Twine &text);

  /// Creates a splat constant.
  TensorValue constant(double value, RankedTensorType type);
  TensorValue constant(int64_t value, RankedTensorType type);
  /// Creates a constant with these elements.
  TensorValue constant(ElementsAttr value);

  /// Creates an operation of the operands' type: "add", "maximum", …
  TensorValue binary(StringRef name, TensorValue lhs, TensorValue rhs) {
    return create(name, lhs.getType(), {lhs, rhs});
  }
  TensorValue unary(StringRef name, TensorValue value) {
    return create(name, value.getType(), value);
  }
  /// `direction` is EQ, NE, LT, …
  TensorValue compare(StringRef direction, TensorValue lhs, TensorValue rhs);
  /// Selects elements of `yes` where `condition`, which may be a scalar, holds.
  TensorValue select(TensorValue condition, TensorValue yes, TensorValue no) {
    return create("select", yes.getType(), {condition, yes, no});
  }

  /// Rounds to nearest even; from f64 to 16 bits through f32. Later passes of
  /// XLA keep every rounding to 16 bits.
  TensorValue convert(TensorValue value, Type elementType);
  /// Prevents XLA from computing a 16-bit value with more bits, and from
  /// optimizing across any value.
  TensorValue barrier(TensorValue value);
  /// Applies `barrier` to 16-bit values only.
  TensorValue keepRounding(TensorValue value);

  TensorValue reshape(TensorValue value, ArrayRef<int64_t> shape);
  TensorValue flatten(TensorValue value);
  TensorValue broadcast(TensorValue value, RankedTensorType type,
                        ArrayRef<int64_t> dimensions);
  /// Repeats numbers for the first dimensions of `type`, or a 0-D tensor for
  /// all elements, along the other dimensions.
  TensorValue repeat(TensorValue numbers, RankedTensorType type) {
    return broadcast(numbers, type,
                     llvm::to_vector(llvm::seq(numbers.getType().getRank())));
  }
  /// Takes begin ≤ index < end in each dimension.
  TensorValue slice(TensorValue value, ArrayRef<int64_t> begin,
                    ArrayRef<int64_t> end);
  TensorValue concatenate(ArrayRef<TensorValue> values, int64_t dimension);

  /// Divides exactly. XLA would multiply by the inverse of a divisor that it
  /// can see is a splat.
  TensorValue divideBy(TensorValue value, TensorValue numbers);

  /// Contracts these dimensions and accumulates in `elementType`. The first
  /// `numBatch` dimensions of both are batch dimensions.
  TensorValue dot(TensorValue lhs, int64_t lhsDimension, TensorValue rhs,
                  int64_t rhsDimension, Type elementType, int64_t numBatch = 0);
  /// Reduces these dimensions with "add", "maximum", "and", …; `init`, a 0-D
  /// tensor, is the neutral element.
  TensorValue reduce(StringRef name, TensorValue value, TensorValue init,
                     ArrayRef<int64_t> dimensions);
  /// Sums over the last dimension.
  TensorValue sum(TensorValue value);
  /// Returns the largest absolute value along the last dimension; 0 if empty.
  TensorValue largest(TensorValue value);

  /// Creates a collective over the listed groups of ranks, such as
  /// "all_gather", with these numbers as attributes. Each rank is in one group.
  /// Reductions add.
  TensorValue collective(StringRef name, RankedTensorType type,
                         TensorValue value, DenseIntElementsAttr groups,
                         int64_t channel,
                         ArrayRef<std::pair<StringRef, int64_t>> numbers = {});

private:
  /// Adds a block that combines two 0-D tensors to `op`.
  void addReducer(Operation *op, StringRef name, Type elementType);
};

} // namespace mlir::ddp
