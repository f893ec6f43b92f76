// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loads a module from a file, with plugins and passes of other projects before
// ddphook's own. For command lines: a compiler that has a module only needs
// Compiler.h.

#pragma once

#include "ddphook/Compiler/Compiler.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/SourceMgr.h"

#include <vector>

namespace mlir::ddp {

struct SourceOptions {
  /// Options of `ddp-pipeline`; by default its defaults. Must not be set for a
  /// module with a plan, which went through the pipeline already.
  std::optional<std::string> ddpPipeline;
  /// Shared objects that provide dialects, for example with hooks, and passes.
  std::vector<std::string> dialectPlugins, passPlugins;
  /// A pipeline, "builtin.module(…)", that runs before `ddp-pipeline`.
  std::optional<std::string> preprocessing;
  /// Observes the passes unless it is null.
  PlanReporter *reporter = nullptr;
};

/// A module and its context, which has no threads. Diagnostics are written to
/// standard error, with their source lines.
class SourceFile {
public:
  /// Parses the file ("-": standard input), and runs the passes up to the plan
  /// with the options that `compiler` needs.
  static llvm::Expected<std::unique_ptr<SourceFile>>
  load(StringRef path, const SourceOptions &options, Compiler &compiler);

  ModuleOp getModule() { return *module; }

private:
  explicit SourceFile(const DialectRegistry &registry);

  llvm::Error parse(StringRef path);
  /// Runs a pipeline given as text.
  llvm::Error run(StringRef pipeline, PlanReporter *reporter);

  MLIRContext context;
  llvm::SourceMgr sources;
  SourceMgrDiagnosticHandler diagnostics;
  OwningOpRef<ModuleOp> module;
};

} // namespace mlir::ddp
