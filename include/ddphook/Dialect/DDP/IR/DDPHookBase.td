// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The base classes of hook attributes, for this dialect and any other. A parameter
// of a hook is defined once: the attribute's text, the command-line option, its
// default, its help text and the tables of the documentation are all derived from
// its definition in TableGen.

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPHOOKBASE_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPHOOKBASE_TD

include "ddphook/Dialect/DDP/IR/DDPInterfaces.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

/// A parameter that is also an option. The option has the parameter's name, with
/// dashes or underscores and in any case. `kind` is a case of `HookParameter::Kind`
/// and selects how the option's value is parsed; `value` is the default as users
/// write it, empty for none.
class DDP_HookParameter<string type, string cppDefault, string kind,
                        string value, string description>
    : AttrParameter<type, description> {
  let defaultValue = cppDefault;
  string optionKind = kind;
  string optionDefault = value;
  /// The option's name if it differs from the parameter's.
  string optionName = "";
  /// The words that the option accepts, if it is one of an enum's.
  list<string> optionWords = [];
  /// True if `numerics=improved` makes this flag true.
  bit isImprovement = 0;
  /// The flag that must be true for that, if any.
  string improves = "";
}

/// An integer.
class DDP_IntegerParameter<int value, string description>
    : DDP_HookParameter<"int64_t", !cast<string>(value), "Integer",
                        !cast<string>(value), description>;

/// A number, an f64 in the attribute.
class DDP_NumberParameter<string value, string description>
    : DDP_HookParameter<"::mlir::FloatAttr",
                        "$_builder.getF64FloatAttr(" # value # ")", "Number",
                        value, description> {
  // The generated parser does not accept integers, and names the C++ type.
  let parser = [{[&]() -> ::mlir::FailureOr<::mlir::FloatAttr> {
    auto location = $_parser.getCurrentLocation();
    ::mlir::Attribute number;
    if (::mlir::failed($_parser.parseAttribute(number)))
      return ::mlir::failure();
    if (auto given = ::llvm::dyn_cast<::mlir::FloatAttr>(number))
      return given;
    auto whole = ::llvm::dyn_cast<::mlir::IntegerAttr>(number);
    if (whole && !whole.getType().isInteger(1))
      return $_parser.getBuilder().getF64FloatAttr(
          whole.getValue().signedRoundToDouble());
    return {(::llvm::LogicalResult)($_parser.emitError(location)
        << "expected a number, but got " << number)};
  }()}];
}

/// true or false.
class DDP_FlagParameter<bit value, string description>
    : DDP_HookParameter<"bool", !if(value, "true", "false"), "Flag",
                        !if(value, "true", "false"), description>;

/// One of the words of an enum. `enumerator` is the default in C++.
class DDP_ChoiceParameter<EnumAttrInfo words, string enumerator, string value,
                          string description>
    : DDP_HookParameter<words.cppType, words.cppType # "::" # enumerator,
                        "Choice", value, description> {
  let optionWords = !foreach(choice, words.enumerants, choice.str);
  // The generated parser would name the C++ type in its error.
  let parser = [{[&]() -> ::mlir::FailureOr<}] # words.cppType # [{> {
    auto location = $_parser.getCurrentLocation();
    ::llvm::StringRef word;
    if (::mlir::failed($_parser.parseKeyword(&word)))
      return ::mlir::failure();
    if (auto value = }] # words.cppNamespace # "::" #
                         words.stringToSymbolFnName # [{(word))
      return *value;
    return {(::llvm::LogicalResult)($_parser.emitError(location)
        << "expected }] # !interleave(optionWords, " or ") # [{, but "
           "got '" << word << "'")};
  }()}];
  let printer = words.parameterPrinter;
}

/// A flag that is false by default, which gives PyTorch's results, and that
/// `numerics=improved` makes true: always, or only if the flag `improves` is true.
class DDP_ImprovementParameter<string description, string flag = "">
    : DDP_FlagParameter<0, description> {
  let isImprovement = 1;
  let improves = flag;
}

/// The symbol of an operation of the module, or none.
class DDP_SymbolParameter<string description>
    : DDP_HookParameter<"::mlir::FlatSymbolRefAttr",
                        "::mlir::FlatSymbolRefAttr()", "Symbol", "",
                        description>;

/// A type, as IR spells it, or none.
class DDP_TypeParameter<string description>
    : DDP_HookParameter<"::mlir::Type", "::mlir::Type()", "Type", "",
                        description>;

/// A type that the hook's collectives cast to, or none. Its option is a flag used
/// with `wrapper`: the hook takes over the wrapper's type.
class DDP_WireTypeParameter<string option, string description>
    : DDP_HookParameter<"::mlir::Type", "::mlir::Type()", "WireType", "false",
                        description> {
  let optionName = option;
  let isImprovement = 1;
}

/// Any attribute that implements the interface. `methods` are the methods with a
/// default that it overrides.
class DDP_HookAttrBase<Dialect dialect, string name, string attrMnemonic,
                       list<string> methods = []>
    : AttrDef<dialect, name,
              [DeclareAttrInterfaceMethods<
                  DDP_HookAttrInterface,
                  !listconcat(["expand", "getWireBytes"], methods)>]> {
  let mnemonic = attrMnemonic;

  // For the tables of hooks in README.md and generated/Hooks.md.
  /// The name of the hook in options.
  string usage = "`" # attrMnemonic # "`";
  /// PyTorch's hook.
  string pytorch = "";
  /// The contribution of one of W ranks.
  string contributes = "";
  /// Bytes on the wire for n elements of f32.
  string bytesOnTheWire = "";
  /// How close the results are to PyTorch's.
  string parity = "";
}

