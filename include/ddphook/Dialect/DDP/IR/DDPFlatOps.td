// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The operations that `ddp-flatten` creates: the same computations as on buckets,
// on flat arrays and in destination-passing style.

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPFLATOPS_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPFLATOPS_TD

include "ddphook/Dialect/DDP/IR/DDPOpBase.td"
include "mlir/Interfaces/DestinationStyleOpInterface.td"

/// The `into` operands are written. On tensors each has a result of its type that
/// replaces it; on memrefs there are no such results.
class DDP_FlatOp<string mnemonic, list<Trait> traits = []>
    : DDP_Op<"flat." # mnemonic, !listconcat(traits, [
        DestinationStyleOpInterface,
        DeclareOpInterfaceMethods<InferTypeOpInterface>,
        DeclareOpInterfaceMethods<DDP_FlatOpInterface>,
        DeclareOpInterfaceMethods<MemoryEffectsOpInterface>])> {
  let summary = "`ddp." # mnemonic # "` on flat arrays";
  let results = (outs Optional<DDP_Gradient>:$result);

  /// The body of `mayOverwrite`, an expression in C++.
  string overwritable = "false";
  /// Effects on resources other than operands: pairs of an effect and a resource.
  list<list<string>> otherEffects = [];
  string destinationStyle = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return getDestinationMutable();
    }
  }];
  let extraClassDeclaration = destinationStyle;
  /// Results besides those of the `into` operands.
  string otherResults = "";
  let extraClassDefinition = [{
    bool $cppClass::mayOverwrite(unsigned resultNumber, ::mlir::OpOperand &operand) {
      return }] # overwritable # [{;
    }
    void $cppClass::getEffects(
        ::llvm::SmallVectorImpl<::mlir::MemoryEffects::EffectInstance> &effects) {
      }] # !interleave(
               !foreach(pair, otherEffects,
                        "effects.emplace_back(::mlir::MemoryEffects::" #
                        pair[0] # "::get(), ::mlir::ddp::" # pair[1] #
                        "::get());"), "\n      ") # [{
      ::mlir::ddp::getFlatEffects(*this, effects);
    }
    ::llvm::LogicalResult $cppClass::inferReturnTypes(
        ::mlir::MLIRContext *context, ::std::optional<::mlir::Location>,
        ::mlir::ValueRange operands, ::mlir::DictionaryAttr attributes,
        ::mlir::OpaqueProperties properties, ::mlir::RegionRange regions,
        ::llvm::SmallVectorImpl<::mlir::Type> &types) {
      Adaptor adaptor(operands, attributes, properties, regions);
      ::mlir::ddp::inferFlatTypes(adaptor.getDestination(), types);
      }] # otherResults # [{
      return ::mlir::success();
    }
  }];
}

/// All arrays have the same number and type of elements, and element i of the
/// result depends only on element i of each operand.
class DDP_FlatElementwiseOp<string mnemonic, list<Trait> traits = []>
    : DDP_FlatOp<mnemonic, traits> {
  let overwritable = "true";
  let commonConstraints = [{
    - (C1) all arrays are tensors, or all are memrefs.
    - (C2) they have one shape and one element type.
  }];
}

class DDP_FlatBinaryOp<string mnemonic> : DDP_FlatElementwiseOp<mnemonic> {
  let example = [{
    %s = ddp.flat.}] # mnemonic # [{ %a, %b into %c
        : tensor<40xf32>, tensor<40xf32>, tensor<40xf32>
  }];
  let arguments = (ins DDP_FlatArray:$input, DDP_FlatArray:$rhs,
                   DDP_FlatArray:$destination);
  let assemblyFormat = [{
    $input `,` $rhs `into` $destination attr-dict `:` type(operands)
  }];
}

def DDP_FlatAddOp : DDP_FlatBinaryOp<"add">;

def DDP_FlatSubOp : DDP_FlatBinaryOp<"sub">;

def DDP_FlatCastOp : DDP_FlatElementwiseOp<"cast"> {
  let summary = "`ddp.cast` on flat arrays";
  let example = [{
    %h = ddp.flat.cast %a into %b : tensor<40xf32>, tensor<40xf16>
  }];
  let commonConstraints = [{
    - (C1) both arrays are tensors, or both are memrefs.
    - (C2) they have one shape.
  }];
  let arguments = (ins DDP_FlatArray:$input, DDP_FlatArray:$destination);
  let assemblyFormat = [{
    $input `into` $destination attr-dict `:` type(operands)
  }];
}

