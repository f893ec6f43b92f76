// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares a pass that turns a step of one rank into a step of many.

#ifndef DDPHOOK_TEST_LIB_REDUCERESULTS_H
#define DDPHOOK_TEST_LIB_REDUCERESULTS_H

namespace testhook {

/// Registers `test-reduce-results`.
void registerReduceResultsPass();

} // namespace testhook

#endif // DDPHOOK_TEST_LIB_REDUCERESULTS_H
