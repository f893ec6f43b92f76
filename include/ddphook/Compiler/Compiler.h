//===- Compiler.h - from a source file to machine code ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The steps that ddphook-cc and ddphook-run share: parse, `ddp-pipeline`, entry
// points, LLVM dialect, LLVM IR, object code. The tools decide where the code
// goes: to a file, or into this process.
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
  /// Options of `ddp-pipeline`; by default its defaults. They must not be given
  /// for a module that has a plan, which has been through the pipeline already.
  std::optional<std::string> ddpPipeline;
  /// Shared objects that provide dialects, for example with hooks.
  std::vector<std::string> dialectPlugins;
  /// 0 … 3.
  unsigned optLevel = 3;
  /// "native", or a CPU's name as LLVM knows it ("x86-64-v3").
  std::string march = "native";
  /// The backend that arrays belong to: "host", "cuda", or the name of another
  /// one. For all but "host" the module leaves arrays to the runtime; for
  /// "cuda" its own operations become kernels, if lib/CodeGen was built.
  std::string device = "host";
  /// For "cuda": the oldest architecture that must run the kernels.
  std::string deviceArchitecture = "sm_80";
  /// Fuse a multiplication and the addition that follows it, so that they round
  /// once. Without this, results do not depend on the CPU.
  bool fuseMultiplyAdd = false;
};

/// The error of a failure that was already reported as a diagnostic on standard
/// error. Its text is empty.
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

  /// Returns the C header of the loaded module. Call it before lower().
  llvm::Expected<std::string> getHeader(StringRef source);

  /// Lowers the pipeline's result to the LLVM dialect.
  llvm::Error lower();

  /// Returns the lowered module as LLVM IR, optimized for the target. Call it
  /// after lower().
  llvm::Expected<std::unique_ptr<llvm::Module>> translate();

  /// Returns position-independent object code for the result of translate().
  llvm::Expected<llvm::SmallVector<char, 0>> emitObject(llvm::Module &module);

  /// Does all of the above, from the file to object code.
  llvm::Expected<llvm::SmallVector<char, 0>> compile(StringRef path);

  ModuleOp getModule() { return *module; }

  /// PTX of the module's kernels; empty if it has none. Call it after lower().
  StringRef getDeviceCode() { return deviceCode; }

private:
  Compiler(CompilerOptions options, const DialectRegistry &registry);

  llvm::Error createTarget();
  /// Returns a DiagnosedError if a diagnostic was reported, else an error with
  /// this text.
  llvm::Error makeFailure(const llvm::Twine &text);
  /// Makes kernels, and leaves their code in the module.
  llvm::Error compileKernels();
  /// Creates kernels if the device has any, and checks that no other operation
  /// accesses the device's memory.
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
