// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Shardings.h"
#include "../Utils/RankLists.h"
#include "StableHLO.h"

#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::ddp;

std::optional<int16_t> Mesh::find(StringRef name) const {
  const auto *axis =
      llvm::find_if(axes, [&](const Axis &axis) { return axis.name == name; });
  if (axis == axes.end())
    return std::nullopt;
  return axis - axes.begin();
}

SmallVector<int64_t> Mesh::getShape() const {
  return llvm::map_to_vector(axes, [](const Axis &axis) { return axis.size; });
}

int64_t Sharding::getNumParts(unsigned dimension) const {
  int64_t numParts = 1;
  for (int16_t axis : dimensions[dimension])
    numParts *= mesh.axes[axis].size;
  return numParts;
}

bool Sharding::isReplicated() const {
  return llvm::all_of(llvm::seq<size_t>(dimensions.size()),
                      [&](unsigned i) { return getNumParts(i) == 1; });
}

bool Mesh::operator==(const Mesh &other) const {
  auto isSame = [](const Axis &a, const Axis &b) {
    return a.name == b.name && a.size == b.size;
  };
  return devices == other.devices && llvm::equal(axes, other.axes, isSame);
}

bool Sharding::operator==(const Sharding &other) const {
  return dimensions == other.dimensions && mesh == other.mesh;
}

bool Sharding::allows(const Sharding &other) const {
  auto allowsDimension = [&](unsigned i) {
    ArrayRef<int16_t> axes = other.dimensions[i];
    return axes.take_front(dimensions[i].size()) == ArrayRef(dimensions[i]) &&
           (isOpen[i] || axes.size() == dimensions[i].size());
  };
  return mesh == other.mesh && dimensions.size() == other.dimensions.size() &&
         llvm::all_of(llvm::seq<unsigned>(dimensions.size()), allowsDimension);
}

namespace {
/// Parses a text from its beginning. Each function consumes what it is named
/// after, including preceding white space, or fails.
class Reader {
public:
  explicit Reader(StringRef text) : text(text) {}

  bool take(StringRef token) {
    text = text.ltrim();
    return text.consume_front(token);
  }
  bool isAtEnd() { return text.ltrim().empty(); }
  std::optional<int64_t> takeInteger();
  std::optional<std::string> takeString();
  std::optional<std::string> takeSymbol();
  /// Consumes elements between `open` and `close`, separated by commas.
  bool takeList(StringRef open, StringRef close,
                function_ref<bool()> takeElement);
  std::optional<SmallVector<int64_t>> takeIntegers();
  std::optional<Mesh> takeShardyMesh();
  std::optional<Mesh> takeStableHLOMesh();
  std::optional<Sharding> takeSharding(const Meshes &meshes);

private:
  bool takeAxes(const Mesh &mesh, SmallVector<int16_t> &axes);
  bool takeDimension(Sharding &sharding);

  StringRef text;
};
} // namespace

std::optional<int64_t> Reader::takeInteger() {
  text = text.ltrim();
  int64_t value;
  if (text.consumeInteger(10, value))
    return std::nullopt;
  return value;
}

std::optional<std::string> Reader::takeString() {
  if (!take("\""))
    return std::nullopt;
  std::string value;
  while (!text.empty() && !text.starts_with("\"")) {
    if (!text.consume_front("\\")) {
      value += text.front();
      text = text.drop_front();
      continue;
    }
    // A single escaped character, or two hexadecimal digits.
    constexpr StringLiteral escapes = "\\\"nt", escaped = "\\\"\n\t";
    uint8_t code;
    if (size_t i = text.empty() ? StringRef::npos : escapes.find(text.front());
        i != StringRef::npos) {
      value += escaped[i];
      text = text.drop_front();
    } else if (text.size() >= 2 &&
               llvm::tryGetHexFromNibbles(text[0], text[1], code)) {
      value += char(code);
      text = text.drop_front(2);
    } else {
      return std::nullopt;
    }
  }
  return text.consume_front("\"") ? std::optional(value) : std::nullopt;
}

std::optional<std::string> Reader::takeSymbol() {
  if (!take("@"))
    return std::nullopt;
  if (text.starts_with("\""))
    return takeString();
  StringRef name = text.take_while(
      [](char c) { return llvm::isAlnum(c) || StringRef("_$.-").contains(c); });
  text = text.drop_front(name.size());
  return name.str();
}

bool Reader::takeList(StringRef open, StringRef close,
                      function_ref<bool()> takeElement) {
  if (!take(open))
    return false;
  if (take(close))
    return true;
  do {
    if (!takeElement())
      return false;
  } while (take(","));
  return take(close);
}

