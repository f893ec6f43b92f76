//===- collective.h - kinds of collectives ----------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kinds of collectives of compiled.h with their names in the plan, and the
// parts into which some of them split an array.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_BASE_COLLECTIVE_H
#define DDPHOOK_RUNTIME_SRC_BASE_COLLECTIVE_H

#include "ddphook/runtime/compiled.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddphook {

enum class CollectiveKind : int32_t {
  AllReduce = DDPHOOK_ALL_REDUCE,
  ReduceScatter = DDPHOOK_REDUCE_SCATTER,
  AllGather = DDPHOOK_ALL_GATHER,
  AllToAll = DDPHOOK_ALL_TO_ALL,
  Broadcast = DDPHOOK_BROADCAST
};

constexpr CollectiveKind allCollectiveKinds[] = {
    CollectiveKind::AllReduce, CollectiveKind::ReduceScatter,
    CollectiveKind::AllGather, CollectiveKind::AllToAll,
    CollectiveKind::Broadcast};

constexpr const char *collectiveName(CollectiveKind kind) {
  switch (kind) {
  case CollectiveKind::AllReduce:
    return "all_reduce";
  case CollectiveKind::ReduceScatter:
    return "reduce_scatter";
  case CollectiveKind::AllGather:
    return "all_gather";
  case CollectiveKind::AllToAll:
    return "all_to_all";
  case CollectiveKind::Broadcast:
    return "broadcast";
  }
  return "unknown";
}

/// Returns the name that messages use: "reduce-scatter".
inline std::string describeCollective(CollectiveKind kind) {
  std::string text = collectiveName(kind);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

inline std::optional<CollectiveKind>
parseCollectiveKind(std::string_view name) {
  for (CollectiveKind kind : allCollectiveKinds)
    if (name == collectiveName(kind))
      return kind;
  return std::nullopt;
}

/// Returns the kind with the number `value`, or nullopt.
inline std::optional<CollectiveKind> collectiveKindFromAbi(int32_t value) {
  for (CollectiveKind kind : allCollectiveKinds)
    if (value == static_cast<int32_t>(kind))
      return kind;
  return std::nullopt;
}

/// True if it adds: then it may divide, and bits depend on its order.
constexpr bool isReduction(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce ||
         kind == CollectiveKind::ReduceScatter;
}

/// True if its elements may travel in another type than they have in memory.
constexpr bool mayHaveWireType(CollectiveKind kind) {
  return isReduction(kind) || kind == CollectiveKind::AllGather;
}

/// True if its result may overwrite its operand.
constexpr bool mayBeInPlace(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::Broadcast;
}

/// Returns the elements of a rank's part of an array of `count`, including the
/// padding of short parts.
constexpr int64_t partElements(int64_t count, int64_t ranks) {
  return count / ranks + (count % ranks != 0);
}

/// The elements begin … end - 1 of an array.
struct ElementRange {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

/// Returns a rank's part of such an array, without padding.
inline ElementRange partOf(int64_t count, int64_t ranks, int64_t rank) {
  const int64_t part = partElements(count, ranks);
  return {std::min(count, rank * part), std::min(count, (rank + 1) * part)};
}

/// Returns the part of an array that ends before element `ends[rank]` and
/// begins where the previous part ends.
inline ElementRange partOf(const int64_t *ends, int64_t rank) {
  return {rank == 0 ? 0 : ends[rank - 1], ends[rank]};
}

/// Returns the elements of the longest of these parts.
inline int64_t longestPart(const int64_t *ends, int64_t ranks) {
  int64_t most = 0;
  for (int64_t rank = 0; rank < ranks; ++rank)
    most = std::max(most, partOf(ends, rank).size());
  return most;
}

/// Returns the elements of the operand and of the result on each rank.
inline int64_t inputElements(CollectiveKind kind, int64_t count,
                             int64_t ranks) {
  return kind == CollectiveKind::AllGather ? partElements(count, ranks) : count;
}
inline int64_t outputElements(CollectiveKind kind, int64_t count,
                              int64_t ranks) {
  return kind == CollectiveKind::ReduceScatter ? partElements(count, ranks)
                                               : count;
}

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_BASE_COLLECTIVE_H
