// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "OutputFile.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace mlir::ddp;

/// Writes `text` and returns every error; otherwise the destructor of `stream`
/// would end the program.
static Error writeTo(raw_fd_ostream &stream, StringRef text, StringRef path) {
  stream << text;
  stream.flush();
  std::error_code code = stream.error();
  stream.clear_error();
  return code ? createStringError(code, "cannot write '" + path +
                                            "': " + code.message())
              : Error::success();
}

/// Returns true for pipes and devices, which cannot be replaced atomically.
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
