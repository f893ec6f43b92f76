// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The control flow of the analysis: branches, loops and calls. RankBlocks.cpp
// follows regions of several blocks.

#include "RankAnalysis.h"
#include "LoopSlices.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace mlir::ddp;

/// Functions are followed anew for each call, loops until they are stable. Both
/// are given up after `minVisits` operations and `visitsPerOp` for each of the
/// module's operations; loops after twice as many.
constexpr uint64_t minVisits = 100000, visitsPerOp = 200;
/// How many results of a function are remembered.
constexpr size_t maxAnswers = 4;

RankAnalysis::RankAnalysis(ModuleOp module)
    : groups(module),
      transfer(groups, facts, regions,
               [this](Operation *op, const RankControl &control) {
                 visit(op, control);
               }),
      module(module) {
  uint64_t numOps = 0;
  module->walk([&](Operation *) { ++numOps; });
  maxVisited = minVisits + visitsPerOp * numOps;
  facts.reserve(2 * numOps);
}

void RankAnalysis::run() {
  SmallVector<FunctionOpInterface> functions;
  module->walk([&](Operation *op) {
    if (auto call = dyn_cast<CallOpInterface>(op))
      called.insert(call.resolveCallableInTable(&symbols));
    if (auto function = dyn_cast<FunctionOpInterface>(op);
        function && !function.isExternal())
      functions.push_back(function);
  });
  do {
    regions.statesChanged = false;
    // The next step finds the value that this step leaves in a state.
    answers.clear();
    for (FunctionOpInterface function : functions)
      if (function.isPublic() || !called.contains(function))
        runEntry(function);
  } while (regions.statesChanged);
  for (auto [where, set] : transfer.reducedSources)
    facts.sources.addReduced(set);
}

void RankAnalysis::runAlone(FunctionOpInterface function) {
  if (!called.contains(function))
    return;
  transfer.isRecording = false;
  runEntry(function);
  transfer.isRecording = true;
}

void RankAnalysis::runEntry(FunctionOpInterface function) {
  SmallVector<RankFact> arguments;
  regions.startEntry();
  for (BlockArgument argument : function.getArguments())
    arguments.push_back(regions.createArgument(
        argument, !!function.getArgAttr(argument.getArgNumber(),
                                        DDPDialect::kReplicatedAttrName)));
  callStack.assign(1, function);
  visitFunction(function, arguments, RankControl());
  callStack.clear();
  if (!transfer.isRecording)
    return;
  for (auto state : module.getOps<StateOp>()) {
    StringAttr name = state.getSymNameAttr();
    RankMask after = kAllRanks;
    if (regions.isWritten(name.getAsOpaquePointer())) {
      after = memory.getUniform(name.getAsOpaquePointer());
      leftInStates[{function, name}] = after;
    }
    (void)regions.narrowState(state, FlatSymbolRefAttr::get(name), after);
  }
}

void RankAnalysis::visitFunction(FunctionOpInterface function,
                                 ArrayRef<RankFact> arguments,
                                 const RankControl &control) {
  Region &body = function.getFunctionBody();
  for (auto [argument, fact] : llvm::zip(body.getArguments(), arguments))
    facts[argument] = fact;
  visitRegion(body, control);
  for (Block &block : body) {
    Operation *terminator = block.getTerminator();
    if (terminator->hasTrait<OpTrait::ReturnLike>())
      returned[terminator] = facts.lookupAll(terminator->getOperands());
  }
}

/// True if nothing that the function or what it calls does depends on memory.
static bool touchesNoMemory(Operation *function) {
  auto touches = [](Operation *op) {
    return WalkResult(failure(isa<CallOpInterface>(op) ||
                              llvm::any_of(op->getOperands(), isMemory) ||
                              llvm::any_of(op->getResults(), isMemory)));
  };
  return !function->walk(touches).wasInterrupted();
}

