//===- DDPBytecode.h - versions of the dialect's bytecode ------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The version that bytecode files with operations of the ddp dialect carry.
// Every ddphook reads the files of all versions before its own, as far as they
// hold what users write: `ddp.process_group`, `ddp.all_reduce` and
// `ddp.average` of tensors, hooks, and the dialect's discardable attributes.
// What passes make of it may change from one version to the next.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPBYTECODE_H
#define DDPHOOK_DIALECT_DDP_IR_DDPBYTECODE_H

#include "mlir/Bytecode/BytecodeImplementation.h"

namespace mlir::ddp {

class DDPDialect;

/// Of a `BytecodeWriterConfig`: the version that a file is written for.
struct DDPVersion : public DialectVersion {
  /// The version that this ddphook writes.
  ///
  /// It is raised with every change after which a file of the version before
  /// would be read as something else, or not at all: operations' attributes are
  /// stored in the order of their definitions, other attributes and types as
  /// text.
  static constexpr uint64_t kCurrent = 2;

  explicit DDPVersion(uint64_t number = kCurrent) : number(number) {}

  uint64_t number;
};

/// Lets `dialect` write its version into bytecode, and read it.
void addBytecodeInterface(DDPDialect &dialect);

} // namespace mlir::ddp

#endif // DDPHOOK_DIALECT_DDP_IR_DDPBYTECODE_H
