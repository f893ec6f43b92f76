//===- agreement.h - ranks tell each other how they fared -------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For work that every rank does alone, but that counts only when all of them
// managed it.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_JOB_AGREEMENT_H
#define DDPHOOK_RUNTIME_SRC_JOB_AGREEMENT_H

#include "job/context.h"

namespace ddphook {

/// Tells all ranks how this one fared, and hears it from them; collective.
/// Gives `mine` when that is a failure, and ABORTED, "rank n could not `task`:
/// …", when only others failed; the context is unharmed by both. Failures to
/// reach the others are final. On success `all` has every rank's `payload`.
Status agree(Context &context, const std::string &what, const char *task,
             const Status &mine, const std::string &payload,
             std::vector<std::string> *all);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_JOB_AGREEMENT_H