def DDP_FlatEncodingErrorOp : DDP_FlatElementwiseOp<"encoding_error", [
    DDP_UsesGroup, SymbolUserOpInterface]> {
  let example = [{
    %e = ddp.flat.encoding_error %x as !ddp.encoded<i8, 256> into %y
        : tensor<320xf32>, tensor<320xf32>
  }];
  let constraints = [{
    - (C3) the type is a `!ddp.encoded`.
    - (C4) there are a `step` and a group if and only if it rounds stochastically.
    - (C5) `group` is a `ddp.process_group`.
  }];
  let arguments = (ins DDP_FlatArray:$input, TypeAttr:$encoding,
                   Optional<I64>:$step, OptionalAttr<FlatSymbolRefAttr>:$group,
                   DDP_FlatArray:$destination);
  let assemblyFormat = [{
    $input `as` $encoding (`step` $step^)? (`on` $group^)? `into` $destination
    attr-dict `:` type($input) `,` type($destination)
  }];
}

def DDP_FlatScaleOp : DDP_FlatElementwiseOp<"scale", [
    DDP_UsesGroup, SymbolUserOpInterface]> {
  let example = [{
    %a = ddp.flat.scale %x by 2.500000e-01 into %y : tensor<40xf32>, tensor<40xf32>
    %b = ddp.flat.scale %x by_world_of @dp into %z : tensor<40xf32>, tensor<40xf32>
  }];
  let constraints = [{
    - (C3) there is either a factor or a group.
    - (C4) `group` is a `ddp.process_group`.
  }];
  let arguments = (ins DDP_FlatArray:$input, OptionalAttr<F64Attr>:$factor,
                   OptionalAttr<FlatSymbolRefAttr>:$group,
                   DDP_FlatArray:$destination);
  let assemblyFormat = [{
    $input (`by` $factor^)? (`by_world_of` $group^)? `into` $destination attr-dict
    `:` type(operands)
  }];
}

def DDP_FlatRandomNormalOp : DDP_FlatOp<"random_normal", [
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "`ddp.random_normal` on a flat array";
  let otherEffects = [["Read", "StateResource"], ["Write", "StateResource"]];
  let example = [{
    %q = ddp.flat.random_normal from @powersgd.generator draws [64] into %x
        : tensor<64xf32>
  }];
  let constraints = [{
    - (C1) `generator` is a `ddp.state` that starts as `mt19937`.
    - (C2) the draws add up to the array's elements.
  }];
  let arguments = (ins FlatSymbolRefAttr:$generator, DenseI64ArrayAttr:$draws,
                   DDP_FlatArray:$destination);
  let assemblyFormat = [{
    `from` $generator `draws` $draws `into` $destination attr-dict
    `:` type(operands)
  }];
}

def DDP_FlatAllReduceOp : DDP_FlatElementwiseOp<"all_reduce", [
    DDP_CollectiveOpInterface, SymbolUserOpInterface]> {
  let otherEffects = [["Write", "CollectiveResource"]];
  let example = [{
    %r = ddp.flat.all_reduce mean %x on @dp wire f16 as "b0" into %y
        : tensor<40xf32>, tensor<40xf32>
  }];
  let constraints = [{
    - (C3) `group` is a `ddp.process_group`.
    - (C4) the wire type is f16, bf16 or a `!ddp.encoded`.
    - (C5) there is a `step` if and only if the wire type rounds stochastically.
  }];
  let arguments = (ins DDP_ReductionAttr:$reduction, DDP_FlatArray:$input,
                   FlatSymbolRefAttr:$group, OptionalAttr<TypeAttr>:$wire,
                   Optional<I64>:$step, OptionalAttr<StrAttr>:$bucket_name,
                   DDP_FlatArray:$destination);
  let assemblyFormat = [{
    custom<Keyword>($reduction) $input `on` $group (`wire` $wire^)? (`step` $step^)?
    (`as` $bucket_name^)? `into` $destination attr-dict
    `:` type($input) `,` type($destination)
  }];
}

