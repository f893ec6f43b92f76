// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The syntax of options, and the two ways in which they name a hook: as the
// text of its attribute, of any dialect, or as its name followed by its
// parameters.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/Pass/Pass.h"

namespace mlir::ddp {

/// The hook of buckets for which neither an attribute nor an option names one.
constexpr StringLiteral kDefaultHook = "allreduce";

/// Converts options to the form that MLIR's option parser accepts. Users write
/// names with dashes or underscores and in any case, and parameters of the hook
/// next to it: `Bucket_Cap_MB=1 hook=powersgd warm_start=false` becomes
/// `bucket-cap-mb=1 hook={powersgd warm-start=false}`. Options for which
/// `isDeclared` is true are not parameters of hooks. Giving an option twice, in
/// whatever spelling, is an error.
FailureOr<std::string>
normalizeOptions(StringRef options, function_ref<bool(StringRef)> isDeclared,
                 function_ref<LogicalResult(const Twine &)> errorHandler);

/// Returns the message of MLIR's option parser. For an option that does not
/// exist, appends ", did you mean NAME?" if its name is close to a declared
/// option or, if `hook` is declared, to a parameter of a hook.
std::string explainOptionError(StringRef message,
                               SmallVector<StringRef> declared);

/// For `Pass::initializeOptions` of passes that take options as pipelines do.
LogicalResult
initializeOptionsOf(Pass &pass, StringRef options,
                    function_ref<bool(StringRef)> isDeclared,
                    function_ref<LogicalResult(const Twine &)> errorHandler);

/// Parses the option `hook`, in the form above, and the option `wrapper`, which
/// may be empty. The hook is the text of an attribute, or a name followed by
/// options, from which the attribute's text is built. The name is `MNEMONIC`
/// for hooks of this dialect, and `DIALECT.MNEMONIC` for hooks of others.
/// Reports errors through `emitError`, and then fails.
FailureOr<HookAttrInterface>
parseHook(MLIRContext *context, StringRef hook, StringRef wrapper,
          function_ref<InFlightDiagnostic()> emitError);

/// For `Pass::getDependentDialects`: makes MLIR load the dialects that the
/// option `hook` names before passes run.
void addDependentDialects(DialectRegistry &registry, StringRef hook);

/// Returns the help text of the option `hook`: all hooks of this dialect with
/// their options and defaults.
StringRef getHookHelp();

} // namespace mlir::ddp
