// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The dialect `testhook`.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "TestHookDialect.h.inc"

#define GET_ATTRDEF_CLASSES
#include "TestHookAttrs.h.inc"
