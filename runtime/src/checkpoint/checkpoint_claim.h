// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keeps saves of other jobs, and of an earlier life of this job, apart. A claim
// is the pending manifest itself. It exists under its own name from the
// beginning of a save, is renamed at its end, and is never created again. So
// whoever removes it has fenced that save, even one that hangs in rename(2).
//
// Two saves that began from the same manifest cannot both commit. One of them
// listed the claims last, and by then the claim of the other existed or had
// been renamed. If it existed, the save that listed last gave up, or removed it
// so that the other one failed. If it had been renamed, the manifest had
// changed, which the save that listed last finds before it commits.

#pragma once

#include "checkpoint/checkpoint_files.h"
#include "files/atomic_file.h"
#include "job/context.h"

#include <optional>

namespace ddphook {

/// Rank 0's claim for one save.
class CheckpointClaim {
public:
  CheckpointClaim(Context &context, std::string manifestPath)
      : context(context), path(std::move(manifestPath)) {}
  /// Withdraws the claim unless the manifest was replaced.
  ~CheckpointClaim();

  /// Claims the manifest, whose text is `replaced`; empty if there is none.
  /// FAILED_PRECONDITION, with the owner's name, while another save has a
  /// claim. Removes a claim whose process has ended, or that has made no
  /// progress until its deadline.
  Status take(Manifest manifest, std::string replaced);

  /// Shows other savers that this save makes progress.
  void touch();

  /// Replaces the manifest, unless the job has failed, its ranks no longer
  /// wait, or another save came first. After OK it survives a power failure.
  Status commit();

  /// True if the manifest was replaced, perhaps although commit() failed.
  bool hasReplaced() const { return state == State::Replaced; }
  /// True if commit() could not determine that.
  bool isUncertain() const { return state == State::Uncertain; }

  /// True if no save of `generation` can be committed any more. Only for the
  /// generations of files that existed after take().
  bool isDead(uint64_t generation) const;

private:
  enum class State { None, Claimed, Uncertain, Replaced };

  Status removeOther(const std::string &other) const;
  bool isOver(const std::string &other, const std::string &owner) const;
  Status withdraw(Status reason);
  Status prepare(const Deadline &deadline);

  Context &context;
  const std::string path;
  std::string claim; ///< The path of the pending manifest.
  std::string text, oldText;
  uint64_t generation = 0;
  std::optional<AtomicFile> file;
  State state = State::None;
};

} // namespace ddphook
