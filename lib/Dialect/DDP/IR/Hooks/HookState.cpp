// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the states that hooks need.

#include "HookState.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::ddp;

ModuleSymbols::ModuleSymbols(ModuleOp module) : table(module) {
  for (Operation &op : *module.getBody())
    if (isa<ProcessGroupOp, StateOp>(op))
      lastState = &op;
}

ModuleOp mlir::ddp::getModule(const OpBuilder &builder) {
  Operation *parent = builder.getInsertionBlock()->getParentOp();
  auto module = dyn_cast<ModuleOp>(parent);
  return module ? module : parent->getParentOfType<ModuleOp>();
}

HookState::HookState(OpBuilder &builder, const BucketReduction &reduction)
    : builder(builder), reduction(reduction), loc(reduction.loc),
      module(getModule(builder)),
      symbols(reduction.symbols ? *reduction.symbols
                                : ownSymbols.emplace(module)) {}

FlatSymbolRefAttr HookState::getLevel(Placement placement, StringRef suffix) {
  FlatSymbolRefAttr parent = reduction.group;
  std::string name = (parent.getValue() + "." + suffix).str();
  Operation *known = module.lookupSymbol(name);
  if (!known) {
    Operation *whole = module.lookupSymbol(parent.getAttr());
    OpBuilder afterWhole(module.getContext());
    afterWhole.setInsertionPointAfter(whole);
    known = ProcessGroupOp::create(afterWhole, whole->getLoc(), name, placement,
                                   parent.getValue());
  }
  auto group = dyn_cast<ProcessGroupOp>(known);
  bool isLevel = group && group.getPlacement() == placement &&
                 group.getParentAttr() == parent;
  return isLevel ? FlatSymbolRefAttr::get(known) : FlatSymbolRefAttr();
}

FailureOr<StateOp> HookState::create(StateKind kind, const Twine &name,
                                     Type type, StatePlacement placement,
                                     StateInit init, IntegerAttr seed,
                                     FlatSymbolRefAttr generator,
                                     DenseI64ArrayAttr draws) {
  StringAttr symbol = builder.getStringAttr(name);
  if (Operation *existing = symbols.table.lookup(symbol))
    return (emitError(loc) << "expected the name @" << symbol.getValue()
                           << " to be free for a state")
               .attachNote(existing->getLoc())
           << "the name is used here";
  // Insert it after the other states, which are initialised in order.
  OpBuilder atStates = OpBuilder::atBlockBegin(module.getBody());
  Operation *&last = symbols.lastState;
  if (last) {
    // A hook may have declared process groups since.
    while (isa_and_present<ProcessGroupOp, StateOp>(last->getNextNode()))
      last = last->getNextNode();
    atStates.setInsertionPointAfter(last);
  }
  MLIRContext *context = builder.getContext();
  auto state =
      StateOp::create(atStates, loc, symbol, TypeAttr::get(type),
                      StatePlacementAttr::get(context, placement),
                      StateInitAttr::get(context, init), seed, generator, draws,
                      StateKindAttr::get(context, kind));
  symbols.table.insert(state);
  last = state;
  return state;
}

/// Returns the placement of a state whose value is equal on all ranks of a
/// process group: replicated, unless the group is only a part of the job.
static StatePlacement getPlacement(ModuleOp module, FlatSymbolRefAttr symbol) {
  auto group = module.lookupSymbol<ProcessGroupOp>(symbol.getAttr());
  bool isPart = group && (group.getPlacement() ||
                          (group.getRanks() && group.getRanks()->size() > 1));
  return isPart ? StatePlacement::PerRank : StatePlacement::Replicated;
}

/// Sets the role of a state of the bucket, and its gradients.
FailureOr<StateOp> HookState::describe(FailureOr<StateOp> state, StringRef role,
                                       Members members) {
  if (failed(state) || !reduction.gradients)
    return state;
  SmallVector<Attribute> lists;
  for (ArrayRef<int64_t> list : members) {
    SmallVector<Attribute> names;
    for (int64_t member : list)
      names.push_back(reduction.gradients[member]);
    lists.push_back(builder.getArrayAttr(names));
  }
  state->setRole(role);
  state->setGradientsAttr(builder.getArrayAttr(lists));
  return state;
}

/// Records that the bucket uses a state that others use too.
FailureOr<StateOp> HookState::share(FailureOr<StateOp> state, StringRef role) {
  if (failed(state))
    return state;
  if (reduction.sharedStates) {
    state->setRole(role);
    reduction.sharedStates->push_back(*state);
  }
  return state;
}

