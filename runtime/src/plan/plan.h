// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The plan of docs/plan.md as C++ structs. The parser checks everything that
// one rank can check alone; loading the module checks what depends on the job.

#pragma once

#include "base/collective.h"
#include "base/dtype.h"
#include "base/encoding.h"
#include "base/status.h"
#include "ddphook/runtime/backend.h"

#include <algorithm>
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
  /// Reduces first within nodes, then between them.
  bool isHierarchical = false;
};

/// A bucket, without what only reports and comparisons use.
struct PlanBucket {
  std::string name;
  size_t group = 0;
  Dtype dtype = Dtype::F32;
  std::vector<Shape> shapes;
  std::vector<std::string> gradients; // names: one for each shape, or none
};

struct PlanState {
  std::string name;
  StateDtype dtype = StateDtype::F32;
  std::vector<Shape> shapes;
  std::string kind; // what a hook keeps in it, in the words of `ddp.state`
  /// Its relation to gradients, by which checkpoints find it. Lists of gradient
  /// names: one per shape, or one for the whole state.
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

  /// True if all gradients share one value, as of a counter or a generator.
  bool isShared() const { return !role.empty() && !floatDtype(dtype); }
  /// True if it has the error of this rank's part of a node's sum, so that its
  /// elements depend on which ranks are on which node.
  bool isShareError() const { return kind == "share_error"; }
  /// True if a hook keeps its compression loss in the state.
  bool isError() const { return kind == "error" || isShareError(); }
};

/// The assignment of an array's parts to the ranks of a node, through the
/// members of a bucket that the parts belong to (docs/hierarchy.md).
struct PlanAssignment {
  size_t bucket = 0;
  /// The first member of each group that is assigned separately; starts with 0.
  std::vector<size_t> groups;
  /// A part of the array after the previous one: a bucket member's elements.
  struct Part {
    size_t member = 0;
    int64_t count = 0;
  };
  std::vector<Part> parts;

  /// True if the parts belong to adjacent members of one group, in order: then
  /// those of a position are adjacent.
  bool isOfOneGroup() const;
};

struct PlanMatrixList {
  Dtype dtype = Dtype::F32;
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<ddphook_matrix_t> matrices;
  std::vector<ddphook_piece_t> pieces;
  /// The assignment of elements begin … end; nullopt: all to every rank.
  std::optional<PlanAssignment> assignment;

  /// Returns elements first … last - 1, which must cut no matrix or piece.
  PlanMatrixList cut(int64_t first, int64_t last) const;

  /// Returns the list as backends take it; valid as long as this object is.
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

/// A collective as backends take it, without what only a step knows, and what
/// else the plan says about it.
struct PlanCollective : CollectiveOperation {
  std::string bucket;
  size_t group = 0;
  /// The state for its error feedback: as many elements of the same type.
  std::optional<size_t> errorState;
  /// The random stream of stochastic rounding, or -1.
  int64_t stream = -1;
  /// The assignment of an all_reduce's operand. Over a hierarchical group, each
  /// part is summed over the ranks to which it is assigned. Over the ranks of a
  /// node, only the rank to which a part is assigned needs it.
  std::optional<PlanAssignment> assignment;

  /// The elements that a rank contributes, and their bytes in both types.
  int64_t contributed(int64_t ranks) const {
    return inputElements(collectiveKind(), count, ranks);
  }
  int64_t memoryBytes(int64_t ranks) const {
    return bytesOf(contributed(ranks));
  }
  int64_t wireBytes(int64_t ranks) const {
    return wireBytesOf(contributed(ranks));
  }
  /// Bytes on the wire of all ranks' parts; short ones count as full.
  int64_t wholeWireBytes(int64_t ranks) const {
    return wireBytesOf(encoding || mayBeInPlace(collectiveKind())
                           ? count
                           : partElements(count, ranks) * ranks);
  }
};

struct PlanArena {
  int64_t bytes = 0;
  int64_t alignment = 64;
};

struct PlanValue {
  std::string dtype; // from PlanEntry's larger set of types
  Shape shape;
  bool isScalar = false; // arguments: a value, not an array of one
  bool isInout = false;  // arguments
  int64_t argument = -1; // results: the argument with the same array
};

struct PlanEntry {
  std::string name;
  std::vector<PlanValue> arguments;
  std::vector<PlanValue> results;
};

struct Plan {
  /// True if compiled code reads and writes arrays itself.
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

  /// Returns, for each member of an assignment's bucket, the position in a node
  /// of `ranks` ranks to which it is assigned.
  std::vector<int64_t> assignMembers(const PlanAssignment &assignment,
                                     int64_t ranks) const;

  bool hasShareErrors() const {
    return std::any_of(states.begin(), states.end(),
                       [](const PlanState &one) { return one.isShareError(); });
  }
};

/// Returns the XXH3-64 of the plan's bytes.
uint64_t hashPlan(std::string_view text);

/// Parses a plan. UNSUPPORTED: made for another ABI version. DATA_LOSS:
/// anything else is wrong; the message starts with the path.
Status parsePlan(std::string_view text, Plan *plan);

/// Describes the first difference of two plans in one line: its path and both
/// values. `first` and `second` name the plans ("rank 0").
std::string describeDifference(std::string_view firstText,
                               const std::string &first,
                               std::string_view secondText,
                               const std::string &second);

} // namespace ddphook
