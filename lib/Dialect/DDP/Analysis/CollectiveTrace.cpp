// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collects and compares collectives. Calls of the runtime name a collective by
// its number in the plan, which describes it.

#include "CollectiveTrace.h"

#include "ddphook/Dialect/DDP/IR/Plan.h"
#include "ddphook/Dialect/DDP/IR/RuntimeCalls.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/RegionGraphTraits.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "llvm/ADT/DepthFirstIterator.h"
#include "llvm/Support/ScopedPrinter.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// One collective, at any level.
struct Description {
  CollectiveKind kind = CollectiveKind::AllReduce;
  std::string reduction, group, travelsAs, bucket;
  int64_t elements = 0, root = 0;

  /// Returns the key by which collectives are counted. Hooks may choose the
  /// wire type of an exchange and do not record it, so it can be omitted.
  std::string getKind(bool isByType = true) const {
    std::string text;
    if (kind != CollectiveKind::AllReduce)
      text = stringifyCollectiveKind(kind).str() + " ";
    if (!reduction.empty())
      text += reduction + " ";
    if (kind == CollectiveKind::Broadcast)
      text += "from " + std::to_string(root) + " ";
    text += "on @" + group;
    return isByType ? text + " in " + travelsAs : text;
  }
  std::string getMemberKind() const {
    return getKind(kind == CollectiveKind::AllReduce);
  }
};

class Tracer {
public:
  Tracer(ModuleOp module, CollectiveTrace &trace);

private:
  void trace(Operation *op, CollectiveTrace::Function &function);
  void traceRegions(Operation *op, CollectiveTrace::Function &function);
  std::string traceRegion(Region &region, CollectiveTrace::Function &function);
  void traceSwitch(scf::IndexSwitchOp op, CollectiveTrace::Function &function);
  void traceCall(LLVM::CallOp call, CollectiveTrace::Function &function);
  void traceCollective(CollectiveOpInterface op,
                       CollectiveTrace::Function &function);
  void add(CollectiveTrace::Function &function, StringRef verb,
           const Description &description, Type type);

  /// Null until the module is converted.
  PlanAttr plan;
  SymbolTableCollection symbols;
  /// Functions that run collectives, directly or through calls.
  llvm::DenseSet<Operation *> communicating;
};
} // namespace

/// Counts the tensors in a bucket; a tensor counts as one.
static void countMembers(std::map<std::string, int64_t> &counts,
                         const std::string &kind, Type type) {
  auto count = [&](ArrayRef<int64_t> shape) {
    std::string text;
    llvm::raw_string_ostream os(text);
    llvm::interleave(shape, os, "x");
    ++counts[kind + " of " + text];
  };
  if (auto bucket = dyn_cast<BucketType>(type))
    for (unsigned i = 0; i < bucket.getNumMembers(); ++i)
      count(bucket.getShape(i));
  else if (auto shaped = dyn_cast<ShapedType>(type))
    count(shaped.getShape());
}

static Description describe(CollectiveOpInterface op) {
  Type type = op.getInput().getType();
  Type wire = op.getWireAttr() ? op.getWireAttr().getValue() : Type();
  StringAttr bucket = op.getBucketNameAttr();
  ReductionAttr reduction = op.getReductionAttr();
  return {op.getKind(),
          reduction ? stringifyReduction(reduction.getValue()).str() : "",
          op.getGroupAttr().getValue().str(),
          llvm::to_string(wire ? wire : getElementTypeOf(type)),
          bucket ? bucket.str() : "",
          getWholeSize(op),
          op.getRoot()};
}

void Tracer::add(CollectiveTrace::Function &function, StringRef verb,
                 const Description &description, Type type) {
  std::string kind = description.getKind();
  function.order += (verb + " " + std::to_string(description.elements) + " " +
                     kind + " as '" + description.bucket + "'\n")
                        .str();
  function.elements[kind] += description.elements;
  if (!type)
    return;
  const std::string memberKind = description.getMemberKind();
  countMembers(function.members, memberKind, type);
  if (description.bucket.empty())
    countMembers(function.membersWithoutBucket, memberKind, type);
}

static StringRef getVerb(CollectiveKind kind, bool isStart) {
  return isStart                             ? "start"
         : kind == CollectiveKind::AllReduce ? "reduce"
                                             : "run";
}

