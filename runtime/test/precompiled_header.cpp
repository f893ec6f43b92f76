// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The source file of the target whose precompiled header the tests share.
