//===- rendezvous.h - ranks that meet in their host's store -----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where the ranks of a host program share a store already, they need no port
// that is known beforehand: rank 0 chooses one, and a secret, and says so
// there. That store serves for nothing else, because it does not tell that a
// rank is lost.
//
// The keys, all below "ddphook/", and their values, with commas in between:
//   network/<rank>  from which network namespace of which machine it comes
//   address         of rank 0's store: the secret, the port, rank 0's network,
//                   and the addresses to try
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_JOB_RENDEZVOUS_H
#define DDPHOOK_RUNTIME_SRC_JOB_RENDEZVOUS_H

#include "base/deadline.h"
#include "job/bootstrap.h"

#include <vector>

namespace ddphook {

/// Where the store of rank 0 is, and what it asks for.
struct StoreAddress {
  /// To be tried in turn. Where rank 0 listens, one: empty means everywhere.
  std::vector<std::string> hosts;
  int port = 0;
  std::string secret;
};

class Rendezvous {
public:
  /// `place` has a host's store, and outlives this.
  Rendezvous(const Bootstrap &place, const Deadline &deadline, bool tellsWaits)
      : place(place), deadline(deadline), tellsWaits(tellsWaits) {}

  /// Rank 0, before it listens: waits until all ranks have said where they are,
  /// and chooses the loopback interface if that is enough. Adds a fresh secret
  /// to the job's.
  Status choose(StoreAddress *address);
  /// Rank 0, once it listens at `address`: tells the others where.
  Status publish(StoreAddress *address);

  /// Another rank: says where it is, and waits for rank 0's answer.
  Status find(StoreAddress *address);

private:
  Status set(const std::string &key, const std::string &value);
  Status get(const std::string &key, int rank, std::string *value);

  const Bootstrap &place;
  const Deadline deadline;
  const bool tellsWaits;
  /// Of rank 0.
  std::string network, fresh;
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_JOB_RENDEZVOUS_H
