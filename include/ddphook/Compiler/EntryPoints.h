// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The entry points of a module after `ddp-pipeline`, collected from its plan
// (docs/plan.md) and its functions. Both the C functions and the C header are
// emitted from this model.

#pragma once

#include "ddphook/Dialect/DDP/IR/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/raw_ostream.h"

#include <string>
#include <utility>

namespace mlir::ddp {

/// The module into which `ddp-outline-gpu-kernels` puts kernels, and the prefix
/// of their names.
inline constexpr llvm::StringLiteral kDeviceModuleName = "ddphook_kernels";
inline constexpr llvm::StringLiteral kKernelPrefix = "ddphook_kernel_";
/// The global with the code of the module's kernels and a terminating null.
inline constexpr llvm::StringLiteral kDeviceCodeGlobalName =
    "__ddphook_device_code";

/// An argument of an entry point, or a result with its own memory.
struct EntryBuffer {
  enum class Kind {
    ScalarArgument, ///< Passed by value.
    Argument,       ///< A pointer; the function's memref argument.
    Result,         ///< A pointer; the function's memref argument.
    ScalarResult,   ///< A pointer; the function returns the value.
  };
  Kind kind;
  /// The index among the arguments or results of the plan's entry.
  unsigned number;
  /// A memref type, or the type of the scalar.
  Type type;
  /// True if the function may write this argument: the plan allows it, and an
  /// operation does.
  bool mayBeWritten = false;

  bool isArgument() const {
    return kind == Kind::Argument || kind == Kind::ScalarArgument;
  }
  bool isScalar() const {
    return kind == Kind::ScalarArgument || kind == Kind::ScalarResult;
  }
  /// Returns "arg0", "result1".
  std::string getName() const;
  Type getElementType() const;
  /// Returns an empty shape for a scalar.
  ArrayRef<int64_t> getShape() const;
};

struct EntryPoint {
  /// As in the plan; also the name of `function`.
  std::string name;
  func::FuncOp function;
  /// In the order of the plan: arguments, then results.
  SmallVector<EntryBuffer> buffers;
  /// (result, argument) pairs: results that are an argument's buffer.
  SmallVector<std::pair<unsigned, unsigned>> aliases;
};

/// The entry points of a module, in the plan's order, and the plan.
struct EntryPointTable {
  PlanAttr plan;
  SmallVector<EntryPoint> entries;
};

/// Matches the plan of `module` with its functions. Fails with a diagnostic if
/// something is missing, contradicts the plan, or has a type that no C function
/// can take.
FailureOr<EntryPointTable> collectEntryPoints(ModuleOp module);

/// Replaces every character of `text` that C does not allow in an identifier by
/// an underscore, and prepends one if it starts with a digit.
std::string toCIdentifier(StringRef text);

/// Returns the C function of an entry point of the module `moduleName`.
std::string getEntrySymbol(StringRef moduleName, StringRef entryName);

/// Writes the C header (also valid C++) of the module `name`: a function for
/// each entry point, with the element types and shapes of its buffers, and the
/// constant for ddphook_module_load(). The first line names `source`.
void writeHeader(llvm::raw_ostream &os, StringRef name, StringRef source,
                 const EntryPointTable &table);

} // namespace mlir::ddp
