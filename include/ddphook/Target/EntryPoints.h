//===- EntryPoints.h - the entry points of a module -------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the plan (docs/plan.md) and the functions of a module after
// `ddp-pipeline` say together about its entry points. Both the emission of C
// functions and the C header are written from this one model.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_TARGET_ENTRYPOINTS_H
#define DDPHOOK_TARGET_ENTRYPOINTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <string>
#include <utility>

namespace mlir {
namespace ddp {

/// Names of the globals that `convert-ddp-to-runtime` emits.
inline constexpr llvm::StringLiteral kHandleGlobalName = "__ddphook_handle";
inline constexpr llvm::StringLiteral kPlanGlobalName = "__ddphook_plan";

/// Where `ddp-make-kernels` puts kernels, and how their names begin.
inline constexpr llvm::StringLiteral kDeviceModuleName = "ddphook_kernels";
inline constexpr llvm::StringLiteral kKernelPrefix = "ddphook_kernel_";
/// The global with the code of the module's kernels, followed by a null.
inline constexpr llvm::StringLiteral kDeviceCodeGlobalName =
    "__ddphook_device_code";

/// An argument of an entry point, or a result that has memory of its own.
struct EntryBuffer {
  enum class Kind {
    ScalarArgument, ///< Passed by value.
    Argument,       ///< A pointer; the function's memref argument.
    Result,         ///< A pointer; the function's memref argument.
    ScalarResult,   ///< A pointer; the function returns the value.
  };
  Kind kind;
  /// Number among the arguments or among the results of the plan's entry.
  unsigned number;
  /// A memref type, or the type of the scalar.
  Type type;
  /// The function may write this argument: the plan allows it, and there is an
  /// operation that does.
  bool mayBeWritten = false;

  bool isArgument() const {
    return kind == Kind::Argument || kind == Kind::ScalarArgument;
  }
  bool isScalar() const {
    return kind == Kind::ScalarArgument || kind == Kind::ScalarResult;
  }
  /// "arg0", "result1".
  std::string getName() const;
  Type getElementType() const;
  /// Empty for a scalar.
  ArrayRef<int64_t> getShape() const;
};

struct EntryPoint {
  /// As in the plan; also the name of `function`.
  std::string name;
  func::FuncOp function;
  /// In the order of the plan: arguments, then results.
  SmallVector<EntryBuffer> buffers;
  /// (result, argument): results that are an argument's buffer.
  SmallVector<std::pair<unsigned, unsigned>> aliases;
};

/// The entry points of a module, in the plan's order, and the plan's text.
struct EntryPointTable {
  StringRef plan;
  /// Arrays lie in the memory of the context's device.
  bool usesDeviceMemory = false;
  SmallVector<EntryPoint> entries;
};

/// Reads the plan of `module` and matches it with the functions. Emits a
/// diagnostic and fails when something is missing, contradicts the plan, or has
/// a type that no C function can take.
FailureOr<EntryPointTable> collectEntryPoints(ModuleOp module);

/// Whether the plan of `module` says that arrays lie in a device's memory; no
/// without a plan.
FailureOr<bool> usesDeviceMemory(ModuleOp module);

/// The plan's name of an element type ("f32", "i1", "index"); empty when the
/// plan has none for it.
StringRef getPlanElementType(Type type);

/// The C type of an array element ("float"; 16-bit floats are "uint16_t": their
/// bits). `type` has a name in the plan.
StringRef getCElementType(Type type);

/// `text` with every character that C does not allow in an identifier replaced
/// by an underscore, and one in front if it starts with a digit.
std::string toCIdentifier(StringRef text);

/// The C function of an entry point of the module called `moduleName`.
std::string getEntrySymbol(StringRef moduleName, StringRef entryName);

} // namespace ddp
} // namespace mlir

#endif // DDPHOOK_TARGET_ENTRYPOINTS_H
