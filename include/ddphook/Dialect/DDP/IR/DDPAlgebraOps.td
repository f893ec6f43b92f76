//===- DDPAlgebraOps.td - low-rank arithmetic --------------*- tablegen -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums, products of matrices and their factors, orthogonalization: what PowerSGD
// is made of.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPALGEBRAOPS_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPALGEBRAOPS_TD

include "ddphook/Dialect/DDP/IR/DDPOpBase.td"

class DDP_BinaryOp<string mnemonic> : DDP_SameTypeOp<mnemonic> {
  let description = [{
    16-bit types are computed in f32 and rounded once.

    Example:

    ```mlir
    %m = ddp.}] # mnemonic # [{ %a, %b
        : !ddp.bucket<f32, [64x32, 64]>, !ddp.bucket<f32, [64x32, 64]>
    ```

    Constraints:
    }] # algebraConstraints # [{
    - (C2) all operands have the same type; on memrefs, shape and element type.
  }];
  let arguments = (ins DDP_Value:$input, DDP_Value:$rhs,
                   Optional<DDP_Value>:$destination);
  let results = (outs Optional<DDP_Value>:$result);
  let assemblyFormat = [{
    $input `,` $rhs (`into` $destination^ `:` type($destination) `,`)? attr-dict
    `:` type($input) `,` type($rhs)
  }];
  let extraClassDefinition = algebraMethods # inferenceMethods # [{
    ::llvm::LogicalResult $cppClass::verify() {
      return ::mlir::ddp::verifyBinary(*this);
    }
  }];
}

def DDP_AddOp : DDP_BinaryOp<"add"> {
  let summary = "adds, element by element";
}

def DDP_SubOp : DDP_BinaryOp<"sub"> {
  let summary = "subtracts, element by element";
}

def DDP_MatmulOp : DDP_AlgebraOp<"matmul"> {
  let summary = "multiplies the members of two buckets, pair by pair";
  let description = [{
    Member i of the result is the product of member i of `lhs` and member i of
    `rhs`. A member is taken for the matrix of its first dimension by the product
    of all others. With `transpose_lhs` or `transpose_rhs` that operand's members
    are transposed. `members` selects and orders the members of the large
    matrices' bucket that take part: those of `lhs`, unless `rhs` is transposed.

    The three forms are those of a matrix M, n x m, and its factors P, n x r, and
    Q, m x r:

    - P = M·Q: `ddp.matmul %m, %q`
    - Q = Mᵀ·P: `ddp.matmul transpose_lhs %m, %p`
    - M = P·Qᵀ: `ddp.matmul transpose_rhs %p, %q`

    f32 and f64 are accumulated in their own type, 16-bit types in f32, rounded
    once.

    Example:

    ```mlir
    %p = ddp.matmul %m, %q
        : (!ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [32x2]>)
        -> !ddp.bucket<f32, [64x2]>
    ```

    Constraints:
    }] # algebraConstraints # [{
    - (C2) at most one operand is transposed.
    - (C3) buckets have the same element type; their members fit each other.
    - (C4) `members` are distinct and in range; not with `transpose_rhs`.
    - (C5) tensors and memrefs have a `layout`, buckets have none.
  }];
  let arguments = (ins DDP_Value:$lhs, DDP_Value:$rhs,
                   UnitAttr:$transpose_lhs, UnitAttr:$transpose_rhs,
                   OptionalAttr<DenseI64ArrayAttr>:$members,
                   OptionalAttr<DDP_MatrixListAttr>:$layout,
                   Optional<DDP_Value>:$destination);
  let results = (outs Optional<DDP_Value>:$result);
  let extraClassDeclaration = [{
    /// The layout that the bucket types stand for.
    ::mlir::ddp::MatrixListAttr inferLayout();
  }];
  let assemblyFormat = [{
    (`transpose_lhs` $transpose_lhs^)? (`transpose_rhs` $transpose_rhs^)?
    $lhs (`members` $members^)? `,` $rhs (`layout` $layout^)? (`into` $destination^)?
    attr-dict `:` functional-type(operands, results)
  }];
}

def DDP_OrthogonalizeOp : DDP_SameTypeOp<"orthogonalize"> {
  let summary = "makes the columns of every member orthonormal";
  let description = [{
    As PyTorch's PowerSGD does (docs/parity.md): modified Gram-Schmidt for at most
    two columns and for 16-bit types, dividing each column by its norm plus
    `epsilon`; Householder QR otherwise, where epsilon means nothing. A column of
    zeros becomes NaN in Gram-Schmidt if epsilon is 0; with `unit_columns`, it
    becomes a unit vector, as in QR.

    Example:

    ```mlir
    %p1 = ddp.orthogonalize %p epsilon 0.000000e+00 : !ddp.bucket<f32, [64x2]>
    ```

    Constraints:
    }] # algebraConstraints # [{
    - (C2) `epsilon` is finite and not negative.
    - (C3) tensors and memrefs have a `layout`, buckets have none.
    - (C4) `into` has the operand's type; on memrefs, its shape and element type.
  }];
  let arguments = (ins DDP_Value:$input, F64Attr:$epsilon,
                   UnitAttr:$unit_columns,
                   OptionalAttr<DDP_MatrixListAttr>:$layout,
                   Optional<DDP_Value>:$destination);
  let results = (outs Optional<DDP_Value>:$result);
  let extraClassDeclaration = [{
    /// The layout that the bucket types stand for.
    ::mlir::ddp::MatrixListAttr inferLayout();
  }];
  let assemblyFormat = [{
    $input `epsilon` $epsilon (`unit_columns` $unit_columns^)? (`layout` $layout^)?
    (`into` $destination^ `:` type($destination) `,`)? attr-dict
    `:` type($input)
  }];
}

