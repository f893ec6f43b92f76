// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Transports number the ranks of their group from 0. Messages use the job's
// rank numbers and name the group, unless it is the whole job.

#pragma once

#include "base/deadline.h"
#include "base/status.h"
#include "store/store.h"

#include <string>
#include <vector>

namespace ddphook::host {

struct GroupPlace {
  /// This rank's number in the group, and the group's size.
  int rank = 0, size = 1;
  /// The group's ranks as numbers of the job; empty if they are the same.
  std::vector<int> jobRanks = {};
  /// The name of the group in messages; empty if it is the whole job.
  std::string group = {};

  int jobRank(int number) const {
    const auto index = static_cast<size_t>(number);
    return index < jobRanks.size() ? jobRanks[index] : number;
  }
  /// Returns "rank 3", with its number in the job.
  std::string nameOf(int number) const {
    return "rank " + std::to_string(jobRank(number));
  }
  /// Returns "rank 0 is waiting for rank 3 of 4"; if the group is a part of the
  /// job, its name replaces the size.
  std::string describeWait(const std::string &whom) const {
    return nameOf(rank) + " is waiting for " + whom + " of " +
           (group.empty() ? std::to_string(size) : group);
  }
  /// The failure of a wait of `seconds` seconds for rank `number` of the group.
  Status lateness(int number, double seconds) const {
    return deadlineExceeded("%s did not arrive within %g s",
                            nameOf(number).c_str(), seconds);
  }
  /// Gets the value that rank `number` of the group sets, until `deadline`.
  Status getFrom(int number, Store &store, const std::string &key,
                 const Deadline &deadline, double seconds,
                 std::string *value) const {
    const Status status = store.get(key, deadline, value);
    if (status.code() != DDPHOOK_DEADLINE_EXCEEDED)
      return status;
    // If the rank that serves the store is silent, this get fails differently.
    const Status look = store.get(key, Deadline::after(0), value);
    return look.isOk() || look.message() != status.message()
               ? look
               : lateness(number, seconds);
  }
  /// Adds the group's name to a failure.
  Status withGroup(Status status) const {
    return group.empty() || status.isOk() ? status : withContext(status, group);
  }
};

} // namespace ddphook::host
