// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Exports states, branches and scalars of a function; ExportBuckets.cpp exports
// operations on buckets.

#include "ExportFunction.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::ddp;

bool mlir::ddp::isXLADialect(StringRef dialect) {
  return llvm::is_contained({"stablehlo", "chlo", "mhlo", "sdy", "func"},
                            dialect);
}

InFlightDiagnostic FunctionExporter::refuse(Operation *op) {
  return op->emitOpError() << "has no form in StableHLO";
}

/// Adds an argument and a result for every state that the function uses and
/// that has elements.
void FunctionExporter::addStates(Scope &scope) {
  llvm::DenseSet<StringAttr> used;
  function.walk([&](Operation *op) {
    if (auto load = dyn_cast<LoadOp>(op))
      used.insert(load.getStateAttr().getAttr());
    else if (auto store = dyn_cast<StoreOp>(op))
      used.insert(store.getStateAttr().getAttr());
  });
  for (auto state : context.module.getOps<StateOp>()) {
    if (!used.contains(state.getSymNameAttr()))
      continue;
    RankedTensorType type = getExportedType(state);
    if (type.getNumElements() == 0) {
      scope.states[state.getSymNameAttr()] = {};
      continue;
    }
    unsigned argument = function.getNumArguments(),
             result = function.getNumResults();
    // JAX marks an argument that may share its memory with a result like this.
    auto attributes = hlo.getDictionaryAttr(
        hlo.getNamedAttr("tf.aliasing_output", hlo.getI32IntegerAttr(result)));
    (void)function.insertArgument(argument, type, attributes, state.getLoc());
    (void)function.insertResult(result, type, DictionaryAttr());
    scope.states[state.getSymNameAttr()].flat =
        cast<TensorValue>(Value(function.getArgument(argument)));
    states.push_back(state);
    context.manifest.functions[function.getSymName()].push_back(
        {state, argument, result});
  }
}

void FunctionExporter::returnStates(Scope &scope) {
  Operation *terminator = function.getBody().front().getTerminator();
  hlo.setInsertionPoint(terminator);
  SmallVector<Value> values;
  for (StateOp state : states)
    values.push_back(getFlat(state, scope.states[state.getSymNameAttr()]));
  terminator->insertOperands(terminator->getNumOperands(), values);
}

/// Erases the replaced operations. Reports remaining users.
LogicalResult FunctionExporter::eraseDead() {
  for (Operation *op : llvm::reverse(dead)) {
    for (Operation *user : op->getUsers())
      return refuse(user) << " with an operand of type "
                          << op->getResult(0).getType();
    op->erase();
  }
  return success();
}

/// Rejects types that StableHLO lacks.
static LogicalResult checkTypes(func::FuncOp function) {
  for (Type type : llvm::concat<const Type>(function.getArgumentTypes(),
                                            function.getResultTypes()))
    if (isa<BucketType, MemRefType>(type) || type.isIntOrIndexOrFloat())
      return function.emitOpError()
             << "has no form in StableHLO with a value of type " << type;
  return success();
}

LogicalResult FunctionExporter::run() {
  if (failed(checkTypes(function)))
    return failure();
  if (function.isExternal())
    return success();
  Scope scope;
  addStates(scope);
  if (!states.empty() && !function.getBody().hasOneBlock())
    return function.emitOpError()
           << "expected a single block, since it has states";
  for (Block &block : function.getBody())
    if (failed(convertBlock(block, scope)))
      return failure();
  if (!states.empty())
    returnStates(scope);
  return eraseDead();
}

LogicalResult FunctionExporter::convertBlock(Block &block, Scope &scope) {
  for (Operation &op : llvm::make_early_inc_range(block)) {
    hlo.setInsertionPoint(&op);
    hlo.setLoc(op.getLoc());
    if (failed(convertOp(&op, scope)))
      return failure();
  }
  return success();
}

