//===- free_space.cpp - whether the outputs of a run will fit -------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sizes are computed in floating point: a product of three large numbers has to
// be right to a few digits, and must not wrap.
//
//===----------------------------------------------------------------------===//
#include "free_space.h"

#include <cmath>
#include <filesystem>
#include <sys/stat.h>
#include <sys/statvfs.h>

using namespace ddphook;

/// How many files are looked at for what they would give back.
static constexpr double maxFilesToLookAt = 1e6;

/// "1.5 GB".
static std::string printBytes(double bytes) {
  const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(units)) {
    bytes /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g %s", bytes, units[unit]);
  return text;
}

/// Bytes that one file of `set` takes on a disk with blocks of `block` bytes.
static double fileBytes(const EntrySignature &signature, double block) {
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
  return std::ceil(data / block) * block;
}

/// Bytes on disk of the files of `set` that are there already, as far as they
/// matter.
static double replacedBytes(const FileSet &set, double needed) {
  double bytes = 0;
  if (static_cast<double>(set.ranks) * static_cast<double>(set.steps) >
      maxFilesToLookAt)
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

Status ddphook::checkFreeSpace(const FileSet &outputs,
                               const EntrySignature &signature) {
  const std::filesystem::path first = expandPattern(outputs.pattern, 0, 0);
  const std::string directory =
      first.has_parent_path() ? first.parent_path().string() : ".";
  struct statvfs disk;
  if (::statvfs(directory.c_str(), &disk) != 0 || disk.f_frsize == 0)
    return Status::ok();
  const double block = static_cast<double>(disk.f_frsize);
  const double available = static_cast<double>(disk.f_bavail) * block;
  const double needed = fileBytes(signature, block) *
                        static_cast<double>(outputs.ranks) *
                        static_cast<double>(outputs.steps);
  if (needed <= available ||
      needed <= available + replacedBytes(outputs, needed - available))
    return Status::ok();
  return Status(DDPHOOK_RESOURCE_EXHAUSTED,
                "the outputs need " + printBytes(needed) + ", but '" +
                    directory + "' has only " + printBytes(available) +
                    " free (--free-space=ignore runs nevertheless)");
}
