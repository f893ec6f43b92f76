// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every rank writes its file next to that of the previous checkpoint. When all
// files are on disk, rank 0 replaces the manifest; from then on a load finds
// the new checkpoint. Only then do files get their final names.

#include "base/write_signals.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_claim.h"
#include "job/context.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

using namespace ddphook;

/// The parts in which states are copied from the device.
static constexpr int64_t bytesPerWrite = int64_t(1) << 22;
static const char saveTask[] = "save its states";

static Status writeStateData(const ddphook_module &module, size_t number,
                             AtomicFile &file, uint64_t *checksum) {
  const int64_t bytes = module.plan.states[number].bytes;
  std::vector<char> part(std::min(bytes, bytesPerWrite));
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  for (int64_t offset = 0; offset < bytes; offset += bytesPerWrite) {
    const int64_t size = std::min(bytesPerWrite, bytes - offset);
    DDPHOOK_TRY(readState(module, number, offset, part.data(), size));
    XXH3_64bits_update(&hash, part.data(), size);
    DDPHOOK_TRY(file.write(part.data(), size));
  }
  *checksum = XXH3_64bits_digest(&hash);
  return Status::ok();
}

static Status writeRankFile(const ddphook_module &module,
                            const Manifest &manifest,
                            const std::string &description,
                            const std::string &path) {
  const std::vector<PlanState> &states = module.plan.states;
  std::vector<TensorView> tensors;
  for (const PlanState &state : states)
    tensors.push_back(stateTensor(state));
  SafetensorsLayout layout;
  DDPHOOK_TRY(layOutSafetensors(tensors, layout));
  std::vector<uint64_t> checksums(states.size(), 0);
  const std::string nodes =
      module.plan.hasShareErrors() ? printNodes(module.context.allNodes()) : "";
  std::string header;
  auto makeHeader = [&] {
    return makeSafetensorsHeader(tensors, layout,
                                 rankMetadata(manifest, module.context.rank(),
                                              states, description, checksums,
                                              nodes),
                                 &header);
  };
  DDPHOOK_TRY(makeHeader());
  const NoWriteSignals noSignals;
  AtomicFile file(path);
  DDPHOOK_TRY(file.open());
  DDPHOOK_TRY(file.write(header.data(), header.size()));
  for (size_t i : layout.order)
    DDPHOOK_TRY(writeStateData(module, i, file, &checksums[i]));
  // The new header has the same length, because all checksums have one length.
  DDPHOOK_TRY(makeHeader());
  DDPHOOK_TRY(file.overwrite(0, header.data(), header.size()));
  return file.commit();
}

/// Checks that the save does not replace a checkpoint of another program or
/// job, or a file that is something else. Sets `text` to its contents.
static Status checkReplaced(const ddphook_module &module,
                            const std::string &path, uint64_t programHash,
                            uint32_t flags, std::string *text) {
  static const char advice[] = "remove it, or save with DDPHOOK_STATE_REPLACE";
  Status status = readManifestText(path, text);
  if (flags & DDPHOOK_STATE_REPLACE)
    return isForeign(status) ? Status::ok() : status;
  Manifest old;
  if (status.isOk() && !text->empty())
    status = parseManifest(*text, path, &old);
  if (isForeign(status))
    return Status(status.code(), status.message() + "; " + advice);
  if (!status.isOk() || text->empty())
    return status;
  if (old.programHash != programHash)
    return failedPrecondition(
        "'%s' belongs to a checkpoint of another program; %s", path.c_str(),
        advice);
  auto last = module.checkpoints.find(path);
  if (last != module.checkpoints.end() && last->second != old.generation)
    return failedPrecondition(
        "another job has replaced '%s' since this one saved it: save "
        "to another pattern, or with DDPHOOK_STATE_REPLACE",
        path.c_str());
  return Status::ok();
}

