//===- plan.h - what a compiled module needs --------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The plan of docs/plan.md as C++ structs. Parsing checks everything that one
// rank can check alone; what depends on the job is checked where the module is
// loaded.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_PLAN_PLAN_H
#define DDPHOOK_RUNTIME_SRC_PLAN_PLAN_H

#include "base/collective.h"
#include "base/dtype.h"
#include "base/encoding.h"
#include "base/state_dtype.h"
#include "base/status.h"
#include "ddphook/runtime/backend.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddphook {

using Shape = std::vector<int64_t>;

enum class GroupPlacement { Everyone, IntraNode, InterNode };
enum class StatePlacement { Replicated, PerRank };
enum class StateInit { Zero, Mt19937, Normal };

struct PlanProcessGroup {
  std::string name;
  int64_t size = 0; // 0: not stated
  std::vector<std::vector<int>> ranks;
  GroupPlacement placement = GroupPlacement::Everyone;
  std::optional<size_t> parent; // an earlier group
  /// First within nodes, then between them.
  bool isHierarchical = false;
};

struct PlanBucket {
  std::string name;
  size_t group = 0;
  bool isMean = false;
  Dtype dtype = Dtype::F32;
  std::vector<Shape> shapes;
  std::vector<std::string> gradients; // names: one for each shape, or none
  std::string hook;
  std::optional<Dtype> wireDtype;
  std::optional<Encoding> encoding;
  int64_t wireBytes = 0;
  int64_t stateBytes = 0;
};

struct PlanState {
  std::string name;
  StateDtype dtype = StateDtype::F32;
  std::vector<Shape> shapes;
  /// What it is to gradients, by which checkpoints find it. Lists of their
  /// names: one for each shape, or one for all of the state.
  std::string role;
  std::vector<std::vector<std::string>> gradients;
  std::string method; // what else its values depend on
  StatePlacement placement = StatePlacement::PerRank;
  StateInit init = StateInit::Zero;
  uint32_t seed = 0;               // Mt19937
  std::optional<size_t> generator; // Normal: an earlier state
  std::vector<int64_t> draws;      // Normal
  int64_t offset = 0;
  int64_t bytes = 0;

  /// Whether all gradients have one value of it, and each has all of it: a
  /// counter or a random generator.
  bool isShared() const { return !role.empty() && !floatDtype(dtype); }
};

/// Whose run parts of an array belong to, where the members of a bucket are
/// dealt to the ranks of a node (docs/hierarchy.md).
struct PlanDeal {
  size_t bucket = 0;
  /// The first member of each group that is dealt by itself; begins with 0.
  std::vector<size_t> groups;
  /// A part of the array, behind the one before it: which member of the bucket
  /// it belongs to, and its elements.
  struct Part {
    size_t member = 0;
    int64_t count = 0;
  };
  std::vector<Part> parts;

  /// Whether the parts belong to adjacent members of one group, in their order:
  /// then those of a position are adjacent.
  bool isOfOneGroup() const;
};

struct PlanMatrixList {
  Dtype dtype = Dtype::F32;
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<ddphook_matrix_t> matrices;
  std::vector<ddphook_piece_t> pieces;
  /// Of elements begin … end; none: no rank leaves anything to another one.
  std::optional<PlanDeal> deal;

  /// The part of it in elements first … last - 1, which cut no matrix and no
  /// piece.
  PlanMatrixList cut(int64_t first, int64_t last) const;

  /// As backends take it; valid as long as this is.
  ddphook_matrix_list_t view() const {
    return {sizeof(ddphook_matrix_list_t),
            begin,
            end,
            matrices.data(),
            static_cast<int64_t>(matrices.size()),
            pieces.data(),
            static_cast<int64_t>(pieces.size())};
  }
};

struct PlanCollective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  std::string bucket;
  size_t group = 0;
  int64_t count = 0;
  Dtype dtype = Dtype::F32;
  std::optional<Dtype> wireDtype;
  std::optional<Encoding> encoding; // in place of a wireDtype
  bool divide = false;
  int32_t root = 0; // of a broadcast
  /// The state whose error it feeds back: as many elements of its type.
  std::optional<size_t> error;
  /// Random numbers that calls pass with it, or -1: ranks compare plans.
  int64_t stream = -1;
  /// Of the operand of an all_reduce over a hierarchical group: each part is
  /// summed of what the ranks have that it is dealt to. Over the ranks of a
  /// node: each part is wanted by the rank that it is dealt to.
  std::optional<PlanDeal> deal;

  /// Elements that a rank contributes to it, in a group of so many, and their
  /// bytes in memory and on the wire.
  int64_t contributed(int64_t ranks) const {
    return inputElements(kind, count, ranks);
  }
  int64_t memoryBytes(int64_t ranks) const {
    return contributed(ranks) * dtypeSize(dtype);
  }
  int64_t wireBytes(int64_t ranks) const {
    return encoding ? encoding->bytes(contributed(ranks))
                    : contributed(ranks) * dtypeSize(wireDtype.value_or(dtype));
  }
  /// Bytes on the wire of all ranks' parts, the short ones counted whole.
  int64_t wholeWireBytes(int64_t ranks) const;
  /// As backends take it.
  ddphook_collective_t operation() const;
};

struct PlanArena {
  int64_t bytes = 0;
  int64_t alignment = 64;
};

struct PlanValue {
  std::string dtype; // of PlanEntry's larger set of types
  int64_t elementBytes = 0;
  Shape shape;
  bool isScalar = false; // arguments: a value, not an array of one
  bool isInout = false;  // arguments
  int64_t argument = -1; // results: the argument that it is
};

struct PlanEntry {
  std::string name;
  std::vector<PlanValue> arguments;
  std::vector<PlanValue> results;
};

struct Plan {
  /// Whether compiled code reads and writes arrays itself.
  bool needsHostMemory = true;
  std::vector<std::string> kernels;
  std::vector<PlanProcessGroup> processGroups;
  std::vector<PlanBucket> buckets;
  std::vector<PlanState> states;
  std::vector<PlanMatrixList> matrixLists;
  std::vector<PlanCollective> collectives;
  PlanArena arena;
  PlanArena stateArena;
  std::vector<PlanEntry> entries;

  /// For each member of a deal's bucket the position in a node of `ranks` ranks
  /// that it is dealt to.
  std::vector<int64_t> dealMembers(const PlanDeal &deal, int64_t ranks) const;

  /// For each state whether it has the error of this rank's share of a node's
  /// sum: its elements depend on which ranks are on which node.
  std::vector<bool> findShareErrors() const;
};

/// XXH3-64 of the plan's bytes.
uint64_t hashPlan(std::string_view text);

/// Parses a plan. UNSUPPORTED: made for another ABI version. DATA_LOSS:
/// anything else that is wrong with it; the message begins with the path of the
/// place.
Status parsePlan(std::string_view text, Plan *plan);

/// Describes the first difference of two plans in one line: its path and both
/// values. `first` and `second` are the names of the plans there ("rank 0").
std::string describeDifference(std::string_view firstText,
                               const std::string &first,
                               std::string_view secondText,
                               const std::string &second);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_PLAN_PLAN_H
