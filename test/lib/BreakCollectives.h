// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares a pipeline that breaks a module's collectives between two checks.

#pragma once

namespace testhook {

/// Registers `test-break-collectives`.
void registerBreakCollectivesPipeline();

} // namespace testhook
