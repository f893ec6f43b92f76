// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses the text of attributes of Shardy and StableHLO: meshes, shardings,
// channels, scatters. The functions return nothing for unsupported text; the
// callers report it.

#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SmallBitVector.h"
#include "llvm/ADT/StringMap.h"

#include <optional>

namespace mlir::ddp {

struct Mesh {
  struct Axis {
    std::string name;
    int64_t size;
  };
  SmallVector<Axis> axes;
  /// The devices of the mesh in row-major order; empty for 0, 1, 2, ….
  SmallVector<int64_t> devices;

  /// Returns the index of an axis.
  std::optional<int16_t> find(StringRef name) const;
  SmallVector<int64_t> getShape() const;
  bool operator==(const Mesh &other) const;
};

class Meshes {
public:
  explicit Meshes(ModuleOp module);
  /// Returns null if there is no such mesh or its text is not supported.
  const Mesh *lookup(StringRef name) const;
  /// Returns the meshes in the module's order.
  ArrayRef<Mesh> getAll() const { return meshes; }

private:
  SmallVector<Mesh> meshes;
  /// Indices in `meshes`.
  llvm::StringMap<size_t> numbers;
};

struct Sharding {
  Mesh mesh;
  /// The axes along which each dimension is split.
  SmallVector<SmallVector<int16_t>> dimensions;
  /// Marks the dimensions that may be split further.
  llvm::SmallBitVector isOpen;

  /// Returns the number of parts that a dimension is split into.
  int64_t getNumParts(unsigned dimension) const;
  bool isReplicated() const;
  bool operator==(const Sharding &other) const;
  /// Returns true if `other` equals this, or splits open dimensions further.
  bool allows(const Sharding &other) const;
};

/// Reads one value's, such as `#sdy.sharding<@mesh, [{"dp"}, {}]>`.
std::optional<Sharding> readSharding(Attribute attribute, const Meshes &meshes);

/// Reads several, such as `#sdy.sharding_per_value<[<@mesh, [{}]>]>`.
std::optional<SmallVector<Sharding>> readShardings(Attribute attribute,
                                                   const Meshes &meshes);

/// Reads the axes of `#sdy<manual_axes{"dp", "mp"}>`.
std::optional<SmallVector<std::string>> readManualAxes(Attribute attribute);

/// Mesh axes to reduce over.
struct MeshAxes {
  Mesh mesh;
  SmallVector<int16_t> axes;
};

/// Reads the axes of `#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes =
/// [#stablehlo.axis_ref<name = "dp">]>`.
std::optional<MeshAxes> readGroupAxes(Attribute attribute,
                                      const Meshes &meshes);

/// StableHLO's attribute `channel_handle`.
struct Channel {
  /// Not positive if there is no channel.
  int64_t handle;
  /// 1 for a channel between devices, 2 and 3 for one to and from the host, 0
  /// if unspecified.
  int64_t type;
};

/// Reads `#stablehlo.channel_handle<handle = 1, type = 1>`.
std::optional<Channel> readChannel(Attribute attribute);

/// Reads `#stablehlo.scatter<name = [1, 2], name = 3>`. Fields that the text
/// omits are empty or 0.
std::optional<llvm::StringMap<SmallVector<int64_t>>>
readScatterNumbers(Attribute attribute);

} // namespace mlir::ddp
