// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares a pass that breaks a module, or repairs it.

#pragma once

namespace testhook {

/// Registers `test-break-module`.
void registerBreakModulePass();

} // namespace testhook