bool RankAnalysis::holdsCollectives(Operation *op) {
  auto [it, isNew] = withCollectives.try_emplace(op, false);
  if (!isNew)
    return it->second;
  // A function that calls itself: the entry stands for what is not known yet.
  bool holds = false;
  op->walk([&](Operation *nested) {
    if (isa<CollectiveOpInterface, AverageOp>(nested))
      holds = true;
    else if (auto call = dyn_cast<CallOpInterface>(nested))
      if (Operation *callee = call.resolveCallableInTable(&symbols))
        holds |= holdsCollectives(callee);
    return holds ? WalkResult::interrupt() : WalkResult::advance();
  });
  return withCollectives[op] = holds;
}

void RankAnalysis::visitCall(CallOpInterface call, const RankControl &control) {
  auto function = dyn_cast_or_null<FunctionOpInterface>(
      call.resolveCallableInTable(&symbols));
  bool isKnown = function && !function.isExternal() &&
                 function.getNumArguments() == call.getArgOperands().size();
  if (isKnown) {
    bool isRecursive = llvm::is_contained(callStack, function.getOperation());
    if (isRecursive || numVisited > maxVisited) {
      isKnown = false;
      if (holdsCollectives(function))
        (isRecursive ? recursive : exhausted).insert(call);
    }
  }
  if (!isKnown)
    return transfer.applyEffects(call, control);
  if (holdsCollectives(function))
    transfer.recordReach(call, control, 0);

  Answer question;
  question.mask = control.mask;
  for (auto [number, operand] : llvm::enumerate(call.getArgOperands())) {
    RankFact fact = facts.lookup(operand);
    if (function.getArgAttr(number, DDPDialect::kReplicatedAttrName)) {
      fact.uniform = kAllRanks;
      if (fact.count.times == GradientCount::Unreduced)
        fact.count = GradientCount();
    }
    question.arguments.push_back(fact);
  }
  auto [known, isNew] = withoutMemory.try_emplace(function, false);
  if (isNew)
    known->second = touchesNoMemory(function);
  bool mayRemember = known->second;
  const Answer *answer = nullptr;
  if (mayRemember)
    for (const Answer &candidate : answers[function])
      if (candidate.mask == question.mask &&
          candidate.arguments == question.arguments)
        answer = &candidate;
  if (!answer) {
    callStack.push_back(function);
    RankControl inside{control.mask, call, &control};
    visitFunction(function, question.arguments, inside);
    callStack.pop_back();
    std::optional<SmallVector<RankFact>> results;
    RankMask same = kAllRanks;
    for (Block &block : function.getFunctionBody()) {
      auto it = returned.find(block.getTerminator());
      if (it == returned.end())
        continue;
      // Ranks may leave through different returns.
      same &= leftBy.lookup_or(block.getTerminator(), kAllRanks);
      if (!results) {
        results = it->second;
        continue;
      }
      for (auto [result, other] : llvm::zip(*results, it->second)) {
        result = facts.join(result, other);
        result.uniform &= same;
      }
    }
    question.results = results.value_or(SmallVector<RankFact>());
    SmallVector<Answer, 2> &all = answers[function];
    if (all.size() >= maxAnswers)
      all.erase(all.begin());
    all.push_back(std::move(question));
    answer = &all.back();
  }
  for (auto [result, fact] : llvm::zip(call->getResults(), answer->results))
    facts[result] = fact;
  regions.renameMade(call, function);
}

LogicalResult RankAnalysis::reportUnfollowed() const {
  for (Operation *call : recursive)
    call->emitOpError() << "expected no collectives in recursive functions, "
                        << "because it is not known how often they run";
  for (Operation *op : exhausted)
    op->emitOpError()
        << "expected at most " << maxVisited
        << " operations, counting those of all calls and loops, but got more";
  return success(recursive.empty() && exhausted.empty());
}

void RankAnalysis::visitRegion(Region &region, const RankControl &control) {
  if (region.empty())
    return;
  if (region.hasOneBlock())
    return visitBlock(region.front(), control);
  visitBlocks(region, control);
}

