// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See SharedObject.h. This file runs external linkers; InProcessLinker.cpp runs
// LLD.

#include "ddphook/Compiler/SharedObject.h"

#include "InProcessLinker.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace mlir::ddp;

static Error makeFileError(std::error_code code, const Twine &what) {
  return createStringError(code, what + ": " + code.message());
}

static Error writeTo(int descriptor, StringRef path, StringRef text) {
  raw_fd_ostream stream(descriptor, /*shouldClose=*/true);
  stream << text;
  stream.close();
  // Otherwise the stream's destructor would end the program.
  std::error_code code = stream.error();
  stream.clear_error();
  return code ? makeFileError(code, "cannot write '" + path + "'")
              : Error::success();
}

namespace {
/// A file that is removed with this object.
class TemporaryFile {
public:
  /// Creates the file with the contents `text`.
  Error create(StringRef suffix, StringRef text) {
    int descriptor;
    if (std::error_code code =
            sys::fs::createTemporaryFile("ddphook", suffix, descriptor, path)) {
      SmallString<128> directory;
      sys::path::system_temp_directory(/*ErasedOnReboot=*/true, directory);
      return makeFileError(code, "cannot create a temporary file in '" +
                                     directory +
                                     "' (set TMPDIR to use another directory)");
    }
    remover.setFile(path);
    return writeTo(descriptor, path, text);
  }

  SmallString<128> path;

private:
  FileRemover remover;
};
} // namespace

static Expected<SmallVector<char, 0>>
linkByProgram(StringRef input, const SharedObjectOptions &options) {
  ErrorOr<std::string> program = sys::findProgramByName(options.linker);
  if (!program)
    return createStringError(program.getError(),
                             "cannot find the linker '" + options.linker + "'");
  TemporaryFile output;
  if (Error error = output.create("so", ""))
    return error;
  // -Bsymbolic: a function of the program must not replace an entry point that
  // happens to have its name.
  SmallVector<StringRef> arguments = {*program, "-shared",   "-Wl,-Bsymbolic",
                                      "-o",     output.path, input};
  if (!options.runtime.empty())
    arguments.append({"-Wl,--no-as-needed", options.runtime});
  arguments.append({"-Wl,--as-needed", "-lm"});
  std::string message;
  int status = sys::ExecuteAndWait(*program, arguments, /*Env=*/std::nullopt,
                                   /*Redirects=*/{}, /*SecondsToWait=*/0,
                                   /*MemoryLimit=*/0, &message);
  if (status != 0)
    return createStringError("'" + Twine(*program) +
                             "' failed to link the shared object" +
                             (message.empty() ? "" : ": ") + message);
  ErrorOr<std::unique_ptr<MemoryBuffer>> bytes =
      MemoryBuffer::getFile(output.path, /*IsText=*/false,
                            /*RequiresNullTerminator=*/false);
  if (!bytes)
    return makeFileError(bytes.getError(), "cannot read '" + output.path + "'");
  StringRef text = (*bytes)->getBuffer();
  // The file existed, and was empty, before.
  if (text.empty())
    return createStringError("expected '" + options.linker +
                             "' to write a shared object, but it wrote "
                             "nothing");
  return SmallVector<char, 0>(text.begin(), text.end());
}

Expected<SmallVector<char, 0>>
mlir::ddp::linkSharedObject(StringRef object,
                            const SharedObjectOptions &options) {
  TemporaryFile input;
  if (Error error = input.create("o", object))
    return error;
  return options.linker.empty() ? linkInProcess(input.path, options.runtime)
                                : linkByProgram(input.path, options);
}

Error mlir::ddp::writeSharedObject(StringRef object, StringRef path,
                                   const SharedObjectOptions &options) {
  Expected<SmallVector<char, 0>> shared = linkSharedObject(object, options);
  if (!shared)
    return shared.takeError();
  // Written next to the output, so that it can be renamed.
  int descriptor;
  SmallString<128> writtenPath;
  if (std::error_code code = sys::fs::createUniqueFile(
          path + ".%%%%%%.tmp", descriptor, writtenPath, sys::fs::OF_None,
          sys::fs::all_all))
    return makeFileError(code, "cannot write '" + path + "'");
  FileRemover remover(writtenPath);
  if (Error error =
          writeTo(descriptor, path, StringRef(shared->data(), shared->size())))
    return error;
  if (std::error_code code = sys::fs::rename(writtenPath, path))
    return makeFileError(code, "cannot write '" + path + "'");
  remover.releaseFile();
  return Error::success();
}
