// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds sums that a program divides by the number of ranks, before or after:
// they are means. A mean in ddp divides before it adds, so folding a division
// before the sum gives the same bits. Folding one after it does if the size is
// a power of two and no quotient underflows; otherwise it rounds differently,
// but as often.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// A division of all elements of `scaled` by `number`, or a multiplication.
struct Scaling {
  Operation *op;
  Value scaled;
  APFloat number;
  bool isProduct;

  /// Returns true if it divides by `size`, or multiplies by 1/size as rounded
  /// to the number's type.
  bool isBy(int64_t size) const;
};

/// Recognizes a dialect's operations on sums over `size` ranks.
class MeanDialect {
public:
  explicit MeanDialect(int64_t size) : size(size) {}
  virtual ~MeanDialect() = default;

  /// Returns the scaling that `op` does to a tensor, if it does one.
  virtual std::optional<Scaling> getScaling(Operation *op) const = 0;

  /// Returns true if a division of the result, or of the operand, of `op` may
  /// be moved before the sum that is the operand, or comes from the result.
  virtual bool isPassedAfterSum(Operation *op) const { return false; }
  virtual bool isPassedBeforeSum(Operation *op) const { return false; }

  /// Returns true if `op` may be erased when it is unused.
  virtual bool isComputation(Operation *op) const;

  const int64_t size;

protected:
  /// Returns the scaling of `op`, a product or a quotient of two operands, one
  /// by `size` if both operands are constants.
  std::optional<Scaling> getScalingByConstant(
      Operation *op, bool isProduct,
      function_ref<std::optional<APFloat>(Value)> getNumber) const;
};

/// Turns `reduction`, a sum, into a mean and removes the division if its
/// operand or all uses of its result are divided by exactly the group's size.
/// A sum in f16 that is divided afterwards stays, because a mean divides first.
/// Returns true if it did; a remark of `pass` reports a division by any other
/// constant.
bool foldMean(AllReduceOp reduction, const MeanDialect &dialect,
              StringRef pass);

/// Calls `foldMean` with linalg's and arith's operations on tensors.
void foldLinalgMean(AllReduceOp reduction, int64_t size, StringRef pass);

} // namespace mlir::ddp
