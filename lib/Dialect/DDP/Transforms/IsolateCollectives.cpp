// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-isolate-collectives: runs passes on the functions with collectives and
// the operations they depend on. Everything else is removed from the module for
// that time, so that no pass, including those of other projects, sees an
// operation it does not know.

#include "../Analysis/SymbolRefs.h"

#include "llvm/ADT/SetVector.h"

#define GEN_PASS_DEF_DDPISOLATECOLLECTIVESPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

static bool hasDDPAttr(ArrayAttr lists) {
  if (!lists)
    return false;
  for (auto attrs : lists.getAsRange<DictionaryAttr>())
    for (NamedAttribute attr : attrs)
      if (isa_and_nonnull<DDPDialect>(attr.getNameDialect()))
        return true;
  return false;
}

/// True if `op` or a nested operation belongs to the dialect or carries one of
/// its attributes, such as the mark of a gradient that nothing reduces yet.
static bool usesDDP(Operation *op) {
  WalkResult result = op->walk([](Operation *nested) {
    bool found = isa_and_nonnull<DDPDialect>(nested->getDialect());
    for (NamedAttribute attr : nested->getDiscardableAttrs())
      found |= isa_and_nonnull<DDPDialect>(attr.getNameDialect());
    if (auto function = dyn_cast<FunctionOpInterface>(nested))
      found |= hasDDPAttr(function.getArgAttrsAttr()) ||
               hasDDPAttr(function.getResAttrsAttr());
    return found ? WalkResult::interrupt() : WalkResult::advance();
  });
  return result.wasInterrupted();
}

/// True for a declaration that no pass has a reason to change. It stays in the
/// module for passes that look it up by name.
static bool isPlainDeclaration(Operation *op) {
  auto function = dyn_cast<FunctionOpInterface>(op);
  return function && function.isExternal() &&
         llvm::none_of(function.getArgumentTypes(),
                       llvm::IsaPred<TensorType>) &&
         llvm::none_of(function.getResultTypes(), llvm::IsaPred<TensorType>);
}

namespace {
/// Records which operations of a module refer to which others by name.
class References {
public:
  explicit References(ModuleOp module) : module(module) {
    for (Operation &op : *module.getBody())
      add(&op);
  }

  ArrayRef<Operation *> getReferences(Operation *op) { return from[op]; }
  ArrayRef<Operation *> getUsers(Operation *op) { return to[op]; }

private:
  void add(Operation *op);
  void add(Operation *op, Operation *table, SymbolRefAttr symbol);

  ModuleOp module;
  SymbolTableCollection symbols;
  llvm::DenseMap<Operation *, SmallVector<Operation *>> from, to;
};
} // namespace

/// Adds the references of `op` and of the operations in it.
void References::add(Operation *op) {
  // The meaning of a name depends on the symbol table around its user.
  llvm::SmallDenseMap<Operation *, SymbolRefFinder> finders;
  op->walk([&](Operation *user) {
    Operation *table = SymbolTable::getNearestSymbolTable(user);
    auto it = finders.find(table);
    if (it == finders.end())
      it = finders
               .try_emplace(table,
                            [this, op, table](SymbolRefAttr symbol) {
                              add(op, table, symbol);
                            })
               .first;
    it->second.visit(user);
  });
}

/// Adds a reference from `op` to a name in this symbol table. `table` is null
/// if an unregistered operation around the user may be a symbol table.
void References::add(Operation *op, Operation *table, SymbolRefAttr symbol) {
  Operation *target = table ? symbols.lookupSymbolIn(table, symbol) : nullptr;
  if (!target)
    target = symbols.lookupSymbolIn(module, symbol.getRootReference());
  if (target)
    target = module.getBody()->findAncestorOpInBlock(*target);
  if (!target || target == op)
    return;
  from[op].push_back(target);
  to[target].push_back(op);
}

/// Returns the operations to compile together: those that use the dialect,
/// those they refer to, and the users of their functions, whose interfaces may
/// change.
static llvm::SetVector<Operation *> findInvolved(ModuleOp module) {
  llvm::SetVector<Operation *> involved;
  for (Operation &op : *module.getBody())
    if (usesDDP(&op))
      involved.insert(&op);
  if (involved.size() == module.getBody()->getOperations().size())
    return involved;
  References references(module);
  for (size_t i = 0; i < involved.size(); ++i) {
    Operation *op = involved[i];
    involved.insert_range(references.getReferences(op));
    if (isa<FunctionOpInterface>(op))
      involved.insert_range(references.getUsers(op));
  }
  return involved;
}

namespace {
/// The operations taken out of a module. An empty module of the same name marks
/// the position of each.
class SetAside {
public:
  void take(Operation *op) {
    OpBuilder builder(op);
    auto symbol = dyn_cast<SymbolOpInterface>(op);
    std::optional<StringRef> name;
    if (symbol && symbol.getNameAttr())
      name = symbol.getName();
    auto place = ModuleOp::create(builder, op->getLoc(), name);
    op->remove();
    kept[place] = op;
  }

  void putBack(ModuleOp module) {
    for (Operation &op : llvm::make_early_inc_range(*module.getBody()))
      if (auto it = kept.find(&op); it != kept.end()) {
        module.getBody()->getOperations().insert(op.getIterator(), it->second);
        kept.erase(it);
        op.erase();
      }
    // No pass removes these markers, but nothing forbids it either.
    for (auto [place, op] : kept)
      module.push_back(op);
    kept.clear();
  }

private:
  llvm::MapVector<Operation *, Operation *> kept;
};

struct IsolateCollectivesPass
    : public ddp::impl::DDPIsolateCollectivesPassBase<IsolateCollectivesPass> {
  using DDPIsolateCollectivesPassBase::DDPIsolateCollectivesPassBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    DDPIsolateCollectivesPassBase::getDependentDialects(registry);
    for (const OpPassManager &passes : pipeline)
      passes.getDependentDialects(registry);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (auto inner : module.getOps<ModuleOp>())
      if (usesDDP(inner)) {
        inner.emitError() << "expected collectives only in the outermost "
                             "module, but got some in a nested module";
        return signalPassFailure();
      }
    SetAside others;
    if (!allFunctions) {
      llvm::SetVector<Operation *> involved = findInvolved(module);
      for (Operation &op : llvm::make_early_inc_range(*module.getBody()))
        if (!involved.contains(&op) && !isPlainDeclaration(&op))
          others.take(&op);
    }
    bool ok = llvm::all_of(pipeline, [&](OpPassManager &passes) {
      return succeeded(runPipeline(passes, module));
    });
    others.putBack(module);
    if (!ok)
      signalPassFailure();
  }
};
} // namespace
