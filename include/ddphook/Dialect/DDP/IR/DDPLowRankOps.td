// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The operations of PowerSGD: sums, products of matrices and their factors,
// orthogonalization.

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPLOWRANKOPS_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPLOWRANKOPS_TD

include "ddphook/Dialect/DDP/IR/DDPOpBase.td"

/// The declaration that low-rank operations share.
defvar inferLayout = [{
    /// Returns the locations of the members once the buckets are flat.
    ::mlir::ddp::MatrixListAttr inferLayout();
}];

class DDP_BinaryOp<string mnemonic> : DDP_SameTypeOp<mnemonic, [Pure]> {
  let text = [{
    16-bit types are computed in f32 and rounded once.
  }];
  let example = [{
    %m = ddp.}] # mnemonic # [{ %a, %b
        : !ddp.bucket<f32, [64x32, 64]>, !ddp.bucket<f32, [64x32, 64]>
  }];
  let constraints = [{
    - (C1) both operands have the same type.
  }];
  let arguments = (ins DDP_Value:$input, DDP_Value:$rhs);
  let assemblyFormat = [{
    $input `,` $rhs attr-dict `:` type($input) `,` type($rhs)
  }];
}

def DDP_AddOp : DDP_BinaryOp<"add"> {
  let summary = "adds, element by element";
}

def DDP_SubOp : DDP_BinaryOp<"sub"> {
  let summary = "subtracts, element by element";
}

def DDP_MatmulOp : DDP_Op<"matmul", [Pure]> {
  let summary = "multiplies the members of two buckets, pair by pair";
  let text = [{
    Member i of the result is the product of member i of `lhs` and member i of
    `rhs`. A member is viewed as the matrix of its first dimension by the product of
    all others. With `transpose_lhs` or `transpose_rhs` that operand's members are
    transposed. `members` selects and orders members of the bucket of large
    matrices, which is `lhs` unless `rhs` is transposed.

    The three forms are those of a matrix M, n x m, and its factors P, n x r, and Q,
    m x r:

    - P = M·Q: `ddp.matmul %m, %q`
    - Q = Mᵀ·P: `ddp.matmul transpose_lhs %m, %p`
    - M = P·Qᵀ: `ddp.matmul transpose_rhs %p, %q`

    f32 and f64 are accumulated in their own type; 16-bit types are accumulated in
    f32 and rounded once.
  }];
  let example = [{
    %p = ddp.matmul %m, %q
        : (!ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [32x2]>)
        -> !ddp.bucket<f32, [64x2]>
  }];
  let constraints = [{
    - (C1) at most one operand is transposed.
    - (C2) the buckets have one element type, and their members fit each other.
    - (C3) `members` are distinct and in range; they are not allowed with
      `transpose_rhs`.
  }];
  let arguments = (ins DDP_Bucket:$lhs, DDP_Bucket:$rhs,
                   UnitAttr:$transpose_lhs, UnitAttr:$transpose_rhs,
                   OptionalAttr<DenseI64ArrayAttr>:$members);
  let results = (outs DDP_Bucket:$result);
  let extraClassDeclaration = inferLayout;
  let assemblyFormat = [{
    (`transpose_lhs` $transpose_lhs^)? (`transpose_rhs` $transpose_rhs^)?
    $lhs (`members` $members^)? `,` $rhs attr-dict
    `:` functional-type(operands, results)
  }];
}

def DDP_OrthogonalizeOp : DDP_SameTypeOp<"orthogonalize", [Pure]> {
  let summary = "makes the columns of every member orthonormal";
  let text = [{
    Works like PyTorch's PowerSGD (docs/parity.md): modified Gram-Schmidt for at
    most two columns and for 16-bit types, dividing each column by its norm plus
    `epsilon`; Householder QR otherwise, where `epsilon` has no effect. Gram-Schmidt
    turns a column into NaN or infinity if its norm plus `epsilon` is 0; with
    `unit_columns`, the column becomes a unit vector, as in QR. With
    `independent_columns`, a column that depends on earlier ones, of which
    Gram-Schmidt leaves little but rounding errors, also becomes a unit vector.
  }];
  let example = [{
    %p1 = ddp.orthogonalize %p epsilon 0.000000e+00 : !ddp.bucket<f32, [64x2]>
  }];
  let constraints = [{
    - (C1) `epsilon` is finite and not negative.
  }];
  let arguments = (ins DDP_Bucket:$input, F64Attr:$epsilon,
                   UnitAttr:$unit_columns, UnitAttr:$independent_columns);
  let results = (outs DDP_Bucket:$result);
  let extraClassDeclaration = inferLayout;
  let assemblyFormat = [{
    $input `epsilon` $epsilon (`unit_columns` $unit_columns^)?
    (`independent_columns` $independent_columns^)? attr-dict `:` type($input)
  }];
}

