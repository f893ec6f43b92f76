// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// File names, the manifest, and the metadata of a rank's file.
// checkpoint_save.cpp decides when each is written.

#pragma once

#include "files/safetensors.h"
#include "plan/plan.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ddphook {

/// Draws a save's generation: a nonzero random number that its files have.
Status drawGeneration(uint64_t *generation);

/// Returns `pattern` with every {rank} replaced.
std::string rankFile(const std::string &pattern, int rank);
/// Returns the path of a rank's file, or of the manifest, until its save is
/// committed. No other save has files with that name.
std::string pendingFile(const std::string &file, uint64_t generation);
std::string manifestFile(const std::string &pattern);

/// A file of a save that is in progress or was interrupted.
struct PendingFile {
  std::string path;
  uint64_t generation;
};
/// Finds the pending files of `file`, including incomplete ones.
Status listPending(const std::string &file, std::vector<PendingFile> *found);

/// Returns sixteen hexadecimal digits.
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

/// Returns the 64-bit XXH3.
uint64_t hashText(std::string_view text);

std::string printManifest(const Manifest &manifest);
/// Returns DATA_LOSS if `text` of file `path` is not a whole manifest.
Status parseManifest(const std::string &text, const std::string &path,
                     Manifest *manifest);
/// Sets `text`; empty if there is no such file.
Status readManifestText(const std::string &path, std::string *text);
/// True for a file that this version cannot read as a manifest.
inline bool isForeign(const Status &status) {
  return status.code() == DDPHOOK_DATA_LOSS ||
         status.code() == DDPHOOK_UNSUPPORTED;
}

/// Returns who saves the pending manifest `text`, or "another process".
std::string ownerOf(const std::string &text);

/// Describes the tensor of a state in files. There is one per state. It has the
/// state's shape if that has exactly one, otherwise it is flat.
TensorView stateTensor(const PlanState &state);
TensorType stateTensorType(StateDtype dtype);

/// Returns the metadata of a rank's file. `checksums` has one entry per state,
/// and `description` describes all states. `nodes` is printNodes() of the job's
/// ranks if states depend on it, otherwise empty.
std::map<std::string, std::string>
rankMetadata(const Manifest &manifest, int rank,
             const std::vector<PlanState> &states,
             const std::string &description,
             const std::vector<uint64_t> &checksums, const std::string &nodes);
/// Returns those nodes, or an empty text if the file has none.
std::string_view nodesOf(const SafetensorsHeader &header);

/// True if the file is part of some checkpoint.
bool hasRankMetadata(const SafetensorsHeader &header);
/// Returns the generation in a file's metadata, or 0.
uint64_t generationOf(const SafetensorsHeader &header);
/// Checks that a file of `manifest`'s generation is that of `rank`, and returns
/// the description of its states.
Status checkRankMetadata(const SafetensorsHeader &header,
                         const Manifest &manifest, int rank,
                         std::string_view *description);
Status readChecksums(const SafetensorsHeader &header,
                     const std::vector<PlanState> &states,
                     std::vector<uint64_t> *checksums);

// A checkpoint describes its states, so that modules with other buckets find
// the states of their gradients. The description is a JSON text in the metadata
// of ranks' files.

/// Returns the description of states, in their order: name, type, shapes, role,
/// gradients, method, placement and seed.
std::string printStates(const std::vector<PlanState> &states);
/// Parses the result of printStates() and lays each state out after the ones
/// before it. The text comes from a file: DATA_LOSS if it is invalid.
Status parseStates(std::string_view text, std::vector<PlanState> *states);

/// Returns a hash that is equal for modules that keep the same states of the
/// same gradients, however these are put into buckets.
uint64_t hashProgram(const std::vector<PlanState> &states);

} // namespace ddphook
