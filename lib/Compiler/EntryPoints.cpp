// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matches the plan's entries with the module's functions, without changing
// them.

#include "ddphook/Compiler/EntryPoints.h"
#include "ddphook/Dialect/DDP/IR/RuntimeCalls.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::ddp;

std::string EntryBuffer::getName() const {
  return (isArgument() ? "arg" : "result") + std::to_string(number);
}

Type EntryBuffer::getElementType() const { return getElementTypeOrSelf(type); }

ArrayRef<int64_t> EntryBuffer::getShape() const {
  if (auto memref = dyn_cast<MemRefType>(type))
    return memref.getShape();
  return {};
}

std::string mlir::ddp::toCIdentifier(StringRef text) {
  std::string result;
  if (text.empty() || llvm::isDigit(text.front()))
    result += '_';
  for (char c : text)
    result += llvm::isAlnum(c) ? c : '_';
  return result;
}

std::string mlir::ddp::getEntrySymbol(StringRef moduleName,
                                      StringRef entryName) {
  return toCIdentifier((moduleName + "_" + entryName).str());
}

/// Returns true if an operation may write through `memref`. Follows it into
/// calls, but assumes a write if other operations, branches or loops pass it
/// on.
static bool mayWrite(Value memref) {
  llvm::SetVector<Value> aliases;
  aliases.insert(memref);
  for (size_t i = 0; i < aliases.size(); ++i)
    for (OpOperand &use : aliases[i].getUses()) {
      Operation *user = use.getOwner();
      if (isa<ViewLikeOpInterface, memref::ExtractAlignedPointerAsIndexOp,
              arith::IndexCastOp, LLVM::IntToPtrOp>(user)) {
        aliases.insert_range(user->getResults());
        continue;
      }
      if (auto call = dyn_cast<LLVM::CallOp>(user);
          call && call.getCallee() &&
          readsOnly(*call.getCallee(), use.getOperandNumber()))
        continue;
      if (auto call = dyn_cast<func::CallOp>(user)) {
        auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
            call, call.getCalleeAttr());
        if (!callee || callee.isExternal())
          return true;
        aliases.insert(callee.getArgument(use.getOperandNumber()));
        aliases.insert_range(call.getResults());
        continue;
      }
      auto effects = dyn_cast<MemoryEffectOpInterface>(user);
      SmallVector<MemoryEffects::EffectInstance> onValue;
      if (effects)
        effects.getEffectsOnValue(use.get(), onValue);
      // An operation without known effects on this operand may pass it on.
      if (onValue.empty() ||
          !llvm::all_of(onValue,
                        [](const MemoryEffects::EffectInstance &effect) {
                          return isa<MemoryEffects::Read>(effect.getEffect());
                        }))
        return true;
    }
  return false;
}

/// Reports arguments or results that differ from the plan.
static LogicalResult compareTypes(func::FuncOp function, StringRef what,
                                  ArrayRef<Type> planned,
                                  ArrayRef<Type> types) {
  if (planned.size() != types.size())
    return function.emitError()
           << "expected entry point '" << function.getName() << "' to have "
           << planned.size() << " " << what << "s, as the plan says, but got "
           << types.size();
  for (auto [number, expected, type] : llvm::enumerate(planned, types))
    if (expected != type)
      return function.emitError()
             << "expected " << what << " " << number << " of entry point '"
             << function.getName() << "' to be " << expected
             << ", as the plan says, but got " << type;
  return success();
}

static LogicalResult matchEntry(PlanEntryAttr planned, EntryPoint &entry) {
  func::FuncOp function = entry.function;
  SmallVector<Type> argumentTypes, resultTypes;
  for (PlanArgumentAttr argument : planned.getArguments())
    argumentTypes.push_back(argument.getType());
  for (PlanResultAttr result : planned.getResults())
    if (result.getArgument() == -1)
      (isa<MemRefType>(result.getType()) ? argumentTypes : resultTypes)
          .push_back(result.getType());
  if (failed(compareTypes(function, "argument", argumentTypes,
                          function.getArgumentTypes())) ||
      failed(compareTypes(function, "result", resultTypes,
                          function.getResultTypes())))
    return failure();

  for (auto [number, argument] : llvm::enumerate(planned.getArguments())) {
    bool isArray = isa<MemRefType>(argument.getType());
    entry.buffers.push_back(
        {isArray ? EntryBuffer::Kind::Argument
                 : EntryBuffer::Kind::ScalarArgument,
         static_cast<unsigned>(number), argument.getType(),
         argument.getInout() && mayWrite(function.getArgument(number))});
  }
  for (auto [number, result] : llvm::enumerate(planned.getResults())) {
    bool isArray = isa<MemRefType>(result.getType());
    if (result.getArgument() != -1)
      entry.aliases.emplace_back(number, result.getArgument());
    else
      entry.buffers.push_back({isArray ? EntryBuffer::Kind::Result
                                       : EntryBuffer::Kind::ScalarResult,
                               static_cast<unsigned>(number),
                               result.getType()});
  }
  for (const EntryBuffer &buffer : entry.buffers)
    if (auto memref = dyn_cast<MemRefType>(buffer.type);
        memref && memref.getMemorySpace())
      return function.emitError()
             << "expected " << buffer.getName() << " of entry point '"
             << entry.name << "' to be in no memory space, but got " << memref;
  return success();
}

FailureOr<EntryPointTable> mlir::ddp::collectEntryPoints(ModuleOp module) {
  EntryPointTable table;
  table.plan = getPlan(module);
  if (!table.plan || !module.lookupSymbol<LLVM::GlobalOp>(kHandleSymbol))
    return module.emitError()
           << "expected the attribute '" << DDPDialect::kPlanAttrName
           << "' and the global '" << kHandleSymbol
           << "' of 'convert-ddp-to-runtime'";
  if (table.plan.getEntries().empty())
    return module.emitError() << "expected a public function on tensors of "
                                 "static shape: the module has no entry point";
  for (PlanEntryAttr planned : table.plan.getEntries()) {
    auto function = module.lookupSymbol<func::FuncOp>(planned.getName());
    if (!function || function.isExternal())
      return module.emitError() << "expected a function " << planned.getName()
                                << ", an entry of the plan";
    table.entries.push_back({planned.getName().str(), function, {}, {}});
    if (failed(matchEntry(planned, table.entries.back())))
      return failure();
  }
  return table;
}
