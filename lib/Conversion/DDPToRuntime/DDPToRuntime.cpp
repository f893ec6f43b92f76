// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// convert-ddp-to-runtime: converts operations on memory to runtime calls, and
// everything that the runtime must know in advance to the plan.

#include "RuntimeCalls.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/JSON.h"

#define GEN_PASS_DEF_CONVERTDDPTORUNTIMEPASS
#include "ddphook/Conversion/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
struct ConvertDDPToRuntimePass
    : public ddp::impl::ConvertDDPToRuntimePassBase<ConvertDDPToRuntimePass> {
  using ConvertDDPToRuntimePassBase::ConvertDDPToRuntimePassBase;

  void runOnOperation() override;

private:
  LogicalResult collectEntries();
  LogicalResult checkSizes();
  void cleanUp();

  PlanContents plan;
};
} // namespace

LogicalResult ConvertDDPToRuntimePass::collectEntries() {
  auto visit = [&](Operation *op) {
    auto function = dyn_cast<func::FuncOp>(op);
    if (!function)
      return WalkResult::advance();
    if (function.isExternal() || !function.isPublic())
      return WalkResult::skip();
    std::string why;
    auto entry = cast<FunctionOpInterface>(function.getOperation());
    if (isPlannable(entry, why)) {
      plan.entries.push_back(entry);
      return WalkResult::skip();
    }
    // A function without collectives need not be callable through the plan.
    if (!hasDDPOps(function))
      return WalkResult::skip();
    function.emitOpError() << why;
    return WalkResult::interrupt();
  };
  return failure(
      getOperation().walk<WalkOrder::PreOrder>(visit).wasInterrupted());
}

/// Rejects names that are not UTF-8: the plan is emitted as JSON.
static LogicalResult checkNames(ModuleOp module, PlanAttr plan) {
  StringAttr wrong;
  plan.walk([&](StringAttr name) {
    if (llvm::json::isUTF8(name.getValue()))
      return WalkResult::advance();
    wrong = name;
    return WalkResult::interrupt();
  });
  if (!wrong)
    return success();
  return module.emitError() << "expected names in UTF-8, but got " << wrong;
}

/// Rejects sizes that would overflow: the runtime adds them up in bytes.
LogicalResult ConvertDDPToRuntimePass::checkSizes() {
  for (FunctionOpInterface entry : plan.entries)
    for (auto [index, type] : llvm::enumerate(entry.getArgumentTypes()))
      if (!hasAddressableSize(type))
        return entry.emitOpError()
               << "expected argument " << index << " of at most "
               << kMaxElements << " elements, but got " << type;
  int64_t numElements = 0;
  for (StateOp state : plan.states) {
    numElements =
        addElements(numElements, getNumElementsOf(state.getBufferType()));
    if (numElements > kMaxElements)
      return state.emitOpError() << "expected states of at most "
                                 << kMaxElements << " elements in total";
  }
  return success();
}

/// Returns true if `op` becomes part of the plan.
static bool isDeclaration(Operation *op) {
  return isa<ProcessGroupOp, BucketInfoOp, StateOp>(op);
}

void ConvertDDPToRuntimePass::cleanUp() {
  for (Operation &op : llvm::make_early_inc_range(*getOperation().getBody()))
    if (isDeclaration(&op))
      op.erase();
  getOperation()->removeAttr(DDPDialect::kHookAttrName);
  getOperation().walk<WalkOrder::PreOrder>([](Operation *op) {
    if (!isa<FunctionOpInterface>(op))
      return WalkResult::advance();
    removeDDPAttrs(op);
    return WalkResult::skip();
  });
}

/// Returns the groups in their order, but each after its parent: the runtime
/// creates groups in the order of the plan.
static SmallVector<ProcessGroupOp> collectGroups(ModuleOp module) {
  llvm::SetVector<ProcessGroupOp> groups;
  for (ProcessGroupOp group : module.getOps<ProcessGroupOp>()) {
    SmallVector<ProcessGroupOp> chain = {group};
    while (std::optional<StringRef> parent = chain.back().getParent())
      chain.push_back(module.lookupSymbol<ProcessGroupOp>(*parent));
    groups.insert(chain.rbegin(), chain.rend());
  }
  return groups.takeVector();
}

/// Returns the states in their order, but each after the generator that fills
/// it: the runtime initializes states in the order of the plan.
static SmallVector<StateOp> collectStates(ModuleOp module) {
  llvm::SetVector<StateOp> states;
  for (StateOp state : module.getOps<StateOp>()) {
    if (std::optional<StringRef> generator = state.getGenerator())
      states.insert(module.lookupSymbol<StateOp>(*generator));
    states.insert(state);
  }
  return states.takeVector();
}

void ConvertDDPToRuntimePass::runOnOperation() {
  ModuleOp module = getOperation();
  // Once entry points are emitted, the plan is text and symbols have a prefix.
  auto isHandle = [](LLVM::GlobalOp global) {
    return global.getName().ends_with(kHandleSymbol);
  };
  if (getPlan(module) ||
      llvm::any_of(module.getOps<LLVM::GlobalOp>(), isHandle)) {
    module.emitError() << "expected a module without a plan, but it has "
                          "already been converted";
    return signalPassFailure();
  }
  plan = PlanContents();
  plan.memory = memory;
  plan.groups = collectGroups(module);
  plan.states = collectStates(module);
  llvm::append_range(plan.buckets, module.getOps<BucketInfoOp>());
  if (failed(checkRuntimeNames(module)) || failed(collectEntries()) ||
      failed(checkSizes()))
    return signalPassFailure();

  OpBuilder atStart = OpBuilder::atBlockBegin(module.getBody());
  auto pointerType = LLVM::LLVMPointerType::get(&getContext());
  auto handleSlot = LLVM::GlobalOp::create(
      atStart, module.getLoc(), pointerType, /*isConstant=*/false,
      LLVM::Linkage::Internal, kHandleSymbol, /*value=*/Attribute());
  {
    OpBuilder initializer(&getContext());
    initializer.createBlock(&handleSlot.getInitializerRegion());
    Value null =
        LLVM::ZeroOp::create(initializer, module.getLoc(), pointerType);
    LLVM::ReturnOp::create(initializer, module.getLoc(), null);
  }

  CallLowering lowering(module, handleSlot, plan);
  SmallVector<Operation *> ops;
  Operation *left = nullptr;
  module.walk([&](Operation *op) {
    if (CallLowering::canLower(op) || (plan.memory == ArrayMemory::Device &&
                                       CallLowering::canLowerOnDevice(op)))
      ops.push_back(op);
    else if (!left && isa_and_nonnull<DDPDialect>(op->getDialect()) &&
             !(isDeclaration(op) && op->getParentOp() == module))
      left = op;
    if (auto arena = dyn_cast<ArenaOp>(op))
      plan.arenaBytes = std::max(
          plan.arenaBytes, cast<MemRefType>(arena.getType()).getNumElements());
  });
  for (Operation *op : ops)
    if (failed(lowering.lower(op)))
      return signalPassFailure();

  FailureOr<PlanAttr> built = buildPlan(&getContext(), plan);
  if (failed(built) || failed(checkNames(module, *built)))
    return signalPassFailure();
  cleanUp();
  module->setAttr(DDPDialect::kPlanAttrName, *built);
  if (!left)
    return;
  left->emitOpError() << "could not be converted to a call of the runtime";
  signalPassFailure();
}
