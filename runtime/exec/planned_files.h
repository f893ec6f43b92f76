//===- planned_files.h - what a run is going to write -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How much that is, and whether it will fit, before the first step: a run that
// fills the disk after hours has wasted them, and harmed others on the way.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_EXEC_PLANNED_FILES_H
#define DDPHOOK_RUNTIME_EXEC_PLANNED_FILES_H

#include "entry_signature.h"
#include "file_pattern.h"
#include "run_options.h"

namespace ddphook {

/// Files of one pattern.
struct PlannedFiles {
  std::string what; ///< "outputs" or "states".
  FileSet set;
  double fileBytes = 0; ///< Of each; of states nearly.
  /// Whether files that are there are gone before all new ones are written.
  bool makesRoom = false;

  double count() const {
    return static_cast<double>(set.ranks) * static_cast<double>(set.steps);
  }
  double bytes() const { return fileBytes * count(); }
};

/// What `ranks` ranks will write for --outputs and --state-out.
std::vector<PlannedFiles> planFiles(const RunOptions &options,
                                    const EntrySignature &signature,
                                    int32_t ranks);

/// "20 files of 5.1 kB in all as 'out.{rank}.{step}'".
std::string describeFiles(const PlannedFiles &files);

/// How files and the free space of their file systems compare.
struct FreeSpace {
  /// RESOURCE_EXHAUSTED when files are larger than the free space. OK also when
  /// nobody can tell: the directory is missing, say.
  Status status;
  /// The largest part of a file system's free space that is needed.
  double share = 0;
  /// "; 'DIRECTORY' has 12 GB free", for each file system.
  std::string text;
};
FreeSpace compareWithFreeSpace(const std::vector<PlannedFiles> &files);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_EXEC_PLANNED_FILES_H
