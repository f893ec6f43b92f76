//===- Compiler.h - from a module to machine code ---------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The stages behind a front end: `ddp-pipeline`, entry points, LLVM dialect,
// LLVM IR, object code, all in memory. A compiler calls them on modules of its
// own context; ddphook-cc and ddphook-run do so on a file (SourceFile.h). What
// comes out is linked into a shared object by SharedObject.h and into this
// process by JitModule.h. docs/embedding.md is the guide.
//
// Errors. Every function reports errors of the module as diagnostics of its
// context, each of them once, and then returns a DiagnosedError; all other
// errors are in the text of what it returns. After an error the module is in
// between two stages: erase it.
//
// Ownership. A module stays the caller's. The stages change it in place, so
// clone it before to keep it. A Compiler and what it returned do not refer to
// the module or its context.
//
// Threads. A Compiler is used by one thread at a time. Several may work at the
// same time, each on modules of another context. A context's thread pool is
// used by passes, and by nothing else here.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_COMPILER_COMPILER_H
#define DDPHOOK_COMPILER_COMPILER_H

#include "ddphook/Pipelines/Pipelines.h"
#include "ddphook/Report/PlanReporter.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include "llvm/Target/TargetMachine.h"

#include <memory>
#include <string>

namespace mlir::ddp {

struct CompilerOptions {
  /// Prefix of the C functions; a C identifier.
  std::string name = "ddphook";
  /// Also export the module as `ddphook_compiled_module`, as ddphook-exec and
  /// other programs expect it of a shared object.
  bool shared = false;
  /// 0 … 3.
  unsigned optLevel = 3;
  /// "native", or a CPU's name as LLVM knows it ("x86-64-v3").
  std::string march = "native";
  /// The backend that arrays belong to: "host", "cuda", or the name of another
  /// one. For all but "host" the module leaves arrays to the runtime; for
  /// "cuda" its own operations become kernels, if lib/CodeGen was built.
  std::string device = "host";
  /// For "cuda" alone: the oldest architecture that must run the kernels; empty
  /// is "sm_80".
  std::string deviceArchitecture;
  /// Fuse a multiplication and the addition that follows it, so that they round
  /// once. Without this, results do not depend on the CPU.
  bool fuseMultiplyAdd = false;
};

/// The error of a failure that was already reported as a diagnostic. Its text
/// is empty.
class DiagnosedError : public llvm::ErrorInfo<DiagnosedError> {
public:
  static char ID;
  void log(llvm::raw_ostream &) const override {}
  std::error_code convertToErrorCode() const override {
    return llvm::inconvertibleErrorCode();
  }
};

/// What becomes of a module.
struct CompiledModule {
  /// The prefix of its C functions.
  std::string name;
  /// Position-independent object code.
  llvm::SmallVector<char, 0> object;
  /// The C header (also valid C++) of its entry points.
  std::string header;
};

/// Registers all dialects that a module may consist of before and between the
/// stages: those of upstream with their extensions, `ddp`, and how they become
/// LLVM IR. The stages add to a context what it lacks of them.
void registerCompilerDialects(DialectRegistry &registry);

class KernelCompiler;

/// Compiles modules for the machine's own architecture, one after the other.
class Compiler {
public:
  static llvm::Expected<std::unique_ptr<Compiler>>
  create(CompilerOptions options);
  ~Compiler();

  /// Does all that follows, in this order, with the pipeline's defaults or with
  /// `pipeline`. The pipeline is left out if the module has a plan, which means
  /// that it went through it; options are an error then. At the end the module
  /// is in the LLVM dialect.
  llvm::Expected<CompiledModule>
  compile(ModuleOp module, DDPPipelineOptions *pipeline = nullptr);

  /// Runs `ddp-pipeline`. Public functions are entry points with collectives
  /// and without, unless the options say something else about `all-functions`;
  /// the option `memory` becomes that of the compiler's device. A reporter sees
  /// the passes run (PlanReporter.h).
  llvm::Error runPipeline(ModuleOp module, DDPPipelineOptions &pipeline,
                          PlanReporter *reporter = nullptr);

  /// Returns the C header of a module that has a plan. Its first line names
  /// `source`.
  llvm::Expected<std::string> getHeader(ModuleOp module, StringRef source);

  /// Lowers a module that has a plan to the LLVM dialect, with its entry
  /// points.
  llvm::Error lower(ModuleOp module);

  /// PTX of the kernels of the module that was lowered last; empty if it has
  /// none.
  StringRef getDeviceCode() { return deviceCode; }

  /// Returns a module that is lowered as LLVM IR, optimized for the target. It
  /// belongs to a context of the Compiler's, and must not outlive it.
  llvm::Expected<std::unique_ptr<llvm::Module>> translate(ModuleOp module);

  /// Returns position-independent object code for the result of translate().
  llvm::Expected<llvm::SmallVector<char, 0>> emitObject(llvm::Module &module);

private:
  explicit Compiler(CompilerOptions options);

  llvm::Error createTarget();
  /// Makes kernels, and leaves their code in the module.
  LogicalResult compileKernels(ModuleOp module);
  /// Width in bits and number of the target's vector registers.
  std::pair<unsigned, unsigned> getVectorRegisters();

  CompilerOptions options;
  DialectRegistry registry;
  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::TargetMachine> target;
  /// Null when there are no kernels to be made.
  std::unique_ptr<KernelCompiler> kernelCompiler;
  std::string deviceCode;
};

} // namespace mlir::ddp

#endif // DDPHOOK_COMPILER_COMPILER_H
