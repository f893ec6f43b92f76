// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-prepare-entries: gives compiled functions an interface in memory.

#include "Utils/Arrays.h"
#include "Utils/CallGraph.h"
#include "Utils/InPlaceChain.h"

#include "mlir/IR/AttrTypeSubElements.h"

#define GEN_PASS_DEF_DDPPREPAREENTRIESPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

static constexpr StringLiteral kWritable =
    bufferization::BufferizationDialect::kWritableAttrName;

/// True if the interface supports the type: a static tensor or any other type.
static bool isSupported(Type type) {
  if (!isa<TensorType>(type))
    return true;
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.hasStaticShape() && !tensor.getEncoding();
}

namespace {
class EntryRewriter {
public:
  explicit EntryRewriter(func::FuncOp function)
      : function(function), context(function.getContext()) {
    returns = getReturns(function);
  }

  void run() {
    rewriteArguments();
    rewriteResults();
    function.setFunctionType(FunctionType::get(
        context, function.front().getArgumentTypes(), TypeRange()));
    function.removeResAttrsAttr();
    function.setAllArgAttrs(argumentAttrs);
    function->setAttr(DDPDialect::kResultArgumentsAttrName,
                      DenseI64ArrayAttr::get(context, resultArguments));
  }

private:
  void rewriteArguments();
  void rewriteResults();
  int64_t findUpdatedArgument(unsigned result);
  void writeResult(unsigned result, Value memref);

  func::FuncOp function;
  MLIRContext *context;
  SmallVector<func::ReturnOp> returns;
  SmallVector<DictionaryAttr> argumentAttrs;
  SmallVector<int64_t> resultArguments;
};
} // namespace

void EntryRewriter::rewriteArguments() {
  OpBuilder atStart = OpBuilder::atBlockBegin(&function.front());
  for (BlockArgument argument : function.getArguments()) {
    NamedAttrList attrs(function.getArgAttrDict(argument.getArgNumber()));
    auto writable = dyn_cast_or_null<BoolAttr>(attrs.erase(kWritable));
    bool isInout = isa<MemRefType>(argument.getType()) ||
                   (writable && writable.getValue());
    if (isInout)
      attrs.set(DDPDialect::kInoutAttrName, UnitAttr::get(context));
    argumentAttrs.push_back(attrs.getDictionary(context));

    Type type = argument.getType();
    if (!isa<RankedTensorType>(type))
      continue;
    SmallVector<OpOperand *> uses;
    for (OpOperand &use : argument.getUses())
      uses.push_back(&use);
    argument.setType(getStateMemory(type));
    Location loc = argument.getLoc();
    if (isInout) {
      Value tensor = createRead(atStart, loc, type, argument, true);
      for (OpOperand *use : uses)
        use->set(tensor);
      continue;
    }
    // Nothing writes the argument, so every read may be a separate alias set;
    // but a collective in flight and its wait must read the same tensor.
    llvm::SmallDenseMap<Operation *, Value, 1> inFlight;
    for (OpOperand *use : uses) {
      Operation *user = use->getOwner(), *start = getAwaited(user);
      if (isa<FlatStartOpInterface>(user))
        start = user;
      Value tensor = start ? inFlight.lookup(start) : Value();
      if (!tensor) {
        // The end of a parallel loop may contain only insertions.
        Operation *place = start ? start : user;
        if (auto end = dyn_cast<scf::InParallelOp>(place->getParentOp()))
          place = end;
        OpBuilder builder(place);
        tensor = createRead(builder, loc, type, argument, false);
        if (start)
          inFlight[start] = tensor;
      }
      use->set(tensor);
    }
  }
}

/// Returns the inout argument that every returned value updates, or -1.
int64_t EntryRewriter::findUpdatedArgument(unsigned result) {
  int64_t found = -1;
  for (func::ReturnOp op : returns) {
    Value value = op.getOperand(result);
    while (OpOperand *link = getTiedOperand(value))
      value = link->get();
    auto toTensor = value.getDefiningOp<bufferization::ToTensorOp>();
    auto argument =
        toTensor ? dyn_cast<BlockArgument>(toTensor.getBuffer()) : nullptr;
    if (!argument || !toTensor.getWritable() ||
        argument.getOwner() != &function.front())
      return -1;
    if (found != -1 && found != argument.getArgNumber())
      return -1;
    found = argument.getArgNumber();
  }
  return found;
}

/// Makes every return write its value to `memref` first.
void EntryRewriter::writeResult(unsigned result, Value memref) {
  for (func::ReturnOp op : returns) {
    OpBuilder builder(op);
    Value value = op.getOperand(result);
    if (!isa<RankedTensorType>(value.getType())) {
      memref::StoreOp::create(builder, op.getLoc(), value, memref);
      continue;
    }
    createWrite(builder, op.getLoc(), value, memref);
  }
}