/// Two modules of a program would replace each other's checkpoint.
static Status checkOthers(const ddphook_module &module,
                          const std::string &path) {
  for (const auto &other : module.context.modules) {
    if (other.get() == &module || !other->checkpoints.count(path))
      continue;
    std::set<std::string> names;
    for (const PlanState &state : other->plan.states)
      names.insert(state.name);
    for (const PlanState &state : module.plan.states)
      if (names.count(state.name))
        return failedPrecondition(
            "another loaded module, which also has a state '%s', saves to '%s'",
            state.name.c_str(), path.c_str());
    return failedPrecondition("another loaded module saves to '%s'",
                              path.c_str());
  }
  return Status::ok();
}

/// A rank's file gets its final name after the manifest is in place, so
/// obstacles to that must be found before.
static Status checkPlace(const std::string &path) {
  struct stat attributes;
  if (::stat(path.c_str(), &attributes) == 0 && !S_ISREG(attributes.st_mode))
    return error(DDPHOOK_IO_ERROR, "cannot write '%s': not a regular file",
                 path.c_str());
  return Status::ok();
}

static Status checkSave(const ddphook_module &module,
                        const std::string &pattern, const std::string &path,
                        uint32_t flags) {
  if (flags & ~uint32_t(DDPHOOK_STATE_REPLACE))
    return invalid("expected no flags except DDPHOOK_STATE_REPLACE, but got %u",
                   flags);
  if (pattern.empty())
    return invalid("expected a pattern of file names, but got an empty one");
  if (module.context.worldSize() > 1 &&
      rankFile(pattern, 0) == rankFile(pattern, 1))
    return invalid(
        "expected {rank} in the pattern of a checkpoint of %d ranks, "
        "but got '%s'",
        module.context.worldSize(), pattern.c_str());
  if (module.isRunning())
    return failedPrecondition("an entry point is running");
  DDPHOOK_TRY(checkPlace(rankFile(pattern, module.context.rank())));
  return checkOthers(module, path);
}

/// Begins a save on rank 0: checks what it replaces, and claims the manifest.
static Status beginSave(const ddphook_module &module, const std::string &path,
                        uint32_t flags, Manifest *manifest,
                        CheckpointClaim *claim) {
  std::string old;
  DDPHOOK_TRY(checkPlace(path));
  DDPHOOK_TRY(checkReplaced(module, path, manifest->programHash, flags, &old));
  DDPHOOK_TRY(drawGeneration(&manifest->generation));
  return claim->take(*manifest, std::move(old));
}

/// Appends a comma and `generation` to a list that ranks exchange.
static void appendGeneration(std::string *list, uint64_t generation) {
  *list += ',' + printHash(generation);
}

/// Writes this rank's file, and lists leftover files of other saves.
static Status writeFiles(const ddphook_module &module, const Manifest &manifest,
                         const std::string &description,
                         const std::string &file,
                         std::vector<PendingFile> *leftovers,
                         std::string *generations) {
  DDPHOOK_TRY(writeRankFile(module, manifest, description,
                            pendingFile(file, manifest.generation)));
  DDPHOOK_TRY(listPending(file, leftovers));
  for (const PendingFile &leftover : *leftovers)
    if (leftover.generation != manifest.generation)
      appendGeneration(generations, leftover.generation);
  return Status::ok();
}

/// Returns the entries of all ranks' lists of leftovers that may be removed.
static std::string findDead(const CheckpointClaim &claim,
                            const std::vector<std::string> &lists) {
  std::string dead;
  for (const std::string &list : lists)
    for (size_t at = 1; at < list.size(); at += 17) {
      uint64_t generation;
      if (parseHash(std::string_view(list).substr(at, 16), &generation) &&
          claim.isDead(generation))
        appendGeneration(&dead, generation);
    }
  return dead;
}

