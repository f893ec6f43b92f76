// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All that a compiler declares to bring its own way of reducing gradients.

include "ddphook/Dialect/DDP/IR/DDPHookBase.td"

def My_Dialect : Dialect {
  let name = "my";
  let cppNamespace = "::my";
  let useDefaultAttributePrinterParser = 1;
}

def My_PrescaledHook
    : DDP_HookAttrBase<My_Dialect, "PrescaledHook", "prescaled"> {
  let summary = "halves the gradients before they are reduced";
}
