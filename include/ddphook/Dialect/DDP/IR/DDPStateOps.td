// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// States, which are kept between steps, and the operations that read and write
// them.

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPSTATEOPS_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPSTATEOPS_TD

include "ddphook/Dialect/DDP/IR/DDPOpBase.td"

def DDP_StateOp : DDP_Op<"state", [
    Symbol, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "declares a variable that is kept from step to step";
  let text = [{
    A module keeps only its states between steps; they are the schema of its
    checkpoints. A `replicated` state has the same value on all ranks; a `per_rank`
    state has a separate value on each. The initial value is given by

    - `zero`: all elements are zero;
    - `mt19937 seed S`: the state is a random generator, a Mersenne twister in the
      format of numpy's `RandomState(S)`: 624 words and a position;
    - `normal from @generator draws [a, b, …]`: the elements are the standard normal
      numbers that PyTorch's `randn` returns in draws of those sizes, after
      `manual_seed` with a number from the generator (docs/parity.md).

    `kind` says what a hook keeps in the state; the runtime and front ends go by it:

    - `error`: what compression has lost on this rank, added to the next gradient;
    - `share_error`: the same for this rank's share of its node's sum, so that it also
      depends on which ranks are on a node;
    - `factor`: the factors that low-rank compression starts from;
    - `iteration`: how often a block has run; `counter`: how often something else has
      happened;
    - `generator`: a random generator.

    `role … of` gives the role of the state and its gradients, whatever bucket these
    are in; checkpoints identify the state by them (docs/checkpoints.md). There is
    one list of gradients for each tensor of the state, or one for the whole state.
    `under` names everything else that the values depend on: a checkpoint loads only
    if it is the same. A state without a role is identified by its own name.
  }];
  let example = [{
    ddp.state @powersgd.iter : i64 replicated zero kind iteration
        role "powersgd.iter" of [["w", "b"]]
    ddp.state @powersgd.generator : tensor<625xi32> replicated mt19937 seed 0
        kind generator role "powersgd.generator" of [["w", "b"]]
    ddp.state @b0.error : !ddp.bucket<f32, [64x32, 64]> per_rank zero
        kind error role "powersgd.error" of [["w"], ["b"]] under "mean #ddp.powersgd"
    ddp.state @b0.q : !ddp.bucket<f32, [32x2]> replicated normal
        from @powersgd.generator draws [64]
        kind factor role "powersgd.q" of [["w"]] under "mean #ddp.powersgd"
  }];
  let constraints = [{
    - (C1) the type is a bucket, `i64` or `tensor<625xi32>`.
    - (C2) `seed` is given if and only if the state starts as `mt19937`; it has 32
      bits, and the type is `tensor<625xi32>`.
    - (C3) `from` and `draws` are given if and only if the state starts as `normal`;
      the type is a bucket, and the draws add up to its elements.
    - (C4) `from` names a state that starts as `mt19937`.
    - (C5) `of` has one list of names, or as many as the bucket has tensors.
    - (C6) errors and factors are buckets, iterations and counters i64, and generators
      start as `mt19937`.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$type,
                   DDP_StatePlacementAttr:$placement, DDP_StateInitAttr:$init,
                   OptionalAttr<I64Attr>:$seed,
                   OptionalAttr<FlatSymbolRefAttr>:$generator,
                   OptionalAttr<DenseI64ArrayAttr>:$draws,
                   OptionalAttr<DDP_StateKindAttr>:$kind,
                   OptionalAttr<StrAttr>:$role,
                   OptionalAttr<TypedArrayAttrBase<StrArrayAttr,
                                "list of lists of names">>:$gradients,
                   OptionalAttr<StrAttr>:$method);
  let builders = [
    /// A state without a role.
    OpBuilder<(ins "::mlir::StringAttr":$name, "::mlir::TypeAttr":$type,
                   "StatePlacementAttr":$placement, "StateInitAttr":$init,
                   "::mlir::IntegerAttr":$seed,
                   "::mlir::FlatSymbolRefAttr":$generator,
                   "::mlir::DenseI64ArrayAttr":$draws,
                   "StateKindAttr":$kind), [{
      build($_builder, $_state, name, type, placement, init, seed, generator,
            draws, kind, /*role=*/{}, /*gradients=*/{}, /*method=*/{});
    }]>
  ];
  let assemblyFormat = [{
    $sym_name `:` $type custom<Keyword>($placement)
    custom<Keyword>($init) (`seed` $seed^)? (`from` $generator^)?
    (`draws` $draws^)? (`kind` custom<Keyword>($kind)^)? (`role` $role^ `of` $gradients)?
    (`under` $method^)? attr-dict
  }];
  let extraClassDeclaration = [{
    /// 32-bit words of a random generator: the twister's 624 and a position.
    static constexpr int64_t kGeneratorWords = 625;
    /// Returns the type of the state's memory.
    ::mlir::MemRefType getBufferType();
  }];
}

def DDP_LoadOp : DDP_Op<"load", [
    MemoryEffects<[MemRead<DDP_StateResource>]>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the current value of a state";
  let example = [{
    %e = ddp.load @b0.error : !ddp.bucket<f32, [64x32, 64]>
  }];
  let constraints = [{
    - (C1) `state` is a `ddp.state`.
    - (C2) the result has its type, or that type flattened.
  }];
  let arguments = (ins FlatSymbolRefAttr:$state);
  let results = (outs DDP_StateValue:$value);
  let assemblyFormat = "$state attr-dict `:` type($value)";
  let hasVerifier = 0;
}

def DDP_StoreOp : DDP_Op<"store", [
    MemoryEffects<[MemWrite<DDP_StateResource>]>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "gives a state a new value";
  let example = [{
    ddp.store %e, @b0.error : !ddp.bucket<f32, [64x32, 64]>
  }];
  let constraints = [{
    - (C1) `state` is a `ddp.state` that is not a generator.
    - (C2) the operand has its type, or that type flattened.
  }];
  let arguments = (ins DDP_StateValue:$value, FlatSymbolRefAttr:$state);
  let assemblyFormat = "$value `,` $state attr-dict `:` type($value)";
  let hasVerifier = 0;
}

def DDP_StateBufferOp : DDP_Op<"state_buffer", [
    Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "a state's memory";
  let text = [{
    `ddp-materialize-buckets` creates this operation. The runtime allocates the memory
    when the module is loaded.
  }];
  let example = [{
    %e = ddp.state_buffer @b0.error : memref<2112xf32>
  }];
  let constraints = [{
    - (C1) `state` is a `ddp.state`.
    - (C2) the result has its elements.
  }];
  let arguments = (ins FlatSymbolRefAttr:$state);
  let results = (outs AnyStaticShapeMemRef:$buffer);
  let assemblyFormat = "$state attr-dict `:` type($buffer)";
  let hasVerifier = 0;
}

def DDP_RandomNormalOp : DDP_Op<"random_normal", [
    MemoryEffects<[MemRead<DDP_StateResource>, MemWrite<DDP_StateResource>]>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "draws standard normal numbers";
  let text = [{
    Takes one number from the generator, which changes the generator's state, seeds
    PyTorch's generator with that number, and draws as `torch.randn` does, once for
    each size in `draws`; the results are concatenated (docs/parity.md).
  }];
  let example = [{
    %q = ddp.random_normal from @powersgd.generator draws [64]
        : () -> !ddp.bucket<f32, [32x2]>
  }];
  let constraints = [{
    - (C1) `generator` is a `ddp.state` that starts as `mt19937`.
    - (C2) the draws add up to the result's elements.
  }];
  let arguments = (ins FlatSymbolRefAttr:$generator, DenseI64ArrayAttr:$draws);
  let results = (outs DDP_Value:$result);
  let assemblyFormat = [{
    `from` $generator `draws` $draws attr-dict
    `:` functional-type(operands, results)
  }];
}

def DDP_CountCompressionOp : DDP_Op<"count_compression", [
    MemoryEffects<[MemWrite<DDP_StateResource>]>]> {
  let summary = "adds to the statistics of compression";
  let text = [{
    Notifies the runtime that a bucket of `before` elements was reduced by sending
    `after` elements. `ddphook_module_stats` returns the sums, as PyTorch's
    `compression_stats` does. With DDPHOOK_LOG=info, the runtime prints them every
    `frequency` iterations, starting with the first.
  }];
  let example = [{
    ddp.count_compression "b0" before 2112 after 256 at %iteration every 10000
  }];
  let constraints = [{
    - (C1) `before` and `after` are not negative, `frequency` is positive.
  }];
  let arguments = (ins StrAttr:$bucket_name, I64Attr:$before, I64Attr:$after,
                   I64:$iteration, I64Attr:$frequency);
  let assemblyFormat = [{
    $bucket_name `before` $before `after` $after `at` $iteration
    `every` $frequency attr-dict
  }];
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPSTATEOPS_TD
