// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ReplicaGroups.h"
#include "StableHLO.h"

#include "llvm/ADT/bit.h"

using namespace mlir;
using namespace mlir::ddp;

static std::optional<int64_t> getCount(ModuleOp module, StringRef name) {
  auto attribute = module->getAttrOfType<IntegerAttr>(name);
  if (!attribute || attribute.getValue().getSignificantBits() > 64)
    return std::nullopt;
  return attribute.getValue().getSExtValue();
}

ReplicaGroups::ReplicaGroups(ModuleOp module, const Meshes &meshes)
    : module(module), meshes(meshes), symbols(module),
      numPartitions(getCount(module, "mhlo.num_partitions")),
      numReplicas(getCount(module, "mhlo.num_replicas")) {}

/// Formats an attribute, truncated because its length grows with the job.
static std::string describe(Attribute attribute) {
  constexpr size_t maxLength = 120;
  if (!attribute)
    return ", but got none";
  std::string text = getText(attribute);
  if (text.size() > maxLength)
    text = text.substr(0, maxLength) + "...";
  return ", but got " + text;
}

/// Reads a table with one group per row.
std::string ReplicaGroups::readDense(DenseIntElementsAttr elements,
                                     RankLists &lists) const {
  ShapedType type = elements.getType();
  if (type.getRank() != 2 || !type.getElementType().isInteger(64) ||
      type.getDimSize(0) > kMaxRanks || type.getNumElements() > kMaxRanks)
    return "expected replica_groups to be a table of at most " +
           std::to_string(kMaxRanks) + " ranks" + describe(elements);
  for (int64_t group = 0; group < type.getDimSize(0); ++group)
    lists.emplace_back(type.getDimSize(1));
  for (auto [i, rank] : llvm::enumerate(elements.getValues<int64_t>())) {
    if (rank == -1)
      return "expected groups of equal size" + describe(elements);
    lists[i / type.getDimSize(1)][i % type.getDimSize(1)] = rank;
  }
  return "";
}

std::string ReplicaGroups::read(Operation *collective, ArrayAttr &attribute,
                                RankLists *asListed) const {
  Attribute given = collective->getAttr("replica_groups");
  Attribute global = collective->getAttr("use_global_device_ids");
  if (global && !isa<UnitAttr>(global))
    return "expected use_global_device_ids without a value" + describe(global);
  // These have no use_global_device_ids: with a channel they number partitions.
  bool isOfPartitions = false;
  if (isNamed(collective, "stablehlo.all_to_all") ||
      isNamed(collective, "stablehlo.collective_broadcast"))
    if (Attribute handle = collective->getAttr("channel_handle")) {
      std::optional<Channel> channel = readChannel(handle);
      isOfPartitions =
          channel && channel->handle > 0 && numReplicas.value_or(1) == 1;
    }
  if (!global && !isOfPartitions && numPartitions.value_or(1) != 1)
    return "expected use_global_device_ids in a program of " +
           std::to_string(*numPartitions) + " partitions";

  RankLists lists;
  if (auto elements = dyn_cast_or_null<DenseIntElementsAttr>(given)) {
    if (std::string why = readDense(elements, lists); !why.empty())
      return why;
  } else if (std::optional<MeshAxes> group = readGroupAxes(given, meshes)) {
    lists = listRanks(group->mesh.getShape(), group->axes);
    if (!group->mesh.devices.empty())
      for (SmallVector<int64_t> &list : lists)
        for (int64_t &rank : list)
          rank = group->mesh.devices[rank];
  } else {
    return "expected replica_groups to be lists of ranks or axes of a mesh" +
           describe(given);
  }

  std::optional<int64_t> numRanks;
  if (numPartitions || numReplicas) {
    // A hand-written module may contain counts of any size.
    numRanks = countRanks({numPartitions.value_or(1), numReplicas.value_or(1)});
    if (!numRanks || *numRanks <= 0)
      return "expected the module to have from 1 to " +
             std::to_string(kMaxRanks) + " ranks";
  }
  // An empty list means one group of all replicas.
  if (lists.empty() && !global && numRanks)
    lists.emplace_back(llvm::to_vector(llvm::seq<int64_t>(0, *numRanks)));
  if (asListed)
    *asListed = lists;
  SmallVector<int64_t> all;
  for (SmallVector<int64_t> &list : lists) {
    llvm::sort(list);
    llvm::append_range(all, list);
  }
  llvm::sort(all);
  if (all.empty() || !llvm::equal(all, llvm::seq<int64_t>(0, all.size())) ||
      (numRanks && *numRanks != int64_t(all.size())))
    return "expected replica_groups to have each of the program's " +
           (numRanks ? std::to_string(*numRanks) + " ranks" : "ranks") +
           " once" + describe(given);
  llvm::sort(lists);
  Builder builder(ModuleOp(module).getContext());
  attribute = builder.getArrayAttr(
      llvm::map_to_vector(lists, [&](ArrayRef<int64_t> list) -> Attribute {
        return builder.getDenseI64ArrayAttr(list);
      }));
  return "";
}