/// Returns the name BUCKET.WORD for the role HOOK.WORD.
static std::string getStateName(const BucketReduction &reduction,
                                StringRef role) {
  return (reduction.bucketName.getValue() + "." + role.rsplit('.').second)
      .str();
}

FailureOr<StateOp> HookState::createZero(StateKind kind, StringRef role,
                                         BucketType type, Members members) {
  return describe(create(kind, getStateName(reduction, role), type,
                         StatePlacement::PerRank, StateInit::Zero),
                  role, members);
}

FailureOr<StateOp> mlir::ddp::createGradientState(
    OpBuilder &builder, const BucketReduction &reduction, BucketType type,
    StringRef role, StateKind kind) {
  auto members = llvm::map_to_vector(
      llvm::seq<int64_t>(0, type.getNumMembers()),
      [](int64_t member) { return SmallVector<int64_t>{member}; });
  return HookState(builder, reduction).createZero(kind, role, type, members);
}

FailureOr<StateOp> HookState::createNormal(StringRef role, BucketType type,
                                           StateOp generator,
                                           ArrayRef<int64_t> draws,
                                           Members members) {
  return describe(create(StateKind::Factor, getStateName(reduction, role), type,
                         getPlacement(module, reduction.group),
                         StateInit::Normal, /*seed=*/{},
                         FlatSymbolRefAttr::get(generator.getSymNameAttr()),
                         builder.getDenseI64ArrayAttr(draws)),
                  role, members);
}

FailureOr<StateOp> HookState::createCounter(const Twine &name, StateKind kind) {
  return create(kind, name, builder.getI64Type(), StatePlacement::Replicated,
                StateInit::Zero);
}

FailureOr<StateOp> HookState::getGenerator(StringRef name, int64_t seed) {
  std::string numbered = (name + "." + Twine(seed)).str();
  for (StringRef candidate : {name, StringRef(numbered)})
    if (auto state = symbols.table.lookup<StateOp>(candidate))
      if (state.getInit() == StateInit::MT19937 &&
          static_cast<int64_t>(*state.getSeed()) == seed)
        return share(state, name);
  bool isFirst = !symbols.table.lookup(name);
  auto type =
      RankedTensorType::get({StateOp::kGeneratorWords}, builder.getI32Type());
  return share(create(StateKind::Generator,
                      isFirst ? Twine(name) : Twine(numbered), type,
                      StatePlacement::Replicated, StateInit::MT19937,
                      builder.getI64IntegerAttr(seed)),
               name);
}

FailureOr<StateOp> HookState::getCounter(StringRef name) {
  auto counter = symbols.table.lookup<StateOp>(name);
  if (!counter || !counter.getType().isInteger(64)) {
    FailureOr<StateOp> created = createCounter(name, StateKind::Counter);
    if (failed(created))
      return failure();
    counter = *created;
  }
  // Groups that are parts of the job may count differently.
  if (getPlacement(module, reduction.group) == StatePlacement::PerRank)
    counter.setPlacement(StatePlacement::PerRank);
  return share(counter, name);
}

FailureOr<Value> HookState::getIteration(StringRef name) {
  Block *block = builder.getInsertionBlock();
  auto isCounter = [&](StringRef symbol) {
    return symbol.consume_front(name) &&
           (symbol.empty() || symbol.starts_with("."));
  };
  for (auto load : block->getOps<LoadOp>())
    if (isCounter(load.getState())) {
      if (auto counter = symbols.table.lookup<StateOp>(load.getState()))
        (void)share(counter, name);
      return load.getValue();
    }

  auto [count, isNew] = symbols.numIterations.try_emplace(name);
  if (isNew)
    for (auto state : module.getOps<StateOp>())
      if (isCounter(state.getSymName()) && state.getType().isInteger(64))
        ++count->second;
  unsigned number = count->second++;
  std::string symbolName =
      number == 0 ? name.str() : (name + "." + Twine(number)).str();
  FailureOr<StateOp> counter =
      share(createCounter(symbolName, StateKind::Iteration), name);
  if (failed(counter))
    return failure();
  auto symbol = FlatSymbolRefAttr::get(counter->getSymNameAttr());
  OpBuilder atStart = OpBuilder::atBlockBegin(block);
  Value iteration =
      LoadOp::create(atStart, loc, builder.getI64Type(), symbol).getValue();
  OpBuilder atEnd(block, block->mightHaveTerminator()
                             ? Block::iterator(block->getTerminator())
                             : block->end());
  Value one = arith::ConstantIntOp::create(atEnd, loc, 1, /*width=*/64);
  StoreOp::create(atEnd, loc, arith::AddIOp::create(atEnd, loc, iteration, one),
                  symbol);
  return iteration;
}
