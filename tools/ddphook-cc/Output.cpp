//===- Output.cpp - write what the compiler made --------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shared objects are linked by the system's C compiler: it knows where the
// system's libraries are.
//
//===----------------------------------------------------------------------===//

#include "Output.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace mlir::ddp;

namespace {
Expected<std::string> findLinker(StringRef linker) {
  if (!linker.empty()) {
    ErrorOr<std::string> program = sys::findProgramByName(linker);
    if (program)
      return *program;
    return createStringError(program.getError(),
                             "cannot find the linker '" + linker + "'");
  }
  for (StringRef name : {"cc", "clang", "gcc"})
    if (ErrorOr<std::string> program = sys::findProgramByName(name))
      return *program;
  return createStringError(
      "found none of cc, clang and gcc to link with; give one with --linker");
}

/// Undefined symbols (the runtime's) are left to whoever loads the object.
Error linkSharedObject(StringRef object, StringRef path, StringRef linker) {
  Expected<std::string> program = findLinker(linker);
  if (!program)
    return program.takeError();
  SmallString<128> objectPath;
  if (std::error_code code =
          sys::fs::createTemporaryFile("ddphook", "o", objectPath))
    return createStringError(code, "cannot create a temporary file: " +
                                       code.message());
  FileRemover objectRemover(objectPath);
  if (Error error = writeText(objectPath, object))
    return error;

  // Linked beside the output, so that it can be renamed.
  SmallString<128> linkedPath;
  if (std::error_code code =
          sys::fs::createUniqueFile(path + ".%%%%%%.tmp", linkedPath))
    return createStringError(code,
                             "cannot write '" + path + "': " + code.message());
  FileRemover linkedRemover(linkedPath);
  // -Bsymbolic: an entry point must not be replaced by a function of the
  // program that happens to have its name.
  std::string message;
  int status =
      sys::ExecuteAndWait(*program,
                          {*program, "-shared", "-Wl,-Bsymbolic", "-o",
                           linkedPath, objectPath, "-lm"},
                          /*Env=*/std::nullopt, /*Redirects=*/{},
                          /*SecondsToWait=*/0, /*MemoryLimit=*/0, &message);
  if (status != 0)
    return createStringError("'" + Twine(*program) +
                             "' failed to link the shared object" +
                             (message.empty() ? "" : ": ") + message);
  if (std::error_code code = sys::fs::rename(linkedPath, path))
    return createStringError(code,
                             "cannot write '" + path + "': " + code.message());
  linkedRemover.releaseFile();
  return Error::success();
}
} // namespace

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

Error mlir::ddp::writeOutput(Compiler &compiler, OutputKind kind,
                             StringRef path, StringRef linker) {
  std::string text;
  raw_string_ostream os(text);
  if (kind == OutputKind::MLIR) {
    compiler.getModule().print(os);
    return writeText(path, text);
  }
  if (kind == OutputKind::PTX) {
    if (compiler.getDeviceCode().empty())
      return createStringError(
          "expected a module with kernels, but it has none; compile linalg "
          "operations with --device=cuda");
    return writeText(path, compiler.getDeviceCode());
  }
  Expected<std::unique_ptr<Module>> module = compiler.translate();
  if (!module)
    return module.takeError();
  if (kind == OutputKind::LLVMIR) {
    (*module)->print(os, /*AAW=*/nullptr);
    return writeText(path, text);
  }
  auto object = compiler.emitObject(**module);
  if (!object)
    return object.takeError();
  StringRef bytes(object->data(), object->size());
  return kind == OutputKind::Shared ? linkSharedObject(bytes, path, linker)
                                    : writeText(path, bytes);
}
