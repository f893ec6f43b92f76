//===- Shardings.h - meshes and shardings from their text -------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads what Shardy and StableHLO say of meshes of devices. Nothing is returned
// for a text of another form: whoever asks refuses it then.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_SHARDINGS_H
#define DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_SHARDINGS_H

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
  /// The device at each place of the mesh, row by row; empty for 0, 1, 2, ….
  SmallVector<int64_t> devices;

  /// The place of an axis among the axes.
  std::optional<int16_t> find(StringRef name) const;
  SmallVector<int64_t> getShape() const;
  bool operator==(const Mesh &other) const;
};

/// The meshes that a module declares.
class Meshes {
public:
  explicit Meshes(ModuleOp module);
  /// Null if there is none of that name, or one of another form.
  const Mesh *lookup(StringRef name) const;
  /// In the module's order.
  ArrayRef<Mesh> getAll() const { return meshes; }

private:
  SmallVector<Mesh> meshes;
  /// Places in `meshes`.
  llvm::StringMap<size_t> numbers;
};

/// How a tensor is split.
struct Sharding {
  Mesh mesh;
  /// The axes along which each dimension is split.
  SmallVector<SmallVector<int16_t>> dimensions;
  /// Whether a dimension may be split further.
  llvm::SmallBitVector isOpen;

  /// Into how many parts a dimension is split.
  int64_t getNumParts(unsigned dimension) const;
  bool isReplicated() const;
  bool operator==(const Sharding &other) const;
  /// Whether `other` splits like this, or further where that may be.
  bool allows(const Sharding &other) const;
};

/// One value's, such as `#sdy.sharding<@mesh, [{"dp"}, {}]>`.
std::optional<Sharding> readSharding(Attribute attribute, const Meshes &meshes);

/// Several values', such as `#sdy.sharding_per_value<[<@mesh, [{}]>]>`.
std::optional<SmallVector<Sharding>> readShardings(Attribute attribute,
                                                   const Meshes &meshes);

/// The axes of `#sdy<manual_axes{"dp", "mp"}>`.
std::optional<SmallVector<std::string>> readManualAxes(Attribute attribute);

/// Axes of a mesh over which something is reduced.
struct MeshAxes {
  Mesh mesh;
  SmallVector<int16_t> axes;
};

/// Those of `#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes =
/// [#stablehlo.axis_ref<name = "dp">]>`.
std::optional<MeshAxes> readGroupAxes(Attribute attribute,
                                      const Meshes &meshes);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_SHARDINGS_H