std::optional<SmallVector<int64_t>> Reader::takeIntegers() {
  SmallVector<int64_t> integers;
  bool ok = takeList("[", "]", [&] {
    std::optional<int64_t> integer = takeInteger();
    if (integer)
      integers.push_back(*integer);
    return integer.has_value();
  });
  return ok ? std::optional(integers) : std::nullopt;
}

/// Returns the mesh if its axis names and devices are unique, its size is a
/// valid number of ranks, and an axis index fits into its type.
static std::optional<Mesh> checkMesh(Mesh mesh) {
  if (mesh.axes.size() > size_t(std::numeric_limits<int16_t>::max()))
    return std::nullopt;
  llvm::SmallSet<StringRef, 4> names;
  for (const Mesh::Axis &axis : mesh.axes)
    if (axis.size <= 0 || !names.insert(axis.name).second)
      return std::nullopt;
  std::optional<int64_t> numRanks = countRanks(mesh.getShape());
  if (!numRanks)
    return std::nullopt;
  SmallVector<int64_t> sorted = mesh.devices;
  llvm::sort(sorted);
  if (!sorted.empty() && !llvm::equal(sorted, llvm::seq<int64_t>(0, *numRanks)))
    return std::nullopt;
  if (llvm::is_sorted(mesh.devices))
    mesh.devices.clear();
  return mesh;
}

/// Parses `<["dp"=2, "mp"=2], device_ids=[…]>`.
std::optional<Mesh> Reader::takeShardyMesh() {
  Mesh mesh;
  bool ok = take("<") && takeList("[", "]", [&] {
              std::optional<std::string> name = takeString();
              if (!name || !take("="))
                return false;
              std::optional<int64_t> size = takeInteger();
              if (size)
                mesh.axes.push_back({*name, *size});
              return size.has_value();
            });
  if (ok && take(",")) {
    std::optional<SmallVector<int64_t>> devices;
    ok = take("device_ids") && take("=") && (devices = takeIntegers());
    if (ok)
      mesh.devices = *devices;
  }
  return ok && take(">") ? checkMesh(mesh) : std::nullopt;
}

/// Parses `<axes=[<name = "dp", size = 2>], device_ids=dense<…> : …>`. Device
/// ids encoded as a hexadecimal string are not supported.
std::optional<Mesh> Reader::takeStableHLOMesh() {
  Mesh mesh;
  bool ok = take("<") && take("axes") && take("=") && takeList("[", "]", [&] {
              std::optional<std::string> name;
              std::optional<int64_t> size;
              // The name is spelled out unless the list's type implies it.
              take("#stablehlo.mesh_axis");
              if (!take("<") || !take("name") || !take("=") ||
                  !(name = takeString()) || !take(",") || !take("size") ||
                  !take("=") || !(size = takeInteger()) || !take(">"))
                return false;
              mesh.axes.push_back({*name, *size});
              return true;
            });
  if (ok && take(",")) {
    std::optional<SmallVector<int64_t>> devices;
    ok = take("device_ids") && take("=") && take("dense") && take("<") &&
         (devices = takeIntegers()) && take(">") && take(":") &&
         take("tensor") && take("<") && takeInteger() && take("xi64") &&
         take(">");
    if (ok)
      mesh.devices = *devices;
  }
  return ok && take(">") ? checkMesh(mesh) : std::nullopt;
}

/// Consumes an axis. One of a single device splits nothing and is dropped.
bool Reader::takeAxes(const Mesh &mesh, SmallVector<int16_t> &axes) {
  std::optional<std::string> name = takeString();
  std::optional<int16_t> axis = name ? mesh.find(*name) : std::nullopt;
  if (axis && mesh.axes[*axis].size != 1)
    axes.push_back(*axis);
  return axis.has_value();
}

/// Parses `{"dp", ?}p1`. The `?` allows propagation to split the dimension
/// further; `p1` is its priority.
bool Reader::takeDimension(Sharding &sharding) {
  SmallVector<int16_t> &axes = sharding.dimensions.emplace_back();
  bool isOpen = false;
  if (!takeList("{", "}", [&] {
        if (isOpen)
          return false;
        isOpen = take("?");
        return isOpen || takeAxes(sharding.mesh, axes);
      }))
    return false;
  sharding.isOpen.push_back(isOpen);
  return !text.consume_front("p") || takeInteger();
}

