//===- free_space.h - whether the outputs of a run will fit -----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An estimate before the first step: a run that fills the disk after hours has
// wasted them, and harmed others on the way.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_EXEC_FREE_SPACE_H
#define DDPHOOK_RUNTIME_EXEC_FREE_SPACE_H

#include "entry_signature.h"
#include "file_pattern.h"

namespace ddphook {

/// RESOURCE_EXHAUSTED when the results of `signature`, written to all of
/// `outputs`, are larger than the free space of the file system of the first
/// file, with the files that they replace counted as free. OK when nobody can
/// tell: the directory is missing, say.
Status checkFreeSpace(const FileSet &outputs, const EntrySignature &signature);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_EXEC_FREE_SPACE_H
