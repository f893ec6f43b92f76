// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sizes are computed in floating point: a product of three large numbers only
// needs a few correct digits, and must not wrap.

#include "planned_files.h"

#include "numbers.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <sys/stat.h>
#include <sys/statvfs.h>

using namespace ddphook;

/// At most this many files are checked for the space that they will free.
static constexpr double maxFilesToLookAt = 1e6;
/// The bytes of a checkpoint per state, besides its numbers.
static constexpr double bytesAboutState = 400;

/// Returns the size of a file with the results of one step.
static double outputBytes(const EntrySignature &signature) {
  std::vector<TensorView> tensors;
  double data = 0;
  for (size_t i = 0; i < signature.results.size(); ++i) {
    const EntryResult &result = signature.results[i];
    tensors.push_back({"result" + std::to_string(i), result.type, result.shape,
                       /*data=*/nullptr});
    data += static_cast<double>(result.bytes);
  }
  SafetensorsLayout layout;
  std::string header;
  if (layOutSafetensors(tensors, layout).isOk() &&
      makeSafetensorsHeader(tensors, layout, /*metadata=*/{}, &header).isOk())
    data += static_cast<double>(header.size());
  return data;
}

std::vector<PlannedFiles> ddphook::planFiles(const RunOptions &options,
                                             const EntrySignature &signature,
                                             int32_t ranks) {
  std::vector<PlannedFiles> files;
  if (!options.outputs.empty())
    files.push_back({"outputs",
                     {options.outputs, ranks, options.steps},
                     outputBytes(signature),
                     /*makesRoom=*/true});
  // The old checkpoint remains until all ranks have written theirs.
  if (!options.stateOut.empty())
    files.push_back(
        {"states",
         {options.stateOut, ranks, 1},
         static_cast<double>(signature.stateBytes) +
             bytesAboutState * static_cast<double>(signature.stateCount),
         /*makesRoom=*/false});
  return files;
}

std::string ddphook::describeFiles(const PlannedFiles &files) {
  const double count = files.count();
  return (count < 1e15 ? printCount(static_cast<int64_t>(count), "file")
                       : "countless files") +
         " of " + printBytes(files.bytes()) +
         (count == 1 ? " as '" : " in all as '") + files.set.pattern + "'";
}

/// Returns the bytes on disk of the files of `set`, counted up to `needed`.
static double replacedBytes(const FileSet &set, double needed) {
  double bytes = 0;
  if (static_cast<double>(set.ranks) * set.steps > maxFilesToLookAt)
    return bytes;
  for (int64_t step = 0; step < set.steps; ++step)
    for (int32_t rank = 0; rank < set.ranks && bytes < needed; ++rank) {
      struct stat attributes;
      if (::stat(expandPattern(set.pattern, rank, step).c_str(), &attributes) ==
              0 &&
          S_ISREG(attributes.st_mode))
        bytes += static_cast<double>(attributes.st_blocks) * 512;
    }
  return bytes;
}

namespace {
/// A file system, and the files that will be written there.
struct Disk {
  std::string directory;
  double available = 0, needed = 0;
  std::string what;
  std::vector<const PlannedFiles *> files;
};
} // namespace

/// Adds `files` to the file system of the first one.
static void place(const PlannedFiles &files, std::map<dev_t, Disk> &disks) {
  const std::filesystem::path first = expandPattern(files.set.pattern, 0, 0);
  const std::string directory =
      first.has_parent_path() ? first.parent_path().string() : ".";
  struct statvfs system;
  struct stat attributes;
  if (::statvfs(directory.c_str(), &system) != 0 || system.f_frsize == 0 ||
      ::stat(directory.c_str(), &attributes) != 0)
    return;
  const double block = static_cast<double>(system.f_frsize);
  Disk &disk = disks[attributes.st_dev];
  if (disk.directory.empty())
    disk.directory = directory;
  disk.available = static_cast<double>(system.f_bavail) * block;
  disk.needed += std::ceil(files.fileBytes / block) * block * files.count();
  disk.what += (disk.what.empty() ? "" : " and ") + files.what;
  disk.files.push_back(&files);
}

FreeSpace
ddphook::compareWithFreeSpace(const std::vector<PlannedFiles> &files) {
  FreeSpace result;
  std::map<dev_t, Disk> disks;
  for (const PlannedFiles &planned : files)
    place(planned, disks);
  for (auto &[device, disk] : disks) {
    result.text += "; '" + disk.directory + "' has " +
                   printBytes(disk.available) + " free";
    result.share =
        std::max(result.share, disk.needed / std::max(disk.available, 1.0));
    double room = disk.available;
    for (const PlannedFiles *planned : disk.files)
      if (planned->makesRoom && room < disk.needed)
        room += replacedBytes(planned->set, disk.needed - room);
    if (disk.needed > room && result.status.isOk())
      result.status = Status(
          DDPHOOK_RESOURCE_EXHAUSTED,
          "the " + disk.what + " need " + printBytes(disk.needed) + ", but '" +
              disk.directory + "' has only " + printBytes(disk.available) +
              " free (--free-space=ignore runs anyway)");
  }
  return result;
}
