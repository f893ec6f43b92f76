//===- FXCollective.h ------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An operation that is one of PyTorch's collectives, in both of the ways in
// which ddp-import-fx reads them.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_FXTODDP_FXCOLLECTIVE_H
#define DDPHOOK_LIB_CONVERSION_FXTODDP_FXCOLLECTIVE_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

struct FXCollective {
  Operation *op;
  /// PyTorch's operator, without `torch.` before it and `.default` behind.
  std::string target;
  /// By the names of the operator's parameters.
  DictionaryAttr arguments;
  /// The function that is called; null if `op` is the operator itself.
  Operation *callee = nullptr;

  /// The kind of collective; nullopt for a wait or if ddp has no equivalent.
  std::optional<CollectiveKind> getKind() const;
  /// Returns true if it starts an all-reduce or a reduce-scatter.
  bool isReduction() const;
  bool isWait() const;
  /// Empty if it is no string.
  StringRef getString(StringRef name) const;
  /// Returns nullopt unless the attribute is an integer.
  std::optional<int64_t> getInteger(StringRef name) const;
  /// Begins an error at `op`.
  InFlightDiagnostic emitError() const;
};

/// What `op` is if it is one of PyTorch's collectives. Finds functions with
/// `symbols`.
std::optional<FXCollective> matchCollective(Operation *op,
                                            SymbolTableCollection &symbols);

/// Whether `callee` is a function that stands for a collective.
bool isCollectiveFunction(Operation *callee);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_FXTODDP_FXCOLLECTIVE_H
