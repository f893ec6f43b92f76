// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-verify-sync: proves that each gradient is reduced exactly once, based on
// the sources that the analysis found for it.

#include "../Analysis/ProgramWalk.h"
#include "../Analysis/RankAnalysis.h"

#define GEN_PASS_DEF_DDPVERIFYSYNCPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Describes the error of a gradient; empty if there is none.
static StringRef judge(const SourceSets &sources, const GradientCount &count) {
  if (count.divergent)
    return "reduced under control flow that may differ between ranks";
  if (!(count.times & ~GradientCount::Unreduced))
    return "not reduced";
  if (count.times & GradientCount::Unreduced)
    return count.isMixedInParts ? "reduced in some of its elements only"
                                : "reduced on some paths only";
  if (count.times & GradientCount::Often)
    return "reduced more than once";
  if (count.isMixedInSteps)
    return "reduced over different process groups";
  if (sources.differs(count.sources))
    return "mixed with data that is not reduced";
  return "";
}

/// Reports the error of the gradient `name`, if any.
static LogicalResult check(const SourceSets &sources, Operation *op,
                           const GradientCount &count, const Twine &name) {
  StringRef wrong = judge(sources, count);
  if (wrong.empty())
    return success();
  InFlightDiagnostic diagnostic =
      op->emitError() << "expected " << name << " marked '"
                      << DDPDialect::kGradientAttrName
                      << "' to be reduced exactly once, but it is " << wrong;
  if (Operation *reduction =
          count.divergent ? count.divergent : count.reduction)
    diagnostic.attachNote(reduction->getLoc()) << "the reduction is here";
  return diagnostic;
}

static LogicalResult checkResults(const RankAnalysis &analysis,
                                  FunctionOpInterface function) {
  bool ok = true;
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    if (!function.getResultAttr(i, DDPDialect::kGradientAttrName))
      continue;
    for (Block &block : function.getFunctionBody()) {
      Operation *terminator = block.getTerminator();
      ArrayRef<RankFact> returned = analysis.getReturned(terminator);
      if (i < returned.size())
        ok &= succeeded(check(analysis.facts.sources, terminator,
                              returned[i].count, "result " + Twine(i)));
    }
  }
  return success(ok);
}

/// Returns an operation that may write to `memref` after `write`, which is in
/// the function's first block, or null.
static Operation *findOverwrite(Value memref, Operation *write) {
  for (Operation *user : memref.getUsers()) {
    Operation *around = write->getBlock()->findAncestorOpInBlock(*user);
    bool isAfter = !around || !around->isBeforeInBlock(write);
    // An operation that passes it on may let others write.
    for (Value alias : llvm::make_filter_range(user->getResults(), isMemory))
      if (Operation *overwrite = findOverwrite(alias, write))
        return overwrite;
    if (user->hasTrait<OpTrait::IsTerminator>() && !isReturn(user))
      return user;
    if (user == write || !isAfter || isMemoryEffectFree(user))
      continue;
    auto interface = dyn_cast<MemoryEffectOpInterface>(user);
    if (!interface)
      return user;
    SmallVector<MemoryEffects::EffectInstance> effects;
    interface.getEffects(effects);
    for (const MemoryEffects::EffectInstance &effect : effects)
      if (!isa<MemoryEffects::Read>(effect.getEffect()) &&
          (!effect.getValue() || effect.getValue() == memref))
        return user;
  }
  return nullptr;
}

static LogicalResult checkArguments(const RankAnalysis &analysis,
                                    FunctionOpInterface function) {
  bool ok = true;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    if (!function.getArgAttr(i, DDPDialect::kGradientAttrName))
      continue;
    // Written once on every path: in the function's own block.
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
    if (Operation *overwrite =
            findOverwrite(function.getArgument(i), writes.front())) {
      InFlightDiagnostic diagnostic =
          function.emitError() << "expected argument " << i << " marked '"
                               << DDPDialect::kGradientAttrName
                               << "' not to change after its "
                                  "'bufferization.materialize_in_destination'";
      diagnostic.attachNote(overwrite->getLoc()) << "this may write to it";
      ok = false;
      continue;
    }
    ok &= succeeded(check(analysis.facts.sources, writes.front(),
                          analysis.get(writes.front().getSource()).count,
                          "argument " + Twine(i)));
  }
  return success(ok);
}

static bool isMarked(FunctionOpInterface function) {
  auto hasGradient = [](ArrayAttr lists) {
    return lists && llvm::any_of(lists, [](Attribute attrs) {
             return cast<DictionaryAttr>(attrs).contains(
                 DDPDialect::kGradientAttrName);
           });
  };
  return hasGradient(function.getArgAttrsAttr()) ||
         hasGradient(function.getResAttrsAttr());
}

namespace {
struct VerifySyncPass
    : public ddp::impl::DDPVerifySyncPassBase<VerifySyncPass> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    SmallVector<FunctionOpInterface> marked;
    walkFunctions(getOperation(), [&](FunctionOpInterface function) {
      if (!function.isExternal() && isMarked(function))
        marked.push_back(function);
      return WalkResult::advance();
    });
    if (marked.empty())
      return;
    RankAnalysis analysis(getOperation());
    analysis.run();
    bool ok = succeeded(analysis.reportUnfollowed());
    for (FunctionOpInterface function : marked) {
      analysis.runAlone(function);
      ok &= succeeded(checkResults(analysis, function));
      ok &= succeeded(checkArguments(analysis, function));
    }
    if (!ok)
      signalPassFailure();
  }
};
} // namespace