def DDP_ResizeOp : DDP_Op<"resize", [Pure]> {
  let summary = "the same elements in a bucket of another size";
  let description = [{
    Takes as many elements as the result has from the start of the operand, and
    fills up with zeros. `ddp-flatten` lowers it.

    Example:

    ```mlir
    %s = ddp.resize %b : !ddp.bucket<f32, [4x8, 8]> -> !ddp.bucket<f32, [7x7]>
    ```

    Constraints:
    - (C1) both have the same element type.
  }];
  let arguments = (ins DDP_Bucket:$bucket);
  let results = (outs DDP_Bucket:$result);
  let assemblyFormat = "$bucket attr-dict `:` type($bucket) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def DDP_IsFiniteOp : DDP_Op<"is_finite", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "whether all elements are numbers";
  let description = [{
    False if an element is infinite or NaN.

    Example:

    ```mlir
    %ok = ddp.is_finite %p : !ddp.bucket<f32, [64x2]>
    ```
  }];
  let arguments = (ins DDP_Value:$input);
  let results = (outs I1:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}

//===----------------------------------------------------------------------===//
// Fused operations, made by ddp-fuse
//===----------------------------------------------------------------------===//

def DDP_ProjectOp : DDP_AlgebraOp<"project", [AttrSizedOperandSegments]> {
  let summary = "adds the error and projects, in one pass over the gradient";
  // M may take the place of what it is the sum of.
  let overwritable = [{getError() && resultNumber == 0 &&
             (operand.get() == getError() || operand.get() == getInput())}];
  let description = [{
    With M = `input` + `error`, or `input` where there is no error, gives

    - M itself, if there is an error;
    - the products of M's `members` with those of `factor`, P = M·Q;
    - the other members of M, in order, if there are any. With `packed` they
      come behind P, in the same value.

    Example:

    ```mlir
    %m, %p, %rest = ddp.project %g plus %e members [0] by %q
        : (!ddp.bucket<f32, [64x32, 64]>, !ddp.bucket<f32, [64x32, 64]>,
           !ddp.bucket<f32, [32x2]>)
        -> (!ddp.bucket<f32, [64x32, 64]>, !ddp.bucket<f32, [64x2]>,
            !ddp.bucket<f32, [64]>)
    ```

    Constraints:
    - (C1) on memrefs there are no results, and an `into` operand for each of
      the values above; otherwise there are results, and no `into` or one for
      each of them, of its type.
    - (C2) error and operand have the same type.
    - (C3) the members fit those of `factor`, and are distinct and in range.
    - (C4) tensors and memrefs have a `layout`, buckets have none.
  }];
  let arguments = (ins DDP_Value:$input, Optional<DDP_Value>:$error,
                   DDP_Value:$factor, DenseI64ArrayAttr:$members,
                   UnitAttr:$packed,
                   OptionalAttr<DDP_MatrixListAttr>:$layout,
                   Variadic<DDP_Value>:$destination);
  let results = (outs Variadic<DDP_Value>:$values);
  let extraClassDeclaration = [{
    /// The layout that the bucket types stand for.
    ::mlir::ddp::MatrixListAttr inferLayout();
    /// Which of the values, or `into` operands, is P; M comes before it.
    unsigned getPNumber() { return getError() ? 1 : 0; }
  }];
  let assemblyFormat = [{
    $input (`plus` $error^)? `members` $members `by` $factor
    (`packed` $packed^)? (`layout` $layout^)?
    (`into` `(` $destination^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
}

def DDP_ReconstructOp : DDP_AlgebraOp<"reconstruct", [
    AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "puts a bucket together from factors, and finds the error";
  // The error may take the place of M.
  let overwritable = "resultNumber == 1 && operand.get() == getMatrix()";
  let description = [{
    Gives the bucket whose `members` are the products P·Qᵀ and whose other
    members are those of `rest`; and, where `matrix` is given, what it lacks of
    that: `matrix` minus the bucket. With `by_world_of` the bucket is divided by
    the group's size before it is subtracted.

    Example:

    ```mlir
    %out, %err = ddp.reconstruct %p, %q members [0] rest %v from %m
        : (!ddp.bucket<f32, [64x2]>, !ddp.bucket<f32, [32x2]>,
           !ddp.bucket<f32, [64]>, !ddp.bucket<f32, [64x32, 64]>)
        -> (!ddp.bucket<f32, [64x32, 64]>, !ddp.bucket<f32, [64x32, 64]>)
    ```

    Constraints:
    - (C1) as for `ddp.project`.
    - (C2) `matrix` and the result have the same type.
    - (C3) the factors' members fit each other and the result's `members`, which
      are distinct and in range.
    - (C4) tensors and memrefs have a `layout`, buckets have none.
    - (C5) `group` is a `ddp.process_group`; only with `matrix`.
  }];
  let arguments = (ins DDP_Value:$p, DDP_Value:$q, DenseI64ArrayAttr:$members,
                   Optional<DDP_Value>:$rest, Optional<DDP_Value>:$matrix,
                   OptionalAttr<FlatSymbolRefAttr>:$group,
                   OptionalAttr<DDP_MatrixListAttr>:$layout,
                   Variadic<DDP_Value>:$destination);
  let results = (outs Variadic<DDP_Value>:$values);
  let extraClassDeclaration = [{
    /// The layout that the bucket types stand for.
    ::mlir::ddp::MatrixListAttr inferLayout();
  }];
  let assemblyFormat = [{
    $p `,` $q `members` $members (`rest` $rest^)? (`from` $matrix^)?
    (`by_world_of` $group^)? (`layout` $layout^)?
    (`into` `(` $destination^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPALGEBRAOPS_TD
