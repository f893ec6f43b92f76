// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the manifest. Its keys are stable; new ones may be added.

#include "Manifest.h"

#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::ddp;

RankedTensorType mlir::ddp::getExportedType(StateOp state) {
  Type type = state.getType();
  if (auto bucket = dyn_cast<BucketType>(type))
    return bucket.getFlatType();
  if (type.isInteger(64))
    return RankedTensorType::get({}, IntegerType::get(type.getContext(), 32));
  return cast<RankedTensorType>(type);
}

namespace {
class ManifestWriter {
public:
  ManifestWriter(const Manifest &manifest, ModuleOp module,
                 llvm::raw_ostream &os)
      : manifest(manifest), module(module), json(os, /*IndentSize=*/2) {}

  void write();

private:
  /// Returns numpy's name of a type.
  static std::string getDtype(Type type) {
    if (type.isBF16())
      return "bfloat16";
    StringRef kind = isa<FloatType>(type) ? "float" : "int";
    return (kind + Twine(type.getIntOrFloatBitWidth())).str();
  }
  static llvm::json::Array getNames(Attribute names) {
    if (!names)
      return {};
    return llvm::json::Array(
        llvm::map_range(cast<ArrayAttr>(names).getAsRange<StringAttr>(),
                        [](StringAttr name) { return name.getValue(); }));
  }
  void writeState(StateOp state);
  void writeInit(StateOp state);
  void writeBucket(BucketInfoOp bucket);
  void writeScatter(const ScatterRecord &scatter);

  const Manifest &manifest;
  ModuleOp module;
  llvm::json::OStream json;
};
} // namespace

/// Writes how a state is initialized. Each `normal` state takes one number from
/// its generator, in the order of the module.
void ManifestWriter::writeInit(StateOp state) {
  json.attribute("kind", stringifyStateInit(state.getInit()));
  if (state.getInit() != StateInit::Normal)
    return;
  auto generator =
      module.lookupSymbol<StateOp>(state.getGeneratorAttr().getAttr());
  json.attribute("seed", static_cast<int64_t>(*generator.getSeed()));
  int64_t number = 0;
  for (auto other : module.getOps<StateOp>()) {
    if (other == state)
      break;
    number += other.getGeneratorAttr() == state.getGeneratorAttr();
  }
  json.attribute("number", number);
  json.attribute("draws", llvm::json::Array(state.getDrawsAttr().asArrayRef()));
}

void ManifestWriter::writeState(StateOp state) {
  RankedTensorType type = getExportedType(state);
  json.object([&] {
    json.attribute("name", state.getSymName());
    json.attribute("dtype", getDtype(type.getElementType()));
    json.attribute("shape", llvm::json::Array(type.getShape()));
    json.attribute("placement", stringifyStatePlacement(state.getPlacement()));
    json.attributeObject("init", [&] { writeInit(state); });
    json.attribute("role", state.getRole().value_or(""));
    json.attributeArray("gradients", [&] {
      if (ArrayAttr lists = state.getGradientsAttr())
        for (Attribute names : lists)
          json.value(getNames(names));
    });
    json.attribute("under", state.getMethod().value_or(""));
  });
}

void ManifestWriter::writeBucket(BucketInfoOp bucket) {
  std::string hook;
  llvm::raw_string_ostream(hook) << Attribute(bucket.getHook());
  json.object([&] {
    json.attribute("name", bucket.getBucketName());
    json.attribute("hook", hook);
    json.attribute("reduction", stringifyReduction(bucket.getReduction()));
    json.attribute("group", bucket.getGroup());
    json.attribute("gradients", getNames(bucket.getGradientsAttr()));
    json.attribute("elements",
                   cast<BucketType>(bucket.getType()).getNumElements());
    json.attribute(
        "dtype", getDtype(cast<BucketType>(bucket.getType()).getElementType()));
    json.attribute("wire_dtype", getDtype(bucket.getWireType()));
    json.attribute("wire_bytes", static_cast<int64_t>(bucket.getWireBytes()));
    const auto *found = manifest.compressions.find(bucket.getBucketName());
    if (found == manifest.compressions.end())
      return;
    json.attributeObject("compression", [&] {
      json.attribute("before", found->second.first);
      json.attribute("after", found->second.second);
    });
  });
}

void ManifestWriter::writeScatter(const ScatterRecord &scatter) {
  json.object([&] {
    json.attribute("group", scatter.group);
    json.attribute("elements", scatter.numElements);
    json.attribute("dtype", getDtype(scatter.type));
    json.attribute("wire_dtype", getDtype(scatter.wire));
    json.attribute("wire_bytes", scatter.numElements *
                                     scatter.wire.getIntOrFloatBitWidth() / 8);
  });
}

void ManifestWriter::write() {
  llvm::SetVector<Operation *> states;
  for (const auto &[function, arguments] : manifest.functions)
    for (const StateArgument &argument : arguments)
      states.insert(StateOp(argument.state));
  json.object([&] {
    json.attribute("version", 1);
    if (manifest.numRanks)
      json.attribute("ranks", *manifest.numRanks);
    json.attributeArray("functions", [&] {
      for (const auto &[function, arguments] : manifest.functions)
        json.object([&, &function = function, &arguments = arguments] {
          json.attribute("name", function);
          json.attributeArray("states", [&] {
            for (const StateArgument &argument : arguments)
              json.object([&] {
                json.attribute("name", StateOp(argument.state).getSymName());
                json.attribute("argument", argument.argument);
                json.attribute("result", argument.result);
              });
          });
        });
    });
    json.attributeArray("states", [&] {
      for (auto state : module.getOps<StateOp>())
        if (states.contains(state))
          writeState(state);
    });
    json.attributeArray("buckets", [&] {
      for (BucketInfoOp bucket : manifest.buckets)
        writeBucket(bucket);
    });
    json.attributeArray("scatters", [&] {
      for (const ScatterRecord &scatter : manifest.scatters)
        writeScatter(scatter);
    });
  });
}

LogicalResult mlir::ddp::writeManifest(const Manifest &manifest,
                                       ModuleOp module, StringRef path) {
  llvm::Error error =
      llvm::writeToOutput(path, [&](llvm::raw_ostream &os) -> llvm::Error {
        ManifestWriter(manifest, module, os).write();
        os << "\n";
        return llvm::Error::success();
      });
  if (!error)
    return success();
  return module.emitError() << "cannot write the manifest " << path << ": "
                            << llvm::toString(std::move(error));
}
