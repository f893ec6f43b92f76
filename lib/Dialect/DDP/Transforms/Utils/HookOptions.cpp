// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds a hook's attribute from options. This file knows no hook and no
// parameter: it gets them from the interface of the attributes, and builds text
// for the attribute's own parser.

#include "ddphook/Dialect/DDP/Transforms/Utils/HookOptions.h"

#include "OptionWords.h"

#include "mlir/AsmParser/AsmParser.h"
#include "llvm/ADT/SmallVectorExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/ScopedPrinter.h"
#include "llvm/Support/Threading.h"
#include <mutex>

using namespace mlir;
using namespace mlir::ddp;

using EmitError = function_ref<InFlightDiagnostic()>;

namespace {
struct NamedHook {
  StringRef name;
  ArrayRef<HookParameter> parameters;

  /// The option that sets all improvements together.
  static constexpr StringLiteral kNumerics = "numerics";

  const HookParameter *find(StringRef option) const {
    for (const HookParameter &parameter : parameters)
      if (parameter.option == option)
        return &parameter;
    return nullptr;
  }
  bool hasOption(StringRef option) const {
    auto isImprovement = [](const HookParameter &parameter) {
      return parameter.isImprovement;
    };
    return find(option) ||
           (option == kNumerics && llvm::any_of(parameters, isImprovement));
  }
};

template <typename... AttrTs>
struct HookList {
  static SmallVector<NamedHook> get() {
    SmallVector<NamedHook> hooks;
    (add<AttrTs>(hooks), ...);
    return hooks;
  }
  template <typename AttrT>
  static void add(SmallVector<NamedHook> &hooks) {
    if constexpr (std::is_base_of_v<HookAttrInterface::Trait<AttrT>, AttrT>)
      if (auto parameters = AttrT::getHookParameters())
        hooks.push_back({AttrT::getMnemonic(), *parameters});
  }
};
} // namespace

/// Returns the hooks of this dialect, in the order of their definitions.
static ArrayRef<NamedHook> getNamedHooks() {
  static const SmallVector<NamedHook> hooks = HookList<
#define GET_ATTRDEF_LIST
#include "ddphook/Dialect/DDP/IR/DDPAttrs.cpp.inc"
      >::get();
  return hooks;
}

/// Returns the names of the hooks that have an option.
static SmallVector<StringRef> getHooksWith(StringRef option) {
  SmallVector<StringRef> names;
  for (const NamedHook &hook : getNamedHooks())
    if (hook.hasOption(option))
      names.push_back(hook.name);
  return names;
}

/// Finds the hook that a user calls `name`. `NamedHook::name` is the name of
/// the attribute with its dialect.
static std::optional<NamedHook> findHook(MLIRContext *context, StringRef name) {
  std::string attribute = name.str();
  llvm::replace(attribute, '-', '_');
  if (!name.contains('.'))
    attribute = (DDPDialect::getDialectNamespace() + "." + attribute).str();
  context->getOrLoadDialect(StringRef(attribute).split('.').first);
  auto abstract = AbstractAttribute::lookup(attribute, context);
  auto *hook =
      abstract ? abstract->get().getInterface<HookAttrInterface>() : nullptr;
  auto parameters = hook ? hook->getHookParameters() : std::nullopt;
  if (!parameters)
    return std::nullopt;
  return NamedHook{abstract->get().getName(), *parameters};
}

StringRef mlir::ddp::getHookHelp() {
  static const std::string help = [] {
    std::string text = "Hook of buckets without a ddp.hook attribute: the text "
                       "of an attribute, or one of these names with options";
    llvm::raw_string_ostream os(text);
    for (const NamedHook &hook : getNamedHooks()) {
      os << '\n' << hook.name;
      for (const HookParameter &parameter : hook.parameters) {
        std::string option =
            (parameter.option + "=" + parameter.defaultValue).str();
        os << "\n  " << llvm::left_justify(option, 44) << ' '
           << parameter.description;
      }
      if (hook.hasOption(NamedHook::kNumerics))
        os << "\n  " << NamedHook::kNumerics
           << "=eager (as PyTorch computes) or improved";
    }
    return text;
  }();
  return help;
}

