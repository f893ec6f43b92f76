// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Emits the C side of a compiled module in the LLVM dialect, around functions
// that are still on memrefs: `reconcile-unrealized-casts` later connects the
// wrappers' descriptors to the converted functions. EntryPoints.cpp determines
// the interface of an entry point.

#include "ddphook/Compiler/EntryPoints.h"
#include "ddphook/Dialect/DDP/IR/RuntimeCalls.h"
#include "ddphook/Target/PlanText.h"

#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/xxhash.h"

#define GEN_PASS_DEF_DDPEMITENTRYPOINTSPASS
#include "ddphook/Compiler/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// Prefixes of the module's own definitions, and of those that this pass adds.
constexpr llvm::StringLiteral kDefinitionPrefix = "ddphook.def.";
constexpr llvm::StringLiteral kTablePrefix = "ddphook.";

/// Returns true if `symbol` is defined in another object. (The LLVM dialect's
/// operations do not implement SymbolOpInterface::isDeclaration.)
bool isDeclaration(SymbolOpInterface symbol) {
  if (auto function = dyn_cast<FunctionOpInterface>(*symbol))
    return function.isExternal();
  if (auto global = dyn_cast<LLVM::GlobalOp>(*symbol))
    return !global.getValueOrNull() && global.getInitializerRegion().empty() &&
           global.getLinkage() != LLVM::Linkage::Internal;
  return symbol.isDeclaration();
}

/// Returns true if C has no type for such numbers and passes their bits.
bool isNarrowFloat(Type scalar) {
  return isa<FloatType>(scalar) && scalar.getIntOrFloatBitWidth() < 32;
}

/// Warns about public functions that the plan does not list: their author may
/// expect them to be entry points.
void warnAboutOtherFunctions(ModuleOp module, const EntryPointTable &table) {
  llvm::StringSet<> entries;
  for (const EntryPoint &entry : table.entries)
    entries.insert(entry.name);
  for (auto function : module.getOps<func::FuncOp>())
    if (function.isPublic() && !function.isExternal() &&
        !entries.contains(function.getName()))
      function.emitWarning() << "'" << function.getName()
                             << "' is public but not an entry of the plan: it "
                                "cannot be called from C";
}

