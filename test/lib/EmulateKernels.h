// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Registers `test-emulate-kernels`.

#ifndef DDPHOOK_TEST_LIB_EMULATEKERNELS_H
#define DDPHOOK_TEST_LIB_EMULATEKERNELS_H

namespace testhook {

void registerEmulateKernelsPass();

} // namespace testhook

#endif // DDPHOOK_TEST_LIB_EMULATEKERNELS_H