/// Parses `<@mesh, [{"dp"}, {}]>`, where the mesh may also be inlined.
std::optional<Sharding> Reader::takeSharding(const Meshes &meshes) {
  if (!take("<"))
    return std::nullopt;
  Sharding sharding;
  if (take("mesh")) {
    std::optional<Mesh> mesh = takeShardyMesh();
    if (!mesh)
      return std::nullopt;
    sharding.mesh = *mesh;
  } else {
    std::optional<std::string> name = takeSymbol();
    const Mesh *mesh = name ? meshes.lookup(*name) : nullptr;
    if (!mesh)
      return std::nullopt;
    sharding.mesh = *mesh;
  }
  if (!take(",") ||
      !takeList("[", "]", [&] { return takeDimension(sharding); }))
    return std::nullopt;
  SmallVector<int16_t> replicated;
  if (take(",") && !(take("replicated") && take("=") && takeList("{", "}", [&] {
                       return takeAxes(sharding.mesh, replicated);
                     })))
    return std::nullopt;
  llvm::SmallSet<int16_t, 4> used;
  for (ArrayRef<int16_t> axes : sharding.dimensions)
    for (int16_t axis : axes)
      if (!used.insert(axis).second)
        return std::nullopt;
  return take(">") ? std::optional(sharding) : std::nullopt;
}

Meshes::Meshes(ModuleOp module) {
  for (Operation &op : *module.getBody()) {
    if (!isNamed(&op, "sdy.mesh"))
      continue;
    auto name = dyn_cast_or_null<StringAttr>(op.getAttr("sym_name"));
    std::string text = getText(op.getAttr("mesh"));
    Reader reader(text);
    if (!name || !reader.take("#sdy.mesh"))
      continue;
    std::optional<Mesh> mesh = reader.takeShardyMesh();
    if (!mesh || !reader.isAtEnd())
      continue;
    numbers[name.getValue()] = meshes.size();
    meshes.push_back(*mesh);
  }
}

const Mesh *Meshes::lookup(StringRef name) const {
  auto it = numbers.find(name);
  return it == numbers.end() ? nullptr : &meshes[it->second];
}

std::optional<Sharding> mlir::ddp::readSharding(Attribute attribute,
                                                const Meshes &meshes) {
  std::string text = getText(attribute);
  Reader reader(text);
  if (!reader.take("#sdy.sharding"))
    return std::nullopt;
  std::optional<Sharding> sharding = reader.takeSharding(meshes);
  return reader.isAtEnd() ? sharding : std::nullopt;
}

std::optional<SmallVector<Sharding>>
mlir::ddp::readShardings(Attribute attribute, const Meshes &meshes) {
  std::string text = getText(attribute);
  Reader reader(text);
  SmallVector<Sharding> shardings;
  bool ok = reader.take("#sdy.sharding_per_value") && reader.take("<") &&
            reader.takeList("[", "]",
                            [&] {
                              auto sharding = reader.takeSharding(meshes);
                              if (sharding)
                                shardings.push_back(*sharding);
                              return sharding.has_value();
                            }) &&
            reader.take(">") && reader.isAtEnd();
  return ok ? std::optional(shardings) : std::nullopt;
}

std::optional<SmallVector<std::string>>
mlir::ddp::readManualAxes(Attribute attribute) {
  std::string text = getText(attribute);
  Reader reader(text);
  SmallVector<std::string> axes;
  bool ok = reader.take("#sdy<manual_axes") &&
            reader.takeList("{", "}",
                            [&] {
                              std::optional<std::string> axis =
                                  reader.takeString();
                              if (axis)
                                axes.push_back(*axis);
                              return axis.has_value();
                            }) &&
            reader.take(">") && reader.isAtEnd();
  return ok ? std::optional(axes) : std::nullopt;
}

std::optional<MeshAxes> mlir::ddp::readGroupAxes(Attribute attribute,
                                                 const Meshes &meshes) {
  std::string text = getText(attribute);
  Reader reader(text);
  if (!reader.take("#stablehlo.replica_group_mesh_axes") || !reader.take("<") ||
      !reader.take("mesh") || !reader.take("="))
    return std::nullopt;
  MeshAxes group;
  if (reader.take("#stablehlo.mesh")) {
    std::optional<Mesh> mesh = reader.takeStableHLOMesh();
    if (!mesh)
      return std::nullopt;
    group.mesh = *mesh;
  } else {
    std::optional<std::string> name = reader.takeSymbol();
    const Mesh *mesh = name ? meshes.lookup(*name) : nullptr;
    if (!mesh)
      return std::nullopt;
    group.mesh = *mesh;
  }
  bool ok = reader.take(",") && reader.take("axes") && reader.take("=") &&
            reader.takeList("[", "]", [&] {
              std::optional<std::string> name;
              if (!reader.take("#stablehlo.axis_ref") || !reader.take("<") ||
                  !reader.take("name") || !reader.take("=") ||
                  !(name = reader.takeString()) || !reader.take(">"))
                return false;
              std::optional<int16_t> axis = group.mesh.find(*name);
              if (!axis || llvm::is_contained(group.axes, *axis))
                return false;
              group.axes.push_back(*axis);
              return true;
            });
  return ok && reader.take(">") && reader.isAtEnd() ? std::optional(group)
                                                    : std::nullopt;
}