def DDP_ResizeOp : DDP_Op<"resize", [Pure]> {
  let summary = "the same elements in a bucket of another size";
  let text = [{
    Takes as many elements as the result has from the start of the operand, and pads
    with zeros. `ddp-flatten` lowers it.
  }];
  let example = [{
    %s = ddp.resize %b : !ddp.bucket<f32, [4x8, 8]> -> !ddp.bucket<f32, [7x7]>
  }];
  let constraints = [{
    - (C1) both have the same element type.
  }];
  let arguments = (ins DDP_Bucket:$bucket);
  let results = (outs DDP_Bucket:$result);
  let assemblyFormat = "$bucket attr-dict `:` type($bucket) `->` type($result)";
  let hasFolder = 1;
}

def DDP_IsFiniteOp : DDP_Op<"is_finite", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "checks that all elements are finite";
  let text = [{
    Returns false if an element is infinite or NaN.
  }];
  let example = [{
    %ok = ddp.is_finite %p : !ddp.bucket<f32, [64x2]>
  }];
  let arguments = (ins DDP_Reducible:$input);
  let results = (outs I1:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
  let hasVerifier = 0;
}

// Fused operations, created by ddp-fuse.

def DDP_ProjectOp : DDP_Op<"project", [Pure]> {
  let summary = "adds the error and projects, in one pass over the gradient";
  let text = [{
    With M = `input` + `error`, or `input` if there is no error, returns

    - M itself, if there is an error;
    - the products of M's `members` with those of `factor`, P = M·Q;
    - the other members of M, in order, if there are any. With `packed` they follow
      P, in the same value.
  }];
  let example = [{
    %m, %p, %rest = ddp.project %g plus %e members [0] by %q
        : (!ddp.bucket<f32, [64x32, 64]>, !ddp.bucket<f32, [64x32, 64]>,
           !ddp.bucket<f32, [32x2]>)
        -> (!ddp.bucket<f32, [64x32, 64]>, !ddp.bucket<f32, [64x2]>,
            !ddp.bucket<f32, [64]>)
  }];
  let constraints = [{
    - (C1) there is a result for each of the values above, with its members.
    - (C2) error and operand have the same type.
    - (C3) the members fit those of `factor`, and are distinct and in range.
  }];
  let arguments = (ins DDP_Bucket:$input, Optional<DDP_Bucket>:$error,
                   DDP_Bucket:$factor, DenseI64ArrayAttr:$members,
                   UnitAttr:$packed);
  let results = (outs Variadic<DDP_Bucket>:$values);
  let extraClassDeclaration = inferLayout # [{
    /// Returns the number of the value that is P; M comes before it.
    unsigned getPNumber() { return getError() ? 1 : 0; }
  }];
  let assemblyFormat = [{
    $input (`plus` $error^)? `members` $members `by` $factor
    (`packed` $packed^)? attr-dict `:` functional-type(operands, results)
  }];
}

def DDP_ReconstructOp : DDP_Op<"reconstruct", [
    Pure, AttrSizedOperandSegments, DDP_UsesGroup, SymbolUserOpInterface]> {
  let summary = "assembles a bucket from factors, and computes the error";
  let text = [{
    Returns the bucket whose `members` are the products P·Qᵀ and whose other members
    are those of `rest`. With `matrix`, also returns the error, `matrix` minus the
    bucket. With `by_world_of` the bucket is divided by the group's size before it
    is subtracted.
  }];
  let example = [{
    %out, %err = ddp.reconstruct %p, %q members [0] rest %v from %m
        : (!ddp.bucket<f32, [64x2]>, !ddp.bucket<f32, [32x2]>,
           !ddp.bucket<f32, [64]>, !ddp.bucket<f32, [64x32, 64]>)
        -> (!ddp.bucket<f32, [64x32, 64]>, !ddp.bucket<f32, [64x32, 64]>)
  }];
  let constraints = [{
    - (C1) there is a result for each of the values above, and `rest` if there are
      other members.
    - (C2) `matrix` and the results have the same type.
    - (C3) the factors' members fit each other and the result's `members`, which
      are distinct and in range.
    - (C4) `group` is a `ddp.process_group`, and needs `matrix`.
  }];
  let arguments = (ins DDP_Bucket:$p, DDP_Bucket:$q, DenseI64ArrayAttr:$members,
                   Optional<DDP_Bucket>:$rest, Optional<DDP_Bucket>:$matrix,
                   OptionalAttr<FlatSymbolRefAttr>:$group);
  let results = (outs Variadic<DDP_Bucket>:$values);
  let extraClassDeclaration = inferLayout;
  let assemblyFormat = [{
    $p `,` $q `members` $members (`rest` $rest^)? (`from` $matrix^)?
    (`by_world_of` $group^)? attr-dict `:` functional-type(operands, results)
  }];
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPLOWRANKOPS_TD