void EntryRewriter::rewriteResults() {
  Block &entry = function.front();
  llvm::DenseSet<int64_t> updated;
  llvm::DenseMap<Value, unsigned> numReturned;
  for (func::ReturnOp op : returns)
    for (Value value : op.getOperands())
      ++numReturned[value];
  // Before any result is computed in its out-parameter, which would look like
  // an argument that the next result updates.
  for (auto [index, type] : llvm::enumerate(function.getResultTypes())) {
    int64_t argument =
        isa<RankedTensorType>(type) ? findUpdatedArgument(index) : -1;
    // Each argument can represent one result; a second one is copied.
    if (argument != -1 && !updated.insert(argument).second)
      argument = -1;
    resultArguments.push_back(argument);
  }
  for (auto [index, type] : llvm::enumerate(function.getResultTypes())) {
    if (resultArguments[index] != -1)
      continue; // Written below.
    Value out = entry.addArgument(getStateMemory(type), function.getLoc());
    argumentAttrs.push_back(DictionaryAttr::get(context));
    // Compute the result in its out-parameter if nothing else prevents that.
    if (returns.size() == 1 && isa<RankedTensorType>(type)) {
      Value value = returns.front().getOperand(index);
      if (isOnlyReadBefore(value, returns.front(), returns.front()) &&
          numReturned.lookup(value) == 1)
        if (OpOperand *start = findChainStart(value, returns.front())) {
          // Use a new builder each time: setChainStart erases the old start,
          // which may be the block's first operation.
          OpBuilder atStart = OpBuilder::atBlockBegin(&entry);
          setChainStart(*start, createRead(atStart, function.getLoc(),
                                           start->get().getType(), out, true));
        }
    }
    writeResult(index, out);
  }
  // Last, since an out-parameter may receive the argument's old contents.
  for (auto [index, argument] : llvm::enumerate(resultArguments))
    if (argument != -1)
      writeResult(index, entry.getArgument(argument));
  for (func::ReturnOp op : returns)
    op->setOperands(ValueRange());
}

namespace {
struct PrepareEntriesPass
    : public ddp::impl::DDPPrepareEntriesPassBase<PrepareEntriesPass> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> entries;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal() || !function.isPublic())
        continue;
      if (succeeded(checkShapes(function)))
        entries.push_back(function);
      else if (hasDDPOps(function))
        return signalPassFailure();
    }
    if (!llvm::all_of(entries, checkResults))
      return signalPassFailure();
    splitOffPrivateTwins(entries);
    for (func::FuncOp function : entries)
      EntryRewriter(function).run();
  }

  /// Checks types. Functions without collectives may have any interface.
  static LogicalResult checkShapes(func::FuncOp function) {
    for (bool isResult : {false, true})
      for (auto [index, type] :
           llvm::enumerate(isResult ? function.getResultTypes()
                                    : function.getArgumentTypes())) {
        if (isSupported(type))
          continue;
        if (hasDDPOps(function))
          function.emitOpError()
              << "expected " << (isResult ? "result " : "argument ") << index
              << " to be a tensor of static shape, but got " << type;
        return failure();
      }
    return success();
  }

  static bool checkResults(func::FuncOp function) {
    for (auto [index, type] : llvm::enumerate(function.getResultTypes())) {
      if (isa<RankedTensorType>(type) || type.isIntOrIndexOrFloat())
        continue;
      function.emitOpError() << "expected result " << index
                             << " to be a tensor or a scalar, but got " << type;
      return false;
    }
    return true;
  }

  /// Redirects calls in the module to private copies with the old interface.
  void splitOffPrivateTwins(ArrayRef<func::FuncOp> entries) {
    SymbolTable symbols(getOperation());
    llvm::DenseSet<StringAttr> referenced =
        collectReferencedNames(getOperation());
    llvm::DenseMap<StringAttr, FlatSymbolRefAttr> twins;
    for (func::FuncOp function : entries) {
      StringAttr name = function.getSymNameAttr();
      if (!referenced.contains(name))
        continue;
      func::FuncOp twin = function.clone();
      twin.setPrivate();
      twins[name] = FlatSymbolRefAttr::get(symbols.insert(twin));
    }
    if (twins.empty())
      return;
    // The copies call each other too.
    AttrTypeReplacer replacer;
    replacer.addReplacement(
        [&](FlatSymbolRefAttr symbol) -> std::optional<Attribute> {
          auto it = twins.find(symbol.getAttr());
          return it == twins.end() ? Attribute(symbol) : it->second;
        });
    replacer.recursivelyReplaceElementsIn(getOperation());
  }
};
} // namespace
