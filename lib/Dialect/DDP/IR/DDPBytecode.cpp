// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the dialect's version into bytecode, and refuses files of unknown
// versions. Files without a version have the format of version 1.
//
// Version 2 added the topology of process groups: `readProperties` and
// `writeProperties` of `ProcessGroupOp` handle both versions. Other operations
// whose attributes change do the same. All other upgrades belong in
// `upgradeFromVersion`, which is called before operations are verified.

#include "ddphook/Dialect/DDP/IR/DDPBytecode.h"

#include "ddphook/Dialect/DDP/IR/DDP.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
struct DDPBytecodeInterface : public BytecodeDialectInterface {
  explicit DDPBytecodeInterface(Dialect *dialect)
      : BytecodeDialectInterface(dialect) {}

  void writeVersion(DialectBytecodeWriter &writer) const final {
    DDPVersion written;
    if (auto asked = writer.getDialectVersion<DDPDialect>(); succeeded(asked))
      written = static_cast<const DDPVersion &>(**asked);
    writer.writeVarInt(written.number);
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
