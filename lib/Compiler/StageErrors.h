// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Converts a context's diagnostics to the error that a stage returns.

#pragma once

#include "ddphook/Compiler/Compiler.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringSet.h"

namespace mlir::ddp {

/// Creates an error that was not reported as a diagnostic.
inline llvm::Error makeError(const llvm::Twine &text) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), text);
}

/// Records the errors that a stage reports, and suppresses repetitions: passes
/// that stop at the first error may report it several times.
class StageErrors {
public:
  explicit StageErrors(MLIRContext *context)
      : handler(context, [this](Diagnostic &diagnostic) {
          if (diagnostic.getSeverity() != DiagnosticSeverity::Error)
            return failure();
          std::string text;
          llvm::raw_string_ostream(text)
              << diagnostic.getLocation() << ' ' << diagnostic;
          bool isNew = reported.insert(text).second;
          return success(!isNew);
        }) {}

  /// Returns the stage's error: a DiagnosedError if a diagnostic was reported,
  /// else an error with this text.
  llvm::Error fail(const llvm::Twine &text) {
    if (!reported.empty())
      return llvm::make_error<DiagnosedError>();
    return makeError(text);
  }

private:
  llvm::StringSet<> reported;
  ScopedDiagnosticHandler handler;
};

} // namespace mlir::ddp
