// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kinds of collectives with their names in the plan, the parts into which
// some of them split an array, the fields of a collective as C++ types, and the
// checks of arguments that every backend makes. The runtime, too, makes them,
// when it has resolved the plan's groups.

#pragma once

#include "base/dtype.h"
#include "base/encoding.h"
#include "base/status.h"
#include "ddphook/runtime/backend.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace ddphook {

enum class CollectiveKind : int32_t {
#define DDPHOOK_COLLECTIVE(NAME, Name, name, value) Name = value,
#include "ddphook/runtime/plan_fields.inc"
};

constexpr CollectiveKind allCollectiveKinds[] = {
#define DDPHOOK_COLLECTIVE(NAME, Name, name, value) CollectiveKind::Name,
#include "ddphook/runtime/plan_fields.inc"
};

constexpr const char *collectiveName(CollectiveKind kind) {
  switch (kind) {
#define DDPHOOK_COLLECTIVE(NAME, Name, name, value)                            \
  case CollectiveKind::Name:                                                   \
    return #name;
#include "ddphook/runtime/plan_fields.inc"
  }
  return "unknown";
}

/// Returns the name that messages use: "reduce-scatter".
inline std::string describeCollective(CollectiveKind kind) {
  std::string text = collectiveName(kind);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

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

/// The elements of a rank's part of `count`, with the padding of short parts.
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

/// Returns the part that ends before `ends[rank]`, after the previous one.
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

/// A collective as backends take it, which was checked, with its numbers as
/// values of C++ types.
struct CollectiveOperation : ddphook_collective_t {
  CollectiveOperation(const ddphook_collective_t &operation)
      : ddphook_collective_t(operation) {}
  /// An all-reduce.
  CollectiveOperation() : CollectiveOperation(0, Dtype::F32) {}
  CollectiveOperation(int64_t elements, Dtype type,
                      std::optional<Dtype> wire = std::nullopt,
                      bool isMean = false,
                      std::optional<Encoding> codes = std::nullopt)
      : ddphook_collective_t() {
    count = elements;
    dtype = static_cast<int32_t>(type);
    wire_dtype = wire ? static_cast<int32_t>(*wire) : -1;
    divide = isMean;
    encoding = codes ? static_cast<int32_t>(codes->code) : 0;
    block = codes ? codes->block : 0;
  }

  bool is(CollectiveKind other) const {
    return kind == static_cast<int32_t>(other);
  }
  CollectiveKind collectiveKind() const {
    return static_cast<CollectiveKind>(kind);
  }
  /// The type of the elements in memory, before and after.
  Dtype type() const { return static_cast<Dtype>(dtype); }
  /// The type in which elements are sent and added, if it is stated.
  std::optional<Dtype> wire() const { return dtypeFromAbi(wire_dtype); }
  Dtype wireType() const { return wire().value_or(type()); }
  /// The codes as which elements are sent, then added in f32 and divided.
  std::optional<Encoding> codes() const {
    return encodingFromAbi(encoding, block);
  }
  bool isAffine() const { return encoding && codes()->isAffine(); }

  /// Returns the bytes of `elements` elements in memory and on the wire.
  int64_t bytesOf(int64_t elements) const {
    return elements * dtypeSize(type());
  }
  int64_t wireBytesOf(int64_t elements) const {
    return encoding ? codes()->bytes(elements)
                    : elements * dtypeSize(wireType());
  }
};

/// True if all fields of a plan are equal.
inline bool haveSameFields(const ddphook_collective_t &a,
                           const ddphook_collective_t &b) {
  bool areSame = true;
#define DDPHOOK_COLLECTIVE_FIELD(Role, key, Name, type, text)                  \
  areSame &= a.key == b.key;
#include "ddphook/runtime/plan_fields.inc"
  return areSame;
}

/// Checks that `ranks` ranks can run `operation`. INVALID_ARGUMENT for an
/// unknown kind, a negative count, one that is not a multiple of the ranks
/// where it must be, a root outside the group, or parts that do not fit the
/// array.
inline Status checkCollective(const ddphook_collective_t &operation,
                              int64_t ranks) {
  const std::optional<CollectiveKind> kind =
      collectiveKindFromAbi(operation.kind);
  if (!kind)
    return invalid("expected a kind of collective, but got %d", operation.kind);
  if (operation.count < 0)
    return invalid(
        concat("expected a count of at least 0, but got ", operation.count));
  if (*kind == CollectiveKind::AllToAll && operation.count % ranks != 0)
    return invalid(concat(
        "expected the element count of an all-to-all to be a multiple of ",
        ranks, " ranks, but got ", operation.count));
  if (*kind == CollectiveKind::Broadcast &&
      (operation.root < 0 || operation.root >= ranks))
    return invalid(concat("expected the root of a broadcast to be one of ",
                          ranks, " ranks, but got ", operation.root));
  if (!operation.part_ends)
    return Status::ok();
  if (*kind != CollectiveKind::ReduceScatter || operation.encoding)
    return invalid("expected part ends only for a reduce-scatter without an "
                   "encoding, but got kind %d with encoding %d",
                   operation.kind, operation.encoding);
  int64_t end = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const int64_t next = operation.part_ends[rank];
    const bool isLast = rank + 1 == ranks;
    if (next < end || next > operation.count ||
        (isLast && next != operation.count))
      return invalid(
          concat("expected consecutive parts that cover ", operation.count,
                 " elements, but got a part from element ", end, " to ", next));
    end = next;
  }
  return Status::ok();
}

/// Checks the arguments of ddphook_rt_sparsify().
inline Status checkKept(int64_t keep, int64_t count) {
  if (keep <= count && count <= std::numeric_limits<int32_t>::max())
    return Status::ok();
  return invalid(
      concat("expected to keep some of fewer than 2^31 elements, but got ",
             keep, " of ", count));
}

} // namespace ddphook
