// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Provides what a launcher would to the ranks that rank_group.h starts: their
// numbers, and a store and a secret that no other job has.

#pragma once

#include "base/status.h"
#include "store/socket.h"

#include <cstdint>
#include <string>

namespace ddphook {

class LocalJob {
public:
  /// Reserves a free port until the job is destroyed, and draws a secret unless
  /// the user has set one. Called in the parent before it starts ranks.
  static Status prepare(int32_t ranks, LocalJob *job);

  /// Sets the launch variables of `rank` in the process that becomes it.
  void enter(int32_t rank) const;

  /// The address at which rank 0's store listens.
  const std::string &address() const { return storeAddress; }
  uint16_t port() const { return storePort; }

private:
  int32_t ranks = 1;
  std::string storeAddress;
  uint16_t storePort = 0;
  FileDescriptor reservation; ///< Holds the port.
};

} // namespace ddphook
