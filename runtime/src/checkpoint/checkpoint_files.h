//===- checkpoint_files.h - the files of a checkpoint -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names of files, the manifest, and what a rank's file says about itself. Which
// of them is written when is the business of checkpoint_save.cpp.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_CHECKPOINT_CHECKPOINT_FILES_H
#define DDPHOOK_RUNTIME_SRC_CHECKPOINT_CHECKPOINT_FILES_H

#include "files/safetensors.h"
#include "plan/plan.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ddphook {

/// Draws the generation of a save: a random number that is not zero, by which
/// files of different saves are told apart.
Status drawGeneration(uint64_t *generation);

/// `pattern` with every {rank} replaced.
std::string rankFile(const std::string &pattern, int rank);
/// The path of a rank's file, or of the manifest, until its save is committed.
/// No other save has files of that name.
std::string pendingFile(const std::string &file, uint64_t generation);
std::string manifestFile(const std::string &pattern);

/// A file of a save that goes on, or was interrupted.
struct PendingFile {
  std::string path;
  uint64_t generation;
};
/// Finds those of `file`, also unfinished ones.
Status listPending(const std::string &file, std::vector<PendingFile> *found);

/// Sixteen hexadecimal digits.
std::string printHash(uint64_t hash);
bool parseHash(std::string_view text, uint64_t *hash);

/// The manifest is written last: the checkpoint exists from then on.
struct Manifest {
  uint64_t generation = 0;
  uint64_t programHash = 0; ///< hashProgram() of the module's states.
  uint64_t statesHash = 0;  ///< XXH3 of their description.
  int worldSize = 0;
  std::string savedBy; ///< Empty if the manifest does not say.
};

/// XXH3, 64 bits.
uint64_t hashText(std::string_view text);

std::string printManifest(const Manifest &manifest);
/// DATA_LOSS when `text`, which came from `path`, is not a whole manifest.
Status parseManifest(const std::string &text, const std::string &path,
                     Manifest *manifest);
/// `text` is empty when there is no such file.
Status readManifestText(const std::string &path, std::string *text);
/// Whether either failed since the file is not a manifest that this version can
/// read.
inline bool isForeign(const Status &status) {
  return status.code() == DDPHOOK_DATA_LOSS ||
         status.code() == DDPHOOK_UNSUPPORTED;
}

/// Returns who saves the pending manifest `text`, or "another process".
std::string ownerOf(const std::string &text);

/// How tensors of states are described in files: one tensor a state, of its
/// shape where it has exactly one, else flat.
TensorView stateTensor(const PlanState &state);
TensorType stateTensorType(StateDtype dtype);

/// The metadata of a rank's file; `checksums` one per state, `description` of
/// all of them. `nodes` of the job's ranks (printNodes()), where states depend
/// on that; else empty.
std::map<std::string, std::string>
rankMetadata(const Manifest &manifest, int rank,
             const std::vector<PlanState> &states,
             const std::string &description,
             const std::vector<uint64_t> &checksums, const std::string &nodes);
/// Those nodes; empty: the file does not say.
std::string_view nodesOf(const SafetensorsHeader &header);

/// Whether a file is a part of some checkpoint.
bool hasRankMetadata(const SafetensorsHeader &header);
/// The generation that a file says it belongs to; 0: none.
uint64_t generationOf(const SafetensorsHeader &header);
/// Checks that a file of `manifest`'s generation is that of `rank`, and gives
/// the description of the states that it has.
Status checkRankMetadata(const SafetensorsHeader &header,
                         const Manifest &manifest, int rank,
                         std::string_view *description);
/// The checksums of those states.
Status readChecksums(const SafetensorsHeader &header,
                     const std::vector<PlanState> &states,
                     std::vector<uint64_t> *checksums);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_CHECKPOINT_CHECKPOINT_FILES_H
