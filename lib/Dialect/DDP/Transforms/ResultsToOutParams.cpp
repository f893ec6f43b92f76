// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-results-to-out-params: lets callers allocate the results of private
// functions. Unlike upstream's buffer-results-to-out-params, it handles
// functions that return one buffer several times, or memory of their caller.

#include "Utils/CallGraph.h"

#include "llvm/ADT/SetVector.h"

#define GEN_PASS_DEF_DDPRESULTSTOOUTPARAMSPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Adds the sources of `value`: the source of a view, or the values that
/// branches yield. Returns false if `value` may come from elsewhere.
static bool collectSources(Value value, llvm::SetVector<Value> &sources) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return argument.getOwner()->isEntryBlock() &&
           isa<FunctionOpInterface>(argument.getOwner()->getParentOp());
  Operation *op = value.getDefiningOp();
  if (auto view = dyn_cast<ViewLikeOpInterface>(op)) {
    sources.insert(view.getViewSource());
    return true;
  }
  if (auto choice = dyn_cast<scf::IfOp>(op)) {
    unsigned number = cast<OpResult>(value).getResultNumber();
    sources.insert(choice.thenYield()->getOperand(number));
    sources.insert(choice.elseYield()->getOperand(number));
    return true;
  }
  return false;
}

/// True if the memory certainly belongs to the caller: not to the function, nor
/// to a constant, which the caller might overwrite.
static bool isFromOutside(Value memref) {
  llvm::SetVector<Value> sources;
  sources.insert(memref);
  for (size_t i = 0; i < sources.size(); ++i)
    if (!collectSources(sources[i], sources))
      return false;
  return true;
}

namespace {
/// Rewrites one function and its calls.
class OutParams {
public:
  OutParams(func::FuncOp function, MutableArrayRef<func::CallOp> calls)
      : function(function), calls(calls), returns(getReturns(function)),
        moved(function.getNumResults()) {}

  LogicalResult run() {
    for (unsigned number = 0; number < moved.size(); ++number)
      if (failed(choose(number)))
        return failure();
    if (moved.none())
      return success();
    rewriteFunction();
    for (func::CallOp &call : calls)
      rewriteCall(call);
    return success();
  }

private:
  LogicalResult choose(unsigned number);
  bool canHoist(unsigned number);
  void rewriteFunction();
  void rewriteCall(func::CallOp &call);

  func::FuncOp function;
  MutableArrayRef<func::CallOp> calls;
  SmallVector<func::ReturnOp> returns;
  llvm::BitVector moved;
};
} // namespace

LogicalResult OutParams::choose(unsigned number) {
  auto type = dyn_cast<MemRefType>(function.getResultTypes()[number]);
  if (!type || llvm::all_of(returns, [&](func::ReturnOp op) {
        return isFromOutside(op.getOperand(number));
      }))
    return success();
  if (!type.hasStaticShape() || !type.getLayout().isIdentity())
    return function.emitOpError()
           << "expected result " << number
           << " to be a buffer of static shape and identity layout, but got "
           << type;
  moved.set(number);
  return success();
}

/// True if the caller's memory can replace the buffer that the function
/// allocates.
bool OutParams::canHoist(unsigned number) {
  if (!function.getBody().hasOneBlock() || returns.size() != 1)
    return false;
  auto alloc =
      returns.front().getOperand(number).getDefiningOp<memref::AllocOp>();
  return alloc && alloc->getBlock() == &function.getBody().front();
}

void OutParams::rewriteFunction() {
  // Add all arguments at once, since each change makes a new list of arguments.
  unsigned next = function.getNumArguments();
  SmallVector<Type> types;
  for (unsigned number : moved.set_bits())
    types.push_back(function.getResultTypes()[number]);
  (void)function.insertArguments(
      SmallVector<unsigned>(types.size(), next), types,
      SmallVector<DictionaryAttr>(types.size()),
      SmallVector<Location>(types.size(), function.getLoc()));
  for (unsigned number : moved.set_bits()) {
    Value out = function.getArgument(next++);
    if (canHoist(number)) {
      // If the function returns this buffer a second time, it now returns the
      // argument there, which is copied.
      auto alloc =
          returns.front().getOperand(number).getDefiningOp<memref::AllocOp>();
      alloc->replaceAllUsesWith(ValueRange(out));
      alloc.erase();
      continue;
    }
    for (func::ReturnOp op : returns) {
      OpBuilder builder(op);
      memref::CopyOp::create(builder, op.getLoc(), op.getOperand(number), out);
    }
  }
  eraseResults(function, moved);
}

void OutParams::rewriteCall(func::CallOp &call) {
  OpBuilder builder(call);
  SmallVector<Value> buffers;
  for (unsigned number : moved.set_bits()) {
    Value result = call.getResult(number);
    Value buffer = memref::AllocOp::create(builder, call.getLoc(),
                                           cast<MemRefType>(result.getType()));
    result.replaceAllUsesWith(buffer);
    buffers.push_back(buffer);
  }
  replaceCall(call, moved, buffers);
}

namespace {
struct ResultsToOutParamsPass
    : public ddp::impl::DDPResultsToOutParamsPassBase<ResultsToOutParamsPass> {
  void runOnOperation() override {
    PrivateFunctions functions = collectPrivateFunctions(getOperation());
    if (functions.empty())
      return markAllAnalysesPreserved();
    for (auto &[function, calls] : functions)
      if (failed(OutParams(function, calls).run()))
        return signalPassFailure();
  }
};
} // namespace