SmallVector<StringRef> ReplicaGroups::getAxes(ArrayAttr attribute) const {
  RankLists wanted;
  for (Attribute list : attribute)
    wanted.emplace_back(cast<DenseI64ArrayAttr>(list).asArrayRef());
  int64_t numRanks = wanted.size() * wanted[0].size();
  for (const Mesh &mesh : meshes.getAll()) {
    // Nobody trains on a mesh of more axes.
    constexpr unsigned maxAxes = 6;
    SmallVector<int64_t> shape = mesh.getShape();
    if (shape.empty() || shape.size() > maxAxes || !mesh.devices.empty() ||
        countRanks(shape) != numRanks)
      continue;
    auto sets = llvm::to_vector(llvm::seq<unsigned>(1, 1u << shape.size()));
    llvm::stable_sort(sets, [](unsigned a, unsigned b) {
      return llvm::popcount(a) < llvm::popcount(b);
    });
    for (unsigned set : sets) {
      SmallVector<int16_t> axes;
      SmallVector<StringRef> names;
      for (auto [i, axis] : llvm::enumerate(mesh.axes))
        if (set >> i & 1) {
          axes.push_back(i);
          names.push_back(axis.name);
        }
      if (listRanks(shape, axes) == wanted)
        return names;
    }
  }
  return {};
}

ProcessGroupOp ReplicaGroups::get(ArrayAttr lists, Location loc) {
  ProcessGroupOp &group = groups[lists];
  if (group)
    return group;
  SmallVector<StringRef> axes = getAxes(lists);
  std::string name = llvm::join(axes, "_");
  for (char &c : name)
    c = llvm::isAlnum(c) ? c : '_';
  // An axis may have no name.
  if (name.empty())
    name = "replicas";
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  if (lastGroup)
    builder.setInsertionPointAfter(lastGroup);
  // A single list is the whole job.
  group = ProcessGroupOp::create(
      builder, loc, name, builder.getI64IntegerAttr(getSize(lists)),
      lists.size() > 1 ? lists : ArrayAttr(), /*placement=*/{}, /*parent=*/{},
      /*topology=*/{});
  // Renames the group if the program has the symbol already.
  symbols.insert(group);
  lastGroup = group;
  return group;
}

bool ReplicaGroups::overlap(ArrayAttr first, ArrayAttr second) {
  llvm::DenseMap<int64_t, size_t> numbers;
  for (auto [number, list] : llvm::enumerate(first))
    for (int64_t rank : cast<DenseI64ArrayAttr>(list).asArrayRef())
      numbers[rank] = number;
  for (Attribute list : second) {
    llvm::DenseSet<size_t> seen;
    for (int64_t rank : cast<DenseI64ArrayAttr>(list).asArrayRef())
      if (auto it = numbers.find(rank);
          it != numbers.end() && !seen.insert(it->second).second)
        return true;
  }
  return false;
}
