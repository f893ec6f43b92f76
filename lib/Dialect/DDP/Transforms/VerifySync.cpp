//===- VerifySync.cpp ------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-verify-sync: proves that each gradient is reduced exactly once, by
// following its value backwards and counting the reductions on every path.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::ddp {
#define GEN_PASS_DEF_DDPVERIFYSYNCPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"
} // namespace mlir::ddp

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// How often a value was reduced: the least and the most over all paths, 2
/// meaning "twice or more".
struct Count {
  unsigned least = 0, most = 0;
  /// A reduction on the way that only some ranks may reach.
  Operation *divergent = nullptr;
  /// The last reduction met, for notes.
  Operation *reduction = nullptr;

  /// Of an operation with several operands: as reduced as its most reduced one.
  /// (A constant, a learning rate or a weight is not reduced, and need not be.)
  void combine(const Count &other) {
    if (other.most > most)
      reduction = other.reduction;
    least = std::max(least, other.least);
    most = std::max(most, other.most);
    divergent = divergent ? divergent : other.divergent;
  }
  /// Of a value that comes from one of several places.
  void join(const Count &other) {
    if (other.most > most)
      reduction = other.reduction;
    least = std::min(least, other.least);
    most = std::max(most, other.most);
    divergent = divergent ? divergent : other.divergent;
  }
};

class Counter {
public:
  Count get(Value value);

private:
  Count compute(Value value);
  Count ofBlockArgument(BlockArgument argument);
  Count ofResult(OpResult result);
  Count ofLoop(scf::ForOp loop, unsigned index);
  void forget(scf::ForOp loop);
  Count ofBranches(Operation *op, unsigned index);
  bool isUniform(Value value);
  bool assumeUniform(Value value);
  bool isReachedByAllRanks(Operation *op);

  llvm::DenseMap<Value, Count> known;
  /// What the iteration arguments of a loop may hold.
  llvm::DenseMap<Value, Count> carried;
  llvm::DenseMap<Value, bool> uniform;
  unsigned numDivergent = 0; // of those in `uniform` that are false
};
} // namespace

Count Counter::get(Value value) {
  // Zero stands for a value that is being computed: a cycle adds nothing.
  auto [it, isNew] = known.try_emplace(value, Count());
  if (!isNew)
    return it->second;
  Count count = compute(value);
  known[value] = count;
  return count;
}

Count Counter::compute(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return ofBlockArgument(argument);
  return ofResult(cast<OpResult>(value));
}

Count Counter::ofBlockArgument(BlockArgument argument) {
  Block *block = argument.getOwner();
  if (auto loop = dyn_cast<scf::ForOp>(block->getParentOp())) {
    return carried.lookup(argument); // found by ofLoop
  }
  // Unstructured control flow.
  std::optional<Count> count;
  for (auto it = block->pred_begin(); it != block->pred_end(); ++it) {
    auto branch = dyn_cast<BranchOpInterface>((*it)->getTerminator());
    if (!branch)
      continue;
    Value operand = branch.getSuccessorOperands(
        it.getSuccessorIndex())[argument.getArgNumber()];
    if (!operand)
      continue;
    Count incoming = get(operand);
    if (count)
      count->join(incoming);
    else
      count = incoming;
  }
  return count.value_or(Count());
}

/// Forgets what is known of the values inside `loop`.
void Counter::forget(scf::ForOp loop) {
  for (Value argument : loop.getBody()->getArguments())
    known.erase(argument);
  loop.getBody()->walk([&](Operation *op) {
    for (Value result : op->getResults())
      known.erase(result);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (Value argument : block.getArguments())
          known.erase(argument);
  });
}

/// A loop's values are found together: one may become another in the next
/// iteration. What an iteration gets is what any of those before may have left.
Count Counter::ofLoop(scf::ForOp loop, unsigned index) {
  std::optional<APInt> tripCount = loop.getStaticTripCount();
  for (auto [argument, init] :
       llvm::zip(loop.getRegionIterArgs(), loop.getInitArgs()))
    carried[argument] = get(init);
  bool isOver = tripCount && tripCount->ule(1);
  while (true) {
    forget(loop);
    bool changed = false;
    for (auto [argument, yielded] :
         llvm::zip(loop.getRegionIterArgs(), loop.getYieldedValues())) {
      Count after = get(yielded), before = carried[argument];
      Count joined = before;
      joined.join(after);
      if (isOver ||
          (joined.least == before.least && joined.most == before.most))
        continue;
      carried[argument] = joined;
      changed = true;
    }
    if (!changed)
      break;
  }
  for (auto [result, yielded, init] : llvm::zip(
           loop.getResults(), loop.getYieldedValues(), loop.getInitArgs())) {
    Count count = get(yielded);
    if (tripCount && tripCount->isZero())
      count = get(init);
    else if (!tripCount)
      count.join(get(init)); // the loop may not run at all
    known[result] = count;
  }
  return known[loop.getResult(index)];
}

