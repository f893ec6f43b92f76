// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares a pass that breaks a module, or repairs it.

#ifndef DDPHOOK_TEST_LIB_BREAKMODULE_H
#define DDPHOOK_TEST_LIB_BREAKMODULE_H

namespace testhook {

/// Registers `test-break-module`.
void registerBreakModulePass();

} // namespace testhook

#endif // DDPHOOK_TEST_LIB_BREAKMODULE_H