/// Checks that operands are converted: StableHLO has no buckets or scalars.
LogicalResult FunctionExporter::checkOperands(Operation *op) {
  for (Value operand : op->getOperands()) {
    Type type = operand.getType();
    if (isa<BucketType>(type)
            ? !buckets.contains(operand)
            : isa<IntegerType>(type) && !numbers.contains(operand))
      return refuse(op) << " with an operand of type " << type
                        << " that is not made in this function";
  }
  return success();
}

LogicalResult FunctionExporter::convertOp(Operation *op, Scope &scope) {
  if (isXLADialect(op->getName().getDialectNamespace())) {
    Scope inner = scope;
    inner.around = op;
    for (Region &region : op->getRegions())
      for (Block &block : region)
        if (failed(convertBlock(block, inner)))
          return failure();
    return success();
  }
  if (failed(checkOperands(op)))
    return failure();
  Type whole;
  if (isa<PackOp, ConcatOp>(op))
    whole = op->getResult(0).getType();
  else if (isa<UnpackOp, SplitOp>(op))
    whole = op->getOperand(0).getType();
  if (whole && !isa<BucketType>(whole))
    return refuse(op) << "; expected a module before 'ddp-flatten'";
  dead.push_back(op);
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<AllReduceOp, CastOp, ConcatOp, ExtractOp, IsFiniteOp, MatmulOp,
            OrthogonalizeOp, PackOp, ResizeOp, ScaleOp, SplitOp, UnpackOp,
            CountCompressionOp, arith::ConstantOp, arith::CmpIOp>(
          [&](auto known) { return convert(known); })
      .Case<AllGatherOp, AllToAllOp, BroadcastOp, ReduceScatterOp>(
          [&](auto exchange) -> LogicalResult {
            FailureOr<DenseIntElementsAttr> groups = getRanks(exchange);
            if (succeeded(groups))
              convert(exchange, *groups);
            return groups;
          })
      .Case<LoadOp, StoreOp, scf::IfOp>(
          [&](auto known) { return convert(known, scope); })
      .Case<AddOp>([&](auto add) { return convertBinary(add, "add"); })
      .Case<SubOp>([&](auto sub) { return convertBinary(sub, "subtract"); })
      .Case<arith::AddIOp>([&](auto) { return convertNumbers(op, "add"); })
      .Case<arith::SubIOp>([&](auto) { return convertNumbers(op, "subtract"); })
      .Case<arith::RemSIOp>(
          [&](auto) { return convertNumbers(op, "remainder"); })
      .Case<arith::AndIOp>([&](auto) { return convertNumbers(op, "and"); })
      .Case<arith::OrIOp>([&](auto) { return convertNumbers(op, "or"); })
      .Case<scf::YieldOp>([](auto) { return success(); })
      // A copy that ddp-expand-averages inserts for bufferization.
      .Case<linalg::CopyOp>([&](linalg::CopyOp copy) -> LogicalResult {
        if (!copy.hasPureTensorSemantics() ||
            copy->getResult(0).getType() != copy.getInputs().front().getType())
          return refuse(op);
        copy->getResult(0).replaceAllUsesWith(copy.getInputs().front());
        return success();
      })
      .Case<RandomNormalOp>([&](auto) {
        return refuse(op) << "; expected no random numbers in a step, as with "
                             "warm_start = true";
      })
      .Case<ProjectOp, ReconstructOp, AllReduceStartOp, ExchangeStartOp,
            WaitOp>([&](auto) {
        return refuse(op) << "; expected a module before 'ddp-fuse' and "
                             "'ddp-overlap'";
      })
      .Default([&](Operation *) { return refuse(op); });
}