def DDP_FlatAllReduceStartOp : DDP_FlatElementwiseOp<"all_reduce_start", [
    AttrSizedOperandSegments, DDP_CollectiveOpInterface, DDP_FlatStartOpInterface,
    SymbolUserOpInterface]> {
  let otherEffects = [["Write", "CollectiveResource"]];
  let otherResults = "types.push_back(::mlir::IntegerType::get(context, 64));";
  let text = [{
    The results are the array in flight, on tensors, and a ticket. Until the wait,
    neither the operand nor `into` may be overwritten, and `into` must not be read.
  }];
  let example = [{
    %x, %ticket = ddp.flat.all_reduce_start mean %y on @dp into %z
        : tensor<40xf32>, tensor<40xf32>
    %t = ddp.flat.wait %x, %ticket reading %y : tensor<40xf32>, tensor<40xf32>
  }];
  let constraints = [{
    - (C3) `group` is a `ddp.process_group`.
    - (C4) the wire type is f16, bf16 or a `!ddp.encoded`.
    - (C5) each result has exactly one use, in the same `ddp.flat.wait`, in the
      same block; with a condition it has two, in one `ddp.flat.wait` in each
      branch of an `scf.if` in the same block with the same condition.
    - (C6) with a condition, `into` is the operand, which the waits return if
      nothing was started.
    - (C7) there is a `step` if and only if the wire type rounds stochastically.
  }];
  let arguments = (ins DDP_ReductionAttr:$reduction, DDP_FlatArray:$input,
                   FlatSymbolRefAttr:$group, OptionalAttr<TypeAttr>:$wire,
                   Optional<I64>:$step, OptionalAttr<StrAttr>:$bucket_name,
                   DDP_FlatArray:$destination, Optional<I1>:$condition);
  let results = (outs Optional<DDP_Gradient>:$in_flight, I64:$ticket);
  let extraClassDeclaration = destinationStyle # [{
    ::mlir::Operation *getEnd();
  }];
  let assemblyFormat = [{
    custom<Keyword>($reduction) $input `on` $group (`wire` $wire^)? (`step` $step^)?
    (`as` $bucket_name^)? `into` $destination (`if` $condition^)? attr-dict
    `:` type($input) `,` type($destination)
  }];
}

def DDP_FlatWaitOp : DDP_FlatOp<"wait"> {
  let otherEffects = [["Write", "CollectiveResource"]];
  let text = [{
    The operands are the destination that `ddp.flat.all_reduce_start` or
    `ddp.flat.exchange_start` has in flight, the ticket, and the operand of that
    operation, which the runtime reads until the wait.
  }];
  let example = [{
    %x, %ticket = ddp.flat.all_reduce_start mean %y on @dp into %z
        : tensor<40xf32>, tensor<40xf32>
    %t = ddp.flat.wait %x, %ticket reading %y : tensor<40xf32>, tensor<40xf32>
  }];
  let constraints = [{
    - (C1) the ticket is a result of `ddp.flat.all_reduce_start` or
      `ddp.flat.exchange_start`.
    - (C2) a tensor in flight is a result of the same operation.
    - (C3) on tensors, `reading` names the operand of the same operation. It may be
      missing if that has a condition, since `into` is its operand then.
  }];
  let arguments = (ins DDP_FlatArray:$destination, I64:$ticket,
                   Optional<DDP_FlatArray>:$source);
  let extraClassDeclaration = destinationStyle # [{
    /// Returns the operation that this one ends.
    ::mlir::ddp::FlatStartOpInterface getStart();
  }];
  let assemblyFormat = [{
    $destination `,` $ticket (`reading` $source^)? attr-dict
    `:` type($destination) (`,` type($source)^)?
  }];
}

/// `layout` gives the locations of matrices and their factors in the arrays.
class DDP_FlatLowRankOp<string mnemonic, list<Trait> traits = []>
    : DDP_FlatOp<mnemonic, traits> {
  let commonConstraints = [{
    - (C1) all arrays are tensors, or all are memrefs, of one element type.
    - (C2) the arrays contain everything in the layout.
  }];
}

def DDP_FlatMatmulOp : DDP_FlatLowRankOp<"matmul"> {
  let example = [{
    %p = ddp.flat.matmul %m, %q layout <0 to 2048, [0, 0, 0, 64, 32, 2], []> into %x
        : tensor<2048xf32>, tensor<64xf32>, tensor<128xf32>
  }];
  let constraints = [{
    - (C3) at most one operand is transposed.
  }];
  let arguments = (ins DDP_FlatArray:$lhs, DDP_FlatArray:$rhs,
                   UnitAttr:$transpose_lhs, UnitAttr:$transpose_rhs,
                   DDP_MatrixListAttr:$layout, DDP_FlatArray:$destination);
  let assemblyFormat = [{
    (`transpose_lhs` $transpose_lhs^)? (`transpose_rhs` $transpose_rhs^)?
    $lhs `,` $rhs `layout` $layout `into` $destination attr-dict
    `:` type(operands)
  }];
}

