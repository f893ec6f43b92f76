//===- HookState.cpp -------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the states that hooks need.
//
//===----------------------------------------------------------------------===//

#include "HookState.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::ddp;

HookState::HookState(OpBuilder &builder, const BucketReduction &reduction)
    : builder(builder), loc(reduction.loc) {
  Operation *parent = builder.getInsertionBlock()->getParentOp();
  module = dyn_cast<ModuleOp>(parent);
  if (!module)
    module = parent->getParentOfType<ModuleOp>();
}

FailureOr<StateOp> HookState::create(const Twine &name, Type type,
                                     StatePlacement placement, StateInit init,
                                     IntegerAttr seed,
                                     FlatSymbolRefAttr generator,
                                     DenseI64ArrayAttr draws) {
  StringAttr symbol = builder.getStringAttr(name);
  if (Operation *existing = module.lookupSymbol(symbol)) {
    InFlightDiagnostic diagnostic = emitError(loc) << "expected the name @"
                                                   << symbol.getValue()
                                                   << " to be free for a state";
    diagnostic.attachNote(existing->getLoc()) << "this has it";
    return diagnostic;
  }
  // Behind the other states: they are initialised in order.
  OpBuilder atStates = OpBuilder::atBlockBegin(module.getBody());
  for (Operation &op : *module.getBody())
    if (isa<ProcessGroupOp, StateOp>(op))
      atStates.setInsertionPointAfter(&op);
  MLIRContext *context = builder.getContext();
  return StateOp::create(atStates, loc, symbol, TypeAttr::get(type),
                         StatePlacementAttr::get(context, placement),
                         StateInitAttr::get(context, init), seed, generator,
                         draws);
}

FailureOr<StateOp> HookState::createZero(const Twine &name, Type type,
                                         StatePlacement placement) {
  return create(name, type, placement, StateInit::Zero, {}, {}, {});
}

FailureOr<StateOp> HookState::createNormal(const Twine &name, BucketType type,
                                           StateOp generator,
                                           ArrayRef<int64_t> draws) {
  return create(name, type, StatePlacement::Replicated, StateInit::Normal, {},
                FlatSymbolRefAttr::get(generator.getSymNameAttr()),
                builder.getDenseI64ArrayAttr(draws));
}

FailureOr<StateOp> HookState::getGenerator(StringRef name, int64_t seed) {
  std::string numbered = (name + "." + Twine(seed)).str();
  for (StringRef candidate : {name, StringRef(numbered)})
    if (auto state = module.lookupSymbol<StateOp>(candidate))
      if (state.getInit() == StateInit::MT19937 &&
          static_cast<int64_t>(*state.getSeed()) == seed)
        return state;
  bool isFirst = !module.lookupSymbol(name);
  auto type =
      RankedTensorType::get({StateOp::kGeneratorWords}, builder.getI32Type());
  return create(isFirst ? Twine(name) : Twine(numbered), type,
                StatePlacement::Replicated, StateInit::MT19937,
                builder.getI64IntegerAttr(seed), {}, {});
}

FailureOr<StateOp> HookState::getCounter(StringRef name) {
  auto existing = module.lookupSymbol<StateOp>(name);
  if (existing && existing.getType().isInteger(64))
    return existing;
  return createZero(name, builder.getI64Type(), StatePlacement::Replicated);
}

FailureOr<Value> HookState::getIteration(StringRef name) {
  Block *block = builder.getInsertionBlock();
  auto isCounter = [&](StringRef symbol) {
    return symbol.consume_front(name) &&
           (symbol.empty() || symbol.starts_with("."));
  };
  unsigned numCounters = 0;
  for (auto state : module.getOps<StateOp>())
    if (isCounter(state.getSymName()) && state.getType().isInteger(64))
      ++numCounters;
  for (auto load : block->getOps<LoadOp>())
    if (isCounter(load.getState()))
      return load.getValue();

  FailureOr<StateOp> counter = createZero(
      numCounters == 0 ? Twine(name) : name + "." + Twine(numCounters),
      builder.getI64Type(), StatePlacement::Replicated);
  if (failed(counter))
    return failure();
  auto symbol = FlatSymbolRefAttr::get(counter->getSymNameAttr());
  OpBuilder atStart = OpBuilder::atBlockBegin(block);
  Value iteration =
      LoadOp::create(atStart, loc, builder.getI64Type(), symbol).getValue();
  OpBuilder atEnd(block, block->mightHaveTerminator()
                             ? Block::iterator(block->getTerminator())
                             : block->end());
  Value one = arith::ConstantOp::create(atEnd, loc, atEnd.getI64IntegerAttr(1));
  StoreOp::create(atEnd, loc, arith::AddIOp::create(atEnd, loc, iteration, one),
                  symbol);
  return iteration;
}
