// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The estimate is Cristian's, "Probabilistic clock synchronization", 1989.

#include "trace/clock.h"

#include "base/boot_id.h"

#include <unistd.h>

using namespace ddphook;
using namespace ddphook::trace;

std::string trace::clockIdentity() {
  std::string boot;
  readBootId(&boot).ignore();
  // Use an identity of this process alone, so that the clock is measured.
  if (boot.empty())
    return "process/" + std::to_string(::getpid());
  // Containers may shift the monotonic clock.
  std::string space;
  readNamespace("/proc/self/ns/time", &space).ignore();
  return space.empty() ? boot : boot + "/" + space;
}

Status trace::measureClock(const std::function<Status(int64_t *)> &ask,
                           const std::function<int64_t()> &ownTime,
                           int questions, ClockOffset *result) {
  int64_t fastest = INT64_MAX;
  for (int i = 0; i < questions; ++i) {
    int64_t theirs = 0;
    const int64_t before = ownTime();
    DDPHOOK_TRY(ask(&theirs));
    const int64_t way = ownTime() - before;
    if (way >= fastest)
      continue;
    fastest = way;
    result->offset = theirs - (before + way / 2);
    result->uncertainty = (way + 1) / 2;
  }
  return Status::ok();
}