/// Removes functions that no entry point uses. They may still be on tensors:
/// `ddp-pipeline` skips functions without collectives.
void eraseUnreachableFunctions(ModuleOp module, const EntryPointTable &table) {
  SymbolTable symbols(module);
  llvm::SetVector<Operation *> reached;
  for (const EntryPoint &entry : table.entries)
    reached.insert(entry.function);
  for (Operation &op : *module.getBody())
    if (!isa<func::FuncOp>(op))
      reached.insert(&op);
  for (size_t i = 0; i < reached.size(); ++i)
    reached[i]->walk([&](Operation *op) {
      op->getAttrDictionary().walk([&](SymbolRefAttr symbol) {
        if (Operation *target = symbols.lookup(symbol.getRootReference()))
          reached.insert(target);
      });
    });
  for (auto function :
       llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
    if (!reached.contains(function))
      function.erase();
}

/// Makes every definition internal and gives it a name that no library has.
/// Declarations keep their names.
void internalizeDefinitions(ModuleOp module) {
  MLIRContext *context = module.getContext();
  auto internal = LLVM::LinkageAttr::get(context, LLVM::Linkage::Internal);
  DenseMap<StringAttr, FlatSymbolRefAttr> renamed;
  for (auto symbol : module.getOps<SymbolOpInterface>()) {
    if (isDeclaration(symbol))
      continue;
    if (auto function = dyn_cast<func::FuncOp>(*symbol)) {
      function->setAttr("llvm.linkage", internal);
      function->removeAttr(LLVM::LLVMDialect::getEmitCWrapperAttrName());
    } else if (auto function = dyn_cast<LLVM::LLVMFuncOp>(*symbol)) {
      function.setLinkage(LLVM::Linkage::Internal);
    } else if (auto global = dyn_cast<LLVM::GlobalOp>(*symbol)) {
      global.setLinkage(LLVM::Linkage::Internal);
    } else {
      symbol.setPrivate();
    }
    auto newName =
        StringAttr::get(context, kDefinitionPrefix + symbol.getName());
    renamed[symbol.getNameAttr()] = FlatSymbolRefAttr::get(newName);
    symbol.setName(newName);
  }

  AttrTypeReplacer replacer;
  replacer.addReplacement([&](FlatSymbolRefAttr reference) {
    auto found = renamed.find(reference.getAttr());
    return found == renamed.end() ? reference : found->second;
  });
  replacer.recursivelyReplaceElementsIn(module);
}

class EntryPointEmitter {
public:
  EntryPointEmitter(ModuleOp module, StringRef name, bool shared)
      : module(module), name(name), shared(shared),
        typeConverter(module.getContext()),
        b(module.getLoc(), module.getContext()) {}

  LogicalResult emit(const EntryPointTable &table);

private:
  LogicalResult checkNames(const EntryPointTable &table);
  LLVM::LLVMFuncOp emitFunction(const EntryPoint &entry, int32_t index);
  LLVM::LLVMFuncOp emitInvoke(LLVM::LLVMFuncOp function,
                              const EntryPoint &entry);
  void emitTables(const EntryPointTable &table,
                  ArrayRef<LLVM::LLVMFuncOp> invokes);
  LLVM::GlobalOp emitGlobal(StringRef symbol, Type type, bool external,
                            llvm::function_ref<Value()> value);
  void emitBytes(StringRef symbol, StringRef bytes);

  /// Returns the type in which C passes `scalar` by value.
  Type getScalarType(Type scalar) {
    if (isNarrowFloat(scalar))
      return b.getIntegerType(scalar.getIntOrFloatBitWidth());
    if (scalar.isIndex())
      return b.getI64Type();
    if (scalar.isInteger(1))
      return b.getI8Type();
    return scalar;
  }
  /// Convert between that type and the function's.
  Value fromC(Value value, Type scalar);
  Value toC(Value value);

  Type ptr() { return LLVM::LLVMPointerType::get(b.getContext()); }
  Value addressOf(StringRef symbol) {
    return LLVM::AddressOfOp::create(b, ptr(), symbol);
  }
  Value constant(Type type, int64_t value) {
    return LLVM::ConstantOp::create(b, type, b.getIntegerAttr(type, value));
  }
  /// Creates a struct or an array of these values.
  Value aggregate(Type type, ArrayRef<Value> values) {
    Value result = LLVM::UndefOp::create(b, type);
    for (auto [position, value] : llvm::enumerate(values))
      result = LLVM::InsertValueOp::create(b, result, value,
                                           static_cast<int64_t>(position));
    return result;
  }

  ModuleOp module;
  StringRef name;
  bool shared;
  LLVMTypeConverter typeConverter;
  ImplicitLocOpBuilder b;
};
} // namespace

Value EntryPointEmitter::fromC(Value value, Type scalar) {
  if (isNarrowFloat(scalar))
    return LLVM::BitcastOp::create(b, scalar, value);
  if (scalar.isIndex())
    return UnrealizedConversionCastOp::create(b, scalar, value).getResult(0);
  if (scalar.isInteger(1))
    return LLVM::ICmpOp::create(b, LLVM::ICmpPredicate::ne, value,
                                constant(b.getI8Type(), 0));
  return value;
}

Value EntryPointEmitter::toC(Value value) {
  Type scalar = value.getType();
  if (isNarrowFloat(scalar))
    return LLVM::BitcastOp::create(b, getScalarType(scalar), value);
  if (scalar.isIndex())
    return UnrealizedConversionCastOp::create(b, b.getI64Type(), value)
        .getResult(0);
  if (scalar.isInteger(1))
    return LLVM::ZExtOp::create(b, b.getI8Type(), value);
  return value;
}

