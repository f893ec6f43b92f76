// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks before the first step how much a run will write, and if it fits: a run
// that fills the disk after hours has wasted them and harmed others.

#pragma once

#include "entry_signature.h"
#include "file_pattern.h"
#include "run_options.h"

namespace ddphook {

struct PlannedFiles {
  std::string what; ///< "outputs" or "states".
  FileSet set;
  double fileBytes = 0; ///< Per file; approximate for states.
  /// True if existing files are deleted before all new ones are written.
  bool makesRoom = false;

  double count() const { return static_cast<double>(set.ranks) * set.steps; }
  double bytes() const { return fileBytes * count(); }
};

/// Returns what `ranks` ranks will write for --outputs and --state-out.
std::vector<PlannedFiles> planFiles(const RunOptions &options,
                                    const EntrySignature &signature,
                                    int32_t ranks);

/// Returns "20 files of 5.1 kB in all as 'out.{rank}.{step}'".
std::string describeFiles(const PlannedFiles &files);

/// Compares files with the free space of their file systems.
struct FreeSpace {
  /// RESOURCE_EXHAUSTED if files exceed the free space. OK also if the space is
  /// unknown, for example because the directory is missing.
  Status status;
  /// The largest fraction of a file system's free space that is needed.
  double share = 0;
  /// "; 'DIRECTORY' has 12 GB free" for each file system.
  std::string text;
};
FreeSpace compareWithFreeSpace(const std::vector<PlannedFiles> &files);

} // namespace ddphook
