// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares a pipeline that breaks a module's collectives between two checks.

#ifndef DDPHOOK_TEST_LIB_BREAKCOLLECTIVES_H
#define DDPHOOK_TEST_LIB_BREAKCOLLECTIVES_H

namespace testhook {

/// Registers `test-break-collectives`.
void registerBreakCollectivesPipeline();

} // namespace testhook

#endif // DDPHOOK_TEST_LIB_BREAKCOLLECTIVES_H
