//===- Compiler.h - from a source file to machine code ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What ddphook-cc and ddphook-run share: parse, `ddp-pipeline`, entry points,
// LLVM dialect, LLVM IR, object code. Where the code goes (a file, this
// process) is the tools' business.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_COMPILER_COMPILER_H
#define DDPHOOK_COMPILER_COMPILER_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Target/TargetMachine.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mlir::ddp {

struct CompilerOptions {
  /// Prefix of the C functions; a C identifier.
  std::string name;
  /// Also export the module as `ddphook_compiled_module`.
  bool shared = false;
  /// Options of `ddp-pipeline`; not given: its defaults. A module that has a
  /// plan went through the pipeline already and takes none.
  std::optional<std::string> ddpPipeline;
  /// Shared objects that bring dialects, with hooks for example.
  std::vector<std::string> dialectPlugins;
  /// 0 … 3.
  unsigned optLevel = 3;
  /// "native", or a CPU's name as LLVM knows it ("x86-64-v3").
  std::string march = "native";
  /// The backend that arrays belong to: "host", "cuda", or the name of another
  /// one. For all but "host" the module leaves arrays to the runtime; for
  /// "cuda" what it computes itself becomes kernels, if lib/CodeGen was built.
  std::string device = "host";
  /// For "cuda": the oldest architecture that has to run the kernels.
  std::string deviceArchitecture = "sm_80";
  /// Let a product and a sum that follows it round once. Off: results do not
  /// depend on the CPU.
  bool fuseMultiplyAdd = false;
};

/// The error of a failure that was reported as a diagnostic on standard error.
/// Its text is empty: there is nothing left to say.
class DiagnosedError : public llvm::ErrorInfo<DiagnosedError> {
public:
  static char ID;
  void log(llvm::raw_ostream &) const override {}
  std::error_code convertToErrorCode() const override {
    return llvm::inconvertibleErrorCode();
  }
};

class KernelCompiler;

/// Compiles one module for the machine's own architecture, in one thread and
/// without leaving threads behind.
class Compiler {
public:
  static llvm::Expected<std::unique_ptr<Compiler>>
  create(CompilerOptions options);
  ~Compiler();

  /// Parses the file ("-": standard input) and runs `ddp-pipeline` on it.
  llvm::Error load(StringRef path);

  /// The C header of the loaded module. Before lower().
  llvm::Expected<std::string> getHeader(StringRef source);

  /// From the pipeline's result to the LLVM dialect.
  llvm::Error lower();

  /// The lowered module as LLVM IR, optimized for the target. After lower().
  llvm::Expected<std::unique_ptr<llvm::Module>> translate();

  /// The object code of what translate() returned; position-independent.
  llvm::Expected<llvm::SmallVector<char, 0>> emitObject(llvm::Module &module);

  /// All of the above: from the file to object code.
  llvm::Expected<llvm::SmallVector<char, 0>> compile(StringRef path);

  ModuleOp getModule() { return *module; }

  /// PTX of the module's kernels; empty when it has none. After lower().
  StringRef getDeviceCode() { return deviceCode; }

private:
  Compiler(CompilerOptions options, const DialectRegistry &registry);

  llvm::Error createTarget();
  /// DiagnosedError after a diagnostic, else an error with this text.
  llvm::Error makeFailure(const llvm::Twine &text);
  /// Makes kernels, and leaves their code in the module.
  llvm::Error compileKernels();
  /// Makes kernels for the device, where that is asked for, and checks that
  /// nothing else works on its memory.
  llvm::Error lowerForDevice();
  /// Width in bits and number of the target's vector registers.
  std::pair<unsigned, unsigned> getVectorRegisters();

  CompilerOptions options;
  MLIRContext context;
  llvm::SourceMgr sources;
  SourceMgrDiagnosticHandler diagnostics;
  /// Runs before `diagnostics`.
  ScopedDiagnosticHandler filter;
  llvm::StringSet<> reportedErrors;
  OwningOpRef<ModuleOp> module;
  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::TargetMachine> target;
  /// Null when there are no kernels to be made.
  std::unique_ptr<KernelCompiler> kernelCompiler;
  std::string deviceCode;
};

} // namespace mlir::ddp

#endif // DDPHOOK_COMPILER_COMPILER_H
