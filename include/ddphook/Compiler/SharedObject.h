// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links the object code of a module into a shared object, either in this
// process with LLD or with a linker that the caller names. Undefined symbols,
// those of the runtime, are resolved when the object is loaded.

#pragma once

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>

namespace mlir::ddp {

struct SharedObjectOptions {
  /// A program that accepts a C compiler's flags. Empty for LLD in this
  /// process, which needs neither a compiler nor its files.
  std::string linker;

  /// The path of the runtime's shared library. If set, the shared object
  /// depends on it (DT_NEEDED, by its DT_SONAME), and finds its functions even
  /// if the process loaded it RTLD_LOCAL, as Python does. If empty, it uses the
  /// functions of the program, or of a library loaded RTLD_GLOBAL.
  std::string runtime;
};

/// Returns `object`, a relocatable ELF file, linked to the bytes of a shared
/// object. Several threads may call it; LLD runs on one at a time. Uses
/// temporary files, and removes them.
llvm::Expected<llvm::SmallVector<char, 0>>
linkSharedObject(llvm::StringRef object,
                 const SharedObjectOptions &options = {});

/// Writes `object` as the shared object `path`, atomically.
llvm::Error writeSharedObject(llvm::StringRef object, llvm::StringRef path,
                              const SharedObjectOptions &options = {});

} // namespace mlir::ddp
