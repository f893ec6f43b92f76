// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-widen-accumulators: accumulates sums of 16-bit numbers in f32 and rounds
// once, as frameworks do. In bf16 a sum of ones never exceeds 256.

#include "ddphook/Dialect/DDP/IR/Remarks.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SmallBitVector.h"

#define GEN_PASS_DEF_DDPWIDENACCUMULATORSPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

static bool isNarrow(Value value) {
  return getElementTypeOrSelf(value).isBF16() ||
         getElementTypeOrSelf(value).isF16();
}

/// Removes tensors of one element from the body, in which jaxlib wraps the
/// arguments and the result of a reduction.
static void unwrapElements(linalg::LinalgOp op) {
  SmallVector<tensor::FromElementsOp> wrappers(
      op.getBlock()->getOps<tensor::FromElementsOp>());
  for (tensor::FromElementsOp wrapper : wrappers) {
    if (wrapper.getElements().size() != 1)
      continue;
    for (Operation *user : llvm::make_early_inc_range(wrapper->getUsers()))
      if (auto extract = dyn_cast<tensor::ExtractOp>(user)) {
        extract.replaceAllUsesWith(wrapper.getElements().front());
        extract.erase();
      }
    if (wrapper->use_empty())
      wrapper.erase();
  }
}

/// Returns the operation that adds a term to the accumulator of `init`, or
/// multiplies it by one; null if the body uses the accumulator in another way.
static Operation *findCombiner(linalg::LinalgOp op, OpOperand &init) {
  BlockArgument old = op.getMatchingBlockArgument(&init);
  Operation *combiner = op.getMatchingYieldValue(&init)->get().getDefiningOp();
  if (!isa_and_nonnull<arith::AddFOp, arith::MulFOp>(combiner) ||
      !combiner->hasOneUse() || !old.hasOneUse() ||
      *old.user_begin() != combiner)
    return nullptr;
  return combiner;
}

/// Returns true if the body rounds what it computes from the accumulator. A
/// maximum, for example, is exact.
static bool isRounded(linalg::LinalgOp op, OpOperand &init) {
  return llvm::any_of(op.getMatchingBlockArgument(&init).getUsers(),
                      llvm::IsaPred<arith::AddFOp, arith::SubFOp, arith::MulFOp,
                                    arith::DivFOp, math::FmaOp>);
}

/// Returns true if the body is acc + lhs * rhs, for two inputs lhs and rhs.
static bool isContraction(linalg::LinalgOp op, Operation *combiner) {
  Block *body = op.getBlock();
  auto isInput = [&](Value value) {
    auto input = dyn_cast<BlockArgument>(value);
    return input && input.getOwner() == body &&
           input.getArgNumber() < op.getNumDpsInputs();
  };
  return op.getNumDpsInits() == 1 && op.getNumDpsInputs() == 2 &&
         body->getOperations().size() == 3 && isa<arith::AddFOp>(combiner) &&
         isa<arith::MulFOp>(body->front()) &&
         llvm::all_of(body->front().getOperands(), isInput);
}

namespace {
/// Widens the operations of one function.
class AccumulatorWidener {
public:
  explicit AccumulatorWidener(MLIRContext *context)
      : f32(Float32Type::get(context)), rewriter(context) {}

  /// Returns true if it widened any accumulator of `op`.
  bool widen(linalg::LinalgOp op);

private:
  Value convert(Location loc, Value value, Type elementType);
  Value convertInit(Location loc, Value value);
  Operation *widenContraction(linalg::LinalgOp op);
  Operation *widenSums(linalg::LinalgOp op, const llvm::SmallBitVector &wide);

  Type f32;
  IRRewriter rewriter;
  /// Maps a rounded tensor to its f32 value.
  DenseMap<Value, Value> exact;
};
} // namespace

Value AccumulatorWidener::convert(Location loc, Value value, Type elementType) {
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, value);
  Value empty = tensor::EmptyOp::create(rewriter, loc, sizes, elementType);
  SmallVector<AffineMap> maps(2,
                              rewriter.getMultiDimIdentityMap(type.getRank()));
  SmallVector<utils::IteratorType> iterators(type.getRank(),
                                             utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             rewriter, loc, empty.getType(), value, empty, maps, iterators,
             [&](OpBuilder &builder, Location loc, ValueRange arguments) {
               Value element = arguments[0];
               element = elementType == f32
                             ? arith::ExtFOp::create(builder, loc, f32, element)
                                   .getResult()
                             : arith::TruncFOp::create(builder, loc,
                                                       elementType, element)
                                   .getResult();
               linalg::YieldOp::create(builder, loc, element);
             })
      .getResult(0);
}

/// Returns the initial value of an accumulator in f32.
Value AccumulatorWidener::convertInit(Location loc, Value value) {
  if (Value wide = exact.lookup(value))
    return wide;
  auto fill = value.getDefiningOp<linalg::FillOp>();
  if (!fill || !isNarrow(fill.getInputs().front()))
    return convert(loc, value, f32);
  Value number =
      arith::ExtFOp::create(rewriter, loc, f32, fill.getInputs().front());
  Value empty = tensor::EmptyOp::create(
      rewriter, loc, tensor::getMixedSizes(rewriter, loc, value), f32);
  return linalg::FillOp::create(rewriter, loc, number, empty).getResult(0);
}

