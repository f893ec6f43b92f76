// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the plan's attributes as JSON. The only file of the compiler that
// knows this format.

#include "ddphook/Target/PlanText.h"

#include "ddphook/Dialect/DDP/IR/ElementTypes.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::ddp;

#define DDPHOOK_COLLECTIVE(NAME, Name, name, value)                            \
  static_assert(                                                               \
      static_cast<int>(CollectiveKind::Name) == value,                         \
      "the dialect's kinds of collectives are those of the runtime");
#include "ddphook/runtime/plan_fields.inc"

namespace {

using PlanAssignmentAttr = AssignmentAttr;

class PlanTextWriter {
public:
  explicit PlanTextWriter(llvm::raw_ostream &os) : json(os) {}

  void write(PlanAttr plan);

private:
  void write(StringRef text) { json.value(text); }
  void write(int64_t number) { json.value(number); }
  void write(bool flag) { json.value(flag); }
  void write(Type type) {
    json.value(type ? lookupElementType(type)->name : "");
  }
  void write(CollectiveKind kind) { write(stringifyEnum(kind)); }
  void write(TopologyAttr topology) {
    write(stringifyEnum(topology ? topology.getValue() : Topology::Flat));
  }
  template <typename PlaceT>
  auto write(const PlaceT &place) -> decltype(void(place.getNumbers())) {
    write(ArrayRef<int64_t>(place.getNumbers()));
  }
  /// Missing names and lists are written as empty ones.
  void write(StringAttr name) { write(name ? name.getValue() : ""); }
  void write(DenseI64ArrayAttr numbers) {
    write(numbers ? numbers.asArrayRef() : ArrayRef<int64_t>());
  }
  void write(ArrayAttr list) {
    write(list ? list.getValue() : ArrayRef<Attribute>());
  }
  void write(Attribute element) {
    llvm::TypeSwitch<Attribute>(element)
        .Case<StringAttr, DenseI64ArrayAttr, ArrayAttr>(
            [&](auto known) { write(known); });
  }
  template <typename T>
  void write(ArrayRef<T> elements) {
    json.array([&] {
      for (const T &element : elements)
        write(element);
    });
  }
  template <typename T>
  void write(const SmallVector<T> &elements) {
    write(ArrayRef<T>(elements));
  }
  template <typename EnumAttrT>
  auto write(EnumAttrT attr) -> decltype(void(stringifyEnum(attr.getValue()))) {
    write(attr ? stringifyEnum(attr.getValue()) : StringRef());
  }
  void write(PlanGroupAttr group) { writeFields(group); }
  void write(PlanBucketAttr bucket) { writeFields(bucket); }
  void write(PlanStateAttr state) { writeFields(state); }
  void write(PlanMatrixListAttr list) { writeFields(list); }
  void write(PlanCollectiveAttr collective) { writeFields(collective); }
  void write(PlanArgumentAttr argument) { writeFields(argument); }
  void write(PlanResultAttr result) { writeFields(result); }
  void write(PlanAssignmentAttr assignment) { writeFields(assignment); }
  void write(PlanEntryAttr entry);

  /// Writes an object with the fields of plan_fields.inc. An optional one is
  /// written only if it is set.
  template <typename AttrT>
  void writeFields(AttrT attr) {
    json.object([&] {
#define DDPHOOK_PLAN_FIELD(Object, Role, key, Name, text)                      \
  if constexpr (std::is_same_v<AttrT, Plan##Object##Attr>)                     \
    writeField(#Role, #key, attr.get##Name());
#include "ddphook/runtime/plan_fields.inc"
    });
  }
  template <typename T>
  void writeField(StringRef role, StringRef key, const T &value) {
    if (!role.starts_with("Optional") || value != T())
      writeField(key, value);
  }
  template <typename T>
  void writeField(StringRef key, const T &value) {
    json.attributeBegin(key);
    write(value);
    json.attributeEnd();
  }
  void writeArena(StringRef key, int64_t bytes);

  llvm::json::OStream json;
};
} // namespace

void PlanTextWriter::write(PlanEntryAttr entry) {
  json.object([&] {
    writeField("name", entry.getName());
    writeField("arguments", entry.getArguments());
    writeField("results", entry.getResults());
  });
}

void PlanTextWriter::writeArena(StringRef key, int64_t bytes) {
  json.attributeObject(key, [&] {
    writeField("bytes", bytes);
    writeField("alignment", PlanAttr::kArenaAlignment);
  });
}

void PlanTextWriter::write(PlanAttr plan) {
  json.object([&] {
    writeField("abi", plan.getAbi());
    writeField("memory", plan.getMemory());
    writeField("kernels", plan.getKernels());
    writeField("process_groups", plan.getProcessGroups());
    writeField("buckets", plan.getBuckets());
    writeField("states", plan.getStates());
    writeField("matrix_lists", plan.getMatrixLists());
    writeField("collectives", plan.getCollectives());
    writeArena("arena", plan.getArenaBytes());
    writeArena("state_arena", plan.getStateArenaBytes());
    writeField("entries", plan.getEntries());
  });
}

std::string mlir::ddp::writePlanText(PlanAttr plan) {
  std::string text;
  llvm::raw_string_ostream os(text);
  PlanTextWriter(os).write(plan);
  return text;
}
