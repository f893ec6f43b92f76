//===- TestHookAttrs.td - a hook from another dialect ------*- tablegen -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A dialect that has nothing but hooks, for tests: what somebody writes who adds
// a hook to ddphook without touching it.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_TEST_LIB_TESTHOOKATTRS_TD
#define DDPHOOK_TEST_LIB_TESTHOOKATTRS_TD

include "ddphook/Dialect/DDP/IR/DDPInterfaces.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/DialectBase.td"

def TestHook_Dialect : Dialect {
  let name = "testhook";
  let cppNamespace = "::testhook";
  let useDefaultAttributePrinterParser = 1;
}

class TestHook_Hook<string name, string attrMnemonic, list<string> methods = []>
    : AttrDef<TestHook_Dialect, name,
              [DeclareAttrInterfaceMethods<
                  DDP_HookAttrInterface,
                  !listconcat(["expand", "getWireBytes", "getLocalPasses"],
                              methods)>]> {
  let mnemonic = attrMnemonic;
}

def TestHook_Scaled : TestHook_Hook<"Scaled", "scaled", ["verifyBucket"]> {
  let summary = "multiply by a factor, all-reduce, divide by it again";
  let description = [{
    Refuses buckets of f64 (as an example of `verifyBucket`).
  }];
  let parameters = (ins "::mlir::FloatAttr":$factor);
  let assemblyFormat = "`<` $factor `>`";
}

def TestHook_Feedback
    : TestHook_Hook<"Feedback", "feedback",
                    ["getStateBytes", "getWireType"]> {
  let summary = "all-reduce in f16, and add what was lost to the next gradient";
}

def TestHook_Failing : TestHook_Hook<"Failing", "failing"> {
  let summary = "a hook whose expansion fails";
}

def TestHook_Narrowing : TestHook_Hook<"Narrowing", "narrowing"> {
  let summary = "a hook that breaks its contract: its result has another type";
}

#endif // DDPHOOK_TEST_LIB_TESTHOOKATTRS_TD
