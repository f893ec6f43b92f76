// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Means.h"
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

/// Reports the first of `scalings` that scales down, but not by `size`.
static void remarkOtherSize(AllReduceOp reduction,
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

bool MeanDialect::isComputation(Operation *op) const {
  return wouldOpBeTriviallyDead(op);
}

std::optional<Scaling> MeanDialect::getScalingByConstant(
    Operation *op, bool isProduct,
    function_ref<std::optional<APFloat>(Value)> getNumber) const {
  std::optional<Scaling> found;
  // A dividend is not a scaling, but a factor may be either operand.
  for (unsigned place : {1, 0}) {
    Value scaled = op->getOperand(1 - place);
    std::optional<APFloat> number = getNumber(op->getOperand(place));
    if ((place == 1 || isProduct) && number &&
        scaled.getType() == op->getOperand(place).getType() &&
        scaled.getType() == op->getResult(0).getType()) {
      Scaling scaling{op, scaled, *number, isProduct};
      if (scaling.isBy(size))
        return scaling;
      if (!found)
        found = scaling;
    }
  }
  return found;
}

/// Erases the operation of `value`, and those of its operands, if unused.
static void eraseIfUnused(Value value, const MeanDialect &dialect) {
  SmallVector<Value> worklist{value};
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val().getDefiningOp();
    if (!op || !op->use_empty() || !dialect.isComputation(op))
      continue;
    llvm::erase_if(worklist,
                   [&](Value other) { return other.getDefiningOp() == op; });
    llvm::append_range(worklist, op->getOperands());
    op->erase();
  }
}

/// Collects the divisions and multiplications by constants that the uses of
/// `value` lead to. Returns false if a use leads elsewhere.
static bool findScalings(Value value, const MeanDialect &dialect,
                         llvm::MapVector<Operation *, Scaling> &scalings,
                         unsigned depth = 0) {
  // JAX puts fewer operations between a sum and its division.
  constexpr unsigned maxDepth = 8;
  if (depth == maxDepth)
    return false;
  for (Operation *user : value.getUsers()) {
    std::optional<Scaling> scaling = dialect.getScaling(user);
    if (scaling && scaling->scaled == value) {
      scalings.try_emplace(user, *scaling);
      continue;
    }
    if (!dialect.isPassedAfterSum(user) ||
        !findScalings(user->getResult(0), dialect, scalings, depth + 1))
      return false;
  }
  return !value.use_empty();
}

static bool foldAfter(AllReduceOp reduction, const MeanDialect &dialect,
                      std::optional<Scaling> &other) {
  // Gradients in f16 are often close to underflow: do not divide first.
  if (getElementTypeOrSelf(reduction.getInput()).isF16())
    return false;
  llvm::MapVector<Operation *, Scaling> scalings;
  if (!findScalings(reduction.getResult(), dialect, scalings))
    return false;
  for (auto &[op, scaling] : scalings)
    if (!scaling.isBy(dialect.size))
      other = scaling;
  if (other)
    return false;
  for (auto &[op, scaling] : scalings) {
    SmallVector<Value> operands(op->getOperands());
    op->getResult(0).replaceAllUsesWith(scaling.scaled);
    op->erase();
    for (Value operand : operands)
      eraseIfUnused(operand, dialect);
  }
  return true;
}

static bool foldBefore(AllReduceOp reduction, const MeanDialect &dialect,
                       std::optional<Scaling> &other) {
  OpOperand *use = &reduction.getInputMutable();
  while (Operation *op = use->get().getDefiningOp()) {
    Value value = use->get();
    if (std::optional<Scaling> scaling = dialect.getScaling(op)) {
      if (!scaling->isBy(dialect.size)) {
        other = scaling;
        return false;
      }
      use->set(scaling->scaled);
      eraseIfUnused(value, dialect);
      return true;
    }
    if (!value.hasOneUse() || !dialect.isPassedBeforeSum(op))
      return false;
    use = &op->getOpOperand(0);
  }
  return false;
}

bool mlir::ddp::foldMean(AllReduceOp reduction, const MeanDialect &dialect,
                         StringRef pass) {
  std::optional<Scaling> before, after;
  if (foldAfter(reduction, dialect, after) ||
      foldBefore(reduction, dialect, before)) {
    reduction.setReduction(Reduction::Mean);
    return true;
  }
  remarkOtherSize(reduction, {after, before}, dialect.size, pass);
  return false;
}
