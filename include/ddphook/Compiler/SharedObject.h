//===- SharedObject.h - object code as a shared object ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links the object code of a module into a shared object: in this process, by
// LLD, or by a linker that the caller names. Undefined symbols, those of the
// runtime, are left to whoever loads the object.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_COMPILER_SHAREDOBJECT_H
#define DDPHOOK_COMPILER_SHAREDOBJECT_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>

namespace mlir::ddp {

struct SharedObjectOptions {
  /// A program that takes a C compiler's flags. Empty: LLD in this process,
  /// which needs neither a compiler nor its files.
  std::string linker;

  /// Path of the runtime's shared library. The shared object then says that it
  /// needs the library of that name (DT_NEEDED, its DT_SONAME), and finds the
  /// runtime's functions also in a process that loaded it RTLD_LOCAL, as
  /// Python does. Empty: it finds those of the program, or of a library that
  /// was loaded RTLD_GLOBAL.
  std::string runtime;
};

/// Returns `object`, a relocatable ELF file, as the bytes of a shared object.
/// May be called by several threads; LLD links for one of them at a time. It
/// works on temporary files, of which none is left.
llvm::Expected<llvm::SmallVector<char, 0>>
linkSharedObject(llvm::StringRef object,
                 const SharedObjectOptions &options = {});

/// Writes `object` as the shared object `path`, which appears whole or not at
/// all.
llvm::Error writeSharedObject(llvm::StringRef object, llvm::StringRef path,
                              const SharedObjectOptions &options = {});

} // namespace mlir::ddp

#endif // DDPHOOK_COMPILER_SHAREDOBJECT_H
