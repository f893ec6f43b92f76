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
/// Parses an attribute's text from its beginning. Each function consumes what
/// it is named after, including preceding white space, or fails.
class Reader {
public:
  explicit Reader(Attribute attribute)
      : owner(getText(attribute)), text(owner) {}
  Reader(const Reader &) = delete;

  bool take(StringRef token) {
    text = text.ltrim();
    return text.consume_front(token);
  }
  bool takeAll(std::initializer_list<StringRef> tokens) {
    return llvm::all_of(tokens, [&](StringRef token) { return take(token); });
  }
  bool isAtEnd() { return text.ltrim().empty(); }
  std::optional<int64_t> takeInteger();
  std::optional<std::string> takeString();
  std::optional<std::string> takeSymbol();
  StringRef takeWord();
  /// Consumes elements between `open` and `close`, separated by commas.
  bool takeList(StringRef open, StringRef close,
                function_ref<bool()> takeElement);
  /// Appends what `takeElement` returns for each.
  template <typename T, typename TakeT>
  bool takeList(StringRef open, StringRef close, SmallVector<T> &elements,
                TakeT takeElement) {
    return takeList(open, close, [&] {
      std::optional<T> element = takeElement();
      if (element)
        elements.push_back(*element);
      return element.has_value();
    });
  }
  bool takeIntegers(SmallVector<int64_t> &integers) {
    return takeList("[", "]", integers, [&] { return takeInteger(); });
  }
  std::optional<Mesh> takeShardyMesh();
  std::optional<Mesh> takeStableHLOMesh();
  /// Consumes the name of a mesh, or an inlined one after `keyword`.
  std::optional<Mesh> takeMesh(const Meshes &meshes, StringRef keyword,
                               std::optional<Mesh> (Reader::*takeInlined)());
  std::optional<Sharding> takeSharding(const Meshes &meshes);

private:
  bool takeAxes(const Mesh &mesh, SmallVector<int16_t> &axes);
  bool takeDimension(Sharding &sharding);

