// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// If the ranks of a host program already share a store, they need no port that
// is known in advance: rank 0 chooses a port and a secret and publishes them
// there. That store has no other use, because it does not report lost ranks.
//
// The keys, all below "ddphook/", and their values, with commas in between:
//   network/<rank>  the rank's machine and network namespace
//   address         rank 0's store: the secret, the port, rank 0's network,
//                   and the addresses to try

#pragma once

#include "base/deadline.h"
#include "job/bootstrap.h"

#include <vector>

namespace ddphook {

/// The address of rank 0's store, and its secret.
struct StoreAddress {
  /// Addresses to try in order; rank 0 listens at the only one, or at all.
  std::vector<std::string> hosts;
  int port = 0;
  std::string secret;
};

class Rendezvous {
public:
  /// `place` has a host's store and must outlive this.
  Rendezvous(const Bootstrap &place, const Deadline &deadline, bool tellsWaits)
      : place(place), deadline(deadline), tellsWaits(tellsWaits) {}

  /// On rank 0, before it listens: waits until all ranks have published their
  /// networks, and chooses the loopback interface if that is enough. Adds a new
  /// secret to the job's.
  Status choose(StoreAddress *address);
  /// On rank 0, after it listens at `address`: publishes the address.
  Status publish(StoreAddress *address);

  /// On another rank: publishes its network and waits for rank 0's address.
  Status find(StoreAddress *address);

private:
  Status set(const std::string &key, const std::string &value);
  Status get(const std::string &key, int rank, std::string *value);

  const Bootstrap &place;
  const Deadline deadline;
  const bool tellsWaits;
  /// Used on rank 0.
  std::string network, fresh;
};

} // namespace ddphook
