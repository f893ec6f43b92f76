// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The dialect `testhook`.

#ifndef DDPHOOK_TEST_LIB_TESTHOOK_H
#define DDPHOOK_TEST_LIB_TESTHOOK_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "TestHookDialect.h.inc"

#define GET_ATTRDEF_CLASSES
#include "TestHookAttrs.h.inc"

#endif // DDPHOOK_TEST_LIB_TESTHOOK_H