LogicalResult FunctionExporter::checkScope(StateOp state, Scope &scope) {
  if (!scope.around)
    return success();
  InFlightDiagnostic diagnostic =
      emitError(hlo.getLoc())
      << "expected a hook without states in '" << scope.around->getName()
      << "', where XLA keeps no state between steps, but got one with state @"
      << state.getSymName();
  llvm::SetVector<Attribute> names;
  if (std::optional<ArrayAttr> gradients = state.getGradients())
    for (Attribute list : *gradients)
      names.insert_range(cast<ArrayAttr>(list));
  if (!names.empty())
    diagnostic << " of gradient " << names.front();
  if (names.size() > 1)
    diagnostic << " and " << names.size() - 1 << " more";
  // With check_vma, JAX itself inserts sums where gradients are computed.
  diagnostic << "; reduce what '" << scope.around->getName()
             << "' returns (in JAX: 'pmean' after 'value_and_grad', with "
                "check_vma=False), or set another hook";
  diagnostic.attachNote(scope.around->getLoc()) << "in this operation";
  return diagnostic;
}

const Members &FunctionExporter::getMembers(StateOp state, StateValue &value) {
  if (!value.members.empty() || !value.flat)
    return value.members;
  if (auto bucket = dyn_cast<BucketType>(state.getType()))
    value.members = split(value.flat, bucket);
  else
    value.members = {hlo.convert(value.flat, hlo.getI64Type())};
  return value.members;
}

TensorValue FunctionExporter::getFlat(StateOp state, StateValue &value) {
  if (value.flat || value.members.empty())
    return value.flat;
  RankedTensorType type = getExportedType(state);
  if (isa<BucketType>(state.getType())) {
    value.flat = join(value.members, type.getElementType());
    return value.flat;
  }
  // A counter saturates instead of wrapping around.
  TensorValue count = value.members.front();
  TensorValue limit = hlo.constant(int64_t(std::numeric_limits<int32_t>::max()),
                                   count.getType());
  value.flat =
      hlo.convert(hlo.binary("minimum", count, limit), type.getElementType());
  return value.flat;
}

LogicalResult FunctionExporter::convert(LoadOp op, Scope &scope) {
  StateOp state = lookupState(op.getStateAttr());
  if (failed(checkScope(state, scope)))
    return failure();
  StateValue &value = scope.states[state.getSymNameAttr()];
  Type type = op.getValue().getType();
  if (type.isInteger(64))
    numbers[op.getValue()] = getMembers(state, value).front();
  else if (isa<BucketType>(type))
    set(op.getValue(), getMembers(state, value));
  else
    return refuse(op) << " with a result of type " << type;
  return success();
}

LogicalResult FunctionExporter::convert(StoreOp op, Scope &scope) {
  if (failed(checkScope(lookupState(op.getStateAttr()), scope)))
    return failure();
  Value value = op.getValue();
  StateValue &state = scope.states[op.getStateAttr().getAttr()];
  if (value.getType().isInteger(64))
    state = {TensorValue(), {numbers.lookup(value)}};
  else if (isa<BucketType>(value.getType()))
    state = {TensorValue(), get(value)};
  else
    return refuse(op) << " with an operand of type " << value.getType();
  return success();
}

/// Records static statistics in the manifest; XLA keeps none.
LogicalResult FunctionExporter::convert(CountCompressionOp op) {
  context.manifest.compressions[op.getBucketName()] = {op.getBefore(),
                                                       op.getAfter()};
  return success();
}