/// Returns an error that holds for options of any hook, or an empty string.
static std::string findDefect(ArrayRef<OptionWord> words) {
  llvm::StringMap<const OptionWord *> given;
  for (const OptionWord &word : words) {
    if (word.name.empty())
      return ("expected the name of an option, but got '" + word.equalsValue +
              "'")
          .str();
    auto [first, isNew] = given.try_emplace(word.name, &word);
    if (!isNew)
      return ("expected " + word.name + " once, but got '" +
              first->second->getValue() + "' and '" + word.getValue() + "'")
          .str();
  }
  return "";
}

static std::optional<bool> getFlag(StringRef value) {
  return llvm::StringSwitch<std::optional<bool>>(value)
      .CasesLower({"true", "1"}, true)
      .CasesLower({"false", "0"}, false)
      .Default(std::nullopt);
}

/// Returns the type in MLIR's syntax, given that or its name in PyTorch and
/// NumPy; an empty string if it is neither.
static StringRef spellType(StringRef name) {
  StringRef letters = name.take_while(llvm::isAlpha);
  bool isSpelt =
      name.starts_with("!") ||
      llvm::is_contained({"f", "bf", "tf", "i", "si", "ui"}, letters);
  return llvm::StringSwitch<StringRef>(name)
      .Cases({"float16", "half"}, "f16")
      .Case("bfloat16", "bf16")
      .Cases({"float32", "float"}, "f32")
      .Cases({"float64", "double"}, "f64")
      .Default(isSpelt ? name : "");
}

/// Returns the parameter's value in the attribute's text. `wireType` is the
/// wrapper's type or null; if the hook itself uses it, resets it to null.
static FailureOr<std::string> convertValue(MLIRContext *context,
                                           const HookParameter &parameter,
                                           StringRef value, Type &wireType,
                                           EmitError emitError) {
  auto mismatch = [&](StringRef expected) {
    return emitError() << "expected " << parameter.option << " to be "
                       << expected << ", but got '" << value << "'";
  };
  switch (parameter.kind) {
  case HookParameter::Kind::Integer:
    if (int64_t number; value.getAsInteger(10, number))
      return mismatch("a whole number");
    return value.str();
  case HookParameter::Kind::Number: {
    double number;
    if (value.getAsDouble(number))
      return mismatch("a number");
    return llvm::to_string(FloatAttr::get(Float64Type::get(context), number));
  }
  case HookParameter::Kind::Symbol:
    value.consume_front("@");
    return llvm::to_string(FlatSymbolRefAttr::get(context, value));
  case HookParameter::Kind::Choice:
    return value.str(); // the attribute's parser checks it
  case HookParameter::Kind::Type:
    if (spellType(value).empty())
      return mismatch("a type such as f32");
    return spellType(value).str();
  case HookParameter::Kind::Flag:
  case HookParameter::Kind::WireType:
    break;
  }
  std::optional<bool> flag = getFlag(value);
  if (!flag)
    return mismatch("true or false");
  if (parameter.kind == HookParameter::Kind::Flag)
    return std::string(*flag ? "true" : "false");
  if (!*flag)
    return std::string();
  if (!wireType)
    return emitError() << "expected " << parameter.option
                       << " only with a wrapper";
  return llvm::to_string(TypeAttr::get(std::exchange(wireType, Type())));
}

static InFlightDiagnostic rejectOption(const NamedHook &hook, StringRef option,
                                       EmitError emitError) {
  InFlightDiagnostic error = emitError();
  StringRef name = hook.name;
  name.consume_front("ddp.");
  SmallVector<StringRef> owners = getHooksWith(option), own;
  for (const HookParameter &parameter : hook.parameters)
    own.push_back(parameter.option);
  if (!owners.empty())
    error << "expected " << option
          << " only with hook=" << listAlternatives(owners)
          << ", but got hook=" << name;
  else
    error << "expected an option of hook=" << name << " ("
          << (own.empty() ? "it has none" : listAlternatives(own))
          << "), but got " << option;
  return error;
}