LogicalResult EntryPointEmitter::checkNames(const EntryPointTable &table) {
  if (toCIdentifier(name) != name)
    return module.emitError() << "expected a C identifier as the module's "
                                 "name, but got '"
                              << name << "'";
  llvm::StringMap<StringRef> taken;
  taken[(name + "_module").str()] = "the module itself";
  if (shared)
    taken["ddphook_compiled_module"] = "the module itself";
  for (const EntryPoint &entry : table.entries) {
    std::string symbol = getEntrySymbol(name, entry.name);
    auto [other, isNew] = taken.try_emplace(symbol, entry.name);
    func::FuncOp function = entry.function;
    if (!isNew)
      return function.emitError()
             << "entry point '" << entry.name << "' has the same C name '"
             << symbol << "' as '" << other->second << "'";
  }
  // Definitions are renamed, but declarations cannot be.
  for (auto symbol : module.getOps<SymbolOpInterface>())
    if (isDeclaration(symbol) && taken.contains(symbol.getName()))
      return symbol.emitError()
             << "'" << symbol.getName() << "' is the C name of an entry point";
  return success();
}

LogicalResult EntryPointEmitter::emit(const EntryPointTable &table) {
  if (failed(checkNames(table)) || failed(checkRuntimeNames(module)))
    return failure();
  b.setInsertionPointToEnd(module.getBody());
  warnAboutOtherFunctions(module, table);
  eraseUnreachableFunctions(module, table);
  internalizeDefinitions(module);
  SmallVector<LLVM::LLVMFuncOp> invokes;
  for (auto [index, entry] : llvm::enumerate(table.entries)) {
    LLVM::LLVMFuncOp function =
        emitFunction(entry, static_cast<int32_t>(index));
    invokes.push_back(emitInvoke(function, entry));
  }
  emitTables(table, invokes);
  return success();
}

/// Emits an entry point. Arguments that the callee only reads may overlap each
/// other; buffers that it writes may not overlap others: `llvm.noalias`.
LLVM::LLVMFuncOp EntryPointEmitter::emitFunction(const EntryPoint &entry,
                                                 int32_t index) {
  OpBuilder::InsertionGuard guard(b);
  func::FuncOp callee = entry.function;
  b.setLoc(callee.getLoc());
  Type i32 = b.getI32Type();
  SmallVector<Type> types;
  for (const EntryBuffer &buffer : entry.buffers)
    types.push_back(buffer.kind == EntryBuffer::Kind::ScalarArgument
                        ? getScalarType(buffer.type)
                        : ptr());
  auto function = LLVM::LLVMFuncOp::create(
      b, getEntrySymbol(name, entry.name),
      LLVM::LLVMFunctionType::get(i32, types), LLVM::Linkage::External);
  // The compiled function is inlined here instead, where noalias is known.
  function.setNoInline(true);
  Block *first = function.addEntryBlock(b);
  Block *body = b.createBlock(&function.getBody(), function.getBody().end());
  Block *exit = b.createBlock(&function.getBody(), function.getBody().end(),
                              {i32}, {b.getLoc()});

  b.setInsertionPointToStart(first);
  Value handle = LLVM::LoadOp::create(
      b, ptr(), addressOf((kDefinitionPrefix + kHandleSymbol).str()));
  Value entered =
      rt::enter.call(b, b.getLoc(), module, handle, index).getResult();
  Value isEntered = LLVM::ICmpOp::create(b, LLVM::ICmpPredicate::eq, entered,
                                         constant(i32, DDPHOOK_OK));
  LLVM::CondBrOp::create(b, isEntered, body, ValueRange{}, exit,
                         ValueRange{entered});

  b.setInsertionPointToStart(body);
  SmallVector<Value> operands;
  SmallVector<Value> scalarResults;
  for (auto [buffer, value] :
       llvm::zip_equal(entry.buffers, function.getArguments())) {
    if (buffer.kind == EntryBuffer::Kind::ScalarArgument) {
      operands.push_back(fromC(value, buffer.type));
      continue;
    }
    function.setArgAttr(value.getArgNumber(),
                        LLVM::LLVMDialect::getNoAliasAttrName(),
                        b.getUnitAttr());
    if (buffer.kind == EntryBuffer::Kind::ScalarResult) {
      scalarResults.push_back(value);
      continue;
    }
    Value descriptor = MemRefDescriptor::fromStaticShape(
        b, b.getLoc(), typeConverter, cast<MemRefType>(buffer.type), value);
    operands.push_back(
        UnrealizedConversionCastOp::create(b, buffer.type, descriptor)
            .getResult(0));
  }
  auto call = func::CallOp::create(b, callee, operands);
  for (auto [value, memory] : llvm::zip_equal(call.getResults(), scalarResults))
    LLVM::StoreOp::create(b, toC(value), memory);
  Value left = rt::leave.call(b, b.getLoc(), module, handle).getResult();
  LLVM::BrOp::create(b, ValueRange{left}, exit);

  b.setInsertionPointToStart(exit);
  LLVM::ReturnOp::create(b, exit->getArgument(0));
  return function;
}

