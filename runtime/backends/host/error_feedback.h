// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Error feedback for collectives that keep their own error, such as those over
// hierarchical groups (docs/hierarchy.md). Elsewhere compiled code does it.

#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_ERROR_FEEDBACK_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_ERROR_FEEDBACK_H

#include "collective_desc.h"

namespace ddphook::host {

/// Computes out[i] = in[i] + error[i], and sets error[i] to what rank `rank` of
/// the group loses by encoding it. `out` may be `in`; `error` overlaps neither.
void feedBackError(const CollectiveDesc &desc, int rank, const void *in,
                   void *error, void *out);

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_ERROR_FEEDBACK_H