/// Returns the attribute's text, from the hook's name and options.
static FailureOr<std::string> getAttributeText(MLIRContext *context,
                                               const NamedHook &hook,
                                               ArrayRef<OptionWord> options,
                                               Type &wireType,
                                               EmitError emitError) {
  if (std::string defect = findDefect(options); !defect.empty())
    return emitError() << defect;
  llvm::StringMap<StringRef> given; // NAME= leaves the default.
  for (const OptionWord &option : options) {
    if (!hook.hasOption(option.name))
      return rejectOption(hook, option.name, emitError);
    const HookParameter *parameter = hook.find(option.name);
    bool isFlag = parameter && llvm::is_contained({"true", "false"},
                                                  parameter->defaultValue);
    if (option.equalsValue.empty() && !isFlag)
      return emitError() << "expected a value for the option " << option.name;
    given[option.name] = option.getValue();
  }
  StringRef numerics = given.lookup(NamedHook::kNumerics);
  bool isImproved = numerics == "improved";
  if (!isImproved && !numerics.empty() && numerics != "eager")
    return emitError() << "expected numerics=eager or improved, but got '"
                       << numerics << "'";
  auto improves = [&](const HookParameter &parameter) {
    // Nothing is computed in an encoding.
    if (parameter.kind == HookParameter::Kind::WireType)
      return wireType && (isImproved || isa<EncodedType>(wireType));
    if (!isImproved || !parameter.isImprovement)
      return false;
    const HookParameter *improved = hook.find(parameter.improves);
    if (!improved)
      return true;
    StringRef value = given.lookup(improved->option);
    return getFlag(value.empty() ? improved->defaultValue : value)
        .value_or(false);
  };

  SmallVector<std::string> parameters;
  for (const HookParameter &parameter : hook.parameters) {
    StringRef value = given.lookup(parameter.option);
    if (value.empty() && improves(parameter))
      value = "true";
    if (value.empty())
      continue;
    FailureOr<std::string> text =
        convertValue(context, parameter, value, wireType, emitError);
    if (failed(text))
      return failure();
    if (!text->empty())
      parameters.push_back((parameter.name + " = " + *text).str());
  }
  std::string text = ("#" + hook.name).str();
  if (!parameters.empty())
    text += "<" + llvm::join(parameters, ", ") + ">";
  return text;
}

/// Parses `text` as an attribute. On failure reports the parser's message after
/// `where`, and returns null.
static Attribute parseText(MLIRContext *context, StringRef text,
                           const Twine &where, EmitError emitError) {
  std::string message;
  size_t length = 0;
  Attribute attribute;
  {
    // Leave unrelated diagnostics of other threads alone.
    uint64_t thread = llvm::get_threadid();
    ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) {
      if (llvm::get_threadid() != thread)
        return failure();
      if (message.empty())
        message = diagnostic.str();
      return success();
    });
    attribute = parseAttribute(text, context, /*type=*/{}, &length,
                               /*isKnownNullTerminated=*/false);
  }
  if (attribute && length == text.size())
    return attribute;
  if (message.empty())
    message = "expected an attribute, and nothing after it";
  emitError() << where << message;
  return {};
}

/// Returns true if the dialect of hook=`text` is known; otherwise emits an
/// error.
static bool checkDialect(MLIRContext *context, StringRef text,
                         EmitError emitError) {
  StringRef name = text;
  name.consume_front("#");
  StringRef dialect = name.split('.').first;
  if (!text.contains('.') || context->getOrLoadDialect(dialect))
    return true;
  emitError() << "expected hook=" << text << " to be of a known dialect, "
              << "but got '" << dialect << "', which no plugin has loaded";
  return false;
}

/// Parses a hook given as the text of an attribute.
static Attribute parseAttributeHook(MLIRContext *context, StringRef text,
                                    EmitError emitError) {
  if (!checkDialect(context, text, emitError))
    return {};
  Attribute attribute =
      parseText(context, text, "in hook=" + text + ": ", emitError);
  if (!attribute || isa<HookAttrInterface>(attribute))
    return attribute;
  emitError() << "expected a hook, but got " << attribute;
  return {};
}