LLVM::LLVMFuncOp EntryPointEmitter::emitInvoke(LLVM::LLVMFuncOp function,
                                               const EntryPoint &entry) {
  OpBuilder::InsertionGuard guard(b);
  b.setLoc(function.getLoc());
  auto invoke = LLVM::LLVMFuncOp::create(
      b, (kTablePrefix + "invoke." + function.getName()).str(),
      LLVM::LLVMFunctionType::get(b.getI32Type(), {ptr()}),
      LLVM::Linkage::Internal);
  b.setInsertionPointToStart(invoke.addEntryBlock(b));
  SmallVector<Value> operands;
  for (auto [position, buffer] : llvm::enumerate(entry.buffers)) {
    Value slot =
        LLVM::GEPOp::create(b, ptr(), ptr(), invoke.getArgument(0),
                            ArrayRef<LLVM::GEPArg>{static_cast<int>(position)});
    Value value = LLVM::LoadOp::create(b, ptr(), slot);
    if (buffer.kind == EntryBuffer::Kind::ScalarArgument)
      value = LLVM::LoadOp::create(b, getScalarType(buffer.type), value);
    operands.push_back(value);
  }
  auto call = LLVM::CallOp::create(b, function, operands);
  LLVM::ReturnOp::create(b, call.getResult());
  return invoke;
}

LLVM::GlobalOp
EntryPointEmitter::emitGlobal(StringRef symbol, Type type, bool external,
                              llvm::function_ref<Value()> value) {
  OpBuilder::InsertionGuard guard(b);
  auto global = LLVM::GlobalOp::create(b, type, /*isConstant=*/true,
                                       external ? LLVM::Linkage::External
                                                : LLVM::Linkage::Internal,
                                       symbol, Attribute());
  b.createBlock(&global.getInitializerRegion());
  LLVM::ReturnOp::create(b, value());
  return global;
}

void EntryPointEmitter::emitBytes(StringRef symbol, StringRef bytes) {
  LLVM::GlobalOp::create(b,
                         LLVM::LLVMArrayType::get(b.getI8Type(), bytes.size()),
                         /*isConstant=*/true, LLVM::Linkage::Internal, symbol,
                         b.getStringAttr(bytes));
}