Count Counter::ofBranches(Operation *op, unsigned index) {
  std::optional<Count> count;
  for (Region &region : op->getRegions())
    for (Block &block : region) {
      Operation *terminator = block.getTerminator();
      if (!terminator->hasTrait<OpTrait::ReturnLike>() ||
          terminator->getNumOperands() <= index)
        continue;
      Count branch = get(terminator->getOperand(index));
      if (count)
        count->join(branch);
      else
        count = branch;
    }
  return count.value_or(Count());
}

Count Counter::ofResult(OpResult result) {
  Operation *op = result.getOwner();
  Count count;
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return ofLoop(loop, result.getResultNumber());
  if (auto loop = dyn_cast<scf::WhileOp>(op)) {
    // How often it runs is not known: a reduction inside is one too many.
    for (Value operand : op->getOperands())
      count.combine(get(operand));
    loop.walk([&](Operation *nested) {
      if (isa<AllReduceOp, AllReduceStartOp>(nested))
        count.divergent = nested;
    });
    return count;
  }
  if (op->getNumRegions() != 0 && isa<RegionBranchOpInterface>(op))
    return ofBranches(op, result.getResultNumber());
  if (auto call = dyn_cast<func::CallOp>(op)) {
    // What the callee does to the values that it is given.
    auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
        call, call.getCalleeAttr());
    for (Value operand : call.getOperands())
      count.combine(get(operand));
    if (callee && !callee.isExternal())
      callee.walk([&](func::ReturnOp op) {
        Count inside = get(op.getOperand(result.getResultNumber()));
        count.least = std::min(2u, count.least + inside.least);
        count.most = std::min(2u, count.most + inside.most);
        if (inside.reduction)
          count.reduction = inside.reduction;
        if (inside.divergent || (inside.most && !isReachedByAllRanks(call)))
          count.divergent = inside.divergent ? inside.divergent : call;
      });
    return count;
  }
  for (Value operand : op->getOperands())
    count.combine(get(operand));
  if (isa<AllReduceOp, AllReduceStartOp>(op)) {
    count.least = std::min(2u, count.least + 1);
    count.most = std::min(2u, count.most + 1);
    count.reduction = op;
    if (!isReachedByAllRanks(op))
      count.divergent = op;
  }
  return count;
}

bool Counter::assumeUniform(Value value) {
  auto [it, isNew] = uniform.try_emplace(value, true);
  if (!isNew)
    return it->second;
  bool result = false;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    Operation *parent = argument.getOwner()->getParentOp();
    if (auto function = dyn_cast<FunctionOpInterface>(parent))
      result = argument.getOwner()->isEntryBlock() &&
               function.getArgAttr(argument.getArgNumber(),
                                   DDPDialect::kReplicatedAttrName);
    else if (auto loop = dyn_cast<scf::ForOp>(parent);
             loop && argument == loop.getInductionVar())
      result = assumeUniform(loop.getLowerBound()) &&
               assumeUniform(loop.getUpperBound()) &&
               assumeUniform(loop.getStep());
    else if (loop)
      result = assumeUniform(loop.getTiedLoopInit(argument)->get()) &&
               assumeUniform(loop.getTiedLoopYieldedValue(argument)->get());
  } else if (isa<AllReduceOp, WaitOp>(value.getDefiningOp())) {
    result = true;
  } else {
    Operation *op = value.getDefiningOp();
    result = op->getNumRegions() == 0 || isa<DestinationStyleOpInterface>(op);
    result = result && isMemoryEffectFree(op) &&
             llvm::all_of(op->getOperands(), [&](Value operand) {
               return assumeUniform(operand);
             });
  }
  uniform[value] = result;
  numDivergent += !result;
  return result;
}

/// Whether all ranks compute the same value. A cycle is taken to be the same on
/// all ranks until something in it is not; then what was found under that
/// assumption is looked at again.
bool Counter::isUniform(Value value) {
  while (true) {
    unsigned before = numDivergent;
    bool result = assumeUniform(value);
    if (numDivergent == before)
      return result;
    llvm::DenseMap<Value, bool> divergent;
    for (auto [known, isSame] : uniform)
      if (!isSame)
        divergent[known] = false;
    uniform = std::move(divergent);
  }
}

