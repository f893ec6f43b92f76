//===- Passes.td - passes from the pipeline's result to LLVM -*- tablegen -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes that turn what `ddp-pipeline` leaves (functions on memrefs, calls
// of the runtime, a plan) into the LLVM dialect with C entry points. None of
// them knows an operation of the ddp dialect; nothing here touches tensors.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_TARGET_PASSES
#define DDPHOOK_TARGET_PASSES

include "mlir/Pass/PassBase.td"

def EmitEntryPointsPass : Pass<"ddp-emit-entry-points", "::mlir::ModuleOp"> {
  let summary = "Emit a C function for every entry point of the plan";
  let description = [{
    Gives a module what `ddphook/runtime/compiled.h` calls a compiled module:
    per entry of the plan a C function `NAME_ENTRY` that takes bare pointers
    (and scalars by value) and a function that takes an array of buffers; the
    table of entries; the constant `NAME_module`. Characters of an entry's name
    that C does not allow become underscores in `NAME_ENTRY`.

    Pre-condition: the module holds `@__ddphook_handle` and its plan, in
    `ddp.plan`, and every entry of the plan is a `func.func` on identity-layout
    memrefs of static shape and scalars, whose results were appended to its
    arguments.

    Post-condition: the plan is a constant, the JSON text of docs/plan.md. Every other definition is internal and has the prefix
    `ddphook.def.`, so that a function called `step`, `index` or `exp` never meets
    a function of the C library that has this name.

    In outline:

    ```
    func.func @step(%in: memref<4xf32>, %out: memref<4xf32>) { … }
    // becomes
    func.func @ddphook.def.step(…) attributes {llvm.linkage = internal} {…}
    llvm.func @model_step(!llvm.ptr, !llvm.ptr) -> i32 {
      … ddphook_rt_enter, call @ddphook.def.step, ddphook_rt_leave …
    }
    llvm.func internal @ddphook.invoke.model_step(%buffers: !llvm.ptr) -> i32
    llvm.mlir.global constant @model_module() : !llvm.struct<…>
    ```
  }];
  let options = [
    Option<"name", "name", "std::string", /*default=*/"\"ddphook\"",
           "Prefix of the C functions; a C identifier">,
    Option<"shared", "shared", "bool", /*default=*/"false",
           "Also export the module as `ddphook_compiled_module`">,
  ];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def ExpandCopiesPass : Pass<"ddp-expand-copies", "::mlir::func::FuncOp"> {
  let summary = "Turn copies of strided memory into loops";
  let description = [{
    A `memref.copy` of memory that is not contiguous would become a call of
    `memrefCopy`, a function of a library that compiled modules do not have.
    This pass turns it into a `linalg.generic`; contiguous copies stay and
    become `memcpy`. Copies of unranked memory are left to
    `ddp-check-lowered`.

    Before:

    ```mlir
    memref.copy %a, %b : memref<4x4xf32, strided<[8, 1]>> to memref<4x4xf32>
    ```

    After:

    ```mlir
    #id = affine_map<(d0, d1) -> (d0, d1)>
    linalg.generic {indexing_maps = [#id, #id],
                    iterator_types = ["parallel", "parallel"]}
        ins(%a : memref<4x4xf32, strided<[8, 1]>>) outs(%b : memref<4x4xf32>) {
      ^bb0(%in: f32, %out: f32):
        linalg.yield %in : f32
    }
    ```
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect"];
}

def OutlineKernelsPass : Pass<"ddp-outline-kernels", "::mlir::ModuleOp"> {
  let summary = "Give linalg ops of large functions functions of their own";
  let description = [{
    LLVM takes time quadratic in the number of loops of a function: with ten
    thousand of them, many minutes. This pass moves every linalg op on memrefs
    of a function that has more than `max-ops` of them into a private function,
    one for all ops that are equal up to the values of their operands, and calls
    it. Constants that an op's body uses go with it; other values from outside
    become arguments.

    Functions with fewer ops stay whole: there LLVM sees which memory cannot
    overlap.

    Before, with `max-ops=0`:

    ```mlir
    linalg.fill ins(%zero : f32) outs(%a : memref<4xf32>)
    linalg.fill ins(%one : f32) outs(%b : memref<4xf32>)
    ```

    After:

    ```mlir
    func.func private @ddphook.kernel.0(%value: f32, %memory: memref<4xf32>)
        attributes {llvm.linkage = #llvm.linkage<internal>, passthrough = ["noinline"]} {
      linalg.fill ins(%value : f32) outs(%memory : memref<4xf32>)
      return
    }
    func.call @ddphook.kernel.0(%zero, %a) : (f32, memref<4xf32>) -> ()
    func.call @ddphook.kernel.0(%one, %b) : (f32, memref<4xf32>) -> ()
    ```
  }];
  let options = [
    Option<"maxOps", "max-ops", "unsigned", /*default=*/"128",
           "Number of linalg ops up to which a function stays whole">,
  ];
  let dependentDialects = ["::mlir::func::FuncDialect",
                           "::mlir::LLVM::LLVMDialect",
                           "::mlir::memref::MemRefDialect"];
}

def TileContractionsPass : Pass<"ddp-tile-contractions", "::mlir::func::FuncOp"> {
  let summary = "Lower matrix products and their like to register tiles";
  let description = [{
    Turns every floating-point contraction on memrefs of static shape (`matmul`
    in all transpositions, batched, matrix-vector, convolutions, and
    `linalg.generic`s with the same body) into loops around a tile of the
    output that stays in vector registers while the reduction runs.

    The vectors lie along the last dimension of the output. Where the right
    operand is not contiguous along it, a panel of that operand is transposed
    into a scratch buffer on the stack, one per function.

    Every element of the output is accumulated in the order of the plain loop
    nest, multiplication and addition rounded apart: the result has the same
    bits as the plain loops' and does not depend on the options. Contractions
    of any other form are left to `ddp-order-loops`.

    In outline, for `vector-width=256`:

    ```
    linalg.matmul ins(%a, %b : memref<64x32xf32>, memref<32x16xf32>)
                  outs(%c : memref<64x16xf32>)
    // becomes
    scf.for %m = 0 to 60 step 4 {
      %0:8 = scf.for %k = 0 to 32 iter_args(… 4 x 2 vector<8xf32>) { … }
    } …
    ```
  }];
  let options = [
    Option<"vectorWidth", "vector-width", "unsigned", /*default=*/"256",
           "Bits of a vector register">,
    Option<"vectorRegisters", "vector-registers", "unsigned", /*default=*/"16",
           "Number of vector registers">,
  ];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"
  ];
}

def OrderLoopsPass : Pass<"ddp-order-loops", "::mlir::func::FuncOp"> {
  let summary = "Choose the innermost loop of linalg ops on memrefs";
  let description = [{
    Turns linalg ops on memrefs into `linalg.generic` and makes the loop
    innermost that LLVM vectorizes best: a parallel one that walks contiguous
    memory. The relative order of reduction loops never changes, so neither do
    the bits of the result.

    Before, the sum over rows, with columns as the outer loop:

    ```mlir
    #in = affine_map<(d0, d1) -> (d1, d0)>
    #out = affine_map<(d0, d1) -> (d0)>
    linalg.generic {indexing_maps = [#in, #out],
                    iterator_types = ["parallel", "reduction"]}
        ins(%a : memref<64x32xf32>) outs(%b : memref<32xf32>) {
      ^bb0(%x: f32, %sum: f32):
        %next = arith.addf %sum, %x : f32
        linalg.yield %next : f32
    }
    ```

    After, whole rows are added:

    ```mlir
    #in = affine_map<(d0, d1) -> (d0, d1)>
    #out = affine_map<(d0, d1) -> (d1)>
    linalg.generic {indexing_maps = [#in, #out],
                    iterator_types = ["reduction", "parallel"]}
        ins(%a : memref<64x32xf32>) outs(%b : memref<32xf32>) {
      ^bb0(%x: f32, %sum: f32):
        %next = arith.addf %sum, %x : f32
        linalg.yield %next : f32
    }
    ```
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect"];
}

def MakeKernelsPass : Pass<"ddp-make-kernels", "::mlir::ModuleOp"> {
  let summary = "Make kernels of the linalg ops of a module for a device";
  let description = [{
    In a module whose plan says that arrays lie in a device's memory, moves every
    linalg op on memrefs, and every copy that the runtime does not make, into a
    kernel of the `gpu.module` `ddphook_kernels`, and launches it. Operations
    that are equal up to the values of their operands share a kernel. Constants
    and constant arrays go with it; scalars are arguments.

    A thread computes one element of the results with all of its reduction, in
    the order of the plain loop nest. In contractions of 65536 elements or more
    it computes 2x2, from 2^20 on 4x4 of them. Multiplication and addition are
    rounded apart: the results have the bits of the plain loops, but for
    functions of the math library (`ddp-expand-device-math`).

    In outline:

    ```
    linalg.exp ins(%a : memref<1000xf32>) outs(%b : memref<1000xf32>)
    // becomes
    gpu.launch_func @ddphook_kernels::@ddphook_kernel_0 blocks in (%c4, %c1, %c1)
        threads in (%c256, %c1, %c1)
        args(%a : memref<1000xf32>, %b : memref<1000xf32>)
    ```

    Refused: dynamic shapes and strides; results of which several iterations of
    the parallel loops write one element.
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::gpu::GPUDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect"
  ];
}

def ExpandDeviceMathPass : Pass<"ddp-expand-device-math", "::mlir::gpu::GPUModuleOp"> {
  let summary = "Turn functions of the math library into polynomials";
  let description = [{
    Kernels can call no math library. Replaces `math` operations on f32, f16 and
    bf16 that no instruction of the device computes correctly rounded (`exp`,
    `log`, `tanh`, `erf`, `sin`, …) by polynomials, 16-bit types through f32.
    Reports what is left, once a kind: such functions of f64, and `arith.remf`.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"
  ];
}

def LaunchKernelsPass : Pass<"ddp-launch-kernels", "::mlir::ModuleOp"> {
  let summary = "Turn launches of kernels into calls of the runtime";
  let description = [{
    Every `gpu.launch_func` becomes a call of `ddphook_rt_launch` with the
    kernel's number, and the plan gets the kernels' names. The `gpu.module` is
    removed: whoever runs this pass has compiled it.

    Pre-condition: `ddp-make-kernels`; the plan names no kernels.

    In outline:

    ```
    gpu.launch_func @ddphook_kernels::@ddphook_kernel_0 blocks in (%c4, %c1, %c1)
        threads in (%c256, %c1, %c1) args(%a : memref<1000xf32>)
    // becomes
    … stores of sizes, of arguments and of their addresses
    llvm.call @ddphook_rt_launch(%handle, %c0, %grid, %block, %bytes, %addresses)
    ```
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::memref::MemRefDialect"
  ];
}

def CheckDeviceMemoryPass : Pass<"ddp-check-device-memory", "::mlir::ModuleOp"> {
  let summary = "Fail if host code works on memory of a device";
  let description = [{
    In a module whose plan says that arrays lie in a device's memory, the host
    may only pass their addresses on: views, calls, branches, and launches of
    kernels. Reports every kind of operation that reads, writes or allocates
    memory, once, and constant arrays that are passed on as if the device could
    read them. Other modules are not looked at.

    Pre-condition: `ddp-pipeline{memory=device}`; before `ddp-emit-entry-points`.

    Example of what is refused:

    ```mlir
    module attributes {ddp.plan = #ddp.plan<abi = 5, memory = device>} {
      func.func @step(%a: memref<4xf32>, %b: memref<4xf32>) {
        linalg.exp ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)  // error: device
        return
      }
    }
    ```
  }];
  let options = [
    Option<"hasKernels", "has-kernels", "bool", /*default=*/"false",
           "Whether linalg operations were made kernels before">,
  ];
}

def RoundNarrowFloatsPass : Pass<"ddp-round-narrow-floats"> {
  let summary = "Let every operation on a narrow float round its result";
  let description = [{
    `math-extend-to-supported-types` and `arith-emulate-unsupported-floats`
    compute f16 and bf16 in f32, and mark the casts around each operation
    `contract`: from one operation to the next they may be left out. This pass
    takes that mark away, so that a result has the bits that docs/parity.md
    promises, whether operations stand in one loop or in several.

    Pre-condition: directly behind those two passes, before anything folds.

    Before:

    ```mlir
    %p = arith.truncf %0 fastmath<contract> : f32 to bf16
    %1 = arith.extf %p fastmath<contract> : bf16 to f32
    ```

    After:

    ```mlir
    %p = arith.truncf %0 fastmath<none> : f32 to bf16
    %1 = arith.extf %p fastmath<none> : bf16 to f32
    ```
  }];
}

def ExpandArithPass : Pass<"ddp-expand-arith"> {
  let summary = "Expand arithmetic that LLVM has no instruction for";
  let description = [{
    Casts from and to bf16 become integer operations; one from f64 rounds once.
    Rounding divisions of integers become plain ones. `arith.maximumf` and `arith.minimumf` stay, for
    LLVM's intrinsics: of -0 and +0 the latter is the larger one.

    Before:

    ```mlir
    %e = arith.extf %x : bf16 to f32
    ```

    After:

    ```mlir
    %i = arith.bitcast %x : bf16 to i16
    %w = arith.extui %i : i16 to i32
    %c16 = arith.constant 16 : i32
    %s = arith.shli %w, %c16 : i32
    %e = arith.bitcast %s : i32 to f32
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect"];
}

def CheckLoweredPass : Pass<"ddp-check-lowered", "::mlir::ModuleOp"> {
  let summary = "Fail unless only the LLVM dialect is left";
  let description = [{
    The conversions before this pass leave silently what they have no pattern
    for. Reports every kind of operation that is left, once, with its location.
  }];
}

#endif // DDPHOOK_TARGET_PASSES
