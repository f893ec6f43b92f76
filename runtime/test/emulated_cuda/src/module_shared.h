// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// They are thread-local variables in a section of their own. The section's
// bounds are those of their initial values in the module's file; from them
// follows where the calling thread has its copies.

#pragma once

namespace emulated_cuda {

/// Fills the calling thread's copies of the variables whose initial values lie
/// in [begin, end) with 0xff. Null bounds: there are none.
void poisonModuleShared(const char *begin, const char *end);

} // namespace emulated_cuda
