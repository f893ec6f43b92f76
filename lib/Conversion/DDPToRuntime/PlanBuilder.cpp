// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds the plan's attributes from operations and functions.

#include "PlanBuilder.h"

#include "ddphook/runtime/compiled.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::ddp;

bool mlir::ddp::isPlannable(FunctionOpInterface function, std::string &why) {
  llvm::raw_string_ostream os(why);
  for (auto [index, type] : llvm::enumerate(function.getArgumentTypes())) {
    StringRef defect = findPlanTypeDefect(type);
    if (defect.empty())
      continue;
    os << "expected argument " << index << defect << ", but got '" << type
       << "'";
    return false;
  }
  if (function.getNumResults() != 0) {
    os << "expected results to be out-parameters, but got '"
       << function.getResultTypes().front() << "'";
    return false;
  }
  return true;
}

static StringAttr getName(FlatSymbolRefAttr symbol) {
  return symbol ? symbol.getAttr() : StringAttr();
}

static PlanGroupAttr buildGroup(ProcessGroupOp group) {
  return PlanGroupAttr::get(
      group.getContext(), group.getSymNameAttr(), group.getSize().value_or(0),
      group.getRanksAttr(), group.getPlacementAttr(),
      getName(group.getParentAttr()), group.getTopologyAttr());
}

static PlanBucketAttr buildBucket(BucketInfoOp bucket) {
  std::string hook;
  llvm::raw_string_ostream(hook) << bucket.getHook();
  return PlanBucketAttr::getChecked(
      [&] { return bucket.emitOpError(); }, bucket.getContext(),
      bucket.getBucketNameAttr(), bucket.getGroupAttr().getAttr(),
      bucket.getReductionAttr(), cast<BucketType>(bucket.getType()),
      bucket.getGradientsAttr(), StringAttr::get(bucket.getContext(), hook),
      bucket.getWireType(), static_cast<int64_t>(bucket.getWireBytes()),
      static_cast<int64_t>(bucket.getStateBytes()));
}

static PlanStateAttr buildState(StateOp state, int64_t offset) {
  return PlanStateAttr::get(
      state.getContext(), state.getSymNameAttr(), state.getType(),
      state.getKindAttr(), state.getRoleAttr(), state.getGradientsAttr(),
      state.getMethodAttr(), state.getPlacementAttr(), state.getInitAttr(),
      state.getSeed().value_or(0), getName(state.getGeneratorAttr()),
      state.getDrawsAttr(), offset);
}

/// Returns, for each result before bufferization, the argument that holds it:
/// one that is updated in place, or -1 for the next out-parameter.
static ArrayRef<int64_t> getResultArguments(FunctionOpInterface function) {
  if (auto attr = function->getAttrOfType<DenseI64ArrayAttr>(
          DDPDialect::kResultArgumentsAttrName))
    return attr.asArrayRef();
  return {};
}

static PlanEntryAttr buildEntry(FunctionOpInterface entry) {
  MLIRContext *context = entry.getContext();
  ArrayRef<Type> types = entry.getArgumentTypes();
  ArrayRef<int64_t> resultArguments = getResultArguments(entry);
  unsigned numArguments = types.size() - llvm::count(resultArguments, -1);
  SmallVector<PlanArgumentAttr> arguments;
  for (unsigned i = 0; i < numArguments; ++i)
    arguments.push_back(PlanArgumentAttr::get(
        context, types[i], !!entry.getArgAttr(i, DDPDialect::kInoutAttrName)));
  SmallVector<PlanResultAttr> results;
  unsigned nextOutParameter = numArguments;
  for (int64_t argument : resultArguments)
    results.push_back(PlanResultAttr::get(
        context, types[argument == -1 ? nextOutParameter++ : argument],
        argument));
  return PlanEntryAttr::get(context, StringAttr::get(context, entry.getName()),
                            arguments, results);
}

FailureOr<PlanAttr> mlir::ddp::buildPlan(MLIRContext *context,
                                         const PlanContents &contents) {
  SmallVector<PlanBucketAttr> buckets;
  llvm::StringSet<> names;
  for (BucketInfoOp bucket : contents.buckets) {
    if (!names.insert(bucket.getBucketName()).second)
      return bucket.emitOpError()
             << "expected a unique bucket name, but another bucket is called "
             << bucket.getBucketNameAttr();
    buckets.push_back(buildBucket(bucket));
    if (!buckets.back())
      return failure();
  }
  SmallVector<PlanStateAttr> states;
  int64_t stateBytes = 0;
  for (StateOp state : contents.states) {
    states.push_back(buildState(state, stateBytes));
    stateBytes +=
        llvm::alignTo(states.back().getNumBytes(), PlanAttr::kArenaAlignment);
  }
  return PlanAttr::get(
      context, DDPHOOK_ABI_VERSION,
      ArrayMemoryAttr::get(context, contents.memory), /*kernels=*/{},
      llvm::map_to_vector(contents.groups, buildGroup), buckets, states,
      contents.matrixLists, contents.collectives, contents.arenaBytes,
      stateBytes, llvm::map_to_vector(contents.entries, buildEntry));
}
