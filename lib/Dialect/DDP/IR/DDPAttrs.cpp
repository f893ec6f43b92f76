//===- DDPAttrs.cpp - the attributes of the ddp dialect -------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What TableGen makes of the attributes. Those of the plan are checked in
// Plan.cpp, and what hooks do is in Hooks.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "PlanList.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::ddp;

#define GET_ATTRDEF_CLASSES
#include "ddphook/Dialect/DDP/IR/DDPAttrs.cpp.inc"

void DDPDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "ddphook/Dialect/DDP/IR/DDPAttrs.cpp.inc"
      >();
}
