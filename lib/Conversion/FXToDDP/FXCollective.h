// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A PyTorch collective, in either of the two forms that ddp-import-fx reads.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

struct FXCollective {
  Operation *op;
  /// PyTorch's operator, without the prefix `torch.` and suffix `.default`.
  std::string target;
  /// By parameter name.
  DictionaryAttr arguments;
  /// The called function; null if `op` is the operator itself.
  Operation *callee = nullptr;

  /// Returns the kind of collective; nullopt for a wait or if ddp has no
  /// equivalent.
  std::optional<CollectiveKind> getKind() const;
  /// Returns true if it starts an all-reduce or a reduce-scatter.
  bool isReduction() const;
  bool isWait() const;
  /// Returns the argument, or an empty string if it is not a string.
  StringRef getString(StringRef name) const;
  /// Returns nullopt unless the attribute is an integer.
  std::optional<int64_t> getInteger(StringRef name) const;
  /// Begins an error at `op`.
  InFlightDiagnostic emitError() const;
};

/// Matches `op` if it is one of PyTorch's collectives. Finds functions with
/// `symbols`.
std::optional<FXCollective> matchCollective(Operation *op,
                                            SymbolTableCollection &symbols);

/// Returns true if `callee` is a declaration that represents a collective.
bool isCollectiveFunction(Operation *callee);

/// Returns why ddp has no equivalent of `start`, an exchange among `size`
/// ranks; an empty string if it has one.
std::string judgeExchange(const FXCollective &start,
                          std::optional<int64_t> size);

/// Builds the equivalent before `start` and returns its result.
Value buildExchange(const FXCollective &start, ProcessGroupOp group);

} // namespace mlir::ddp
