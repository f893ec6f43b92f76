// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The lock on a claim only shows whether its process is alive. Correctness
// depends neither on locks nor on clocks: file systems may have no locks, and
// machines that stop may lose theirs.

#include "checkpoint/checkpoint_claim.h"

#include "base/file_descriptor.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace ddphook;

CheckpointClaim::~CheckpointClaim() {
  if (state == State::Claimed || state == State::Uncertain)
    ::unlink(claim.c_str());
}

static const char deadlineWords[] = ", with a deadline of ";

static std::string describeOwner(const Context &context) {
  char host[256] = "";
  ::gethostname(host, sizeof(host) - 1);
  std::string text = concat("process ", ::getpid(), " on ", host);
  // A manifest must remain small.
  if (!context.runId().empty())
    text += ", job run '" + context.runId().substr(0, 256) + "'";
  return text + deadlineWords + formatText("%.3g s", context.timeoutSeconds());
}

Status CheckpointClaim::take(Manifest manifest, std::string replaced) {
  generation = manifest.generation;
  oldText = std::move(replaced);
  claim = pendingFile(path, generation);
  manifest.savedBy = describeOwner(context);
  text = printManifest(manifest);
  file.emplace(claim);
  DDPHOOK_TRY(file->open());
  DDPHOOK_TRY(file->write(text.data(), text.size()));
  // Lock it before others see it. Without locks they wait until it has aged.
  (void)::flock(file->descriptor(), LOCK_EX | LOCK_NB);
  DDPHOOK_TRY(file->commit(/*isDurable=*/false));
  state = State::Claimed;
  // If two saves begin at once, the one that looks last sees the other.
  std::vector<PendingFile> pending;
  Status status = listPending(path, &pending);
  for (const PendingFile &other : pending)
    if (status.isOk() && other.generation != generation)
      status = removeOther(other.path);
  return status.isOk() ? status : withdraw(std::move(status));
}

/// True if that claim's save has ended, or made no progress until its deadline.
bool CheckpointClaim::isOver(const std::string &other,
                             const std::string &owner) const {
  // LOCK_SH needs no write permission and ends with the descriptor.
  auto opened = FileDescriptor::opened([&other] {
    return ::open(other.c_str(),
                  O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  });
  const bool isFree =
      opened.isValid() && ::flock(opened.get(), LOCK_SH | LOCK_NB) == 0;
  opened.reset();
  struct stat theirs, mine;
  if (isFree || ::lstat(other.c_str(), &theirs) != 0 ||
      ::fstat(file->descriptor(), &mine) != 0)
    return isFree;
  // Both times are the file system's, whichever machines the processes run on.
  const double age =
      static_cast<double>(mine.st_mtim.tv_sec - theirs.st_mtim.tv_sec) +
      1e-9 * static_cast<double>(mine.st_mtim.tv_nsec - theirs.st_mtim.tv_nsec);
  const size_t deadline = owner.rfind(deadlineWords);
  return age > (deadline == std::string::npos
                    ? context.timeoutSeconds()
                    : std::atof(owner.c_str() + deadline +
                                sizeof(deadlineWords) - 1));
}

Status CheckpointClaim::removeOther(const std::string &other) const {
  std::string content;
  Status status = readManifestText(other, &content);
  const std::string owner = ownerOf(content);
  if (!isOver(other, owner))
    return ::access(other.c_str(), F_OK) != 0 && errno == ENOENT
               ? Status::ok()
               : failedPrecondition(
                     "'%s' is being saved by %s: save to another pattern, or "
                     "end that save by removing '%s'",
                     path.c_str(), owner.c_str(), other.c_str());
  if (::unlink(other.c_str()) != 0 && errno != ENOENT)
    return systemError(errno, "cannot remove '%s', left over from a save by %s",
                       other.c_str(), owner.c_str());
  return Status::ok();
}

void CheckpointClaim::touch() {
  if (state == State::Claimed)
    ::futimens(file->descriptor(), nullptr);
}

/// Returns `reason`, or an error if the claim was already gone.
Status CheckpointClaim::withdraw(Status reason) {
  state = State::None;
  if (::unlink(claim.c_str()) == 0 || errno != ENOENT)
    return reason;
  return failedPrecondition("another job has taken over '%s', by removing '%s'",
                            path.c_str(), claim.c_str());
}

/// Writes the pending manifest to disk, and checks that it may replace the old.
Status CheckpointClaim::prepare(const Deadline &deadline) {
  if (::fsync(file->descriptor()) != 0)
    return systemError(errno, "cannot write '%s'", claim.c_str());
  std::string now;
  Status status = readManifestText(path, &now);
  if (!status.isOk() && !isForeign(status))
    return status;
  if (now != oldText)
    return failedPrecondition(
        "another job has replaced '%s' during this save: save to "
        "another pattern",
        path.c_str());
  DDPHOOK_TRY(context.failure());
  if (deadline.expired())
    return deadlineExceeded("'%s' could not be written within %.3g s",
                            claim.c_str(), context.timeoutSeconds());
  return Status::ok();
}

Status CheckpointClaim::commit() {
  const Deadline deadline = Deadline::after(context.timeoutSeconds());
  touch();
  Status status = prepare(deadline);
  if (!status.isOk())
    return withdraw(std::move(status));
  state = State::Uncertain;
  if (::rename(claim.c_str(), path.c_str()) == 0) {
    state = State::Replaced;
    return syncDirectory(path);
  }
  status = systemError(errno, "cannot rename '%s' to '%s'", claim.c_str(),
                       path.c_str());
  // A file server may have renamed the file although its answer was lost, and
  // may still do so while the file has its name.
  if (::unlink(claim.c_str()) == 0) {
    state = State::None;
    return status;
  }
  std::string now;
  if (errno != ENOENT || !readManifestText(path, &now).isOk())
    return status;
  if (now != text)
    return withdraw(std::move(status));
  state = State::Replaced;
  return syncDirectory(path);
}

bool CheckpointClaim::isDead(uint64_t other) const {
  return other != generation &&
         ::access(pendingFile(path, other).c_str(), F_OK) != 0 &&
         errno == ENOENT;
}
