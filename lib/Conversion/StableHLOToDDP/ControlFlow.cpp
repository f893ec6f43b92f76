// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-convert-stablehlo-control-flow: converts StableHLO's loops and branches
// to scf and removes barriers. StableHLO's own lowering to linalg does not
// handle them.

#include "StableHLO.h"

#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/StringSwitch.h"

#define GEN_PASS_DEF_DDPCONVERTSTABLEHLOCONTROLFLOWPASS
#include "ddphook/Conversion/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

static constexpr StringLiteral kReturn = "stablehlo.return";

/// Returns true if `region` is one block with these arguments and results.
static bool hasTypes(Region &region, TypeRange arguments, TypeRange results) {
  if (!region.hasOneBlock() || region.getArgumentTypes() != arguments)
    return false;
  auto yielded = getYielded(region.front(), kReturn);
  return yielded && yielded->getTypes() == results;
}

static RankedTensorType getScalarType(Operation *op, unsigned width) {
  return RankedTensorType::get({}, IntegerType::get(op->getContext(), width));
}

/// Extracts the number from a tensor without dimensions.
static Value extract(ImplicitLocOpBuilder &builder, Value scalar) {
  return tensor::ExtractOp::create(builder, scalar, ValueRange());
}

/// Moves a StableHLO block into `region` and replaces its terminator.
template <typename TerminatorT>
static void moveBlock(Region &from, Region &to) {
  to.takeBody(from);
  Operation *terminator = to.front().getTerminator();
  OpBuilder builder(terminator);
  TerminatorT::create(builder, terminator->getLoc(), terminator->getOperands());
  terminator->erase();
}

static LogicalResult convertWhile(Operation *op) {
  TypeRange types = op->getResultTypes();
  if (op->getNumRegions() != 2 || op->getOperandTypes() != types ||
      !hasTypes(op->getRegion(0), types, getScalarType(op, 1)) ||
      !hasTypes(op->getRegion(1), types, types))
    return op->emitOpError()
           << "expected a condition and a body of the operands' types";
  ImplicitLocOpBuilder builder(op->getLoc(), op);
  auto loop = scf::WhileOp::create(builder, types, op->getOperands());
  loop.getBefore().takeBody(op->getRegion(0));
  Block &before = loop.getBefore().front();
  Operation *terminator = before.getTerminator();
  builder.setInsertionPoint(terminator);
  scf::ConditionOp::create(builder, extract(builder, terminator->getOperand(0)),
                           before.getArguments());
  terminator->erase();
  moveBlock<scf::YieldOp>(op->getRegion(1), loop.getAfter());
  op->replaceAllUsesWith(loop);
  op->erase();
  return success();
}

static void convertBranches(Operation *op, Value condition, Region &thenRegion,
                            Region &elseRegion) {
  ImplicitLocOpBuilder builder(op->getLoc(), op);
  auto branch = scf::IfOp::create(builder, op->getResultTypes(), condition,
                                  /*withElseRegion=*/true);
  moveBlock<scf::YieldOp>(thenRegion, branch.getThenRegion());
  moveBlock<scf::YieldOp>(elseRegion, branch.getElseRegion());
  op->replaceAllUsesWith(branch);
  op->erase();
}

static LogicalResult checkBranches(Operation *op, unsigned width) {
  TypeRange types = op->getResultTypes();
  if (op->getNumOperands() == 1 &&
      op->getOperand(0).getType() == getScalarType(op, width) &&
      op->getNumRegions() != 0 &&
      llvm::all_of(op->getRegions(), [&](Region &region) {
        return hasTypes(region, TypeRange(), types);
      }))
    return success();
  return op->emitOpError() << "expected an i" << width
                           << " and branches of the results' types";
}

static LogicalResult convertIf(Operation *op) {
  if (failed(checkBranches(op, 1)))
    return failure();
  if (op->getNumRegions() != 2)
    return op->emitOpError() << "expected two branches";
  ImplicitLocOpBuilder builder(op->getLoc(), op);
  convertBranches(op, extract(builder, op->getOperand(0)), op->getRegion(0),
                  op->getRegion(1));
  return success();
}

/// Converts a case; an index out of range selects the last branch.
static LogicalResult convertCase(Operation *op) {
  if (failed(checkBranches(op, 32)))
    return failure();
  ImplicitLocOpBuilder builder(op->getLoc(), op);
  Value index = extract(builder, op->getOperand(0));
  unsigned last = op->getNumRegions() - 1;
  if (last == 1) {
    Value zero = arith::ConstantIntOp::create(builder, 0, 32);
    Value isFirst =
        arith::CmpIOp::create(builder, arith::CmpIPredicate::eq, index, zero);
    convertBranches(op, isFirst, op->getRegion(0), op->getRegion(1));
    return success();
  }
  index = arith::IndexCastOp::create(builder, builder.getIndexType(), index);
  auto cases = llvm::to_vector(llvm::seq<int64_t>(0, last));
  auto branch = scf::IndexSwitchOp::create(builder, op->getResultTypes(), index,
                                           cases, last);
  for (unsigned i = 0; i < last; ++i)
    moveBlock<scf::YieldOp>(op->getRegion(i), branch.getCaseRegions()[i]);
  moveBlock<scf::YieldOp>(op->getRegion(last), branch.getDefaultRegion());
  op->replaceAllUsesWith(branch);
  op->erase();
  return success();
}

/// Removes a barrier: the following passes preserve the order themselves.
static LogicalResult removeBarrier(Operation *op) {
  SmallVector<Value> values(op->getOperands());
  if (op->getNumRegions() != 0 || op->getOperandTypes() != op->getResultTypes())
    return op->emitOpError() << "expected results of the operands' types";
  return replaceByValues(op, values);
}

using Conversion = LogicalResult (*)(Operation *);

/// Returns the conversion for `op`, or null if it stays.
static Conversion getConversion(Operation *op) {
  return llvm::StringSwitch<Conversion>(op->getName().getStringRef())
      .Case("stablehlo.case", convertCase)
      .Case("stablehlo.if", convertIf)
      .Case("stablehlo.optimization_barrier", removeBarrier)
      .Case("stablehlo.while", convertWhile)
      .Default(nullptr);
}

LogicalResult mlir::ddp::convertStableHLOControlFlow(ModuleOp module) {
  SmallVector<std::pair<Operation *, Conversion>> conversions;
  module.walk([&](Operation *op) {
    if (Conversion conversion = getConversion(op))
      conversions.push_back({op, conversion});
  });
  for (auto [op, conversion] : conversions)
    if (failed(conversion(op)))
      return failure();
  return success();
}

namespace {
struct ConvertStableHLOControlFlowPass
    : public ddp::impl::DDPConvertStableHLOControlFlowPassBase<
          ConvertStableHLOControlFlowPass> {
  void runOnOperation() override {
    if (failed(convertStableHLOControlFlow(getOperation())))
      signalPassFailure();
  }
};
} // namespace
