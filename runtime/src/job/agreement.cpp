// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The agreement is one all-gather: a character that says whether the rank
// succeeded, followed by the payload or the reason of the failure.

#include "job/agreement.h"

using namespace ddphook;

static constexpr char succeeded = '+';
static constexpr char failed = '-';

Status ddphook::agree(Context &context, const std::string &what,
                      const char *task, const Status &mine,
                      const std::string &payload,
                      std::vector<std::string> *all) {
  std::string report = succeeded + payload;
  if (!mine.isOk())
    report =
        failed + mine.message() + " (" + ddphook_status_name(mine.code()) + ")";
  all->clear();
  DDPHOOK_TRY(context.allGather(what, report, all));
  if (!mine.isOk())
    return mine;
  for (size_t rank = 0; rank < all->size(); ++rank) {
    std::string &text = (*all)[rank];
    const bool isSuccess = !text.empty() && text[0] == succeeded;
    text.erase(0, 1);
    if (!isSuccess)
      return error(DDPHOOK_ABORTED, "rank %zu could not %s: %s", rank, task,
                   text.c_str());
  }
  return Status::ok();
}