/// Whether no branch or loop around `op` depends on what may differ between
/// ranks.
bool Counter::isReachedByAllRanks(Operation *op) {
  for (Operation *parent = op->getParentOp();
       parent && !isa<FunctionOpInterface>(parent);
       parent = parent->getParentOp()) {
    bool isSame = false;
    if (auto branch = dyn_cast<scf::IfOp>(parent))
      isSame = isUniform(branch.getCondition());
    else if (auto loop = dyn_cast<scf::ForOp>(parent))
      isSame = isUniform(loop.getLowerBound()) &&
               isUniform(loop.getUpperBound()) && isUniform(loop.getStep());
    else if (isa<scf::ExecuteRegionOp>(parent))
      isSame = true;
    else if (auto branch = dyn_cast<scf::IndexSwitchOp>(parent))
      isSame = isUniform(branch.getArg());
    if (!isSame)
      return false;
  }
  // Unstructured: every conditional branch of the function must agree.
  auto function = op->getParentOfType<FunctionOpInterface>();
  if (!function || function.getFunctionBody().hasOneBlock())
    return true;
  for (Block &block : function.getFunctionBody())
    if (auto branch = dyn_cast<cf::CondBranchOp>(block.getTerminator());
        branch && !isUniform(branch.getCondition()))
      return false;
  return true;
}

/// Reports what is wrong with the gradient `value`, called `name`.
static LogicalResult check(Counter &counter, Operation *op, Value value,
                           const Twine &name) {
  Count count = counter.get(value);
  if (!count.divergent && count.least == 1 && count.most == 1)
    return success();
  InFlightDiagnostic diagnostic = op->emitError()
                                  << "expected " << name << " marked '"
                                  << DDPDialect::kGradientAttrName
                                  << "' to be reduced exactly once, but it is ";
  if (count.divergent)
    diagnostic << "reduced under control flow that may differ between ranks";
  else if (count.most == 0)
    diagnostic << "not reduced";
  else if (count.least == 0)
    diagnostic << "reduced on some paths only";
  else
    diagnostic << "reduced more than once";
  if (Operation *reduction =
          count.divergent ? count.divergent : count.reduction)
    diagnostic.attachNote(reduction->getLoc()) << "the reduction is here";
  return diagnostic;
}

namespace {
struct VerifySyncPass
    : public ddp::impl::DDPVerifySyncPassBase<VerifySyncPass> {
  using DDPVerifySyncPassBase::DDPVerifySyncPassBase;

  void runOnOperation() override {
    bool hasFailed = false;
    getOperation().walk([&](FunctionOpInterface function) {
      if (function.isExternal())
        return;
      Counter counter;
      hasFailed |= failed(checkResults(counter, function));
      hasFailed |= failed(checkArguments(counter, function));
    });
    if (hasFailed)
      signalPassFailure();
  }

  static LogicalResult checkResults(Counter &counter,
                                    FunctionOpInterface function) {
    bool ok = true;
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      if (!function.getResultAttr(i, DDPDialect::kGradientAttrName))
        continue;
      for (Block &block : function.getFunctionBody()) {
        Operation *terminator = block.getTerminator();
        if (terminator->hasTrait<OpTrait::ReturnLike>())
          ok &= succeeded(check(counter, terminator, terminator->getOperand(i),
                                "result " + Twine(i)));
      }
    }
    return success(ok);
  }

  static LogicalResult checkArguments(Counter &counter,
                                      FunctionOpInterface function) {
    bool ok = true;
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      if (!function.getArgAttr(i, DDPDialect::kGradientAttrName))
        continue;
      // Written once, whatever path is taken: in the function's own block.
      SmallVector<bufferization::MaterializeInDestinationOp> writes;
      for (Operation *user : function.getArgument(i).getUsers())
        if (auto write =
                dyn_cast<bufferization::MaterializeInDestinationOp>(user))
          writes.push_back(write);
      if (writes.size() != 1 ||
          writes.front()->getBlock() != &function.getFunctionBody().front()) {
        function.emitError()
            << "expected argument " << i << " marked '"
            << DDPDialect::kGradientAttrName
            << "' to be written by one "
               "'bufferization.materialize_in_destination' on every path";
        ok = false;
        continue;
      }
      ok &= succeeded(check(counter, writes.front(), writes.front().getSource(),
                            "argument " + Twine(i)));
    }
    return success(ok);
  }
};
} // namespace
