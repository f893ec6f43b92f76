//===- group_place.h - a rank's place in a process group --------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Transports count the ranks of their group from 0. Whoever reads a message
// knows the ranks of the job, and which group it is about only if it says so.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_GROUP_PLACE_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_GROUP_PLACE_H

#include "base/deadline.h"
#include "base/status.h"
#include "store/store.h"

#include <string>
#include <vector>

namespace ddphook::host {

struct GroupPlace {
  /// This rank's number in the group, and how many ranks that has.
  int rank = 0, size = 1;
  /// The numbers of the group's ranks in the job; empty: the same ones.
  std::vector<int> jobRanks = {};
  /// What messages call the group; empty: it is the whole job.
  std::string group = {};

  /// The number in the job of rank `number` of the group.
  int jobRank(int number) const {
    const auto index = static_cast<size_t>(number);
    return index < jobRanks.size() ? jobRanks[index] : number;
  }
  /// "rank 3", with its number in the job.
  std::string nameOf(int number) const {
    return "rank " + std::to_string(jobRank(number));
  }
  /// "rank 0 is waiting for rank 3 of 4"; of a part of the job with its name in
  /// the place of the number.
  std::string describeWait(const std::string &whom) const {
    return nameOf(rank) + " is waiting for " + whom + " of " +
           (group.empty() ? std::to_string(size) : group);
  }
  /// The failure of a wait of so many seconds for rank `number` of the group.
  Status lateness(int number, double seconds) const {
    return error(DDPHOOK_DEADLINE_EXCEEDED, "%s did not come within %g s",
                 nameOf(number).c_str(), seconds);
  }
  /// Gets what rank `number` of the group sets, waiting for as long.
  Status getFrom(int number, Store &store, const std::string &key,
                 const Deadline &deadline, double seconds,
                 std::string *value) const {
    const Status status = store.get(key, deadline, value);
    if (status.code() != DDPHOOK_DEADLINE_EXCEEDED)
      return status;
    // Whoever serves the store may be silent instead: a look fails otherwise.
    const Status look = store.get(key, Deadline::after(0), value);
    return look.isOk() || look.message() != status.message()
               ? look
               : lateness(number, seconds);
  }
  /// A failure with the group that it is about.
  Status withGroup(Status status) const {
    return group.empty() || status.isOk() ? status : withContext(status, group);
  }
};

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_GROUP_PLACE_H
