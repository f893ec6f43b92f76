// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The operations of hooks that send a few elements with their indices, on values
// and on flat arrays.

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPSPARSEOPS_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPSPARSEOPS_TD

include "ddphook/Dialect/DDP/IR/DDPFlatOps.td"
include "ddphook/Dialect/DDP/IR/DDPOpBase.td"

def DDP_SparsifyOp : DDP_Op<"sparsify", [
    Pure, DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "takes the elements of the largest magnitude out of a value";
  let text = [{
    The result `entries` has `keep` elements of the operand, in the order of their
    indices, followed by these indices: 32-bit integers, as bit patterns of f32. The
    elements are those of the largest magnitude; of equal ones the first are taken,
    and a NaN is larger than all numbers. The result `rest` is the operand with
    zeros in place of these elements and, if `keep` is not 0, of all elements that
    are not finite: as many of those as possible are among the entries, and the rest
    can be added to the next gradient.

    All ranks have the same number of entries, so `ddp.all_gather` collects those of
    all ranks, and `ddp.densify` adds them.
  }];
  let example = [{
    %entries, %rest = ddp.sparsify %m keep 8 : !ddp.bucket<f32, [40x8]>
        // -> tensor<16xf32>, !ddp.bucket<f32, [40x8]>
  }];
  let constraints = [{
    - (C1) elements are f32, and there are fewer than 2^31.
    - (C2) `keep` is not negative, and at most the number of elements.
  }];
  let arguments = (ins DDP_Value:$input, I64Attr:$keep);
  let results = (outs DDP_FlatBucket:$entries, DDP_Value:$rest);
  let assemblyFormat = [{
    $input `keep` $keep attr-dict `:` type($input)
  }];
}

def DDP_DensifyOp : DDP_Op<"densify", [Pure]> {
  let summary = "adds entries to zeros, each at its index";
  let text = [{
    The inverse of `ddp.sparsify`, for the concatenation of one or more of its
    results: an element is the sum of the entries with its index, in order, or 0 if
    there are none.
  }];
  let example = [{
    %sum = ddp.densify %all keep 8 : tensor<64xf32> -> !ddp.bucket<f32, [40x8]>
  }];
  let constraints = [{
    - (C1) elements are f32, and there are fewer than 2^31.
    - (C2) `keep` is positive.
    - (C3) the number of entries is a multiple of 2 · `keep`.
  }];
  let arguments = (ins DDP_FlatBucket:$entries, I64Attr:$keep);
  let results = (outs DDP_Value:$result);
  let assemblyFormat = [{
    $entries `keep` $keep attr-dict `:` type($entries) `->` type($result)
  }];
}

def DDP_FlatSparsifyOp : DDP_FlatOp<"sparsify"> {
  // The rest may overwrite the operand.
  let overwritable = "resultNumber == 1";
  let text = [{
    The `into` operands are the entries and the rest.
  }];
  let example = [{
    %e, %r = ddp.flat.sparsify %m keep 8 into (%x, %y)
        : tensor<320xf32>, tensor<16xf32>, tensor<320xf32>
  }];
  let constraints = [{
    - (C1) all arrays are tensors, or all are memrefs, of f32; there are two `into`
      operands.
    - (C2) `keep` is not negative, and at most the number of elements.
    - (C3) there are 2 · `keep` entries.
    - (C4) the rest has the operand's size.
  }];
  let arguments = (ins DDP_FlatArray:$input, I64Attr:$keep,
                   Variadic<DDP_FlatArray>:$destination);
  let results = (outs Variadic<DDP_Gradient>:$values);
  let assemblyFormat = [{
    $input `keep` $keep `into` `(` $destination `)` attr-dict `:` type(operands)
  }];
}

def DDP_FlatDensifyOp : DDP_FlatOp<"densify"> {
  let example = [{
    %s = ddp.flat.densify %all keep 8 into %x : tensor<64xf32>, tensor<320xf32>
  }];
  let constraints = [{
    - (C1) both arrays are tensors, or both are memrefs, of f32.
    - (C2) `keep` is positive.
    - (C3) the number of entries is a multiple of 2 · `keep`.
  }];
  let arguments = (ins DDP_FlatArray:$entries, I64Attr:$keep,
                   DDP_FlatArray:$destination);
  let assemblyFormat = [{
    $entries `keep` $keep `into` $destination attr-dict `:` type(operands)
  }];
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPSPARSEOPS_TD