/// Exports a branch. States that it stores become results, too.
LogicalResult FunctionExporter::convert(scf::IfOp op, Scope &scope) {
  llvm::SetVector<StringAttr> stored;
  op.walk([&](StoreOp store) {
    if (getExportedType(lookupState(store.getStateAttr())).getNumElements())
      stored.insert(store.getStateAttr().getAttr());
  });
  SmallVector<Type> types;
  for (Type type : op.getResultTypes()) {
    if (isa<IntegerType>(type))
      type = RankedTensorType::get({}, type);
    auto bucket = dyn_cast<BucketType>(type);
    if (!bucket)
      types.push_back(type);
    for (unsigned i = 0; bucket && i < bucket.getNumMembers(); ++i)
      types.push_back(bucket.getMemberType(i));
  }
  for (StringAttr name : stored)
    types.push_back(
        getExportedType(context.module.lookupSymbol<StateOp>(name)));
  Operation *branches =
      hlo.createOp("if", types, Value(numbers[op.getCondition()]),
                   /*attributes=*/{}, /*numRegions=*/2);
  for (auto [number, region] : llvm::enumerate(op->getRegions())) {
    if (region.empty())
      region.emplaceBlock();
    Scope inner = scope;
    if (failed(convertBlock(region.front(), inner)))
      return failure();
    hlo.setInsertionPointToEnd(&region.front());
    SmallVector<Value> results;
    // The scf.if may have no else branch.
    if (!region.front().empty()) {
      Operation *yield = region.front().getTerminator();
      hlo.setInsertionPoint(yield);
      for (Value value : yield->getOperands()) {
        if (isa<BucketType>(value.getType()))
          llvm::append_range(results, get(value));
        else
          results.push_back(numbers.contains(value) ? numbers[value] : value);
      }
    }
    for (StringAttr name : stored)
      results.push_back(getFlat(context.module.lookupSymbol<StateOp>(name),
                                inner.states[name]));
    hlo.setLoc(op.getLoc());
    hlo.createOp("return", {}, results);
    branches->getRegion(number).takeBody(region);
  }

  auto next = branches->result_begin();
  for (Value result : op.getResults()) {
    auto bucket = dyn_cast<BucketType>(result.getType());
    if (bucket) {
      Members members;
      for (unsigned i = 0; i < bucket.getNumMembers(); ++i)
        members.push_back(cast<TensorValue>(Value(*next++)));
      set(result, members);
    } else if (isa<IntegerType>(result.getType())) {
      numbers[result] = cast<TensorValue>(Value(*next++));
    } else {
      result.replaceAllUsesWith(*next++);
    }
  }
  for (StringAttr name : stored)
    scope.states[name] = {cast<TensorValue>(Value(*next++)), {}};
  return success();
}

LogicalResult FunctionExporter::convert(arith::ConstantOp op) {
  if (auto elements = dyn_cast<ElementsAttr>(op.getValue());
      elements && isa<RankedTensorType>(op.getType())) {
    op.getResult().replaceAllUsesWith(hlo.constant(elements));
    return success();
  }
  auto integer = dyn_cast<IntegerAttr>(op.getValue());
  if (!integer || !(op.getType().isInteger(64) || op.getType().isInteger(1)))
    return refuse(op);
  auto type = RankedTensorType::get({}, op.getType());
  numbers[op.getResult()] =
      hlo.constant(SplatElementsAttr::get(type, Attribute(integer)));
  return success();
}

LogicalResult FunctionExporter::convertNumbers(Operation *op, StringRef name) {
  SmallVector<Value> operands;
  for (Value operand : op->getOperands()) {
    if (!isa<IntegerType>(operand.getType()))
      return refuse(op);
    operands.push_back(numbers[operand]);
  }
  numbers[op->getResult(0)] = hlo.create(
      name, cast<RankedTensorType>(operands.front().getType()), operands);
  return success();
}

LogicalResult FunctionExporter::convert(arith::CmpIOp op) {
  static constexpr std::pair<arith::CmpIPredicate, StringLiteral> kNames[] = {
      {arith::CmpIPredicate::eq, "EQ"},  {arith::CmpIPredicate::ne, "NE"},
      {arith::CmpIPredicate::slt, "LT"}, {arith::CmpIPredicate::sle, "LE"},
      {arith::CmpIPredicate::sgt, "GT"}, {arith::CmpIPredicate::sge, "GE"}};
  const auto *name = llvm::find_if(
      kNames, [&](auto &row) { return row.first == op.getPredicate(); });
  if (name == std::end(kNames) || !isa<IntegerType>(op.getLhs().getType()))
    return refuse(op);
  numbers[op.getResult()] =
      hlo.compare(name->second, numbers[op.getLhs()], numbers[op.getRhs()]);
  return success();
}
