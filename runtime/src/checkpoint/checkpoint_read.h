// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the states that a module needs from a checkpoint's file into an image
// of the module's states. checkpoint_load.cpp handles agreement between ranks.

#pragma once

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_mapping.h"

#include <memory>

namespace ddphook {

class CheckpointReader {
public:
  /// `image` has zeros, laid out as the states of `plan` in its arena.
  /// `isOtherWorld`: the file is another rank's, so only replicated states are
  /// taken. `nodes` is printNodes() of this job. All references remain the
  /// caller's.
  CheckpointReader(const Plan &plan, const Manifest &manifest,
                   const std::string &pattern, bool isPartial,
                   bool isOtherWorld, const std::string &nodes, char *image)
      : plan(plan), states(plan.states), manifest(manifest), pattern(pattern),
        manifestPath(manifestFile(pattern)), isPartial(isPartial),
        isOtherWorld(isOtherWorld), nodes(nodes), image(image) {}

  /// Reads the file of `rank`. PLAN_MISMATCH if its states cannot be mapped.
  Status read(int rank);
  /// Sets the initial values of states that a file lacks, or has only in part.
  /// read() calls it.
  Status beginAnew();

  /// The next two are valid after read().
  const CheckpointMapping &mapping() const { return mapped; }
  bool isLoaded(size_t state) const {
    return !isForeign(state) && !mapped.lacksAll[state];
  }
  /// True if the nodes differ from those of the save, so that the errors of the
  /// parts of a node's sum begin as in a new job. The same on all ranks.
  bool hasOtherNodes() const { return isOtherNodes; }

private:
  char *imageOf(size_t state) { return image + states[state].offset; }
  Status findSaved(const SafetensorsReader &reader, int rank);
  Status map();
  Status openRankFile(const std::string &path, int rank,
                      std::unique_ptr<SafetensorsReader> *reader) const;
  bool isForeign(size_t state) const;
  bool isNeeded(size_t number) const;
  Status readSaved(const SafetensorsReader &reader, const TensorInfo &tensor,
                   size_t number, uint64_t *hash);
  Status takeShared();
  Status explainMismatch(Status status) const;

  const Plan &plan;
  const std::vector<PlanState> &states;
  const Manifest &manifest;
  const std::string &pattern;
  const std::string manifestPath;
  const bool isPartial, isOtherWorld;
  const std::string &nodes;
  char *const image;
  bool isOtherNodes = false;

  /// The states of the checkpoint (the module's own or `others`), their
  /// mapping, and the values that several states share.
  std::vector<PlanState> others;
  const std::vector<PlanState> *saved = &states;
  std::vector<uint64_t> checksums;
  CheckpointMapping mapped;
  bool isMapped = false;
  std::map<size_t, std::vector<char>> sharedValues;
};

} // namespace ddphook
