//===- MyHook.td - a hook in a foreign dialect -------------*- tablegen -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All that a compiler declares to bring its own way of reducing gradients.
//
//===----------------------------------------------------------------------===//

include "ddphook/Dialect/DDP/IR/DDPInterfaces.td"
include "mlir/IR/AttrTypeBase.td"

def My_Dialect : Dialect {
  let name = "my";
  let cppNamespace = "::my";
  let useDefaultAttributePrinterParser = 1;
}

def My_PrescaledHook
    : AttrDef<My_Dialect, "PrescaledHook",
              [DeclareAttrInterfaceMethods<DDP_HookAttrInterface>]> {
  let mnemonic = "prescaled";
  let summary = "halves the gradients before they are reduced";
}
