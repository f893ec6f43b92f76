//===- SharedObject.cpp - object code as a shared object ------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See SharedObject.h.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Compiler/SharedObject.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

static Error makeError(std::error_code code, const Twine &what) {
  return createStringError(code, what + ": " + code.message());
}

static Expected<std::string> findLinker(StringRef linker) {
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

namespace {
/// A file that is gone when this is.
class TemporaryFile {
public:
  /// Writes `text` into it.
  Error create(StringRef suffix, StringRef text) {
    int descriptor;
    if (std::error_code code =
            sys::fs::createTemporaryFile("ddphook", suffix, descriptor, path))
      return makeError(code, "cannot create a temporary file");
    remover.setFile(path);
    raw_fd_ostream stream(descriptor, /*shouldClose=*/true);
    stream << text;
    stream.close();
    // Otherwise the stream would end the program when it is destroyed.
    std::error_code code = stream.error();
    stream.clear_error();
    return code ? makeError(code, "cannot write '" + path + "'")
                : Error::success();
  }

  SmallString<128> path;

private:
  FileRemover remover;
};
} // namespace

/// Links to `path`, which exists.
static Error link(StringRef object, StringRef path, StringRef linker) {
  Expected<std::string> program = findLinker(linker);
  if (!program)
    return program.takeError();
  TemporaryFile input;
  if (Error error = input.create("o", object))
    return error;
  // -Bsymbolic: an entry point must not be replaced by a function of the
  // program that happens to have its name.
  std::string message;
  int status = sys::ExecuteAndWait(
      *program,
      {*program, "-shared", "-Wl,-Bsymbolic", "-o", path, input.path, "-lm"},
      /*Env=*/std::nullopt, /*Redirects=*/{},
      /*SecondsToWait=*/0, /*MemoryLimit=*/0, &message);
  if (status != 0)
    return createStringError("'" + Twine(*program) +
                             "' failed to link the shared object" +
                             (message.empty() ? "" : ": ") + message);
  return Error::success();
}

Expected<SmallVector<char, 0>> mlir::ddp::linkSharedObject(StringRef object,
                                                           StringRef linker) {
  TemporaryFile output;
  if (Error error = output.create("so", ""))
    return error;
  if (Error error = link(object, output.path, linker))
    return error;
  ErrorOr<std::unique_ptr<MemoryBuffer>> bytes =
      MemoryBuffer::getFile(output.path, /*IsText=*/false,
                            /*RequiresNullTerminator=*/false);
  if (!bytes)
    return makeError(bytes.getError(), "cannot read '" + output.path + "'");
  StringRef text = (*bytes)->getBuffer();
  return SmallVector<char, 0>(text.begin(), text.end());
}

Error mlir::ddp::writeSharedObject(StringRef object, StringRef path,
                                   StringRef linker) {
  // Linked beside the output, so that it can be renamed.
  SmallString<128> linkedPath;
  if (std::error_code code =
          sys::fs::createUniqueFile(path + ".%%%%%%.tmp", linkedPath))
    return makeError(code, "cannot write '" + path + "'");
  FileRemover linkedRemover(linkedPath);
  if (Error error = link(object, linkedPath, linker))
    return error;
  if (std::error_code code = sys::fs::rename(linkedPath, path))
    return makeError(code, "cannot write '" + path + "'");
  linkedRemover.releaseFile();
  return Error::success();
}
