// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Agreement on work that every rank does alone, but that counts only if it
// succeeds on all ranks.

#pragma once

#include "job/context.h"

namespace ddphook {

/// Collective: exchanges whether the work succeeded on each rank. Returns
/// `mine` if that is a failure, and ABORTED, "rank n could not `task`: …", if
/// only others failed; neither harms the context. A failure to reach the others
/// is final. On success `all` has every rank's `payload`.
Status agree(Context &context, const std::string &what, const char *task,
             const Status &mine, const std::string &payload,
             std::vector<std::string> *all);

} // namespace ddphook
