// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What MyHook.td declares, in C++.

#ifndef MYHOOK_H
#define MYHOOK_H

#include "ddphook/InitAll.h"

#include "MyHookDialect.h.inc"
#define GET_ATTRDEF_CLASSES
#include "MyHookAttrs.h.inc"

#endif // MYHOOK_H
