// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares a pass that turns a step of one rank into a step of many.

#pragma once

namespace testhook {

/// Registers `test-reduce-results`.
void registerReduceResultsPass();

} // namespace testhook
