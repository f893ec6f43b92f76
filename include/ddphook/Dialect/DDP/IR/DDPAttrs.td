//===- DDPAttrs.td - attributes of the ddp dialect ---------*- tablegen -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compression hooks, and the enums of the operations.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPATTRS_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPATTRS_TD

include "ddphook/Dialect/DDP/IR/DDPDialect.td"
include "ddphook/Dialect/DDP/IR/DDPInterfaces.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def DDP_Reduction : I32EnumAttr<"Reduction", "what an all-reduce computes", [
    I32EnumAttrCase<"Mean", 0, "mean">,
    I32EnumAttrCase<"Sum", 1, "sum">
  ]> {
  let cppNamespace = "::mlir::ddp";
  let genSpecializedAttr = 0;
}
def DDP_ReductionAttr : EnumAttr<DDP_Dialect, DDP_Reduction, "reduction">;

def DDP_Placement : I32EnumAttr<"Placement", "which ranks form a group", [
    I32EnumAttrCase<"IntraNode", 0, "intra_node">,
    I32EnumAttrCase<"InterNode", 1, "inter_node">
  ]> {
  let cppNamespace = "::mlir::ddp";
  let genSpecializedAttr = 0;
}
def DDP_PlacementAttr : EnumAttr<DDP_Dialect, DDP_Placement, "placement">;

class DDP_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<DDP_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

/// A hook. Subclasses implement expand, getWireBytes and getLocalPasses.
class DDP_Hook<string name, string attrMnemonic, list<string> methods = []>
    : DDP_Attr<name, attrMnemonic,
               [DeclareAttrInterfaceMethods<
                   DDP_HookAttrInterface,
                   !listconcat(["expand", "getWireBytes", "getLocalPasses"],
                               methods)>]>;

def DDP_AllReduceHook : DDP_Hook<"AllReduceHook", "allreduce"> {
  let summary = "no compression: all-reduce in the bucket's own type";
  let description = [{
    PyTorch's `allreduce_hook`: with `mean`, every rank divides its bucket by
    the group's size, and the quotients are summed. On `ddp.all_reduce` itself
    the attribute also marks a collective that needs no further expansion.
  }];
}

def DDP_FP16Hook : DDP_Hook<"FP16Hook", "fp16", ["getWireType"]> {
  let summary = "cast to f16, all-reduce, cast back";
  let description = [{
    PyTorch's `fp16_compress_hook`: cast **then** divide (in f16), sum in f16,
    cast back. Values of 65520 and above become infinite.
  }];
}

def DDP_BF16Hook : DDP_Hook<"BF16Hook", "bf16", ["getWireType"]> {
  let summary = "cast to bf16, all-reduce, cast back";
  let description = [{
    PyTorch's `bf16_compress_hook`: as `#ddp.fp16`, in bfloat16.
  }];
}

def DDP_NoopHook : DDP_Hook<"NoopHook", "noop"> {
  let summary = "no communication: every rank keeps its own gradient";
  let description = [{
    PyTorch's `noop_hook`, for measuring what communication costs.
  }];
}

def DDP_WrapHook
    : DDP_Hook<"WrapHook", "wrap",
               ["verifyBucket", "getStateBytes", "getWireType"]> {
  let summary = "run another hook in a 16-bit type";
  let description = [{
    PyTorch's `fp16_compress_wrapper` and `bf16_compress_wrapper`: the bucket is
    cast to the wire type, the inner hook runs on the 16-bit bucket, and the
    result is cast back.

    Example: `#ddp.wrap<bf16, #ddp.allreduce>`

    Constraints:
    - (C1) the wire type is f16 or bf16.
    - (C2) the inner attribute is a hook.
  }];
  let parameters = (ins "::mlir::Type":$wireType, "::mlir::Attribute":$inner);
  let assemblyFormat = "`<` $wireType `,` $inner `>`";
  let genVerifyDecl = 1;
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPATTRS_TD
