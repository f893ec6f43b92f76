// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A dialect that has nothing but hooks, for tests: what somebody writes who adds
// a hook to ddphook without touching it.

#ifndef DDPHOOK_TEST_LIB_TESTHOOKATTRS_TD
#define DDPHOOK_TEST_LIB_TESTHOOKATTRS_TD

include "ddphook/Dialect/DDP/IR/DDPHookBase.td"
include "mlir/IR/DialectBase.td"

def TestHook_Dialect : Dialect {
  let name = "testhook";
  let cppNamespace = "::testhook";
  let useDefaultAttributePrinterParser = 1;
  // What the hooks' expansions consist of, besides ddp.
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

class TestHook_Hook<string name, string attrMnemonic, list<string> methods = []>
    : DDP_HookAttr<TestHook_Dialect, name, attrMnemonic, methods>;

def TestHook_Scaled
    : DDP_HookAttrBase<TestHook_Dialect, "Scaled", "scaled", ["verifyBucket"]> {
  let summary = "multiply by a factor, all-reduce, divide by it again";
  let description = [{
    Refuses buckets of f64 (as an example of `verifyBucket`), and has a syntax of
    its own, so that options can only give it as an attribute.
  }];
  let parameters = (ins "::mlir::FloatAttr":$factor);
  let assemblyFormat = "`<` $factor `>`";
}

def TestHook_Weighted : TestHook_Hook<"Weighted", "weighted"> {
  let summary = "multiply by a weight, all-reduce";
  let description = [{
    Constraints:
    - (C1) the weight is finite.
  }];
  let parameters = (ins
    DDP_NumberParameter<"1", "what gradients are multiplied by">:$weight,
    DDP_FlagParameter<0, "divide by the weight again">:$undo);
  let genVerifyDecl = 1;
}

def TestHook_Feedback
    : TestHook_Hook<"Feedback", "feedback",
                    ["getStateBytes", "getWireType"]> {
  let summary = "all-reduce in f16, and add what was lost to the next gradient";
}

def TestHook_Clipped : TestHook_Hook<"Clipped", "clipped"> {
  let summary = "clip every element, all-reduce";
  let description = [{
    Computes with operations of linalg, of which ddphook knows nothing.
  }];
  let parameters = (ins
    DDP_NumberParameter<"1", "the largest magnitude that is sent">:$limit);
}

def TestHook_Sign
    : TestHook_Hook<"Sign", "sign", ["getStateBytes", "getWireType"]> {
  let summary = "send signs and mean magnitudes, with error feedback";
  let description = [{
    Constraints:
    - (C1) `block_size` is a multiple of 8 that is not negative.
  }];
  let parameters = (ins
    DDP_IntegerParameter<1024, "elements that share a magnitude; 0: all of a "
                               "bucket">:$block_size);
  let genVerifyDecl = 1;
}

def TestHook_TopK
    : TestHook_Hook<"TopK", "top_k", ["getStateBytes", "getWireType"]> {
  let summary = "send the largest elements, and add the others to the next gradient";
  let description = [{
    Constraints:
    - (C1) `density` is from 0 to 1.
  }];
  let parameters = (ins
    DDP_NumberParameter<"0.01", "share of a bucket's elements that are sent; at "
                                "least one is">:$density);
  let genVerifyDecl = 1;
}

def TestHook_Failing : TestHook_Hook<"Failing", "failing"> {
  let summary = "a hook whose expansion fails";
}

def TestHook_Narrowing : TestHook_Hook<"Narrowing", "narrowing"> {
  let summary = "a hook that breaks its contract: its result has another type";
}

#endif // DDPHOOK_TEST_LIB_TESTHOOKATTRS_TD
