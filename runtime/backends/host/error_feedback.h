//===- error_feedback.h - what an encoding loses comes again ----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Error feedback of a collective that keeps its own error, as those over
// hierarchical groups do (docs/hierarchy.md). Elsewhere it is compiled code's.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_ERROR_FEEDBACK_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_ERROR_FEEDBACK_H

#include "collective_desc.h"

namespace ddphook::host {

/// out[i] = in[i] + error[i], and error[i] = what rank `rank` of `desc`'s group
/// loses of out[i] when it encodes that. `out` may be `in`; `error` lies apart.
void feedBackError(const CollectiveDesc &desc, int rank, const void *in,
                   void *error, void *out);

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_ERROR_FEEDBACK_H
