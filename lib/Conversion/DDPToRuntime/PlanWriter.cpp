//===- PlanWriter.cpp ------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the plan.
//
//===----------------------------------------------------------------------===//

#include "PlanWriter.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::ddp;

/// Of both arenas, in bytes: a cache line, and enough for any vector load.
static constexpr int64_t kArenaAlignment = 64;

std::string mlir::ddp::getTypeName(Type type) {
  if (!isa<Float16Type, BFloat16Type, Float32Type, Float64Type, IndexType>(
          type) &&
      !type.isInteger(1) && !type.isInteger(8) && !type.isInteger(16) &&
      !type.isInteger(32) && !type.isInteger(64))
    return "";
  if (auto integer = dyn_cast<IntegerType>(type))
    return "i" + std::to_string(integer.getWidth());
  std::string name;
  llvm::raw_string_ostream(name) << type;
  return name;
}

int32_t mlir::ddp::getDtypeValue(Type type) {
  if (isa<Float16Type>(type))
    return 0;
  if (isa<BFloat16Type>(type))
    return 1;
  return isa<Float32Type>(type) ? 2 : 3;
}

bool mlir::ddp::isPlannable(FunctionOpInterface function, std::string &why) {
  llvm::raw_string_ostream os(why);
  auto check = [&](Type type, StringRef what, unsigned index) {
    Type element = type;
    if (auto memref = dyn_cast<MemRefType>(type)) {
      if (!memref.hasStaticShape() || !memref.getLayout().isIdentity()) {
        os << "expected " << what << " " << index
           << " of static shape and identity layout, but got '" << type << "'";
        return false;
      }
      element = memref.getElementType();
    }
    if (!getTypeName(element).empty())
      return true;
    os << "expected " << what << " " << index
       << " to be a memref or scalar of integers or floats, but got '" << type
       << "'";
    return false;
  };
  for (auto [index, type] : llvm::enumerate(function.getArgumentTypes()))
    if (!check(type, "argument", index))
      return false;
  if (function.getNumResults() != 0) {
    os << "expected results to be out-parameters, but got '"
       << function.getResultTypes().front() << "'";
    return false;
  }
  return true;
}

/// For each result of the function as it was before bufferization, the argument
/// that holds it: one it updates in place, or an out-parameter at the end.
static ArrayRef<int64_t> getResultArguments(FunctionOpInterface function) {
  if (auto attr = function->getAttrOfType<DenseI64ArrayAttr>(
          DDPDialect::kResultArgumentsAttrName))
    return attr.asArrayRef();
  return {};
}

static void writeShape(llvm::json::OStream &json, ArrayRef<int64_t> shape) {
  json.array([&] {
    for (int64_t dim : shape)
      json.value(dim);
  });
}

static void writeTensor(llvm::json::OStream &json, Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  json.attribute("dtype", getTypeName(memref ? memref.getElementType() : type));
  json.attributeBegin("shape");
  writeShape(json, memref ? memref.getShape() : ArrayRef<int64_t>());
  json.attributeEnd();
}

static void writeGroup(llvm::json::OStream &json, ProcessGroupOp group) {
  json.object([&] {
    json.attribute("name", group.getSymName());
    json.attribute("size", static_cast<int64_t>(group.getSize().value_or(0)));
    json.attributeArray("ranks", [&] {
      if (ArrayAttr lists = group.getRanksAttr())
        for (Attribute list : lists)
          writeShape(json, cast<DenseI64ArrayAttr>(list).asArrayRef());
    });
    json.attribute("placement", group.getPlacement()
                                    ? stringifyPlacement(*group.getPlacement())
                                    : "");
    json.attribute("parent", group.getParent().value_or(""));
  });
}

static void writeShapes(llvm::json::OStream &json, Type type) {
  json.attributeArray("shapes", [&] {
    if (auto bucket = dyn_cast<BucketType>(type))
      for (DenseI64ArrayAttr shape : bucket.getShapes())
        writeShape(json, shape.asArrayRef());
    else if (auto tensor = dyn_cast<RankedTensorType>(type))
      writeShape(json, tensor.getShape());
    else
      writeShape(json, {});
  });
}

static void writeNames(llvm::json::OStream &json, ArrayAttr names) {
  json.array([&] {
    if (names)
      for (StringAttr name : names.getAsRange<StringAttr>())
        json.value(name.getValue());
  });
}

static void writeBucket(llvm::json::OStream &json, BucketInfoOp bucket) {
  auto type = cast<BucketType>(bucket.getType());
  json.object([&] {
    json.attribute("name", bucket.getBucketName());
    json.attribute("group", bucket.getGroup());
    json.attribute("reduction", stringifyReduction(bucket.getReduction()));
    json.attribute("dtype", getTypeName(type.getElementType()));
    writeShapes(json, type);
    json.attributeBegin("gradients");
    writeNames(json, bucket.getGradientsAttr());
    json.attributeEnd();
    std::string hook;
    llvm::raw_string_ostream(hook) << bucket.getHook();
    json.attribute("hook", hook);
    json.attribute("wire_dtype", bucket.getWireType() == type.getElementType()
                                     ? ""
                                     : getTypeName(bucket.getWireType()));
    json.attribute("wire_bytes", static_cast<int64_t>(bucket.getWireBytes()));
    json.attribute("state_bytes", static_cast<int64_t>(bucket.getStateBytes()));
  });
}

