//===- Output.cpp - write what the compiler made --------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Text and bytes to files; lib/Compiler makes them.
//
//===----------------------------------------------------------------------===//

#include "Output.h"

#include "ddphook/Compiler/SharedObject.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace mlir::ddp;

/// Writes `text` and hears of every failure; `stream` would otherwise end the
/// program when it is destroyed.
static Error writeTo(raw_fd_ostream &stream, StringRef text, StringRef path) {
  stream << text;
  stream.flush();
  std::error_code code = stream.error();
  stream.clear_error();
  return code ? createStringError(code, "cannot write '" + path +
                                            "': " + code.message())
              : Error::success();
}

/// Pipes and devices have no place beside them, and nothing that could be kept.
static bool isSpecialFile(StringRef path) {
  sys::fs::file_status status;
  return !sys::fs::status(path, status) && sys::fs::exists(status) &&
         status.type() != sys::fs::file_type::regular_file &&
         status.type() != sys::fs::file_type::directory_file;
}

Error mlir::ddp::writeText(StringRef path, StringRef text) {
  auto failure = [&](std::error_code code) {
    return createStringError(code,
                             "cannot write '" + path + "': " + code.message());
  };
  if (path == "-")
    return writeTo(outs(), text, "standard output");
  if (isSpecialFile(path)) {
    std::error_code code;
    raw_fd_ostream stream(path, code);
    return code ? failure(code) : writeTo(stream, text, path);
  }
  Expected<sys::fs::TempFile> file =
      sys::fs::TempFile::create(path + ".%%%%%%.tmp");
  if (!file)
    return failure(errorToErrorCode(file.takeError()));
  raw_fd_ostream stream(file->FD, /*shouldClose=*/false);
  if (Error error = writeTo(stream, text, path))
    return joinErrors(std::move(error), file->discard());
  if (Error error = file->keep(path))
    return failure(errorToErrorCode(std::move(error)));
  return Error::success();
}

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
