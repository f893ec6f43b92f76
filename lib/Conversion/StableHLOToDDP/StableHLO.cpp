// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "StableHLO.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace mlir::ddp;

std::string mlir::ddp::getText(Attribute attribute) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (attribute)
    attribute.print(stream, /*elideType=*/true);
  return text;
}

std::optional<OperandRange> mlir::ddp::getYielded(Block &block,
                                                  StringRef terminator) {
  if (block.empty() || !isNamed(&block.back(), terminator) ||
      block.back().getNumResults() != 0)
    return std::nullopt;
  return block.back().getOperands();
}

std::optional<StringRef> mlir::ddp::matchCombiner(Region &region, Type type) {
  if (!region.hasOneBlock())
    return std::nullopt;
  Block &body = region.front();
  auto yielded = getYielded(body, "stablehlo.return");
  if (!yielded || yielded->size() != 1 || body.getNumArguments() != 2 ||
      !llvm::hasNItems(body, 2))
    return std::nullopt;
  Operation &combiner = body.front();
  auto isNumber = [&](Value value) { return value.getType() == type; };
  if (combiner.getNumOperands() != 2 || combiner.getNumResults() != 1 ||
      combiner.getNumRegions() != 0 || (*yielded)[0] != combiner.getResult(0) ||
      !llvm::all_of(combiner.getResults(), isNumber) ||
      !llvm::all_of(body.getArguments(), isNumber) ||
      !std::is_permutation(combiner.operand_begin(), combiner.operand_end(),
                           body.args_begin()))
    return std::nullopt;
  return combiner.getName().getStringRef();
}

bool mlir::ddp::isCollective(Operation *op) {
  StringRef name = op->getName().getStringRef();
  if (!name.consume_front("stablehlo.") && !name.consume_front("mhlo."))
    return false;
  // An asynchronous collective is a pair of operations.
  if (!name.consume_back("_start"))
    name.consume_back("_done");
  return llvm::StringSwitch<bool>(name)
      .Cases({"all_gather", "all_reduce", "all_to_all", "collective_broadcast",
              "collective_permute", "cross-replica-sum", "reduce_scatter"},
             true)
      .Cases(
          {"infeed", "outfeed", "partition_id", "recv", "replica_id", "send"},
          true)
      .Default(false);
}

bool mlir::ddp::isComputation(Operation *op) {
  StringRef dialect = op->getName().getDialectNamespace();
  if ((dialect != "stablehlo" && dialect != "chlo") || isCollective(op) ||
      op->hasSuccessors() || op->getNumResults() == 0)
    return false;
  // A reduce is the only operation with a region that contains no program.
  if (op->getNumRegions() != 0 && !isNamed(op, "stablehlo.reduce"))
    return false;
  return llvm::StringSwitch<bool>(op->getName().getStringRef())
      .Cases({"stablehlo.after_all", "stablehlo.async_done",
              "stablehlo.composite", "stablehlo.create_token",
              "stablehlo.custom_call", "stablehlo.rng"},
             false)
      .Default(true);
}

bool mlir::ddp::isRearrangement(Operation *op) {
  if (op->getNumOperands() != 1 || op->getNumResults() != 1 ||
      op->getNumRegions() != 0)
    return false;
  auto from = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  auto to = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  return from && to && from.getElementType() == to.getElementType() &&
         llvm::StringSwitch<bool>(op->getName().getStringRef())
             .Cases({"stablehlo.broadcast_in_dim",
                     "stablehlo.optimization_barrier", "stablehlo.reshape",
                     "stablehlo.transpose"},
                    true)
             .Default(false);
}

bool mlir::ddp::isFloatConversion(Operation *op) {
  if (!isNamed(op, "stablehlo.convert") || op->getNumOperands() != 1 ||
      op->getNumResults() != 1)
    return false;
  auto from = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  auto to = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  return from && to && from.getShape() == to.getShape() &&
         isa<FloatType>(from.getElementType()) &&
         isa<FloatType>(to.getElementType());
}

/// Converts `number` to another type, rounding to nearest as stablehlo does.
static APFloat convert(APFloat number, const llvm::fltSemantics &semantics) {
  bool losesInfo;
  number.convert(semantics, APFloat::rmNearestTiesToEven, &losesInfo);
  return number;
}

static std::optional<APFloat> getSplat(Value value, unsigned depth) {
  // JAX puts fewer operations between a number and its use.
  constexpr unsigned maxDepth = 8;
  Operation *op = value.getDefiningOp();
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!op || !type || depth == maxDepth)
    return std::nullopt;
  auto elementType = dyn_cast<FloatType>(type.getElementType());
  if (!elementType)
    return std::nullopt;
  if (isNamed(op, "stablehlo.constant")) {
    auto elements = dyn_cast_or_null<SplatElementsAttr>(op->getAttr("value"));
    if (!elements || elements.getType() != type)
      return std::nullopt;
    return elements.getSplatValue<APFloat>();
  }
  if (isRearrangement(op))
    return getSplat(op->getOperand(0), depth + 1);
  if (isFloatConversion(op))
    if (auto number = getSplat(op->getOperand(0), depth + 1))
      return convert(*number, elementType.getFloatSemantics());
  return std::nullopt;
}

std::optional<APFloat> mlir::ddp::getSplat(Value value) {
  return ::getSplat(value, /*depth=*/0);
}

Value mlir::ddp::getOnlySource(Operation *op) {
  if (!isComputation(op))
    return {};
  SetVector<Value> sources(op->operand_begin(), op->operand_end());
  sources.remove_if([](Value value) {
    return getSplat(value) ||
           isNamed(value.getDefiningOp(), "stablehlo.constant");
  });
  return sources.size() == 1 ? sources.front() : Value();
}

LogicalResult mlir::ddp::replaceByValues(Operation *op, ValueRange values) {
  if (llvm::any_of(values,
                   [&](Value value) { return value.getDefiningOp() == op; }))
    return op->emitOpError() << "expected results that do not depend on "
                                "themselves";
  op->replaceAllUsesWith(values);
  op->erase();
  return success();
}