void RankAnalysis::visitBlock(Block &block, const RankControl &control) {
  for (Operation &op : block)
    visit(&op, control);
}

void RankAnalysis::visit(Operation *op, const RankControl &control) {
  ++numVisited;
  if (isa<CallOpInterface>(op))
    return visitCall(cast<CallOpInterface>(op), control);
  if (op->getNumRegions() == 0)
    return transfer.apply(op, control);
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return visitChoice(op, branch.getCondition(), control);
  if (auto branch = dyn_cast<scf::IndexSwitchOp>(op))
    return visitChoice(op, branch.getArg(), control);
  if (isa<scf::ExecuteRegionOp, affine::AffineIfOp>(op))
    return visitChoice(op, op->getOperands(), control);
  if (isa<scf::ForOp, affine::AffineForOp>(op))
    return visitLoop(cast<LoopLikeOpInterface>(op), control);
  if (auto loop = dyn_cast<scf::WhileOp>(op))
    return visitWhile(loop, control);
  if (auto forall = dyn_cast<scf::ForallOp>(op);
      forall && op->getNumResults() != 0 && touchesNoMemory(op))
    return visitForall(forall);
  // In memory, one iteration is like another.
  if (isa<scf::ForallOp, scf::ParallelOp, affine::AffineParallelOp>(op) &&
      op->getNumResults() == 0 && !holdsCollectives(op))
    return visitLoop(cast<LoopLikeOpInterface>(op), control);
  if (isa<tensor::GenerateOp>(op) && touchesNoMemory(op))
    return visitGenerate(op);
  if (isa<DestinationStyleOpInterface>(op) && !isa<scf::ForallOp>(op))
    return transfer.apply(op, control);
  visitUnknownRegions(op, control);
}

/// One of the regions runs, and `deciding` says which.
void RankAnalysis::visitChoice(Operation *op, ValueRange deciding,
                               const RankControl &control) {
  RankMask choice = kAllRanks;
  for (Value value : deciding)
    choice &= facts.lookup(value).uniform;
  RankControl inside{control.mask & choice, op, &control};
  RankMemory before = memory;
  std::optional<RankMemory> after;
  SmallVector<std::pair<Value, RankFact>> results;
  RankMask same = choice;
  auto leave = [&](Operation *terminator) {
    ValueRange values = terminator->getOperands();
    same &= leftBy.lookup_or(terminator, kAllRanks);
    if (after)
      after->join(memory, choice);
    else
      after = memory;
    for (auto [number, value] : llvm::enumerate(values)) {
      RankFact fact = facts.lookup(value);
      if (number == results.size()) {
        results.push_back({value, fact});
        continue;
      }
      auto &[other, joined] = results[number];
      joined = facts.join(joined, fact);
      if (other != value)
        joined.uniform &= same;
    }
  };
  bool isComplete = true;
  for (Region &region : op->getRegions()) {
    isComplete &= !region.empty();
    if (region.empty())
      continue;
    memory = before;
    visitRegion(region, inside);
    for (Block &block : region)
      if (Operation *terminator = block.getTerminator();
          terminator->hasTrait<OpTrait::ReturnLike>())
        leave(terminator);
  }
  if (!isComplete && after)
    after->join(before, choice);
  // If a start on the same condition follows, keep the memory of the else
  // branch, which was analyzed last: the start does not run after it.
  if (auto branch = dyn_cast<scf::IfOp>(op); branch && isComplete)
    if (Operation *start = findStartAfter(branch))
      regions.keepWithoutStart(start);
  memory = after ? *after : before;
  for (auto [result, fact] : llvm::zip(op->getResults(), results))
    facts[result] = fact.second;
}

