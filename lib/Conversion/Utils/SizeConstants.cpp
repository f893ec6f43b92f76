// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "SizeConstants.h"
#include "ddphook/Dialect/DDP/IR/Remarks.h"

using namespace mlir;
using namespace mlir::ddp;

bool Scaling::isBy(int64_t size) const {
  APFloat exact(number.getSemantics());
  // The program contains another number if its type cannot represent `size`.
  if (exact.convertFromAPInt(APInt(64, size), /*IsSigned=*/true,
                             APFloat::rmNearestTiesToEven) != APFloat::opOK)
    return false;
  if (isProduct) {
    APFloat one(number.getSemantics(), 1);
    one.divide(exact, APFloat::rmNearestTiesToEven);
    exact = one;
  }
  return number.bitwiseIsEqual(exact);
}

/// Returns true if it scales down. Anything else, such as a change of sign, is
/// not an attempt at a mean.
static bool isFraction(const Scaling &scaling) {
  const APFloat &number = scaling.number;
  if (!number.isFiniteNonZero() || number.isNegative())
    return false;
  APFloat one(number.getSemantics(), 1);
  return scaling.isProduct ? number < one : number > one;
}

void mlir::ddp::remarkOtherSize(AllReduceOp reduction,
                                ArrayRef<std::optional<Scaling>> scalings,
                                int64_t size, StringRef pass) {
  auto *it = llvm::find_if(scalings, [](const std::optional<Scaling> &scaling) {
    return scaling && isFraction(*scaling);
  });
  if (it == scalings.end())
    return;
  const Scaling &scaling = **it;
  SmallString<16> digits;
  scaling.number.toString(digits);
  std::string text;
  llvm::raw_string_ostream(text)
      << "no mean over @" << reduction.getGroup() << ": expected "
      << (scaling.isProduct ? "a product with 1/" : "a quotient by ") << size
      << ", since the group has " << size << " ranks, but got one "
      << (scaling.isProduct ? "with " : "by ") << digits;
  remark::missed(scaling.op->getLoc(), remarkOf("Mean", pass)) << text;
}
