// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The stages after a front end: `ddp-pipeline`, entry points, LLVM dialect,
// LLVM IR, object code, all in memory. A compiler calls them on modules of its
// own context; ddphook-cc and ddphook-run call them on a file (SourceFile.h).
// SharedObject.h links the result into a shared object, JitModule.h into this
// process. docs/embedding.md is the guide.
//
// Errors. Every function reports errors of the module as diagnostics of its
// context, each of them once, and then returns a DiagnosedError; it returns all
// other errors as text. After an error the module is partly lowered: erase it.
//
// Ownership. The module belongs to the caller. The stages change it in place;
// clone it first to keep it. A Compiler and its results do not refer to the
// module or its context.
//
// Threads. Only one thread may use a Compiler at a time. Several Compilers may
// work at the same time on modules of different contexts. Only passes use a
// context's thread pool.

#pragma once

#include "ddphook/Pipelines/Pipelines.h"
#include "ddphook/Report/PlanReporter.h"

#include "mlir/IR/DialectRegistry.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

#include <string>

namespace mlir::ddp {

struct CompilerOptions {
  /// The prefix of the C functions; a C identifier.
  std::string name = "ddphook";
  /// Also export the module as `ddphook_compiled_module`, which ddphook-exec
  /// and other programs expect in a shared object.
  bool shared = false;
  /// 0 to 3.
  unsigned optLevel = 3;
  /// "native", or the name of a CPU in LLVM ("x86-64-v3").
  std::string march = "native";
  /// The backend whose memory holds arrays: "host", "cuda", or another one. For
  /// all but "host", the module leaves arrays to the runtime; for "cuda", its
  /// own operations become kernels if lib/CodeGen was built.
  std::string device = "host";
  /// For "cuda" only: the oldest architecture that must run the kernels; empty
  /// means "sm_80".
  std::string deviceArchitecture;
  /// Fuse a multiplication with the following addition, so that they round only
  /// once. Without this, results do not depend on the CPU.
  bool fuseMultiplyAdd = false;
};

/// The error after a failure that was reported as a diagnostic. Its text is
/// empty.
class DiagnosedError : public llvm::ErrorInfo<DiagnosedError> {
public:
  static char ID;
  void log(llvm::raw_ostream &) const override {}
  std::error_code convertToErrorCode() const override {
    return llvm::inconvertibleErrorCode();
  }
};

/// A compiled module.
struct CompiledModule {
  /// The prefix of its C functions.
  std::string name;
  /// Position-independent object code.
  llvm::SmallVector<char, 0> object;
  /// The C header (also valid C++) of its entry points.
  std::string header;
};

/// Registers all dialects that a module may contain before and between the
/// stages: upstream's with their extensions, `ddp`, and their translations to
/// LLVM IR. The stages add missing ones to a context.
void registerCompilerDialects(DialectRegistry &registry);

class KernelCompiler;

/// Compiles modules for the machine's own architecture, one after the other.
class Compiler {
public:
  static llvm::Expected<std::unique_ptr<Compiler>>
  create(CompilerOptions options);
  ~Compiler();

  /// Runs all of the following stages in order, with the pipeline's defaults or
  /// with `pipeline`. Skips the pipeline if the module has a plan because it
  /// went through it already; options are an error then. Leaves the module in
  /// the LLVM dialect.
  llvm::Expected<CompiledModule>
  compile(ModuleOp module, DDPPipelineOptions *pipeline = nullptr);

  /// Runs `ddp-pipeline`. Public functions with and without collectives become
  /// entry points unless the options set `all-functions`; the option `memory`
  /// is set to match the compiler's device. A reporter observes the passes
  /// (PlanReporter.h).
  llvm::Error runPipeline(ModuleOp module, DDPPipelineOptions &pipeline,
                          PlanReporter *reporter = nullptr);

  /// Returns the C header of a module that has a plan. Its first line names
  /// `source`.
  llvm::Expected<std::string> getHeader(ModuleOp module, StringRef source);

  /// Lowers a module that has a plan to the LLVM dialect, with its entry
  /// points.
  llvm::Error lower(ModuleOp module);

  /// Returns PTX of the kernels of the module that was lowered last; empty if
  /// it has none.
  StringRef getDeviceCode() { return deviceCode; }

  /// Returns a lowered module as LLVM IR, optimized for the target. It belongs
  /// to a context of the Compiler and must not outlive it.
  llvm::Expected<std::unique_ptr<llvm::Module>> translate(ModuleOp module);

  /// Returns position-independent object code for the result of translate().
  llvm::Expected<llvm::SmallVector<char, 0>> emitObject(llvm::Module &module);

private:
  explicit Compiler(CompilerOptions options);

  llvm::Error createTarget();
  /// Compiles kernels and adds their code to the module.
  LogicalResult compileKernels(ModuleOp module);
  /// Returns the width in bits and the number of the target's vector registers.
  std::pair<unsigned, unsigned> getVectorRegisters();

  CompilerOptions options;
  DialectRegistry registry;
  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::TargetMachine> target;
  /// Null if no kernels are compiled.
  std::unique_ptr<KernelCompiler> kernelCompiler;
  std::string deviceCode;
};

} // namespace mlir::ddp
