// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Registers `test-emulate-kernels`.

#pragma once

namespace testhook {

void registerEmulateKernelsPass();

} // namespace testhook
