// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes that turn a step's linalg operations on memrefs into code that is
// fast on CPUs, and into kernels for GPUs. None of them knows an operation of
// the ddp dialect.

include "ddphook/PassBase.td"

def DDPTileContractionsPass
    : DDP_Pass<"ddp-tile-contractions", "::mlir::func::FuncOp"> {
  let summary = "Lower matrix products and similar ops to register tiles";
  let description = [{
    Turns every floating-point contraction on memrefs of static shape (`matmul`
    in all transpositions, batched, matrix-vector, convolutions, and
    `linalg.generic`s with the same body) into loops around a tile of the
    output that stays in vector registers while the reduction runs.

    Vectors are formed along the last dimension of the output. If the right operand
    is not contiguous along it, a panel of that operand is transposed into a scratch
    buffer on the stack, one per function.

    Every element of the output is accumulated in the order of the plain loop
    nest, and multiplication and addition are rounded separately: the result has
    the same bits as with plain loops and does not depend on the options. The
    pass leaves contractions of any other form to `ddp-order-loops`.

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
  let dialects = ["affine::Affine", "arith::Arith", "memref::MemRef", "scf::SCF",
                  "vector::Vector"];
}

def DDPOrderLoopsPass : DDP_Pass<"ddp-order-loops", "::mlir::func::FuncOp"> {
  let summary = "Choose the innermost loop of linalg ops on memrefs";
  let description = [{
    Turns linalg ops on memrefs into `linalg.generic` and makes the loop that LLVM
    vectorizes best the innermost one: a parallel loop over contiguous memory. The
    relative order of reduction loops never changes, so neither do the bits of the
    result.

    In outline, for a sum over rows:

    ```
    linalg.generic {(d0, d1) -> (d1, d0), (d0, d1) -> (d0), ["parallel", "reduction"]} …
    // becomes, adding whole rows,
    linalg.generic {(d0, d1) -> (d0, d1), (d0, d1) -> (d1), ["reduction", "parallel"]} …
    ```
  }];
  let dialects = ["linalg::Linalg"];
}

def DDPOutlineGPUKernelsPass : DDP_ModulePass<"ddp-outline-gpu-kernels"> {
  let summary = "Turn the linalg ops of a module for a device into kernels";
  let description = [{
    In a module whose plan puts arrays into a device's memory, moves every linalg
    op on memrefs, and every copy that the runtime does not make, into a kernel of
    the `gpu.module` `ddphook_kernels`, and launches it. Operations that differ
    only in the values of their operands share a kernel. Consecutive operations
    whose results have the same extents share a launch if no thread needs the
    results of another: initial values, a product and an activation, for example.
    Constants and constant arrays move into the kernel; scalars become arguments.

    A thread computes every element with all of its reduction, in the order of the
    plain loop nest. For contiguous arrays it computes as many elements as fit into
    16 bytes, for transposed ones a square of up to 4x4, and in contractions of
    65536 elements or more a tile of 2x2, from 2^20 on of 4x4. It accesses arrays
    as vectors if a check at run time finds them aligned. Numbers of threads and
    elements have 32 bits if they fit. Multiplication and addition are rounded
    separately: the results have the bits of the plain loops, except for functions
    of the math library (`ddp-expand-device-math`).

    In outline:

    ```
    linalg.exp ins(%a : memref<1000xf32>) outs(%b : memref<1000xf32>)
    // becomes
    gpu.launch_func @ddphook_kernels::@ddphook_kernel_0 blocks in (%c4, %c1, %c1)
        threads in (%c256, %c1, %c1)
        args(%a : memref<1000xf32>, %b : memref<1000xf32>)
    ```

    The pass rejects dynamic shapes and strides, and results in which several
    iterations of the parallel loops write the same element.
  }];
  let dialects = ["affine::Affine", "arith::Arith", "gpu::GPU", "linalg::Linalg",
                  "memref::MemRef", "scf::SCF", "vector::Vector"];
}

def DDPExpandDeviceMathPass
    : DDP_Pass<"ddp-expand-device-math", "::mlir::gpu::GPUModuleOp"> {
  let summary = "Turn functions of the math library into polynomials";
  let description = [{
    Kernels cannot call a math library. This pass replaces `math` operations on f32,
    f16 and bf16 (`exp`, `log`, `tanh`, `erf`, `sin`, …) by polynomials, except those
    that an instruction of the device computes correctly rounded; 16-bit types are
    computed in f32. It reports each kind of operation that it cannot replace: such
    functions of f64, and `arith.remf`.
  }];
  let dialects = ["arith::Arith", "math::Math", "scf::SCF", "vector::Vector"];
}
