// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One-Shot Bufferize, the checks before it, and the memory that it leaves: results,
// copies, the arena.

#ifndef DDPHOOK_DIALECT_DDP_TRANSFORMS_MEMORYPASSES_TD
#define DDPHOOK_DIALECT_DDP_TRANSFORMS_MEMORYPASSES_TD

include "ddphook/PassBase.td"

def DDPCheckBufferizablePass : DDP_ModulePass<"ddp-check-bufferizable"> {
  let summary = "fail if an operation on tensors cannot be bufferized";
  let description = [{
    Reports every kind of operation on tensors that does not implement
    BufferizableOpInterface: for example one of a dialect that is not registered, or
    one that must be lowered first (`tosa.add`, `stablehlo.add`). Lower it to
    linalg, attach the interface to it, or move it to a function without
    collectives, which `ddp-pipeline` leaves alone.

    Example of a rejected program:

    ```mlir
    %h = "foo.bar"(%g) : (tensor<4xf32>) -> tensor<4xf32>  // error: BufferizableOpInterface
    %r = ddp.all_reduce mean %h on @dp : tensor<4xf32>
    ```
  }];
}

def DDPBufferizePass : DDP_ModulePass<"ddp-bufferize"> {
  let summary = "turn tensors into memory, with copies where they cannot be avoided";
  let text = [{
    Runs upstream's One-Shot Bufferize, with function boundaries. One-Shot requires
    that a value that a loop carries, or that the branches of an `scf.if` yield, is
    in one buffer, and refuses programs that still need another value in that
    buffer: for example if a branch yields one of two tensors, and a loop continues
    with both. In a function that is refused, the initial values of loops, the
    values that they pass to the next iteration, and the values that branches yield
    are copied first. The missed remark `Copies` counts them. The copies are static
    buffers like all others.

    Pre-condition: `ddp-materialize-buckets`. Post-condition: no tensors except in
    functions without bodies.
  }];
  let before = [{
    %x = bufferization.to_tensor %a restrict : memref<4xf32> to tensor<4xf32>
    %e = tensor.empty() : tensor<4xf32>
    %y = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>)
        -> tensor<4xf32>
    bufferization.materialize_in_destination %y in restrict writable %g
        : (tensor<4xf32>, memref<4xf32>) -> ()
  }];
  let after = [{
    %m = memref.alloc() {alignment = 64 : i64} : memref<4xf32>
    linalg.exp ins(%a : memref<4xf32>) outs(%m : memref<4xf32>)
    memref.copy %m, %g : memref<4xf32> to memref<4xf32>
  }];
  let dialects = ["bufferization::Bufferization", "memref::MemRef"];
}

def DDPFoldBranchesPass : DDP_Pass<"ddp-fold-branches"> {
  let summary = "use a buffer directly if all branches yield it";
  let text = [{
    If both branches of an `scf.if` yield the same memref, uses of the result become
    uses of that memref. A state or a bucket that a branch updates in place is then
    known without the condition, and `cse` finds that views of it are equal.
  }];
  let before = [{
    %r = scf.if %c -> (memref<12xf32>) {
      linalg.exp ins(%b : memref<12xf32>) outs(%b : memref<12xf32>)
      scf.yield %b : memref<12xf32>
    } else {
      scf.yield %b : memref<12xf32>
    }
    linalg.abs ins(%r : memref<12xf32>) outs(%y : memref<12xf32>)
  }];
  let after = [{
    scf.if %c {
      linalg.exp ins(%b : memref<12xf32>) outs(%b : memref<12xf32>)
    } else {
    }
    linalg.abs ins(%b : memref<12xf32>) outs(%y : memref<12xf32>)
  }];
}

def DDPFoldCopiesPass : DDP_Pass<"ddp-fold-copies"> {
  let summary = "remove copies of a buffer onto itself";
  let text = [{
    A `memref.copy` between two views of one buffer with the same offset and type
    does nothing and is removed. Bufferization leaves such a copy for every gradient
    that was created in its bucket.
  }];
  let before = [{
    %v = ddp.view %b[8] : memref<12xf32> to memref<4xf32>
    linalg.exp ins(%x : memref<4xf32>) outs(%v : memref<4xf32>)
    %w = ddp.view %b[8] : memref<12xf32> to memref<4xf32>
    memref.copy %v, %w : memref<4xf32> to memref<4xf32>
    linalg.abs ins(%w : memref<4xf32>) outs(%y : memref<4xf32>)
  }];
  let after = [{
    %v = ddp.view %b[8] : memref<12xf32> to memref<4xf32>
    linalg.exp ins(%x : memref<4xf32>) outs(%v : memref<4xf32>)
    %w = ddp.view %b[8] : memref<12xf32> to memref<4xf32>
    linalg.abs ins(%w : memref<4xf32>) outs(%y : memref<4xf32>)
  }];
}