  std::string owner;
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

StringRef Reader::takeWord() {
  text = text.ltrim();
  StringRef word =
      text.take_while([](char c) { return llvm::isAlnum(c) || c == '_'; });
  text = text.drop_front(word.size());
  return word;
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
  auto takeAxis = [&]() -> std::optional<Mesh::Axis> {
    std::optional<std::string> name;
    std::optional<int64_t> size;
    if (!(name = takeString()) || !take("=") || !(size = takeInteger()))
      return std::nullopt;
    return Mesh::Axis{*name, *size};
  };
  bool ok = take("<") && takeList("[", "]", mesh.axes, takeAxis);
  if (ok && take(","))
    ok = takeAll({"device_ids", "="}) && takeIntegers(mesh.devices);
  return ok && take(">") ? checkMesh(mesh) : std::nullopt;
}

/// Parses `<axes=[<name = "dp", size = 2>], device_ids=dense<…> : …>`. Device
/// ids encoded as a hexadecimal string are not supported.
std::optional<Mesh> Reader::takeStableHLOMesh() {
  Mesh mesh;
  auto takeAxis = [&]() -> std::optional<Mesh::Axis> {
    std::optional<std::string> name;
    std::optional<int64_t> size;
    // The name is spelled out unless the list's type implies it.
    take("#stablehlo.mesh_axis");
    if (!takeAll({"<", "name", "="}) || !(name = takeString()) ||
        !takeAll({",", "size", "="}) || !(size = takeInteger()) || !take(">"))
      return std::nullopt;
    return Mesh::Axis{*name, *size};
  };
  bool ok =
      takeAll({"<", "axes", "="}) && takeList("[", "]", mesh.axes, takeAxis);
  if (ok && take(","))
    ok = takeAll({"device_ids", "=", "dense", "<"}) &&
         takeIntegers(mesh.devices) && takeAll({">", ":", "tensor", "<"}) &&
         takeInteger() && takeAll({"xi64", ">"});
  return ok && take(">") ? checkMesh(mesh) : std::nullopt;
}

std::optional<Mesh>
Reader::takeMesh(const Meshes &meshes, StringRef keyword,
                 std::optional<Mesh> (Reader::*takeInlined)()) {
  if (take(keyword))
    return (this->*takeInlined)();
  std::optional<std::string> name = takeSymbol();
  const Mesh *mesh = name ? meshes.lookup(*name) : nullptr;
  return mesh ? std::optional(*mesh) : std::nullopt;
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
  std::optional<Mesh> mesh;
  if (!take("<") ||
      !(mesh = takeMesh(meshes, "mesh", &Reader::takeShardyMesh)) || !take(","))
    return std::nullopt;
  Sharding sharding;
  sharding.mesh = *mesh;
  if (!takeList("[", "]", [&] { return takeDimension(sharding); }))
    return std::nullopt;
  SmallVector<int16_t> replicated;
  if (take(",") && !(takeAll({"replicated", "="}) && takeList("{", "}", [&] {
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
    Reader reader(op.getAttr("mesh"));
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
  Reader reader(attribute);
  if (!reader.take("#sdy.sharding"))
    return std::nullopt;
  std::optional<Sharding> sharding = reader.takeSharding(meshes);
  return reader.isAtEnd() ? sharding : std::nullopt;
}

std::optional<SmallVector<Sharding>>
mlir::ddp::readShardings(Attribute attribute, const Meshes &meshes) {
  Reader reader(attribute);
  SmallVector<Sharding> shardings;
  bool ok = reader.takeAll({"#sdy.sharding_per_value", "<"}) &&
            reader.takeList("[", "]", shardings,
                            [&] { return reader.takeSharding(meshes); }) &&
            reader.take(">") && reader.isAtEnd();
  return ok ? std::optional(shardings) : std::nullopt;
}

std::optional<SmallVector<std::string>>
mlir::ddp::readManualAxes(Attribute attribute) {
  Reader reader(attribute);
  SmallVector<std::string> axes;
  bool ok =
      reader.take("#sdy<manual_axes") &&
      reader.takeList("{", "}", axes, [&] { return reader.takeString(); }) &&
      reader.take(">") && reader.isAtEnd();
  return ok ? std::optional(axes) : std::nullopt;
}

std::optional<MeshAxes> mlir::ddp::readGroupAxes(Attribute attribute,
                                                 const Meshes &meshes) {
  Reader reader(attribute);
  std::optional<Mesh> mesh;
  if (!reader.takeAll(
          {"#stablehlo.replica_group_mesh_axes", "<", "mesh", "="}) ||
      !(mesh = reader.takeMesh(meshes, "#stablehlo.mesh",
                               &Reader::takeStableHLOMesh)))
    return std::nullopt;
  MeshAxes group{*mesh, {}};
  auto takeAxis = [&]() -> std::optional<int16_t> {
    std::optional<std::string> name;
    if (!reader.takeAll({"#stablehlo.axis_ref", "<", "name", "="}) ||
        !(name = reader.takeString()) || !reader.take(">"))
      return std::nullopt;
    std::optional<int16_t> axis = mesh->find(*name);
    bool isNew = axis && !llvm::is_contained(group.axes, *axis);
    return isNew ? axis : std::nullopt;
  };
  bool ok = reader.takeAll({",", "axes", "="}) &&
            reader.takeList("[", "]", group.axes, takeAxis) &&
            reader.take(">") && reader.isAtEnd();
  return ok ? std::optional(group) : std::nullopt;
}

std::optional<Channel> mlir::ddp::readChannel(Attribute attribute) {
  Reader reader(attribute);
  std::optional<int64_t> handle, type;
  if (!reader.takeAll({"#stablehlo.channel_handle<", "handle", "="}) ||
      !(handle = reader.takeInteger()) || !reader.takeAll({",", "type", "="}) ||
      !(type = reader.takeInteger()) || !reader.take(">") || !reader.isAtEnd())
    return std::nullopt;
  return Channel{*handle, *type};
}

std::optional<llvm::StringMap<SmallVector<int64_t>>>
mlir::ddp::readScatterNumbers(Attribute attribute) {
  Reader reader(attribute);
  llvm::StringMap<SmallVector<int64_t>> fields;
  auto takeField = [&] {
    SmallVector<int64_t> &field = fields[reader.takeWord()];
    if (!reader.take("="))
      return false;
    if (reader.takeIntegers(field))
      return true;
    std::optional<int64_t> number = reader.takeInteger();
    if (number)
      field.push_back(*number);
    return number.has_value();
  };
  bool ok = reader.take("#stablehlo.scatter") &&
            reader.takeList("<", ">", takeField) && reader.isAtEnd();
  return ok ? std::optional(std::move(fields)) : std::nullopt;
}
