//===- broadcast.h - large data through the store ---------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sends data from one rank to all others in parts. Every wait is for one or two
// parts and has a deadline of its own, so a slow link makes a broadcast slow,
// but does not fail it.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_JOB_BROADCAST_H
#define DDPHOOK_RUNTIME_SRC_JOB_BROADCAST_H

#include "job/exchange.h"

#include <algorithm>

namespace ddphook {

/// One rank's side of a broadcast.
class Broadcast {
public:
  struct Options {
    std::string prefix; ///< Of its keys; ends with a slash.
    int rank, size, root;
    double timeoutSeconds; ///< The deadline of each wait.
    bool tellsWaits;       ///< Whether this rank logs for whom it waits.
  };
  Broadcast(Store &store, Exchange &exchange, Options options)
      : store(store), exchange(exchange), options(std::move(options)) {}

  /// Collective. Returns OK when all ranks have all bytes.
  Status run(char *data, size_t bytes);

private:
  static constexpr size_t partBytes = size_t(2) << 20;
  /// The root sends a part when all ranks have received the one that is this
  /// far before it. The parts between them are in the memory of rank 0.
  static constexpr size_t mostInFlight = 16;

  static size_t sizeOf(size_t part, size_t bytes) {
    return std::min(partBytes, bytes - part * partBytes);
  }
  std::string keyOf(size_t part) const {
    return options.prefix + std::to_string(part);
  }
  /// The key by which a rank says that it has received a part.
  std::string receiptOf(size_t part, int rank) const {
    return keyOf(part) + "/" + std::to_string(rank);
  }
  Status send(const char *data, size_t bytes, size_t parts);
  Status awaitReceipts(size_t part);
  Status receive(size_t part, char *data, size_t size);

  Store &store;
  Exchange &exchange;
  const Options options;
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_JOB_BROADCAST_H
