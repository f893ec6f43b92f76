// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the dialect's version into bytecode, and refuses files of unknown
// versions. Files without a version have the format of version 1.
//
// Version 2 added the topology of process groups. An operation whose attributes
// have changed reads and writes the old ones in its own `readProperties` and
// `writeProperties`. All other upgrades, of which there are none so far, belong
// in `upgradeFromVersion`, which is called before operations are verified.

#include "ddphook/Dialect/DDP/IR/DDPBytecode.h"

#include "ddphook/Dialect/DDP/IR/DDP.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns the version of the file to write.
static uint64_t getVersion(DialectBytecodeWriter &writer) {
  auto asked = writer.getDialectVersion<DDPDialect>();
  return succeeded(asked) ? static_cast<const DDPVersion &>(**asked).number
                          : DDPVersion::kCurrent;
}

namespace {
struct DDPBytecodeInterface : public BytecodeDialectInterface {
  explicit DDPBytecodeInterface(Dialect *dialect)
      : BytecodeDialectInterface(dialect) {}

  void writeVersion(DialectBytecodeWriter &writer) const final {
    writer.writeVarInt(getVersion(writer));
  }

  std::unique_ptr<DialectVersion>
  readVersion(DialectBytecodeReader &reader) const final {
    uint64_t number;
    if (failed(reader.readVarInt(number)))
      return nullptr;
    if (number == 0 || number > DDPVersion::kCurrent) {
      reader.emitError() << "expected bytecode of version 1 to "
                         << DDPVersion::kCurrent
                         << " of the ddp dialect, but got version " << number
                         << ": read it with the ddphook that wrote it, or let "
                            "that write it as text";
      return nullptr;
    }
    return std::make_unique<DDPVersion>(number);
  }
};
} // namespace

void mlir::ddp::addBytecodeInterface(DDPDialect &dialect) {
  dialect.addInterfaces<DDPBytecodeInterface>();
}

LogicalResult ProcessGroupOp::readProperties(DialectBytecodeReader &reader,
                                             OperationState &state) {
  auto &properties = state.getOrAddProperties<Properties>();
  if (failed(reader.readOptionalAttribute(properties.parent)) ||
      failed(reader.readOptionalAttribute(properties.placement)) ||
      failed(reader.readOptionalAttribute(properties.ranks)) ||
      failed(reader.readOptionalAttribute(properties.size)) ||
      failed(reader.readAttribute(properties.sym_name)))
    return failure();
  auto version = reader.getDialectVersion<DDPDialect>();
  if (failed(version) || static_cast<const DDPVersion &>(**version).number < 2)
    return success();
  return reader.readOptionalAttribute(properties.topology);
}

void ProcessGroupOp::writeProperties(DialectBytecodeWriter &writer) {
  Properties &properties = getProperties();
  writer.writeOptionalAttribute(properties.parent);
  writer.writeOptionalAttribute(properties.placement);
  writer.writeOptionalAttribute(properties.ranks);
  writer.writeOptionalAttribute(properties.size);
  writer.writeAttribute(properties.sym_name);
  if (getVersion(writer) >= 2)
    writer.writeOptionalAttribute(properties.topology);
  else if (properties.topology)
    emitOpError() << "expected no topology in bytecode of version 1";
}
