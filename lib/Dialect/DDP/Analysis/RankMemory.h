// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// On memrefs the contents of a stretch of a buffer at a point of the program
// take the role of a value. RankMemory records, for every stretch that was
// written, within which process groups it is the same, and which memory the
// collectives in flight use.

#pragma once

#include "RankGroups.h"

#include <map>
#include <tuple>
#include <vector>

namespace mlir::ddp {

/// A stretch of a buffer, in bytes. The root is an allocation, an argument, a
/// state or the arena; null means unknown memory.
struct MemoryRegion {
  const void *root = nullptr;
  int64_t begin = 0, end = 0;
  /// True if these bytes are exactly the whole memref.
  bool isExact = false;
  /// For a memref that may be in one of several regions: these regions, none of
  /// which has such a list itself. The root is then this list.
  const std::vector<MemoryRegion> *places = nullptr;

  bool overlaps(const MemoryRegion &other) const {
    auto isOverOther = [&](const MemoryRegion &place) {
      return other.overlaps(place);
    };
    if (places)
      return llvm::any_of(*places, isOverOther);
    if (other.places)
      return isOverOther(*this);
    // An empty region overlaps nothing, even inside another one.
    return root && root == other.root &&
           std::max(begin, other.begin) < std::min(end, other.end);
  }
  bool operator==(const MemoryRegion &other) const {
    return root == other.root && begin == other.begin && end == other.end;
  }
  bool operator<(const MemoryRegion &other) const {
    return std::tie(root, begin, end) <
           std::tie(other.root, other.begin, other.end);
  }
};

struct MemoryContents {
  RankMask uniform = kAllRanks;
  /// The bucket whose collective wrote it, if nothing has changed it since.
  StringAttr reducedAs;

  bool operator==(const MemoryContents &other) const {
    return uniform == other.uniform && reducedAs == other.reducedAs;
  }
};

class RankMemory {
public:
  /// Sets the contents of a root before anything is written.
  void setInitial(const void *root, RankMask uniform) {
    initial[root] = uniform;
  }

  MemoryContents read(const MemoryRegion &region) const;

  /// Overwrites all of the region, or some of it.
  void write(const MemoryRegion &region, const MemoryContents &contents,
             bool isWhole);

  /// Joins the contents of two paths that meet. `choice` is the set of groups
  /// within which all ranks take the same path.
  void join(const RankMemory &other, RankMask choice);

  /// Returns the groups within which all contents of a root are the same.
  RankMask getUniform(const void *root) const;

  bool operator==(const RankMemory &other) const {
    return stretches == other.stretches && inFlight == other.inFlight;
  }

  /// A collective between its start and its wait.
  struct InFlight {
    Operation *start;
    MemoryRegion input, destination;
    /// The contents of the destination if nothing is started.
    MemoryContents before;
    bool operator==(const InFlight &other) const {
      return start == other.start;
    }
  };
  SmallVector<InFlight, 2> inFlight;

private:
  struct Stretch {
    int64_t end;
    MemoryContents contents;
    bool operator==(const Stretch &other) const {
      return end == other.end && contents == other.contents;
    }
  };
  /// Disjoint, by root and first byte.
  using Stretches = std::map<std::pair<const void *, int64_t>, Stretch>;

  RankMask getInitial(const void *root) const;
  /// Splits the stretch that contains byte `at`, so that one starts there.
  void split(const void *root, int64_t at);

  Stretches stretches;
  llvm::DenseMap<const void *, RankMask> initial;
};

} // namespace mlir::ddp
