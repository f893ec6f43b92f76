// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the channels over which a program's collectives communicate.

#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <optional>

namespace mlir::ddp {

/// StableHLO's attribute `channel_handle`.
struct Channel {
  /// Not positive if there is no channel.
  int64_t handle;
  /// 1 for a channel between devices, 2 and 3 for one to and from the host, 0
  /// if unspecified.
  int64_t type;

  static std::optional<Channel> parse(Attribute attribute);
};

/// Returns why `collective` does not communicate over a channel between
/// devices, or an empty text if it does or has no channel.
std::string judgeChannel(Operation *collective);

/// Rejects collectives of different kinds on one channel of `module`, and emits
/// a remark for equal ones. JAX gives all collectives the same channel, which
/// therefore means nothing.
LogicalResult checkSharedChannels(ModuleOp module);

} // namespace mlir::ddp