/// Gives a rank's file its final name. First removes the `dead` leftovers,
/// because a rank of an earlier life that renames one late must not find it.
static Status moveIntoPlace(const std::string &file, uint64_t generation,
                            const std::vector<PendingFile> &leftovers,
                            const std::string &dead) {
  for (const PendingFile &leftover : leftovers)
    if (dead.find(printHash(leftover.generation)) != std::string::npos &&
        ::unlink(leftover.path.c_str()) != 0 && errno != ENOENT)
      return systemError(errno, "cannot remove '%s'", leftover.path.c_str());
  const std::string pending = pendingFile(file, generation);
  if (::rename(pending.c_str(), file.c_str()) == 0)
    return Status::ok();
  return systemError(errno, "cannot rename '%s' to '%s'%s", pending.c_str(),
                     file.c_str(),
                     errno == ENOENT ? " (does another job save there?)" : "");
}

/// Removes this rank's file after a failure that all ranks know of. If ranks
/// were lost instead, the manifest may already be in place and need the file.
static Status discard(const ddphook_module &module, const std::string &pending,
                      Status status) {
  if (!module.context.hasFailed())
    ::unlink(pending.c_str());
  return status;
}

Status ddphook::saveStates(ddphook_module &module, const std::string &pattern,
                           uint32_t flags) {
  Context &context = module.context;
  DDPHOOK_TRY(context.failure());
  const std::string manifestPath = manifestFile(pattern);
  const std::string description = printStates(module.plan.states);
  Manifest manifest;
  manifest.programHash = hashProgram(module.plan.states);
  manifest.statesHash = hashText(description);
  manifest.worldSize = context.worldSize();
  CheckpointClaim claim(context, manifestPath);

  Status status = withoutExceptions([&] {
    if (context.rank() == 0)
      warnOfOtherWriters(directoryOf(manifestPath), "the checkpoint");
    return checkSave(module, pattern, manifestPath, flags);
  });
  // A step that failed on the device leaves nothing worth saving.
  if (status.isOk())
    status = context.synchronize();
  if (status.isOk() && context.rank() == 0)
    status = withoutExceptions([&] {
      return beginSave(module, manifestPath, flags, &manifest, &claim);
    });
  const std::string plan = printHash(module.compiled->plan_hash);
  std::vector<std::string> all;
  DDPHOOK_TRY(context.agree("ddphook_state_save", saveTask, status,
                            plan + std::to_string(manifest.generation), &all));
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].compare(0, plan.size(), plan) != 0)
      return invalid(
          "ranks save different modules: the plan of rank %zu differs "
          "from this rank's",
          rank);
  manifest.generation =
      std::strtoull(all[0].c_str() + plan.size(), nullptr, 10);
  claim.touch();

  const std::string file = rankFile(pattern, context.rank());
  const std::string pending = pendingFile(file, manifest.generation);
  std::vector<PendingFile> leftovers;
  std::string generations;
  status = withoutExceptions([&] {
    return writeFiles(module, manifest, description, file, &leftovers,
                      &generations);
  });
  status = context.agree("ddphook_state_save (written)", saveTask, status,
                         generations, &all);
  if (!status.isOk())
    return discard(module, pending, std::move(status));

  // Rank 0 tells the others which leftovers to remove. If a power failure might
  // lose the manifest, nothing changes, because the old files would be needed.
  Status committed;
  std::string verdict;
  if (context.rank() == 0) {
    committed = withoutExceptions([&] {
      DDPHOOK_TRY(claim.commit());
      verdict = "durable" + findDead(claim, all);
      return Status::ok();
    });
    if (claim.isUncertain())
      return context.fail(std::move(committed));
  }
  const bool isReplaced = context.rank() != 0 || claim.hasReplaced();
  status = context.agree("ddphook_state_save (manifest)", saveTask,
                         isReplaced ? Status::ok() : committed, verdict, &all);
  if (!status.isOk())
    return discard(module, pending, std::move(status));

  module.checkpoints[manifestPath] = manifest.generation;
  status = committed;
  if (!all[0].empty())
    status = withoutExceptions([&] {
      return moveIntoPlace(file, manifest.generation, leftovers, all[0]);
    });
  return context.agree("ddphook_state_save (end)", saveTask, status, "", &all);
}
