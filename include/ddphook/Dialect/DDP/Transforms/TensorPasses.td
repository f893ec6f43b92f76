//===- TensorPasses.td - buckets as flat tensors -----------*- tablegen -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// On flat tensors, before One-Shot Bufferize: decides where each value will lie,
// so that no copy is left to be made.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_DIALECT_DDP_TRANSFORMS_TENSORPASSES_TD
#define DDPHOOK_DIALECT_DDP_TRANSFORMS_TENSORPASSES_TD

include "mlir/Pass/PassBase.td"

def DDPFlattenPass : Pass<"ddp-flatten", "::mlir::ModuleOp"> {
  let summary = "turn buckets into 1-D tensors";
  let description = [{
    `!ddp.bucket<f32, [4x8, 8]>` becomes `tensor<40xf32>` everywhere, and
    `ddp.extract` a `tensor.extract_slice`. One-Shot Bufferize analyses tensors;
    of a bucket it would copy every use.

    Post-condition: no value has a bucket type.

    Before:

    ```mlir
    %b = ddp.pack %w, %v : tensor<4x8xf32>, tensor<8xf32>
        -> !ddp.bucket<f32, [4x8, 8]>
    %r = ddp.all_reduce mean %b on @dp : !ddp.bucket<f32, [4x8, 8]>
    %m = ddp.extract %r [1] : !ddp.bucket<f32, [4x8, 8]>
    %u = ddp.unpack %m : !ddp.bucket<f32, [8]> -> tensor<8xf32>
    ```

    After:

    ```mlir
    %b = ddp.pack %w, %v : tensor<4x8xf32>, tensor<8xf32> -> tensor<40xf32>
    %r = ddp.all_reduce mean %b on @dp : tensor<40xf32>
    %m = tensor.extract_slice %r[32] [8] [1] : tensor<40xf32> to tensor<8xf32>
    %u = ddp.unpack %m : tensor<8xf32> -> tensor<8xf32>
    ```
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::ddp::DDPDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def DDPThreadStatesPass : Pass<"ddp-thread-states", "::mlir::ModuleOp"> {
  let summary = "load and store every state once";
  let description = [{
    Within a block, a load of a state that was loaded or stored before becomes
    that value, and a store that another one follows is dropped. Where the old
    value is needed after the new one was stored, it is copied first: load and
    store will be the same memory.

    Pre-condition: `ddp-flatten`. Uses of one state in several blocks of which
    more than one may run, or in a function and one that it calls, are an error.

    Before:

    ```mlir
    ddp.state @s : !ddp.bucket<f32, [4]> per_rank zero
    %a = ddp.load @s : tensor<4xf32>
    %b = ddp.add %a, %g : tensor<4xf32>, tensor<4xf32>
    ddp.store %b, @s : tensor<4xf32>
    %c = ddp.load @s : tensor<4xf32>
    %d = ddp.add %c, %g : tensor<4xf32>, tensor<4xf32>
    ```

    After:

    ```mlir
    ddp.state @s : !ddp.bucket<f32, [4]> per_rank zero
    %a = ddp.load @s : tensor<4xf32>
    %b = ddp.add %a, %g : tensor<4xf32>, tensor<4xf32>
    ddp.store %b, @s : tensor<4xf32>
    %d = ddp.add %b, %g : tensor<4xf32>, tensor<4xf32>
    ```
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect"];
}

def DDPPrepareEntriesPass : Pass<"ddp-prepare-entries", "::mlir::ModuleOp"> {
  let summary = "give public functions an interface of plain memory";
  let description = [{
    Tensor arguments of a public function become memrefs with identity layout.
    They are only read, unless marked `bufferization.writable = true`: a caller's
    array is updated in place only where the program allows it. A result whose
    value is such an argument's update *is* that argument's memory from now on;
    every other result becomes an out-parameter, appended to the arguments, and
    is computed straight into it where its producer allows. A scalar result
    becomes a 0-D out-parameter.

    `ddp.result_arguments` keeps, for each result of the original function, the
    argument that holds it, or -1 for an out-parameter. A public function that
    the module itself calls keeps a private twin for those calls.

    One-Shot Bufferize could bufferize these boundaries too, in time quadratic in
    the number of arguments and in the number of reads of one argument; here,
    every read of a read-only argument is an alias set of its own.

    Pre-condition: `ddp-flatten`. Functions with dynamic shapes are left alone.

    Before:

    ```mlir
    func.func @step(%w: tensor<4xf32> {bufferization.writable = true},
                    %g: tensor<4xf32>, %loss: f32) -> (tensor<4xf32>, f32) {
      %u = linalg.sub ins(%w, %g : tensor<4xf32>, tensor<4xf32>)
          outs(%w : tensor<4xf32>) -> tensor<4xf32>
      return %u, %loss : tensor<4xf32>, f32
    }
    ```

    After:

    ```mlir
    func.func @step(%w_in: memref<4xf32> {ddp.inout}, %g_in: memref<4xf32>,
                    %loss: f32, %loss_out: memref<f32>)
        attributes {ddp.result_arguments = array<i64: 0, -1>} {
      %w = bufferization.to_tensor %w_in restrict writable
          : memref<4xf32> to tensor<4xf32>
      %g = bufferization.to_tensor %g_in restrict
          : memref<4xf32> to tensor<4xf32>
      %u = linalg.sub ins(%w, %g : tensor<4xf32>, tensor<4xf32>)
          outs(%w : tensor<4xf32>) -> tensor<4xf32>
      memref.store %loss, %loss_out[] : memref<f32>
      bufferization.materialize_in_destination %u in restrict writable %w_in
          : (tensor<4xf32>, memref<4xf32>) -> ()
      return
    }
    ```
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect",
                           "::mlir::memref::MemRefDialect"];
}

def DDPFoldResultsPass : Pass<"ddp-fold-results", "::mlir::ModuleOp"> {
  let summary = "let functions return only what their callers lack";
  let description = [{
    A result of a private function that is one of its arguments in every return,
    or the same value as another result, is dropped; callers use that other
    value. Behind bufferization it would be a buffer of its own, and a copy.

    Before:

    ```mlir
    func.func private @f(%a: tensor<4xf32>)
        -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
      %r = linalg.exp ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>)
          -> tensor<4xf32>
      return %r, %r, %a : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    }
    func.func @step(%x: tensor<4xf32>)
        -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
      %0:3 = call @f(%x)
          : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
      return %0#0, %0#1, %0#2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    }
    ```

    After:

    ```mlir
    func.func private @f(%a: tensor<4xf32>) -> tensor<4xf32> {
      %r = linalg.exp ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>)
          -> tensor<4xf32>
      return %r : tensor<4xf32>
    }
    func.func @step(%x: tensor<4xf32>)
        -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
      %0 = call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0, %0, %x : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    }
    ```
  }];
}

def DDPSplitEmptyTensorsPass
    : InterfacePass<"ddp-split-empty-tensors", "::mlir::FunctionOpInterface"> {
  let summary = "give every operation a destination of its own";
  let description = [{
    Operations that start from the same `tensor.empty`, which is what CSE makes of
    many, get one each; so do those that start from the same filled tensor. One-Shot
    Bufferize takes time that grows with the cube of the number of operations that
    write to one alias set. An empty tensor of which slices are taken stays whole.

    Before:

    ```mlir
    %e = tensor.empty() : tensor<4xf32>
    %0 = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) …
    %1 = linalg.abs ins(%0 : tensor<4xf32>) outs(%e : tensor<4xf32>) …
    ```

    After:

    ```mlir
    %e0 = tensor.empty() : tensor<4xf32>
    %0 = linalg.exp ins(%x : tensor<4xf32>) outs(%e0 : tensor<4xf32>) …
    %e1 = tensor.empty() : tensor<4xf32>
    %1 = linalg.abs ins(%0 : tensor<4xf32>) outs(%e1 : tensor<4xf32>) …
    ```
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def DDPLegalizeForBufferizationPass
    : InterfacePass<"ddp-legalize-for-bufferization",
                    "::mlir::FunctionOpInterface"> {
  let summary = "avoid what One-Shot Bufferize gets wrong";
  let description = [{
    Some things go wrong in MLIR 22 without a word, or are refused for no good
    reason, most of them by the models by which One-Shot Bufferize knows
    operations. They are written differently here:

    - a `linalg.map` whose body reads its destination becomes a
      `linalg.generic`: the model takes the destination for one that is only
      written, and gives it a new buffer without the old values where it cannot
      be overwritten;
    - an `scf.index_switch` with tensors as results becomes a chain of `scf.if`:
      the model takes its results for memory of their own, and lets them be
      overwritten where the tensors that the cases yield are still needed;
    - a linalg operation without iterations is replaced by its destinations, and
      one that writes only a part of them gets copies to write to: the model takes
      what a body does not read for something that is written as a whole;
    - an `arith.select` of tensors becomes an `scf.if`: the model wants both
      operands and the result in one place;
    - where several blocks of an `scf.execute_region` yield, they branch to one that
      does: the model knows only one;
    - a slice gets stride 1 in dimensions of size 1: another one makes it
      ambiguous which of them a slice of lower rank drops, and lowering it fails.

    Before:

    ```mlir
    %r = linalg.map ins(%a : tensor<4xf32>) outs(%b : tensor<4xf32>)
      (%x: f32, %y: f32) {
        %s = arith.addf %x, %y : f32
        linalg.yield %s : f32
      }
    ```

    After:

    ```mlir
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
        ins(%a : tensor<4xf32>) outs(%b : tensor<4xf32>) {
      ^bb0(%x: f32, %y: f32):
        %s = arith.addf %x, %y : f32
        linalg.yield %s : f32
      } -> tensor<4xf32>
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::bufferization::BufferizationDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::scf::SCFDialect"];
}

def DDPAssignDestinationsPass
    : InterfacePass<"ddp-assign-destinations", "::mlir::FunctionOpInterface"> {
  let summary = "tell every operation where to write";
  let description = [{
    Gives each operation of the bucket algebra an `into` operand: its slice if
    it is a part of a `ddp.concat`; an operand of its type that dies, if the
    operation is elementwise; memory that nothing needs any more; else a new
    `tensor.empty`. Memory dies when no operation behind can reach it, as the
    operations' interfaces tell; what they do not tell counts as needed.

    Pre-condition: `ddp-flatten`. Post-condition: no `ddp.concat`.

    Before:

    ```mlir
    %r = ddp.all_reduce mean %b on @dp : tensor<40xf32>
    ```

    After, where `%b` is not used again:

    ```mlir
    %r = ddp.all_reduce mean %b on @dp into %b : tensor<40xf32>, : tensor<40xf32>
    ```
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect",
                           "::mlir::ddp::DDPDialect",
                           "::mlir::tensor::TensorDialect"];
}

def DDPYieldInPlacePass
    : InterfacePass<"ddp-yield-in-place", "::mlir::FunctionOpInterface"> {
  let summary = "keep the tensors of a loop where they are";
  let description = [{
    One-Shot Bufferize asks of every tensor that an `scf.for` or an `scf.while`
    carries from one iteration to the next that it lies in one place. So what an
    iteration yields is copied to where the iteration found the last values,
    unless it is there. What goes from one place to another, as in a loop that
    swaps two tensors, waits in memory of its own before any of them is
    overwritten.

    An `scf.while` whose two regions do not have the same tensors at the same
    places gets a place in both for each tensor that the first region hands to
    the second.

    Pre-condition: `ddp-assign-destinations`.

    Before:

    ```mlir
    %r:2 = scf.for %i = %a to %b step %c iter_args(%x = %p, %y = %q)
        -> (tensor<8xf32>, tensor<8xf32>) {
      scf.yield %y, %x : tensor<8xf32>, tensor<8xf32>
    }
    ```

    After:

    ```mlir
    %r:2 = scf.for %i = %a to %b step %c iter_args(%x = %p, %y = %q)
        -> (tensor<8xf32>, tensor<8xf32>) {
      %0 = bufferization.alloc_tensor() copy(%x) : tensor<8xf32>
      %1 = bufferization.alloc_tensor() copy(%y) : tensor<8xf32>
      %2 = bufferization.materialize_in_destination %1 in %x
          : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      %3 = bufferization.materialize_in_destination %0 in %y
          : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      scf.yield %2, %3 : tensor<8xf32>, tensor<8xf32>
    }
    ```
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect",
                           "::mlir::tensor::TensorDialect"];
}

def DDPPinBlockArgumentsPass
    : InterfacePass<"ddp-pin-block-arguments", "::mlir::FunctionOpInterface"> {
  let summary = "give the tensors among block arguments memory of their own";
  let description = [{
    Where blocks branch to each other, every tensor that a block hands to
    another one gets a buffer, and each branch copies it there. All buffers of a
    step have fixed places, so what a block computes lies where it lay when the
    block ran before: the tensor that is handed on must have left by then.

    In a cycle of blocks an operation that may write to a tensor from another
    block gets a copy of it: the next time around needs the tensor as it was. So
    does an operation behind the first block that may write to an argument of the
    function.

    Pre-condition: `ddp-assign-destinations`. Post-condition: no block but the
    first of a region has arguments that are tensors.

    Before:

    ```mlir
    ^head(%x: tensor<8xf32>):
      ...
      cf.br ^head(%y : tensor<8xf32>)
    ```

    After, with `%b` allocated in the first block:

    ```mlir
    ^head:
      %x = bufferization.to_tensor %b restrict : memref<8xf32> to tensor<8xf32>
      ...
      bufferization.materialize_in_destination %y in restrict writable %b
          : (tensor<8xf32>, memref<8xf32>) -> ()
      cf.br ^head
    ```
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect",
                           "::mlir::cf::ControlFlowDialect",
                           "::mlir::memref::MemRefDialect"];
}

def DDPMaterializeBucketsPass
    : InterfacePass<"ddp-materialize-buckets", "::mlir::FunctionOpInterface"> {
  let summary = "let gradients be born inside their bucket";
  let description = [{
    `ddp.pack` becomes a buffer with one view a gradient. Where the gradient's
    producer is a destination-passing operation (or a loop of them) that starts
    from a `tensor.empty`, it now starts from the view; otherwise, or where that
    would change what another operation reads, the gradient is copied.
    `ddp.unpack` becomes views of the bucket.

    Every view enters the tensor world with `restrict`, that is, as an alias set
    of its own, which keeps One-Shot Bufferize linear.

    Pre-condition: `ddp-assign-destinations`. Post-condition: no `ddp.pack`, no
    `ddp.unpack`.
  }];
  let dependentDialects = [
    "::mlir::bufferization::BufferizationDialect", "::mlir::ddp::DDPDialect",
    "::mlir::memref::MemRefDialect", "::mlir::tensor::TensorDialect"];
}

#endif // DDPHOOK_DIALECT_DDP_TRANSFORMS_TENSORPASSES_TD