/// Emits ddphook_compiled_entry_t[] and ddphook_compiled_module_t.
void EntryPointEmitter::emitTables(const EntryPointTable &table,
                                   ArrayRef<LLVM::LLVMFuncOp> invokes) {
  static_assert(sizeof(ddphook_compiled_entry_t) == 16 &&
                    sizeof(ddphook_compiled_module_t) == 72,
                "the tables below have the fields of another version");
  Type i32 = b.getI32Type(), i64 = b.getI64Type();
  auto entryType =
      LLVM::LLVMStructType::getLiteral(b.getContext(), {ptr(), ptr()});
  auto entriesType = LLVM::LLVMArrayType::get(entryType, invokes.size());
  SmallVector<std::string> names, invokeNames;
  for (LLVM::LLVMFuncOp invoke : invokes)
    invokeNames.push_back(invoke.getName().str());
  for (const EntryPoint &entry : table.entries) {
    names.push_back((kTablePrefix + "name." + entry.name).str());
    emitBytes(names.back(),
              StringRef(entry.name.c_str(), entry.name.size() + 1));
  }
  std::string entriesName = (kTablePrefix + "entries").str();
  emitGlobal(entriesName, entriesType, /*external=*/false, [&] {
    SmallVector<Value> entries;
    for (auto [entryName, invokeName] : llvm::zip_equal(names, invokeNames))
      entries.push_back(
          aggregate(entryType, {addressOf(entryName), addressOf(invokeName)}));
    return aggregate(entriesType, entries);
  });

  std::string plan = writePlanText(table.plan);
  std::string planName = (kTablePrefix + "plan").str();
  emitBytes(planName, plan);

  auto moduleType = LLVM::LLVMStructType::getLiteral(
      b.getContext(),
      {i32, i32, ptr(), i64, i64, ptr(), i64, ptr(), ptr(), i64});
  auto deviceCode = module.lookupSymbol<LLVM::GlobalOp>(
      (kDefinitionPrefix + kDeviceCodeGlobalName).str());
  // The size excludes the terminating null.
  int64_t deviceCodeBytes = 0;
  if (deviceCode)
    deviceCodeBytes =
        cast<LLVM::LLVMArrayType>(deviceCode.getType()).getNumElements() - 1;
  std::string moduleName = (name + "_module").str();
  emitGlobal(moduleName, moduleType, /*external=*/true, [&] {
    auto hash = static_cast<int64_t>(llvm::xxh3_64bits(plan));
    return aggregate(moduleType,
                     {constant(i32, sizeof(ddphook_compiled_module_t)),
                      constant(i32, DDPHOOK_ABI_VERSION), addressOf(planName),
                      constant(i64, static_cast<int64_t>(plan.size())),
                      constant(i64, hash),
                      addressOf((kDefinitionPrefix + kHandleSymbol).str()),
                      constant(i64, static_cast<int64_t>(invokes.size())),
                      addressOf(entriesName),
                      deviceCode ? addressOf(deviceCode.getName())
                                 : LLVM::ZeroOp::create(b, ptr()),
                      constant(i64, deviceCodeBytes)});
  });
  if (!shared)
    return;
  OpBuilder::InsertionGuard guard(b);
  auto alias = LLVM::AliasOp::create(
      b, moduleType, LLVM::Linkage::External, "ddphook_compiled_module",
      /*dso_local=*/false,
      /*thread_local_=*/false, ArrayRef<NamedAttribute>());
  b.createBlock(&alias.getInitializer());
  LLVM::ReturnOp::create(b, addressOf(moduleName));
}

namespace {
struct EmitEntryPointsPass
    : public mlir::ddp::impl::DDPEmitEntryPointsPassBase<EmitEntryPointsPass> {
  using DDPEmitEntryPointsPassBase::DDPEmitEntryPointsPassBase;

  void runOnOperation() override {
    FailureOr<EntryPointTable> table = collectEntryPoints(getOperation());
    if (failed(table))
      return signalPassFailure();
    EntryPointEmitter emitter(getOperation(), name, shared);
    if (table->plan.getAbi() != DDPHOOK_ABI_VERSION) {
      getOperation().emitError()
          << "expected a plan for ABI version " << DDPHOOK_ABI_VERSION
          << ", but got one for " << table->plan.getAbi();
      return signalPassFailure();
    }
    // From here on the plan is a constant of the module.
    getOperation()->removeAttr(DDPDialect::kPlanAttrName);
    if (failed(emitter.emit(*table)))
      signalPassFailure();
  }
};
} // namespace