/// The slice that a loop inserts into the tensor that it carries as `number`,
/// if its iterations together write all of it.
static tensor::InsertSliceOp findCoveringInsert(LoopLikeOpInterface loop,
                                                unsigned number) {
  SmallVector<LoopRange> ranges = getRanges(loop);
  Value yielded = loop.getYieldedValues()[number];
  // ddp-yield-in-place writes the value to the memory of the loop's argument.
  if (auto write =
          yielded.getDefiningOp<bufferization::MaterializeInDestinationOp>())
    yielded = write.getSource();
  auto insert = yielded.getDefiningOp<tensor::InsertSliceOp>();
  if (ranges.size() != 1 || !insert ||
      insert.getDest() != loop.getRegionIterArgs()[number] ||
      insert->getParentOp() != loop ||
      !coversAll(insert, insert.getType(), ranges))
    return {};
  return insert;
}

void RankAnalysis::visitLoop(LoopLikeOpInterface loop,
                             const RankControl &control) {
  // All operands except the carried values decide about the number of
  // iterations.
  MutableArrayRef<OpOperand> carried = loop.getInitsMutable();
  RankMask bounds = kAllRanks;
  for (OpOperand &operand : loop->getOpOperands())
    if (&operand < carried.begin() || &operand >= carried.end())
      bounds &= facts.lookup(operand.get()).uniform;
  OperandRange inits = loop.getInits();
  RankControl inside{control.mask & bounds, loop, &control};
  RankFact ofBounds;
  ofBounds.uniform = bounds;
  if (std::optional<SmallVector<Value>> variables = loop.getLoopInductionVars())
    for (Value variable : *variables)
      facts[variable] = ofBounds;
  std::optional<APInt> tripCount = loop.getStaticTripCount();
  bool runsAtMostOnce = tripCount && tripCount->ule(1);

  for (auto [argument, init] : llvm::zip(loop.getRegionIterArgs(), inits))
    facts[argument] = facts.lookup(init);
  RankMemory before = memory;
  if (tripCount && !tripCount->isZero())
    regions.forgetOverwritten(loop);
  Block &body = loop.getLoopRegions().front()->front();
  SmallVector<RankFact> yielded;
  while (true) {
    RankMemory start = memory;
    visitBlock(body, inside);
    yielded = facts.lookupAll(loop.getYieldedValues());
    if (numVisited > 2 * maxVisited)
      exhausted.insert(loop);
    if (runsAtMostOnce || numVisited > 2 * maxVisited)
      break;
    bool isStable = true;
    for (auto [argument, after] : llvm::zip(loop.getRegionIterArgs(), yielded))
      isStable &=
          !facts.update(argument, facts.join(facts.lookup(argument), after));
    RankMemory joined = start;
    joined.join(memory, bounds);
    isStable &= joined == start;
    if (isStable)
      break;
    memory = joined;
  }
  if (!tripCount || tripCount->isZero())
    memory.join(before, bounds);
  for (auto [result, init, after] :
       llvm::zip(loop->getResults(), inits, yielded)) {
    RankFact fact = after;
    auto insert = findCoveringInsert(loop, result.getResultNumber());
    if (tripCount && tripCount->isZero()) {
      fact = facts.lookup(init);
    } else if (insert) {
      // The loop overwrites all of its initial value.
      const RankFact &slice = facts.lookup(insert.getSource());
      fact.uniform = slice.uniform;
      fact.count = slice.count;
      fact.count.elements = after.count.elements;
    } else if (!tripCount) {
      fact = facts.join(after, facts.lookup(init));
    }
    fact.uniform &= bounds;
    facts[result] = fact;
  }
}