/// Returns ", did you mean NAME?" with the name in `known` nearest to `name`,
/// or nothing if all of them differ by more than a third of it.
static std::string didYouMean(StringRef name, ArrayRef<StringRef> known) {
  StringRef nearest;
  unsigned least = std::max<unsigned>(2, name.size() / 3) + 1;
  for (StringRef candidate : known) {
    unsigned distance = name.edit_distance_insensitive(candidate);
    // For a short name the limit alone would allow changing every letter.
    if (distance < least && distance < candidate.size()) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest.empty() ? std::string()
                         : (", did you mean " + nearest + "?").str();
}

std::string mlir::ddp::explainOptionError(StringRef message,
                                          SmallVector<StringRef> declared) {
  StringRef reason = message.trim(), unknown = reason;
  if (!unknown.consume_front("<Pass-Options-Parser>: no such option "))
    return reason.str();
  if (llvm::is_contained(declared, "hook"))
    for (const NamedHook &hook : getNamedHooks())
      for (const HookParameter &parameter : hook.parameters)
        declared.push_back(parameter.option);
  return ("no such option " + unknown).str() + didYouMean(unknown, declared);
}

/// Returns the names of a pass's options. A pass reveals them only in the text
/// of its pipeline: NAME{OPTION=VALUE …}.
static SmallVector<OptionWord> getOptionsOf(Pass &pass, std::string &text) {
  llvm::raw_string_ostream os(text);
  pass.printAsTextualPipeline(os);
  StringRef options = StringRef(text).split('{').second;
  options.consume_back("}");
  return splitOptionWords(options);
}

LogicalResult mlir::ddp::initializeOptionsOf(
    Pass &pass, StringRef options, function_ref<bool(StringRef)> isDeclared,
    function_ref<LogicalResult(const Twine &)> errorHandler) {
  FailureOr<std::string> normalized =
      normalizeOptions(options, isDeclared, errorHandler);
  if (failed(normalized))
    return failure();
  return pass.Pass::initializeOptions(*normalized, [&](const Twine &message) {
    std::string text;
    const SmallVector<OptionWord> words = getOptionsOf(pass, text);
    auto names = llvm::map_to_vector(
        words, [](const OptionWord &word) { return StringRef(word.name); });
    return errorHandler("in the options of " + pass.getArgument() + ": " +
                        explainOptionError(message.str(), names));
  });
}

/// Parses a hook without its wrapper. Resets `wireType` if the hook uses it.
static Attribute parseUnwrapped(MLIRContext *context, StringRef hook,
                                Type &wireType, EmitError emitError) {
  StringRef name = hook.take_front(getWordLength(hook));
  auto options = splitOptionWords(hook.drop_front(name.size()));
  if (name.starts_with("#")) {
    if (options.empty())
      return parseAttributeHook(context, name, emitError);
    emitError() << "expected the parameters of " << name
                << " inside the attribute, but got the option "
                << options[0].name;
    return {};
  }
  std::optional<NamedHook> found = findHook(context, name);
  if (!found && name.contains('.')) {
    if (checkDialect(context, name, emitError))
      emitError() << "expected hook=" << name
                  << " to be a hook of the dialect '" << name.split('.').first
                  << "' that options can name, but it has no hook of this name";
    return {};
  }
  if (!found) {
    InFlightDiagnostic error = emitError() << "expected hook=";
    for (const NamedHook &known : getNamedHooks())
      error << known.name << (&known == &getNamedHooks().back() ? " " : ", ");
    auto names = llvm::map_to_vector(
        getNamedHooks(), [](const NamedHook &known) { return known.name; });
    error << "or an attribute, but got '" << name << "'"
          << didYouMean(name, names);
    return {};
  }
  FailureOr<std::string> text =
      getAttributeText(context, *found, options, wireType, emitError);
  if (failed(text))
    return {};
  return parseText(context, *text, /*where=*/"", emitError);
}

FailureOr<HookAttrInterface> mlir::ddp::parseHook(MLIRContext *context,
                                                  StringRef hook,
                                                  StringRef wrapper,
                                                  EmitError emitError) {
  Type wireType;
  if (!wrapper.empty()) {
    wireType = llvm::StringSwitch<Type>(wrapper)
                   .Case("fp16", Float16Type::get(context))
                   .Case("bf16", BFloat16Type::get(context))
                   .Case("int8", Int8HookAttr::get(context).getWireType({}))
                   .Case("int4", Int4HookAttr::get(context).getWireType({}))
                   .Case("fp8", FP8HookAttr::get(context).getWireType({}))
                   .Default({});
    if (!wireType)
      return emitError()
             << "expected wrapper=fp16, bf16, int8, int4 or fp8, but got '"
             << wrapper << "'";
  }
  Attribute attribute =
      parseUnwrapped(context, hook.trim(), wireType, emitError);
  if (!attribute)
    return failure(); // The error was reported already.
  if (isa_and_present<EncodedType>(wireType)) {
    InFlightDiagnostic error = emitError()
                               << "expected wrapper=" << wrapper
                               << " only with fp32-error and hook="
                               << listAlternatives(getHooksWith("fp32-error"))
                               << ", which send factors, but got hook=" << hook;
    if (hook.starts_with("#"))
      return error << "; an attribute has wire_type = " << wireType;
    return error << "; hook=" << wrapper << " encodes gradients";
  }
  if (wireType)
    attribute = WrapHookAttr::get(context, wireType, attribute);
  return cast<HookAttrInterface>(attribute);
}

FailureOr<std::string> mlir::ddp::normalizeOptions(
    StringRef options, function_ref<bool(StringRef)> isDeclared,
    function_ref<LogicalResult(const Twine &)> errorHandler) {
  auto words = splitOptionWords(options);
  if (std::string defect = findDefect(words); !defect.empty()) {
    (void)errorHandler(defect);
    return failure();
  }
  std::optional<StringRef> hook;
  for (const OptionWord &word : words)
    if (word.name == "hook")
      hook = word.getValue();
  // The options of a hook of another dialect are known once it is loaded.
  bool isForeign = hook && hook->contains('.');
  std::string normalized, parameters;
  for (const OptionWord &word : words) {
    bool isParameter = !isDeclared(word.name) &&
                       (isForeign || !getHooksWith(word.name).empty());
    if (isParameter || word.name != "hook")
      (isParameter ? parameters : normalized) +=
          " " + word.name + word.equalsValue.str();
  }
  if (hook || !parameters.empty()) {
    std::string value = hook.value_or(kDefaultHook).str() + parameters;
    normalized += value.empty() ? " hook=" : " hook={" + value + "}";
  }
  return normalized;
}

namespace {
/// Loads the dialect of a hook by parsing the hook while the pass manager
/// prepares to run, because passes must not load dialects.
class HookLoader : public DialectExtensionBase {
public:
  explicit HookLoader(StringRef hook)
      : DialectExtensionBase(
            ArrayRef<StringRef>(DDPDialect::getDialectNamespace())),
        hook(hook) {}

  void apply(MLIRContext *context, MutableArrayRef<Dialect *>) const final {
    // The pass reports errors, with a location.
    ScopedDiagnosticHandler silence(context,
                                    [](Diagnostic &) { return success(); });
    (void)parseHook(context, hook, /*wrapper=*/"",
                    [&] { return emitError(UnknownLoc::get(context)); });
  }
  std::unique_ptr<DialectExtensionBase> clone() const final {
    return std::make_unique<HookLoader>(hook);
  }

private:
  std::string hook;
};
} // namespace

void mlir::ddp::addDependentDialects(DialectRegistry &registry,
                                     StringRef hook) {
  if (!hook.contains('.'))
    return;
  // A context applies each extension once, so each hook needs its own ID.
  static std::mutex mutex;
  static llvm::StringMap<int> ids;
  std::lock_guard<std::mutex> lock(mutex);
  const void *id = &*ids.try_emplace(hook, 0).first;
  registry.addExtension(TypeID::getFromOpaquePointer(id),
                        std::make_unique<HookLoader>(hook));
}
