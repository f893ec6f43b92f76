// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The version of bytecode files with operations of the ddp dialect. Every
// ddphook reads the files of all earlier versions, provided that they contain
// only operations that users write: `ddp.process_group`, `ddp.all_reduce` and
// `ddp.average` of tensors, hooks, and the dialect's discardable attributes.
// Operations that passes create may change from one version to the next.

#pragma once

#include "mlir/Bytecode/BytecodeImplementation.h"

namespace mlir::ddp {

class DDPDialect;

/// Selects, in a `BytecodeWriterConfig`, the version of a file to write.
struct DDPVersion : public DialectVersion {
  /// The version that this ddphook writes.
  ///
  /// Increment it with every change that makes files of the previous version
  /// unreadable or gives them another meaning: attributes of operations are
  /// stored in the order of their definitions, other attributes and types as
  /// text.
  static constexpr uint64_t kCurrent = 2;

  explicit DDPVersion(uint64_t number = kCurrent) : number(number) {}

  uint64_t number;
};

/// Makes `dialect` write its version into bytecode, and read it.
void addBytecodeInterface(DDPDialect &dialect);

} // namespace mlir::ddp
