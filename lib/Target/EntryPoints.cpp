//===- EntryPoints.cpp - the entry points of a module ---------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matches the plan's entries with the module's functions. The plan says what
// callers pass; the functions say whether a value without dimensions travels
// in memory or by value. Nothing is changed here.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Target/EntryPoints.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/JSON.h"

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

StringRef mlir::ddp::getPlanElementType(Type type) {
  if (type.isF16())
    return "f16";
  if (type.isBF16())
    return "bf16";
  if (type.isF32())
    return "f32";
  if (type.isF64())
    return "f64";
  if (type.isIndex())
    return "index";
  if (type.isSignlessInteger(1))
    return "i1";
  if (type.isSignlessInteger(8))
    return "i8";
  if (type.isSignlessInteger(16))
    return "i16";
  if (type.isSignlessInteger(32))
    return "i32";
  if (type.isSignlessInteger(64))
    return "i64";
  return "";
}

StringRef mlir::ddp::getCElementType(Type type) {
  return llvm::StringSwitch<StringRef>(getPlanElementType(type))
      .Cases({"f16", "bf16"}, "uint16_t")
      .Case("f32", "float")
      .Case("f64", "double")
      .Case("i1", "uint8_t")
      .Case("i8", "int8_t")
      .Case("i16", "int16_t")
      .Case("i32", "int32_t")
      .Cases({"i64", "index"}, "int64_t");
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
  std::string result = moduleName.str() + "_";
  for (char c : entryName)
    result += llvm::isAlnum(c) ? c : '_';
  return result;
}

/// Whether an operation may write to memory through `memref`. What is done with
/// its address, and behind branches and loops, is not looked into.
static bool mayWrite(Value memref) {
  llvm::SetVector<Value> aliases;
  aliases.insert(memref);
  for (size_t i = 0; i < aliases.size(); ++i)
    for (OpOperand &use : aliases[i].getUses()) {
      Operation *user = use.getOwner();
      if (isa<ViewLikeOpInterface>(user)) {
        aliases.insert_range(user->getResults());
        continue;
      }
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
      // An operation that says nothing of this operand passes it on.
      if (onValue.empty() ||
          !llvm::all_of(onValue,
                        [](const MemoryEffects::EffectInstance &effect) {
                          return isa<MemoryEffects::Read>(effect.getEffect());
                        }))
        return true;
    }
  return false;
}

namespace {
/// Matches one entry of the plan with its function.
class EntryMatcher {
public:
  EntryMatcher(const llvm::json::Object &json, func::FuncOp function,
               EntryPoint &entry)
      : json(json), function(function), entry(entry) {}

  LogicalResult match() {
    const llvm::json::Array *arguments = json.getArray("arguments");
    const llvm::json::Array *results = json.getArray("results");
    if (!arguments || !results)
      return error() << "has no \"arguments\" or no \"results\" in the plan";
    if (arguments->size() > function.getNumArguments())
      return error() << "has " << arguments->size()
                     << " arguments in the plan, but the function takes "
                     << function.getNumArguments();
    for (const llvm::json::Value &argument : *arguments)
      if (failed(matchArgument(argument)))
        return failure();
    for (const llvm::json::Value &result : *results)
      if (failed(matchResult(result)))
        return failure();
    if (nextArgument != function.getNumArguments() ||
        nextReturned != function.getNumResults())
      return error() << "has " << results->size()
                     << " results in the plan, but the function takes "
                     << function.getNumArguments() - arguments->size()
                     << " more buffers and returns " << function.getNumResults()
                     << " values";
    return success();
  }

private:
  InFlightDiagnostic error() {
    return function.emitError() << "entry point '" << entry.name << "' ";
  }

  LogicalResult matchArgument(const llvm::json::Value &value) {
    unsigned number = nextArgument++;
    EntryBuffer buffer{EntryBuffer::Kind::Argument, number,
                       function.getArgumentTypes()[number]};
    if (!isa<MemRefType>(buffer.type))
      buffer.kind = EntryBuffer::Kind::ScalarArgument;
    const llvm::json::Object *argument = value.getAsObject();
    buffer.mayBeWritten = argument &&
                          argument->getBoolean("inout").value_or(false) &&
                          mayWrite(function.getArgument(number));
    return append(buffer, argument);
  }

  LogicalResult matchResult(const llvm::json::Value &value) {
    const llvm::json::Object *result = value.getAsObject();
    unsigned number = nextResult++;
    std::optional<int64_t> alias =
        result ? result->getInteger("argument") : std::nullopt;
    if (!alias)
      return error() << "has no \"argument\" for result " << number
                     << " in the plan";
    if (*alias >= 0) {
      entry.aliases.emplace_back(number, static_cast<unsigned>(*alias));
      return success();
    }
    // A result without dimensions is a 0-D buffer or a returned scalar.
    Type passed = nextArgument < function.getNumArguments()
                      ? function.getArgumentTypes()[nextArgument]
                      : Type();
    Type returned = nextReturned < function.getNumResults()
                        ? function.getResultTypes()[nextReturned]
                        : Type();
    bool isPassed = passed && matches(passed, *result);
    bool isReturned = returned && matches(returned, *result);
    if (isPassed && isReturned)
      return error() << "returns scalars and 0-D buffers of one type; return "
                        "result "
                     << number << " as a tensor";
    if (isReturned) {
      ++nextReturned;
      return append({EntryBuffer::Kind::ScalarResult, number, returned},
                    result);
    }
    if (!passed)
      return error() << "has no buffer for result " << number;
    ++nextArgument;
    return append({EntryBuffer::Kind::Result, number, passed}, result);
  }