def DDPResultsToOutParamsPass : DDP_ModulePass<"ddp-results-to-out-params"> {
  let summary = "let callers allocate the results of private functions";
  let text = [{
    A buffer that a private function returns becomes an argument, and its callers
    allocate it. A buffer that the function allocates and returns is replaced by
    that argument. If the function returns the same buffer several times, or a part
    of one, it copies. Results that are the caller's memory (an argument or a part
    of one) remain results, because there is nothing to copy.

    Pre-condition: bufferized. Results have static shape and identity layout.
  }];
  let before = [{
    func.func private @f(%a: memref<4xf32>) -> memref<4xf32> {
      %m = memref.alloc() : memref<4xf32>
      linalg.exp ins(%a : memref<4xf32>) outs(%m : memref<4xf32>)
      return %m : memref<4xf32>
    }
    func.func @step(%a: memref<4xf32>, %r: memref<4xf32>) {
      %0 = call @f(%a) : (memref<4xf32>) -> memref<4xf32>
      linalg.abs ins(%0 : memref<4xf32>) outs(%r : memref<4xf32>)
      return
    }
  }];
  let after = [{
    func.func private @f(%a: memref<4xf32>, %m: memref<4xf32>) {
      linalg.exp ins(%a : memref<4xf32>) outs(%m : memref<4xf32>)
      return
    }
    func.func @step(%a: memref<4xf32>, %r: memref<4xf32>) {
      %0 = memref.alloc() : memref<4xf32>
      call @f(%a, %0) : (memref<4xf32>, memref<4xf32>) -> ()
      linalg.abs ins(%0 : memref<4xf32>) outs(%r : memref<4xf32>)
      return
    }
  }];
  let dialects = ["memref::MemRef"];
}

def DDPPlanArenaPass : DDP_ModulePass<"ddp-plan-arena"> {
  let summary = "place all buffers of a step in one arena";
  let text = [{
    Every `memref.alloc` becomes a `memref.view` of `ddp.arena` at a fixed offset;
    buffers whose lifetimes do not overlap share memory (best fit over the positions
    of the function's top-level operations, 64-byte aligned). Functions that call
    each other get disjoint parts. `scf.forall` and `scf.parallel` with a buffer in
    them become `scf.for`: otherwise concurrent iterations would share it.

    Pre-condition: bufferized, results are out-parameters; static shapes.
    Post-condition: no allocation.
  }];
  let before = [{
    %a = memref.alloc() : memref<4xf32>
    %b = memref.alloc() : memref<4xf32>
    linalg.exp ins(%x : memref<4xf32>) outs(%a : memref<4xf32>)
    linalg.abs ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)
    %c = memref.alloc() : memref<4xf32>
    linalg.exp ins(%b : memref<4xf32>) outs(%c : memref<4xf32>)
    linalg.abs ins(%c : memref<4xf32>) outs(%y : memref<4xf32>)
  }];
  let after = [{
    %arena = ddp.arena : memref<128xi8>
    %begin_a = arith.constant 0 : index
    %a = memref.view %arena[%begin_a][] : memref<128xi8> to memref<4xf32>
    %begin_b = arith.constant 64 : index
    %b = memref.view %arena[%begin_b][] : memref<128xi8> to memref<4xf32>
    linalg.exp ins(%x : memref<4xf32>) outs(%a : memref<4xf32>)
    linalg.abs ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)
    %begin_c = arith.constant 0 : index
    %c = memref.view %arena[%begin_c][] : memref<128xi8> to memref<4xf32>
    linalg.exp ins(%b : memref<4xf32>) outs(%c : memref<4xf32>)
    linalg.abs ins(%c : memref<4xf32>) outs(%y : memref<4xf32>)
  }];
  let dialects = ["arith::Arith", "ddp::DDP"];
}

def DDPCheckNoAllocPass : DDP_ModulePass<"ddp-check-no-alloc"> {
  let summary = "fail if a step allocates, frees or copies";
  let description = [{
    Reports every `memref.alloc`, `alloca`, `dealloc`, `realloc` or `copy` and every
    `bufferization.clone`; after the first eight, only their number. If there are
    none, every gradient is created in its bucket and every buffer is in the arena.
    The pass is not part of the default pipeline, since a program may need a copy;
    `require-no-copy=true` adds it.

    Example of a rejected program:

    ```mlir
    %m = memref.alloc() : memref<4xf32>  // error: without allocations and copies
    memref.copy %x, %m : memref<4xf32> to memref<4xf32>  // error: without
    ```
  }];
}

#endif // DDPHOOK_DIALECT_DDP_TRANSFORMS_MEMORYPASSES_TD