def DDP_FlatOrthogonalizeOp : DDP_FlatLowRankOp<"orthogonalize"> {
  let overwritable = "true";
  let text = [{
    The matrices are the factors Q of the layout.
  }];
  let example = [{
    %q1 = ddp.flat.orthogonalize %q epsilon 0.000000e+00
        layout <0 to 0, [0, 0, 0, 0, 64, 2], []> into %x
        : tensor<128xf32>, tensor<128xf32>
  }];
  let constraints = [{
    - (C3) `epsilon` is finite and not negative.
    - (C4) both arrays have one shape.
  }];
  let arguments = (ins DDP_FlatArray:$input, F64Attr:$epsilon,
                   UnitAttr:$unit_columns, UnitAttr:$independent_columns,
                   DDP_MatrixListAttr:$layout, DDP_FlatArray:$destination);
  let assemblyFormat = [{
    $input `epsilon` $epsilon (`unit_columns` $unit_columns^)?
    (`independent_columns` $independent_columns^)? `layout` $layout
    `into` $destination attr-dict `:` type(operands)
  }];
}

def DDP_FlatProjectOp : DDP_FlatLowRankOp<"project", [AttrSizedOperandSegments]> {
  // M may overwrite either operand of the sum that it is.
  let overwritable = [{getError() && resultNumber == 0 &&
             (operand.get() == getError() || operand.get() == getInput())}];
  let example = [{
    %m, %p, %rest = ddp.flat.project %g plus %e by %q
        layout <0 to 2112, [0, 0, 0, 64, 32, 2], [2048, 0, 64]> into (%x, %y, %z)
        : tensor<2112xf32>, tensor<2112xf32>, tensor<64xf32>, tensor<2112xf32>,
          tensor<128xf32>, tensor<64xf32>
  }];
  let constraints = [{
    - (C3) there is an `into` operand for M, if there is an error; for P; and for
      the rest, if the layout has pieces and it is not `packed` after P.
    - (C4) operand, error and M have one size.
  }];
  let arguments = (ins DDP_FlatArray:$input, Optional<DDP_FlatArray>:$error,
                   DDP_FlatArray:$factor, UnitAttr:$packed,
                   DDP_MatrixListAttr:$layout,
                   Variadic<DDP_FlatArray>:$destination);
  let results = (outs Variadic<DDP_Gradient>:$values);
  let extraClassDeclaration = destinationStyle # [{
    /// Returns the number of the `into` operand that is P; M comes before it.
    unsigned getPNumber() { return getError() ? 1 : 0; }
  }];
  let assemblyFormat = [{
    $input (`plus` $error^)? `by` $factor (`packed` $packed^)? `layout` $layout
    `into` `(` $destination `)` attr-dict `:` type(operands)
  }];
}

def DDP_FlatReconstructOp : DDP_FlatLowRankOp<"reconstruct", [
    AttrSizedOperandSegments, DDP_UsesGroup, SymbolUserOpInterface]> {
  // The error may overwrite M.
  let overwritable = "resultNumber == 1 && operand.get() == getMatrix()";
  let example = [{
    %out, %err = ddp.flat.reconstruct %p, %q rest %v from %m
        layout <0 to 2112, [0, 0, 0, 64, 32, 2], [2048, 0, 64]> into (%x, %y)
        : tensor<128xf32>, tensor<64xf32>, tensor<64xf32>, tensor<2112xf32>,
          tensor<2112xf32>, tensor<2112xf32>
  }];
  let constraints = [{
    - (C3) there is an `into` operand for the bucket and, with `matrix`, one for
      the error.
    - (C4) matrix, bucket and error have one size.
    - (C5) `group` is a `ddp.process_group`; only with `matrix`.
  }];
  let arguments = (ins DDP_FlatArray:$p, DDP_FlatArray:$q,
                   Optional<DDP_FlatArray>:$rest,
                   Optional<DDP_FlatArray>:$matrix,
                   OptionalAttr<FlatSymbolRefAttr>:$group,
                   DDP_MatrixListAttr:$layout,
                   Variadic<DDP_FlatArray>:$destination);
  let results = (outs Variadic<DDP_Gradient>:$values);
  let assemblyFormat = [{
    $p `,` $q (`rest` $rest^)? (`from` $matrix^)? (`by_world_of` $group^)?
    `layout` $layout `into` `(` $destination `)` attr-dict `:` type(operands)
  }];
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPFLATOPS_TD
