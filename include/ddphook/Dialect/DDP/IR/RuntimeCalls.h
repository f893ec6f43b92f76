// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions that compiled code calls, as ddphook/runtime/compiled.h
// declares them: rt::cast is ddphook_rt_cast(), and a call of it in LLVM's
// dialect takes the declared arguments. Another number of arguments, or a
// constant in place of a pointer, does not compile.

#pragma once

#include "ddphook/runtime/compiled.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"

namespace mlir::ddp {

/// Returns the type in LLVM's dialect for the C type T.
template <typename T>
Type getTypeOfC(MLIRContext *context) {
  if constexpr (std::is_void_v<T>)
    return LLVM::LLVMVoidType::get(context);
  else if constexpr (std::is_pointer_v<T>)
    return LLVM::LLVMPointerType::get(context);
  else if constexpr (std::is_same_v<T, double>)
    return Float64Type::get(context);
  else
    return IntegerType::get(context, 8 * sizeof(T));
}

/// An argument of C type T: a value of its type in LLVM's dialect, a null
/// pointer if that value is null, or a constant.
template <typename T>
struct RuntimeArgument {
  RuntimeArgument(Value value) : value(value) {}
  template <typename Number,
            std::enable_if_t<!std::is_pointer_v<T> &&
                             std::is_convertible_v<Number, T>> * = nullptr>
  RuntimeArgument(Number number) : constant(static_cast<T>(number)) {}

  Value get(OpBuilder &b, Location loc) const {
    Type type = getTypeOfC<T>(b.getContext());
    if (value) {
      assert(value.getType() == type && "expected the type of compiled.h");
      return value;
    }
    if constexpr (std::is_pointer_v<T>)
      return LLVM::ZeroOp::create(b, loc, type);
    else if constexpr (std::is_same_v<T, double>)
      return LLVM::ConstantOp::create(b, loc, b.getFloatAttr(type, constant));
    else
      return LLVM::ConstantOp::create(b, loc, b.getIntegerAttr(type, constant));
  }

  Value value;
  std::conditional_t<std::is_pointer_v<T>, std::nullptr_t, T> constant = {};
};

template <typename Function>
struct RuntimeFunction;

/// A function of the runtime, by its type in C.
template <typename Result, typename... Parameters>
struct RuntimeFunction<Result(ddphook_module_t *, Parameters...)> {
  llvm::StringLiteral name;

  LLVM::LLVMFunctionType getType(MLIRContext *context) const {
    return LLVM::LLVMFunctionType::get(
        getTypeOfC<Result>(context),
        {getTypeOfC<void *>(context), getTypeOfC<Parameters>(context)...});
  }

  /// True if it only reads the memory that this parameter points to.
  static bool readsOnly(unsigned number) {
    constexpr bool isRead[] = {
        false, (std::is_pointer_v<Parameters> &&
                std::is_const_v<std::remove_pointer_t<Parameters>>)...};
    return number < std::size(isRead) && isRead[number];
  }

  /// Calls it for the module with that handle. Declares it before the first
  /// call.
  LLVM::CallOp call(OpBuilder &b, Location loc, ModuleOp module, Value handle,
                    RuntimeArgument<Parameters>... arguments) const {
    if (!module.lookupSymbol(name)) {
      OpBuilder atStart = OpBuilder::atBlockBegin(module.getBody());
      LLVM::LLVMFuncOp::create(atStart, module.getLoc(), name,
                               getType(b.getContext()));
    }
    SmallVector<Value> operands = {handle, arguments.get(b, loc)...};
    return LLVM::CallOp::create(b, loc, getType(b.getContext()), name,
                                operands);
  }
};

namespace rt {
#define DDPHOOK_FUNCTION(name)                                                 \
  inline constexpr RuntimeFunction<decltype(ddphook_rt_##name)> name{          \
      "ddphook_rt_" #name};
#include "ddphook/runtime/functions.inc"
} // namespace rt

/// True if `function` is a function of the runtime that only reads the memory
/// that this parameter points to.
bool readsOnly(StringRef function, unsigned number);

/// Fails, with a diagnostic, if a symbol of `module` has the name of a runtime
/// function but is not its declaration: calls would go to that symbol.
LogicalResult checkRuntimeNames(ModuleOp module);

} // namespace mlir::ddp
