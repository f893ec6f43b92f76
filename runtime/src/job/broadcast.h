// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sends data from one rank to all others in parts. Every wait is for one or two
// parts and has its own deadline, so a slow link makes a broadcast slow but
// does not make it fail.

#pragma once

#include "job/store_collectives.h"

#include <algorithm>

namespace ddphook {

/// One rank's side of a broadcast.
class Broadcast {
public:
  struct Options {
    std::string prefix; ///< The prefix of its keys; ends with a slash.
    int rank, size, root;
    double timeoutSeconds; ///< The deadline of each wait.
    bool tellsWaits;       ///< True if this rank logs for whom it waits.
  };
  Broadcast(Store &store, StoreCollectives &collectives, Options options)
      : store(store), collectives(collectives), options(std::move(options)) {}

  /// Collective. Returns OK if all ranks have all bytes.
  Status run(char *data, size_t bytes);

private:
  static constexpr size_t partBytes = size_t(2) << 20;
  /// The root sends a part only when all ranks have received the part this many
  /// before it. The parts in flight are in the memory of rank 0.
  static constexpr size_t mostInFlight = 16;

  static size_t sizeOf(size_t part, size_t bytes) {
    return std::min(partBytes, bytes - part * partBytes);
  }
  std::string keyOf(size_t part) const {
    return options.prefix + std::to_string(part);
  }
  /// Returns the key by which a rank acknowledges a part.
  std::string receiptOf(size_t part, int rank) const {
    return keyOf(part) + "/" + std::to_string(rank);
  }
  Status send(const char *data, size_t bytes, size_t parts);
  Status awaitReceipts(size_t part);
  Status receive(size_t part, char *data, size_t size);

  Store &store;
  StoreCollectives &collectives;
  const Options options;
};

} // namespace ddphook
