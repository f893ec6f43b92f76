//===- checkpoint_read.h - reads a rank's file of a checkpoint --*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads what a module needs of a checkpoint's file into an image of the
// module's states. Agreement between ranks is checkpoint_load.cpp's business.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_CHECKPOINT_CHECKPOINT_READ_H
#define DDPHOOK_RUNTIME_SRC_CHECKPOINT_CHECKPOINT_READ_H

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_mapping.h"

#include <memory>

namespace ddphook {

class CheckpointReader {
public:
  /// `image`: zeros, for the states of `plan` as they lie in its arena.
  /// `isOtherWorld`: files are of other ranks, so that only replicated states
  /// are taken. `nodes`: printNodes() of this job. All references stay the
  /// caller's.
  CheckpointReader(const Plan &plan, const Manifest &manifest,
                   const std::string &pattern, bool isPartial,
                   bool isOtherWorld, const std::string &nodes, char *image)
      : plan(plan), states(plan.states), ofShares(plan.findShareErrors()),
        manifest(manifest), pattern(pattern),
        manifestPath(manifestFile(pattern)), isPartial(isPartial),
        isOtherWorld(isOtherWorld), nodes(nodes), image(image) {}

  /// Reads the file of `rank`. PLAN_MISMATCH when it cannot be carried over.
  Status read(int rank);
  /// Sets the initial values of states that get none, or not all, from a file;
  /// read() does that itself.
  Status beginAnew();

  /// After read().
  const CheckpointMapping &mapping() const { return mapped; }
  bool isLoaded(size_t state) const {
    return !isForeign(state) && !mapped.lacksAll[state];
  }
  /// Whether errors of shares were saved by ranks of other nodes, so that they
  /// begin as in a new job. The same on all ranks.
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
  const std::vector<bool> ofShares;
  const Manifest &manifest;
  const std::string &pattern;
  const std::string manifestPath;
  const bool isPartial, isOtherWorld;
  const std::string &nodes;
  char *const image;
  bool isOtherNodes = false;

  /// What the checkpoint has, the module's own states or others, where that
  /// goes, and values that go to several places.
  std::vector<PlanState> others;
  const std::vector<PlanState> *saved = &states;
  std::vector<uint64_t> checksums;
  CheckpointMapping mapped;
  bool isMapped = false;
  std::map<size_t, std::vector<char>> sharedValues;
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_CHECKPOINT_CHECKPOINT_READ_H
