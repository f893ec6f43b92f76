//===- SharedObject.h - object code as a shared object ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links the object code of a module into a shared object. The system's C
// compiler does it, as it knows where the system's libraries are; undefined
// symbols, those of the runtime, are left to whoever loads the object.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_COMPILER_SHAREDOBJECT_H
#define DDPHOOK_COMPILER_SHAREDOBJECT_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace mlir::ddp {

/// Returns `object` as the bytes of a shared object. `linker` is a program that
/// takes a C compiler's flags. Empty: the first of cc, clang and gcc that there
/// is. It works on temporary files, of which none is left.
llvm::Expected<llvm::SmallVector<char, 0>>
linkSharedObject(llvm::StringRef object, llvm::StringRef linker = "");

/// Writes `object` as the shared object `path`, which appears whole or not at
/// all.
llvm::Error writeSharedObject(llvm::StringRef object, llvm::StringRef path,
                              llvm::StringRef linker = "");

} // namespace mlir::ddp

#endif // DDPHOOK_COMPILER_SHAREDOBJECT_H
