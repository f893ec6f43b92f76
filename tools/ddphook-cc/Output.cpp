// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes text and bytes to files; lib/Compiler creates them.

#include "Output.h"

#include "OutputFile.h"
#include "ddphook/Compiler/SharedObject.h"

#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace mlir::ddp;

Error mlir::ddp::writeOutput(Compiler &compiler, mlir::ModuleOp module,
                             OutputKind kind, StringRef path,
                             StringRef linker) {
  std::string text;
  raw_string_ostream os(text);
  if (kind == OutputKind::MLIR) {
    module.print(os);
    return writeText(path, text);
  }
  if (kind == OutputKind::PTX) {
    if (compiler.getDeviceCode().empty())
      return createStringError(
          "expected a module with kernels, but it has none; compile linalg "
          "operations with --device=cuda");
    return writeText(path, compiler.getDeviceCode());
  }
  Expected<std::unique_ptr<Module>> code = compiler.translate(module);
  if (!code)
    return code.takeError();
  if (kind == OutputKind::LLVMIR) {
    (*code)->print(os, /*AAW=*/nullptr);
    return writeText(path, text);
  }
  auto object = compiler.emitObject(**code);
  if (!object)
    return object.takeError();
  StringRef bytes(object->data(), object->size());
  if (kind == OutputKind::Object)
    return writeText(path, bytes);
  SharedObjectOptions options;
  options.linker = linker.str();
  return writeSharedObject(bytes, path, options);
}