void Tracer::traceCall(LLVM::CallOp call, CollectiveTrace::Function &function) {
  StringRef callee = call.getCallee().value_or("");
  if (callee == rt::wait.name) {
    function.order += "wait\n";
    return;
  }
  bool isStart = callee == rt::collective_start.name;
  if (!isStart && callee != rt::collective.name)
    return;
  APInt number;
  if (!plan || !matchPattern(call.getOperand(1), m_ConstantInt(&number)) ||
      number.uge(plan.getCollectives().size())) {
    function.order += "a collective without a plan\n";
    return;
  }
  PlanCollectiveAttr planned = plan.getCollectives()[number.getZExtValue()];
  Type wire = planned.getWireDtype();
  StringAttr bucket = planned.getBucket();
  CollectiveKind kind = planned.getKind();
  bool isReduction = kind == CollectiveKind::AllReduce ||
                     kind == CollectiveKind::ReduceScatter;
  Reduction reduction = planned.getDivide() ? Reduction::Mean : Reduction::Sum;
  Description description{
      kind,
      isReduction ? stringifyReduction(reduction).str() : "",
      plan.getProcessGroups()[planned.getGroup()].getName().str(),
      llvm::to_string(wire ? wire : planned.getDtype()),
      bucket ? bucket.str() : "",
      planned.getCount(),
      planned.getRoot()};
  add(function, getVerb(kind, isStart), description, Type());
}

/// Wraps the collectives of a region in the name of its operation and its
/// number. Returns an empty string if there are none.
static std::string wrap(StringRef op, size_t number,
                        const std::string &inside) {
  if (inside.empty())
    return "";
  return (op + " region " + Twine(number) + " {\n" + inside + "}\n").str();
}

/// Returns the reachable blocks of a region, in order. Passes may remove the
/// others.
static SmallVector<Block *> getReachable(Region &region) {
  llvm::DenseSet<Block *> reachable;
  if (!region.empty())
    for (Block *block : llvm::depth_first(&region.front()))
      reachable.insert(block);
  SmallVector<Block *> blocks;
  for (Block &block : region)
    if (reachable.contains(&block))
      blocks.push_back(&block);
  return blocks;
}

std::string Tracer::traceRegion(Region &region,
                                CollectiveTrace::Function &function) {
  std::string before = std::exchange(function.order, "");
  for (Block *block : getReachable(region))
    for (Operation &nested : *block)
      trace(&nested, function);
  return std::exchange(function.order, before);
}

/// Traces a switch like the branches of `ddp-legalize-for-bufferization`.
void Tracer::traceSwitch(scf::IndexSwitchOp op,
                         CollectiveTrace::Function &function) {
  std::string rest = traceRegion(op.getDefaultRegion(), function);
  if (op.getCases().empty())
    rest = wrap(scf::ExecuteRegionOp::getOperationName(), 0, rest);
  for (Region &region : llvm::reverse(op.getCaseRegions())) {
    StringRef name = scf::IfOp::getOperationName();
    rest = wrap(name, 0, traceRegion(region, function)) + wrap(name, 1, rest);
  }
  function.order += rest;
}

void Tracer::traceRegions(Operation *op, CollectiveTrace::Function &function) {
  if (auto choice = dyn_cast<scf::IndexSwitchOp>(op))
    return traceSwitch(choice, function);
  for (auto [number, region] : llvm::enumerate(op->getRegions()))
    function.order += wrap(op->getName().getStringRef(), number,
                           traceRegion(region, function));
}

/// Traces a collective. A conditional start counts as the branch that
/// `convert-ddp-to-runtime` creates.
void Tracer::traceCollective(CollectiveOpInterface op,
                             CollectiveTrace::Function &function) {
  std::string before = std::exchange(function.order, "");
  add(function, getVerb(op.getKind(), op.getEnd() != op), describe(op),
      op.getInput().getType());
  if (isa_and_nonnull<scf::IfOp>(op.getEnd()))
    function.order = wrap(scf::IfOp::getOperationName(), 0, function.order);
  function.order = before + function.order;
}

void Tracer::trace(Operation *op, CollectiveTrace::Function &function) {
  if (auto collective = dyn_cast<CollectiveOpInterface>(op))
    traceCollective(collective, function);
  else if (getAwaited(op))
    function.order += isIdleWait(op) ? "" : "wait\n";
  else if (auto call = dyn_cast<LLVM::CallOp>(op))
    traceCall(call, function);
  else if (auto call = dyn_cast<CallOpInterface>(op)) {
    if (communicating.contains(call.resolveCallableInTable(&symbols)))
      function.order += "call\n";
  } else if (op->getNumRegions() != 0)
    traceRegions(op, function);
}

static bool isCollective(Operation *op) {
  auto call = dyn_cast<LLVM::CallOp>(op);
  StringRef callee = call ? call.getCallee().value_or("") : "";
  return isa<CollectiveOpInterface>(op) ||
         callee.starts_with(rt::collective.name);
}

