//===- Channels.h - channels of collectives ---------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a program says of the channels over which its collectives meet.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_CHANNELS_H
#define DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_CHANNELS_H

#include "mlir/IR/BuiltinOps.h"

#include <optional>

namespace mlir::ddp {

/// An attribute `channel_handle` of StableHLO.
struct Channel {
  /// No channel if it is not positive.
  int64_t handle;
  /// 1 for a channel between devices, 2 and 3 for one to and from the host, 0
  /// where nobody has said it.
  int64_t type;

  static std::optional<Channel> parse(Attribute attribute);
};

/// Why `collective` does not meet others on a channel between devices; empty if
/// it does, or has no channel.
std::string judgeChannel(Operation *collective);

/// Refuses two unlike collectives of `module` that are to meet on one channel,
/// and remarks where like ones are. JAX gives all collectives the same channel,
/// which is no channel of any of them.
LogicalResult checkSharedChannels(ModuleOp module);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_CHANNELS_H