/// Where a state lies in the state arena, and how many bytes it has.
static std::pair<int64_t, int64_t> placeState(StateOp state, int64_t &end) {
  MemRefType memory = state.getBufferType();
  int64_t bytes =
      memory.getNumElements() * (memory.getElementTypeBitWidth() / 8);
  int64_t offset = end;
  end += llvm::alignTo(bytes, kArenaAlignment);
  return {offset, bytes};
}

static void writeState(llvm::json::OStream &json, StateOp state,
                       int64_t &arenaEnd) {
  auto [offset, bytes] = placeState(state, arenaEnd);
  json.object([&, offset = offset, bytes = bytes] {
    json.attribute("name", state.getSymName());
    json.attribute("dtype",
                   getTypeName(state.getBufferType().getElementType()));
    writeShapes(json, state.getType());
    json.attribute("role", state.getRole().value_or(""));
    json.attributeArray("gradients", [&] {
      if (ArrayAttr lists = state.getGradientsAttr())
        for (ArrayAttr names : lists.getAsRange<ArrayAttr>())
          writeNames(json, names);
    });
    json.attribute("method", state.getMethod().value_or(""));
    json.attribute("placement", stringifyStatePlacement(state.getPlacement()));
    json.attribute("init", stringifyStateInit(state.getInit()));
    json.attribute("seed", static_cast<int64_t>(state.getSeed().value_or(0)));
    json.attribute("generator", state.getGenerator().value_or(""));
    json.attributeBegin("draws");
    writeShape(json, state.getDraws().value_or(ArrayRef<int64_t>()));
    json.attributeEnd();
    json.attribute("offset", offset);
    json.attribute("bytes", bytes);
  });
}

/// A flat list of numbers as a list of lists of `size`.
static void writeTuples(llvm::json::OStream &json, StringRef name,
                        ArrayRef<int64_t> numbers, size_t size) {
  json.attributeArray(name, [&] {
    for (size_t i = 0; i < numbers.size(); i += size)
      writeShape(json, numbers.slice(i, size));
  });
}

static void writeMatrixList(llvm::json::OStream &json, const MatrixList &list) {
  json.object([&] {
    json.attribute("dtype", getTypeName(list.elementType));
    json.attribute("begin", list.layout.getBegin());
    json.attribute("end", list.layout.getEnd());
    writeTuples(json, "matrices", list.layout.getMatrices().asArrayRef(), 6);
    writeTuples(json, "pieces", list.layout.getPieces().asArrayRef(), 3);
  });
}

static void writeCollective(llvm::json::OStream &json,
                            const Collective &collective) {
  json.object([&] {
    json.attribute("bucket", collective.bucket);
    json.attribute("group", collective.group);
    json.attribute("count", collective.count);
    json.attribute("dtype", getTypeName(collective.elementType));
    json.attribute("wire_dtype",
                   collective.wireType ? getTypeName(collective.wireType) : "");
    json.attribute("divide", collective.divide);
  });
}

static void writeEntry(llvm::json::OStream &json, FunctionOpInterface entry) {
  ArrayRef<int64_t> results = getResultArguments(entry);
  unsigned numOutParameters = llvm::count(results, -1);
  unsigned numArguments = entry.getNumArguments() - numOutParameters;
  json.object([&] {
    json.attribute("name", entry.getName());
    json.attributeArray("arguments", [&] {
      for (unsigned i = 0; i < numArguments; ++i)
        json.object([&] {
          writeTensor(json, entry.getArgumentTypes()[i]);
          json.attribute("scalar",
                         !isa<MemRefType>(entry.getArgumentTypes()[i]));
          json.attribute("inout",
                         !!entry.getArgAttr(i, DDPDialect::kInoutAttrName));
        });
    });
    json.attributeArray("results", [&] {
      unsigned nextOutParameter = numArguments;
      for (int64_t argument : results)
        json.object([&] {
          writeTensor(
              json, entry.getArgumentTypes()[argument == -1 ? nextOutParameter++
                                                            : argument]);
          json.attribute("argument", argument);
        });
    });
  });
}

std::string mlir::ddp::writePlan(const PlanContents &contents) {
  int64_t stateBytes = 0;
  auto writeArena = [&](llvm::json::OStream &json, int64_t bytes) {
    json.object([&] {
      json.attribute("bytes", bytes);
      json.attribute("alignment", kArenaAlignment);
    });
  };
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::json::OStream json(os);
  json.object([&] {
    json.attribute("abi", kABIVersion);
    json.attribute("memory", contents.usesDeviceMemory ? "device" : "host");
    json.attributeArray("kernels", [&] {
      for (const std::string &kernel : contents.kernels)
        json.value(kernel);
    });
    json.attributeArray("process_groups", [&] {
      for (ProcessGroupOp group : contents.groups)
        writeGroup(json, group);
    });
    json.attributeArray("buckets", [&] {
      for (BucketInfoOp bucket : contents.buckets)
        writeBucket(json, bucket);
    });
    json.attributeArray("states", [&] {
      for (StateOp state : contents.states)
        writeState(json, state, stateBytes);
    });
    json.attributeArray("matrix_lists", [&] {
      for (const MatrixList &list : contents.matrixLists)
        writeMatrixList(json, list);
    });
    json.attributeArray("collectives", [&] {
      for (const Collective &collective : contents.collectives)
        writeCollective(json, collective);
    });
    json.attributeBegin("arena");
    writeArena(json, contents.arenaBytes);
    json.attributeEnd();
    json.attributeBegin("state_arena");
    writeArena(json, stateBytes);
    json.attributeEnd();
    json.attributeArray("entries", [&] {
      for (FunctionOpInterface entry : contents.entries)
        writeEntry(json, entry);
    });
  });
  return text;
}