  static bool matches(Type type, const llvm::json::Object &json) {
    ArrayRef<int64_t> shape;
    if (auto memref = dyn_cast<MemRefType>(type))
      shape = memref.getShape();
    const llvm::json::Array *planShape = json.getArray("shape");
    return planShape &&
           llvm::equal(shape, *planShape,
                       [](int64_t extent, const llvm::json::Value &value) {
                         return value.getAsInteger() == extent;
                       }) &&
           json.getString("dtype") ==
               getPlanElementType(getElementTypeOrSelf(type));
  }

  LogicalResult append(EntryBuffer buffer, const llvm::json::Object *json) {
    std::string name = buffer.getName();
    if (auto memref = dyn_cast<MemRefType>(buffer.type)) {
      if (!memref.hasStaticShape())
        return error() << "expected a static shape of " << name << ", but got "
                       << memref;
      if (!memref.getLayout().isIdentity() || memref.getMemorySpace())
        return error() << "expected " << name
                       << " to be contiguous memory of the host, but got "
                       << memref;
    }
    if (getPlanElementType(buffer.getElementType()).empty())
      return error() << "expected " << name
                     << " to have elements of type f16, bf16, f32, f64, i1, "
                        "i8, i16, i32, i64 or index, but got "
                     << buffer.type;
    if (!json || !matches(buffer.type, *json))
      return error() << "expected " << name
                     << " to be as the plan says, but got " << buffer.type;
    entry.buffers.push_back(buffer);
    return success();
  }

  const llvm::json::Object &json;
  func::FuncOp function;
  EntryPoint &entry;
  unsigned nextArgument = 0;
  unsigned nextResult = 0;
  unsigned nextReturned = 0;
};
} // namespace

/// The plan, parsed; an error where it is not JSON.
static FailureOr<llvm::json::Value> parsePlan(LLVM::GlobalOp plan,
                                              StringRef text) {
  llvm::Expected<llvm::json::Value> json = llvm::json::parse(text);
  if (json)
    return std::move(*json);
  plan.emitError() << "expected a plan in JSON, but got: "
                   << llvm::toString(json.takeError());
  return failure();
}

static bool isForDevice(const llvm::json::Value &plan) {
  const llvm::json::Object *root = plan.getAsObject();
  return root && root->getString("memory") == "device";
}

static StringAttr getPlanText(LLVM::GlobalOp plan) {
  return plan ? dyn_cast_or_null<StringAttr>(plan.getValueOrNull())
              : StringAttr();
}

FailureOr<bool> mlir::ddp::usesDeviceMemory(ModuleOp module) {
  auto plan = module.lookupSymbol<LLVM::GlobalOp>(kPlanGlobalName);
  StringAttr text = getPlanText(plan);
  if (!text)
    return false;
  FailureOr<llvm::json::Value> json = parsePlan(plan, text);
  if (failed(json))
    return failure();
  return isForDevice(*json);
}

FailureOr<EntryPointTable> mlir::ddp::collectEntryPoints(ModuleOp module) {
  EntryPointTable table;
  auto handle = module.lookupSymbol<LLVM::GlobalOp>(kHandleGlobalName);
  auto plan = module.lookupSymbol<LLVM::GlobalOp>(kPlanGlobalName);
  StringAttr text = getPlanText(plan);
  if (!handle || !text)
    return module.emitError()
           << "expected the globals '" << kHandleGlobalName << "' and '"
           << kPlanGlobalName << "' of 'convert-ddp-to-runtime'";
  table.plan = text.getValue();

  FailureOr<llvm::json::Value> json = parsePlan(plan, text);
  if (failed(json))
    return failure();
  table.usesDeviceMemory = isForDevice(*json);
  const llvm::json::Object *root = json->getAsObject();
  const llvm::json::Array *entries = root ? root->getArray("entries") : nullptr;
  if (!entries)
    return plan.emitError() << "expected \"entries\" in the plan";

  if (entries->empty())
    return module.emitError() << "expected a public function on tensors of "
                                 "static shape: the module has no entry point";

  for (const llvm::json::Value &value : *entries) {
    const llvm::json::Object *object = value.getAsObject();
    std::optional<StringRef> name =
        object ? object->getString("name") : std::nullopt;
    if (!name)
      return plan.emitError() << "expected a \"name\" of every entry";
    auto function = module.lookupSymbol<func::FuncOp>(*name);
    if (!function || function.isExternal())
      return plan.emitError()
             << "expected a function '" << *name << "', an entry of the plan";
    EntryPoint &entry = table.entries.emplace_back();
    entry.name = name->str();
    entry.function = function;
    if (failed(EntryMatcher(*object, function, entry).match()))
      return failure();
  }
  return table;
}