Tracer::Tracer(ModuleOp module, CollectiveTrace &trace)
    : plan(getPlan(module)) {
  bool isStable = false;
  while (!isStable) {
    isStable = true;
    module.walk([&](Operation *op) {
      auto call = dyn_cast<CallOpInterface>(op);
      if (isCollective(op) ||
          (call &&
           communicating.contains(call.resolveCallableInTable(&symbols))))
        if (Operation *function = op->getParentOfType<FunctionOpInterface>())
          isStable &= !communicating.insert(function).second;
    });
  }
  module.walk([&](FunctionOpInterface function) {
    if (function.isExternal() || isa<LLVM::LLVMFuncOp>(function))
      return;
    CollectiveTrace::Function &traced =
        trace.functions[function.getName().str()];
    for (Block *block : getReachable(function.getFunctionBody()))
      for (Operation &op : *block)
        this->trace(&op, traced);
  });
  module.walk([&](BucketInfoOp info) {
    Description description;
    description.reduction = stringifyReduction(info.getReduction()).str();
    description.group = info.getGroup().str();
    auto type = cast<BucketType>(info.getType());
    description.travelsAs = llvm::to_string(type.getElementType());
    countMembers(trace.recorded, description.getKind(), type);
  });
}

CollectiveTrace::CollectiveTrace(ModuleOp module) {
  Tracer(module, *this);
  llvm::StringSet<> changed;
  module.walk([&](StoreOp store) {
    auto load = store.getValue().getDefiningOp<LoadOp>();
    bool isUnchanged = load && load.getState() == store.getState();
    (isUnchanged ? unchangedStates : changed).insert(store.getState());
  });
  for (const auto &state : changed)
    unchangedStates.erase(state.getKey());
}

static void addTo(std::map<std::string, int64_t> &sum,
                  const std::map<std::string, int64_t> &counts) {
  for (const auto &[key, count] : counts)
    sum[key] += count;
}

/// Describes the first key whose count has changed; empty if there is none.
static std::string findDifference(const std::map<std::string, int64_t> &before,
                                  const std::map<std::string, int64_t> &after) {
  auto get = [](const std::map<std::string, int64_t> &counts,
                const std::string &key) {
    auto it = counts.find(key);
    return it == counts.end() ? 0 : it->second;
  };
  for (const auto *counts : {&before, &after})
    for (const auto &[key, count] : *counts)
      if (get(before, key) != get(after, key))
        return "expected " + std::to_string(get(before, key)) + " times '" +
               key + "', but got " + std::to_string(get(after, key));
  return "";
}

/// Describes the first line that differs; empty if there is none.
static std::string findDifference(StringRef before, StringRef after) {
  while (true) {
    auto [old, oldRest] = before.split('\n');
    auto [now, nowRest] = after.split('\n');
    if (old != now)
      return "expected '" + old.str() + "', but got '" + now.str() + "'";
    if (oldRest.empty() && nowRest.empty())
      return "";
    before = oldRest;
    after = nowRest;
  }
}

LogicalResult mlir::ddp::compareTraces(Location loc, StringRef pass,
                                       OrderAcrossPass kept,
                                       const CollectiveTrace &before,
                                       const CollectiveTrace &after) {
  auto report = [&](StringRef where, const std::string &difference) {
    return emitError(loc) << pass << " changed the collectives of " << where
                          << ": " << difference;
  };
  if (kept == OrderAcrossPass::Recorded) {
    // A reduction of memory becomes a bucket, or stays as it is.
    std::map<std::string, int64_t> old = before.recorded, now = after.recorded;
    for (const auto &[name, function] : before.functions)
      addTo(old, function.members);
    for (const auto &[name, function] : after.functions)
      addTo(now, function.membersWithoutBucket);
    std::string difference = findDifference(old, now);
    return difference.empty()
               ? success()
               : LogicalResult(report("its buckets", difference));
  }
  for (const auto &[name, old] : before.functions) {
    auto now = after.functions.find(name);
    std::string difference;
    if (now == after.functions.end()) {
      // Passes may remove private functions that nothing calls any more.
      continue;
    }
    if (kept == OrderAcrossPass::Members)
      difference = findDifference(old.members, now->second.members);
    else if (kept == OrderAcrossPass::Elements)
      difference = findDifference(old.elements, now->second.elements);
    else if (kept == OrderAcrossPass::Everything)
      difference = findDifference(StringRef(old.order), now->second.order);
    if (!difference.empty())
      return report("@" + name, difference);
  }
  return success();
}
