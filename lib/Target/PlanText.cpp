//===- PlanText.cpp - the plan as the runtime reads it --------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the plan's attributes as JSON. The only file of the compiler that
// knows this format.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Target/PlanText.h"

#include "ddphook/Dialect/DDP/IR/ElementTypes.h"

#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
class PlanTextWriter {
public:
  explicit PlanTextWriter(llvm::raw_ostream &os) : json(os) {}

  void write(PlanAttr plan);

private:
  void write(StringAttr name) { json.value(name.getValue()); }
  void write(ArrayAttr names) { writeElements(names.getAsRange<StringAttr>()); }
  void write(ArrayRef<int64_t> numbers) {
    json.array([&] {
      for (int64_t number : numbers)
        json.value(number);
    });
  }
  void write(DenseI64ArrayAttr numbers) { write(numbers.asArrayRef()); }
  void write(PlanGroupAttr group);
  void write(PlanBucketAttr bucket);
  void write(PlanStateAttr state);
  void write(PlanMatrixListAttr list);
  void write(PlanCollectiveAttr collective);
  void write(PlanEntryAttr entry);

  template <typename Range>
  void writeElements(Range &&elements) {
    json.array([&] {
      for (auto element : elements)
        write(element);
    });
  }
  template <typename Range>
  void writeList(StringRef key, Range &&elements) {
    json.attributeBegin(key);
    writeElements(elements);
    json.attributeEnd();
  }
  /// Missing strings and lists are written as empty ones.
  void writeString(StringRef key, StringAttr value) {
    json.attribute(key, value ? value.getValue() : "");
  }
  template <typename ElementAttr>
  void writeArray(StringRef key, ArrayAttr list) {
    json.attributeArray(key, [&] {
      if (list)
        for (auto element : list.getAsRange<ElementAttr>())
          write(element);
    });
  }
  void writeDtype(StringRef key, Type type) {
    json.attribute(key, type ? lookupElementType(type)->name : "");
  }
  /// Writes the elements' format on the wire if it differs.
  void writeWire(Type type) {
    auto encoded = dyn_cast_if_present<EncodedType>(type);
    writeDtype("wire_dtype", encoded ? Type() : type);
    json.attribute("encoding",
                   encoded ? lookupEncoding(encoded.getCode())->name : "");
    json.attribute("block", encoded ? encoded.getBlock() : 0);
  }
  template <typename PlaceT>
  void writePlaces(StringRef key, ArrayRef<PlaceT> places);
  void writeDeal(DealAttr deal);
  void writeArena(StringRef key, int64_t bytes);
  void writeValue(Type type);

  llvm::json::OStream json;
};
} // namespace

void PlanTextWriter::write(PlanGroupAttr group) {
  json.object([&] {
    writeString("name", group.getName());
    json.attribute("size", group.getSize());
    writeArray<DenseI64ArrayAttr>("ranks", group.getRanks());
    PlacementAttr placement = group.getPlacement();
    json.attribute("placement",
                   placement ? stringifyPlacement(placement.getValue()) : "");
    writeString("parent", group.getParent());
    TopologyAttr topology = group.getTopology();
    json.attribute("topology", stringifyTopology(topology ? topology.getValue()
                                                          : Topology::Flat));
  });
}

void PlanTextWriter::write(PlanBucketAttr bucket) {
  Type elementType = bucket.getType().getElementType();
  Type wireType = bucket.getWireType();
  json.object([&] {
    writeString("name", bucket.getName());
    writeString("group", bucket.getGroup());
    json.attribute("reduction",
                   stringifyReduction(bucket.getReduction().getValue()));
    writeDtype("dtype", elementType);
    writeList("shapes", bucket.getType().getShapes());
    writeArray<StringAttr>("gradients", bucket.getGradients());
    writeString("hook", bucket.getHook());
    writeWire(wireType == elementType ? Type() : wireType);
    json.attribute("wire_bytes", bucket.getWireBytes());
    json.attribute("state_bytes", bucket.getStateBytes());
  });
}

void PlanTextWriter::write(PlanStateAttr state) {
  json.object([&] {
    writeString("name", state.getName());
    writeDtype("dtype", state.getElementType());
    writeList("shapes", state.getShapes());
    writeString("role", state.getRole());
    writeArray<ArrayAttr>("gradients", state.getGradients());
    writeString("method", state.getMethod());
    json.attribute("placement",
                   stringifyStatePlacement(state.getPlacement().getValue()));
    json.attribute("init", stringifyStateInit(state.getInit().getValue()));
    json.attribute("seed", state.getSeed());
    writeString("generator", state.getGenerator());
    json.attributeBegin("draws");
    write(state.getDraws() ? state.getDraws().asArrayRef()
                           : ArrayRef<int64_t>());
    json.attributeEnd();
    json.attribute("offset", state.getOffset());
    json.attribute("bytes", state.getNumBytes());
  });
}