/// A hook that options can name: `hook=NAME` for the dialect ddp,
/// `hook=DIALECT.NAME` for others. All its parameters are `DDP_HookParameter`s. In
/// C++ the struct `Parameters` holds them by name, with their defaults.
/// `get(context)` returns the hook with all defaults; `get(context, parameters)`
/// and `getChecked(emitError, context, parameters)` take other values. A hook with
/// `genVerifyDecl` checks them in `verify(emitError, parameters)`.
class DDP_HookAttr<Dialect dialect, string name, string attrMnemonic,
                   list<string> methods = []>
    : DDP_HookAttrBase<dialect, name, attrMnemonic,
                       !listconcat(["getHookParameters"], methods)> {
  list<int> positions = !range(!size(parameters));
  list<string> names =
      !foreach(i, positions, !getdagname(parameters, i));
  list<DDP_HookParameter> definitions =
      !foreach(i, positions, !getdagarg<DDP_HookParameter>(parameters, i));

  /// Numbers are attributes within the attribute, and `double`s in the struct.
  list<bit> areNumbers = !foreach(
      definition, definitions, !eq(definition.cppType, "::mlir::FloatAttr"));
  /// The values of the attribute's parameters, read from the struct.
  string unpacked = !interleave(
      !foreach(i, positions,
               !if(areNumbers[i],
                   "::mlir::FloatAttr::get(::mlir::Float64Type::get(context), "
                   "parameters." # names[i] # ")",
                   "parameters." # names[i])),
      ", ");

  let assemblyFormat = !if(!empty(positions), "", "(`<` struct(params)^ `>`)?");

  let extraClassDeclaration = !if(!empty(positions), "", [{
    /// The parameters, by name.
    struct Parameters {
      }] # !interleave(
             !foreach(i, positions,
                      !if(areNumbers[i],
                          "double " # names[i] # " = " #
                              definitions[i].optionDefault,
                          definitions[i].cppType # " " # names[i] # " = " #
                              definitions[i].defaultValue) # ";"),
             "\n      ") # [{

      /// Returns the parameters of another hook that has the same ones.
      template <typename OtherT>
      static Parameters from(const OtherT &other) {
        return {}] # !interleave(!foreach(n, names, "other." # n), ", ") # [{};
      }
    };
    Parameters getParameters() const;
    static }] # cppClassName # [{ get(::mlir::MLIRContext *context);
    static }] # cppClassName # [{ get(::mlir::MLIRContext *context,
                                      const Parameters &parameters);
    }] # !if(genVerifyDecl, [{
    /// Returns null and reports an error if the parameters are wrong.
    static }] # cppClassName # [{ getChecked(
        ::llvm::function_ref<::mlir::InFlightDiagnostic()> emitError,
        ::mlir::MLIRContext *context, const Parameters &parameters);
    static ::llvm::LogicalResult
    verify(::llvm::function_ref<::mlir::InFlightDiagnostic()> emitError,
           const Parameters &parameters);
    }], ""));

  let extraClassDefinition = [{
    ::std::optional<::llvm::ArrayRef<::mlir::ddp::HookParameter>>
    $cppClass::getHookParameters() {
      using ::mlir::ddp::HookParameter;
      static constexpr ::std::array<HookParameter, }] # !size(positions) # [{>
          parameters = {}] #
      !interleave(
          !foreach(i, positions, "HookParameter{\"" # names[i] # "\", \"" #
              !tolower(!subst("_", "-",
                  !if(!empty(definitions[i].optionName), names[i],
                      definitions[i].optionName))) # "\", " #
              "HookParameter::Kind::" # definitions[i].optionKind # ", \"" #
              definitions[i].optionDefault # "\", \"" #
              definitions[i].summary # "\", " #
              !if(definitions[i].isImprovement, "true", "false") # ", \"" #
              !subst("_", "-", definitions[i].improves) # "\"}"),
          ",\n          ") # [{};
      return ::llvm::ArrayRef<HookParameter>(parameters);
    }
    }] # !if(!empty(positions), "", [{
    $cppClass::Parameters $cppClass::getParameters() const {
      return {}] #
        !interleave(
            !foreach(i, positions,
                     "getImpl()->" # names[i] #
                         !if(areNumbers[i], ".getValueAsDouble()", "")),
            ", ") # [{};
    }
    $cppClass $cppClass::get(::mlir::MLIRContext *context) {
      return get(context, Parameters());
    }
    $cppClass $cppClass::get(::mlir::MLIRContext *context,
                             const Parameters &parameters) {
      return get(context, }] # unpacked # [{);
    }
    }] # !if(genVerifyDecl, [{
    $cppClass $cppClass::getChecked(
        ::llvm::function_ref<::mlir::InFlightDiagnostic()> emitError,
        ::mlir::MLIRContext *context, const Parameters &parameters) {
      return getChecked(emitError, context, }] # unpacked # [{);
    }
    ::llvm::LogicalResult $cppClass::verify(
        ::llvm::function_ref<::mlir::InFlightDiagnostic()> emitError, }] #
        !interleave(
            !foreach(i, positions, definitions[i].cppType # " " # names[i]),
            ", ") # [{) {
      return verify(emitError, Parameters{}] #
        !interleave(
            !foreach(i, positions,
                     names[i] #
                         !if(areNumbers[i], ".getValueAsDouble()", "")),
            ", ") # [{});
    }
    }], ""));
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPHOOKBASE_TD