void RankAnalysis::visitWhile(scf::WhileOp loop, const RankControl &control) {
  RankMask choice = kAllRanks;
  for (auto [argument, init] :
       llvm::zip(loop.getBeforeArguments(), loop.getInits()))
    facts[argument] = facts.lookup(init);
  while (true) {
    RankControl inside{control.mask & choice, loop, &control};
    RankMemory start = memory;
    visitRegion(loop.getBefore(), inside);
    RankMemory leaving = memory;
    scf::ConditionOp condition = loop.getConditionOp();
    RankMask next = choice & facts.lookup(condition.getCondition()).uniform;
    for (auto [argument, value] :
         llvm::zip(loop.getAfterArguments(), condition.getArgs()))
      facts[argument] = facts.lookup(value);
    visitRegion(loop.getAfter(), inside);
    bool isStable = next == choice;
    choice = next;
    for (auto [argument, value] :
         llvm::zip(loop.getBeforeArguments(), loop.getYieldedValues()))
      isStable &= !facts.update(
          argument, facts.join(facts.lookup(argument), facts.lookup(value)));
    RankMemory joined = start;
    joined.join(memory, choice);
    isStable &= joined == start;
    memory = joined;
    if (!isStable && numVisited > 2 * maxVisited)
      exhausted.insert(loop);
    if (isStable || numVisited > 2 * maxVisited) {
      memory = leaving;
      for (auto [result, value] :
           llvm::zip(loop.getResults(), condition.getArgs())) {
        RankFact fact = facts.lookup(value);
        fact.uniform &= choice;
        facts[result] = fact;
      }
      return;
    }
  }
}

/// Iterations that are independent of each other and put slices together. How
/// often a collective would run in there, and in which order, is anyone's
/// guess.
void RankAnalysis::visitForall(scf::ForallOp loop) {
  RankControl inside{0, loop, nullptr};
  RankFact ofBounds;
  for (Value bound : loop.getOperands().drop_back(loop.getOutputs().size()))
    ofBounds.uniform &= facts.lookup(bound).uniform;
  SmallVector<LoopRange> ranges = getRanges(loop);
  for (Value variable : loop.getInductionVars())
    facts[variable] = ofBounds;
  for (auto [argument, output] :
       llvm::zip_equal(loop.getRegionIterArgs(), loop.getOutputs()))
    facts[argument] = facts.lookup(output);
  for (Operation &op : loop.getBody()->without_terminator())
    visit(&op, inside);

  for (auto [result, argument, output] : llvm::zip_equal(
           loop.getResults(), loop.getRegionIterArgs(), loop.getOutputs())) {
    RankFact fact = facts.lookup(output);
    for (Operation &op : loop.getTerminator().getYieldingOps()) {
      auto insert = dyn_cast<tensor::ParallelInsertSliceOp>(op);
      if (!insert || insert.getDest() != argument)
        continue;
      const RankFact &slice = facts.lookup(insert.getSource());
      RankMask uniform = slice.uniform;
      for (Value operand : insert->getOperands().drop_front(2))
        uniform &= facts.lookup(operand).uniform;
      if (coversAll(insert, insert.getDestType(), ranges)) {
        fact.uniform = uniform;
        fact.count = slice.count;
      } else {
        fact.uniform &= uniform;
        fact.count = placeCounts(facts.sources, slice.count, fact.count);
      }
      fact.reducedAs = nullptr;
      fact.count.elements = getNumElements(result.getType());
    }
    fact.uniform &= ofBounds.uniform;
    facts[result] = fact;
  }
}

/// Every element is what the body gives for its place.
void RankAnalysis::visitGenerate(Operation *op) {
  RankControl inside{0, op, nullptr};
  RankInputs yielded;
  for (Value extent : op->getOperands())
    yielded.uniform &= facts.lookup(extent).uniform;
  Block &body = op->getRegion(0).front();
  for (BlockArgument place : body.getArguments())
    facts[place] = RankFact();
  for (Operation &nested : body.without_terminator())
    visit(&nested, inside);
  yielded.add(regions.read(op, body.getTerminator()->getOperand(0)));
  facts[op->getResult(0)] = facts.combine(yielded, op->getResult(0).getType());
}

/// How often such a region runs, and in which order beside others, is anyone's
/// guess: a collective has no place there.
void RankAnalysis::visitUnknownRegions(Operation *op,
                                       const RankControl &control) {
  transfer.apply(op, control);
  if (!holdsCollectives(op))
    return;
  RankControl inside{0, op, &control};
  for (Region &region : op->getRegions()) {
    for (Block &block : region)
      for (BlockArgument argument : block.getArguments())
        facts[argument] = facts.createUnknown(argument);
    visitRegion(region, inside);
  }
}