/// Writes a list of lists of numbers.
template <typename PlaceT>
void PlanTextWriter::writePlaces(StringRef key, ArrayRef<PlaceT> places) {
  json.attributeArray(key, [&] {
    for (const PlaceT &place : places)
      write(ArrayRef<int64_t>(place.getNumbers()));
  });
}

/// Writes an assignment, the only optional key: most plans have none.
void PlanTextWriter::writeDeal(DealAttr deal) {
  if (!deal)
    return;
  json.attributeObject("deal", [&] {
    writeString("bucket", deal.getBucket());
    json.attributeBegin("groups");
    write(deal.getGroups());
    json.attributeEnd();
    json.attributeBegin("members");
    write(deal.getMembers());
    json.attributeEnd();
    json.attributeBegin("counts");
    write(deal.getCounts());
    json.attributeEnd();
  });
}

void PlanTextWriter::write(PlanMatrixListAttr list) {
  MatrixListAttr layout = list.getLayout();
  json.object([&] {
    writeDtype("dtype", list.getDtype());
    json.attribute("begin", layout.getBegin());
    json.attribute("end", layout.getEnd());
    writePlaces("matrices", layout.getMatrices());
    writePlaces("pieces", layout.getPieces());
    writeDeal(list.getDeal());
  });
}

void PlanTextWriter::write(PlanCollectiveAttr collective) {
  json.object([&] {
    json.attribute("kind", stringifyCollectiveKind(collective.getKind()));
    writeString("bucket", collective.getBucket());
    json.attribute("group", collective.getGroup());
    json.attribute("count", collective.getCount());
    writeDtype("dtype", collective.getDtype());
    writeWire(collective.getWireDtype());
    json.attribute("divide", collective.getDivide());
    json.attribute("root", collective.getRoot());
    writeString("error", collective.getError());
    auto encoding = dyn_cast_if_present<EncodedType>(collective.getWireDtype());
    json.attribute("stream", encoding ? encoding.getStream() : int64_t(-1));
    writeDeal(collective.getDeal());
  });
}

void PlanTextWriter::writeValue(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  writeDtype("dtype", memref ? memref.getElementType() : type);
  json.attributeBegin("shape");
  write(memref ? memref.getShape() : ArrayRef<int64_t>());
  json.attributeEnd();
}

void PlanTextWriter::write(PlanEntryAttr entry) {
  json.object([&] {
    writeString("name", entry.getName());
    json.attributeArray("arguments", [&] {
      for (PlanArgumentAttr argument : entry.getArguments())
        json.object([&] {
          writeValue(argument.getType());
          json.attribute("scalar", !isa<MemRefType>(argument.getType()));
          json.attribute("inout", argument.getInout());
        });
    });
    json.attributeArray("results", [&] {
      for (PlanResultAttr result : entry.getResults())
        json.object([&] {
          writeValue(result.getType());
          json.attribute("argument", result.getArgument());
        });
    });
  });
}

void PlanTextWriter::writeArena(StringRef key, int64_t bytes) {
  json.attributeObject(key, [&] {
    json.attribute("bytes", bytes);
    json.attribute("alignment", PlanAttr::kArenaAlignment);
  });
}

void PlanTextWriter::write(PlanAttr plan) {
  json.object([&] {
    json.attribute("abi", plan.getAbi());
    json.attribute("memory", stringifyArrayMemory(plan.getMemory().getValue()));
    writeList("kernels", plan.getKernels());
    writeList("process_groups", plan.getProcessGroups());
    writeList("buckets", plan.getBuckets());
    writeList("states", plan.getStates());
    writeList("matrix_lists", plan.getMatrixLists());
    writeList("collectives", plan.getCollectives());
    writeArena("arena", plan.getArenaBytes());
    writeArena("state_arena", plan.getStateArenaBytes());
    writeList("entries", plan.getEntries());
  });
}

std::string mlir::ddp::writePlanText(PlanAttr plan) {
  std::string text;
  llvm::raw_string_ostream os(text);
  PlanTextWriter(os).write(plan);
  return text;
}