/// Replaces a contraction by the same operation on f32 tensors, for which there
/// are kernels.
Operation *AccumulatorWidener::widenContraction(linalg::LinalgOp op) {
  SmallVector<Value> operands;
  for (OpOperand &operand : op->getOpOperands()) {
    Value value = operand.get();
    if (op.isDpsInit(&operand))
      value = convertInit(op.getLoc(), value);
    else if (isNarrow(value))
      value = convert(op.getLoc(), value, f32);
    operands.push_back(value);
  }
  Operation *wide = clone(rewriter, op, operands.back().getType(), operands);
  Block &body = wide->getRegion(0).front();
  for (BlockArgument argument : body.getArguments())
    argument.setType(f32);
  for (Operation &nested : body.without_terminator())
    nested.getResult(0).setType(f32);
  return wide;
}

/// Returns the factors of a term that is a product of two elements, which is
/// exact in f32; otherwise the term itself.
static SmallVector<Value> getFactors(Value term) {
  auto product = term.getDefiningOp<arith::MulFOp>();
  if (product && product->hasOneUse() &&
      llvm::all_of(product->getOperands(), llvm::IsaPred<BlockArgument>))
    return {product.getLhs(), product.getRhs()};
  return {term};
}

/// Creates a generic operation with the same body, in which the accumulators in
/// `wide` are f32.
Operation *AccumulatorWidener::widenSums(linalg::LinalgOp op,
                                         const llvm::SmallBitVector &wide) {
  SmallVector<Value> inits(op.getDpsInits());
  for (unsigned i : wide.set_bits())
    inits[i] = convertInit(op.getLoc(), inits[i]);
  auto generic = linalg::GenericOp::create(
      rewriter, op.getLoc(), TypeRange(ValueRange(inits)), op.getDpsInputs(),
      inits, op.getIndexingMapsArray(), op.getIteratorTypesArray());
  Region &region = generic.getRegion();
  IRMapping mapping;
  op->getRegion(0).cloneInto(&region, mapping);
  Block &body = region.front();
  for (unsigned i : wide.set_bits()) {
    BlockArgument accumulator = body.getArgument(op.getNumDpsInputs() + i);
    Operation *combiner = *accumulator.user_begin();
    Value term = combiner->getOperand(combiner->getOperand(0) == accumulator);
    OpBuilder builder(combiner);
    Location loc = combiner->getLoc();
    SmallVector<Value> factors = getFactors(term);
    for (Value &factor : factors)
      factor = arith::ExtFOp::create(builder, loc, f32, factor);
    Value wideTerm = factors[0];
    if (factors.size() == 2)
      wideTerm = arith::MulFOp::create(builder, loc, factors[0], factors[1]);
    combiner->replaceUsesOfWith(term, wideTerm);
    accumulator.setType(f32);
    combiner->getResult(0).setType(f32);
    if (Operation *unused = term.getDefiningOp(); unused && unused->use_empty())
      unused->erase();
  }
  return generic;
}

bool AccumulatorWidener::widen(linalg::LinalgOp op) {
  if (op.getNumReductionLoops() == 0 || !op.hasPureTensorSemantics())
    return false;
  if (llvm::none_of(op.getDpsInits(), isNarrow))
    return false;
  unwrapElements(op);
  llvm::SmallBitVector wide(op.getNumDpsInits());
  bool isProduct = false;
  for (OpOperand &init : op.getDpsInitsMutable()) {
    if (!isNarrow(init.get()))
      continue;
    Operation *combiner = findCombiner(op, init);
    if (!combiner) {
      if (isRounded(op, init))
        remark::missed(op.getLoc(),
                       remarkOf("Accumulators", "ddp-widen-accumulators"))
            << "kept in 16 bits, since the body is not a sum or product";
      continue;
    }
    wide.set(init.getOperandNumber() - op.getNumDpsInputs());
    isProduct = isContraction(op, combiner);
  }
  if (wide.none())
    return false;
  rewriter.setInsertionPoint(op);
  Operation *result = isProduct ? widenContraction(op) : widenSums(op, wide);
  for (unsigned i = 0; i < op->getNumResults(); ++i) {
    Value value = result->getResult(i);
    if (wide.test(i)) {
      value =
          convert(op.getLoc(), value, getElementTypeOrSelf(op->getResult(i)));
      exact[value] = result->getResult(i);
    }
    rewriter.replaceAllUsesWith(op->getResult(i), value);
  }
  rewriter.eraseOp(op);
  return true;
}

namespace {
struct WidenAccumulatorsPass
    : public ddp::impl::DDPWidenAccumulatorsPassBase<WidenAccumulatorsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    StringRef mark = DDPDialect::kWidenAccumulatorsAttrName;
    if (!module->hasAttr(mark))
      return markAllAnalysesPreserved();
    module->removeAttr(mark);
    for (auto function : module.getOps<FunctionOpInterface>()) {
      SmallVector<linalg::LinalgOp> ops;
      function.walk([&](linalg::LinalgOp op) { ops.push_back(op); });
      AccumulatorWidener widener(&getContext());
      unsigned numWidened = llvm::count_if(
          ops, [&](linalg::LinalgOp op) { return widener.widen(op); });
      if (numWidened != 0)
        remark::passed(function->getLoc(),
                       remarkOf("Accumulators", "ddp-widen-accumulators"))
            << "16-bit sums are accumulated in f32"
            << remark::metric("operations", numWidened);
    }
  }
};
} // namespace
