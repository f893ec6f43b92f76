// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes that turn the output of `ddp-pipeline` (functions on memrefs,
// calls of the runtime, a plan) into the LLVM dialect with C entry points. They
// know no operation of the ddp dialect, and work on no tensors.

include "ddphook/PassBase.td"

def DDPEmitEntryPointsPass : DDP_ModulePass<"ddp-emit-entry-points"> {
  let summary = "Emit a C function for every entry point of the plan";
  let description = [{
    Adds the parts of a compiled module, as `ddphook/runtime/compiled.h` defines it:
    for each entry of the plan, a C function `NAME_ENTRY` that takes bare pointers
    (and scalars by value) and a function that takes an array of buffers; the table
    of entries; the constant `NAME_module`. Characters of an entry's name that C does
    not allow become underscores in `NAME_ENTRY`.

    Pre-condition: the module has `@__ddphook_handle` and its plan in `ddp.plan`.
    Every entry of the plan is a `func.func` on identity-layout memrefs of static
    shape and scalars, whose results were appended to its arguments.

    Post-condition: the plan is a constant, the JSON text of docs/plan.md. Every
    other definition is internal and has the prefix `ddphook.def.`, so that a
    function called `step`, `index` or `exp` cannot be confused with the C library's
    function of that name.

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
  let dialects = ["LLVM::LLVM"];
}

def DDPExpandCopiesPass : DDP_Pass<"ddp-expand-copies", "::mlir::func::FuncOp"> {
  let summary = "Turn copies of strided memory into loops";
  let text = [{
    A `memref.copy` of non-contiguous memory would become a call of `memrefCopy`, a
    function of a library that compiled modules do not link. This pass turns it into
    a `linalg.generic`; contiguous copies stay and become `memcpy`. Copies of
    unranked memory are left to `ddp-check-lowered`.
  }];
  let before = [{
    memref.copy %a, %b : memref<4x4xf32, strided<[8, 1]>> to memref<4x4xf32>
  }];
  let after = [{
    #id = affine_map<(d0, d1) -> (d0, d1)>
    linalg.generic {indexing_maps = [#id, #id],
                    iterator_types = ["parallel", "parallel"]}
        ins(%a : memref<4x4xf32, strided<[8, 1]>>) outs(%b : memref<4x4xf32>) {
      ^bb0(%in: f32, %out: f32):
        linalg.yield %in : f32
    }
  }];
  let dialects = ["linalg::Linalg"];
}

def DDPOutlineLinalgOpsPass : DDP_ModulePass<"ddp-outline-linalg-ops"> {
  let summary = "Move linalg ops of large functions into functions of their own";
  let text = [{
    LLVM's time is quadratic in the number of loops of a function: with ten thousand
    of them, many minutes. If a function has more than `max-ops` linalg ops on
    memrefs, this pass moves each of them into a private function and calls it; ops
    that differ only in the values of their operands share one function. Constants
    that an op's body uses move with it; other values from outside become arguments.

    Functions with fewer ops are not split: there, LLVM sees which memory cannot
    overlap.
  }];
  let beforeWith = ", with `max-ops=0`";
  let before = [{
    linalg.fill ins(%zero : f32) outs(%a : memref<4xf32>)
    linalg.fill ins(%one : f32) outs(%b : memref<4xf32>)
  }];
  let after = [{
    func.func private @ddphook.kernel.0(%value: f32, %memory: memref<4xf32>)
        attributes {llvm.linkage = #llvm.linkage<internal>, passthrough = ["noinline"]} {
      linalg.fill ins(%value : f32) outs(%memory : memref<4xf32>)
      return
    }
    func.call @ddphook.kernel.0(%zero, %a) : (f32, memref<4xf32>) -> ()
    func.call @ddphook.kernel.0(%one, %b) : (f32, memref<4xf32>) -> ()
  }];
  let options = [
    Option<"maxOps", "max-ops", "unsigned", /*default=*/"128",
           "Largest number of linalg ops in a function that is not split">,
  ];
  let dialects = ["func::Func", "LLVM::LLVM", "memref::MemRef"];
}

def DDPLaunchKernelsPass : DDP_ModulePass<"ddp-launch-kernels"> {
  let summary = "Turn launches of kernels into calls of the runtime";
  let description = [{
    Every `gpu.launch_func` becomes a call of `ddphook_rt_launch` with the kernel's
    number, and the kernels' names are added to the plan. The `gpu.module` is removed,
    so compile it before running this pass.

    Pre-condition: `ddp-outline-gpu-kernels`; the plan names no kernels.

    In outline:

    ```
    gpu.launch_func @ddphook_kernels::@ddphook_kernel_0 blocks in (%c4, %c1, %c1)
        threads in (%c256, %c1, %c1) args(%a : memref<1000xf32>)
    // becomes
    … stores of sizes, of arguments and of their addresses
    llvm.call @ddphook_rt_launch(%handle, %c0, %grid, %block, %bytes, %addresses)
    ```
  }];
  let dialects = ["arith::Arith", "LLVM::LLVM", "memref::MemRef"];
}

def DDPCheckDeviceMemoryPass : DDP_ModulePass<"ddp-check-device-memory"> {
  let summary = "Fail if host code works on memory of a device";
  let description = [{
    In a module whose plan puts arrays into a device's memory, the host may only pass
    their addresses on, in views, calls, branches, and launches of kernels. The pass
    reports each kind of operation that reads, writes or allocates memory once. It
    also reports constant arrays that are passed on, because the device cannot read
    them. It does not check other modules.

    Pre-condition: `ddp-pipeline{memory=device}`; before `ddp-emit-entry-points`.

    Example of what is refused:

    ```mlir
    module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {
      func.func @step(%a: memref<4xf32>, %b: memref<4xf32>) {
        linalg.exp ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)  // error: device
        return
      }
    }
    ```
  }];
  let options = [
    Option<"hasKernels", "has-kernels", "bool", /*default=*/"false",
           "Whether linalg operations have already been turned into kernels">,
  ];
}

def DDPExpandArithPass : DDP_Pass<"ddp-expand-arith"> {
  let summary = "Expand arithmetic that LLVM has no instruction for";
  let text = [{
    Casts from and to bf16 become integer operations; a cast from f64 rounds only once.
    Rounding divisions of integers become plain ones. `arith.maximumf` and
    `arith.minimumf` are kept for LLVM's intrinsics, which order -0 before +0.

    `math-extend-to-supported-types` and `arith-emulate-unsupported-floats` compute
    f16 and bf16 in f32, and mark the casts around each operation `contract`, which
    allows omitting them between operations. This pass removes the mark, so that a
    result has the bits that docs/parity.md promises, whether the operations are in
    one loop or in several.

    Pre-condition: runs directly after those two passes, before anything folds.
  }];
  let before = [{
    %e = arith.extf %x : bf16 to f32
    %h = arith.truncf %e fastmath<contract> : f32 to f16
  }];
  let after = [{
    %i = arith.bitcast %x : bf16 to i16
    %w = arith.extui %i : i16 to i32
    %c16 = arith.constant 16 : i32
    %s = arith.shli %w, %c16 : i32
    %e = arith.bitcast %s : i32 to f32
    %h = arith.truncf %e fastmath<none> : f32 to f16
  }];
  let dialects = ["arith::Arith", "math::Math"];
}

def DDPCheckMPIPass : DDP_ModulePass<"ddp-check-mpi"> {
  let summary = "Fail if calls of MPI do not say which MPI they call";
  let description = [{
    Operations of MLIR's `mpi` dialect become calls of an MPI library, which upstream's
    lowering selects by an attribute of the module. A module without it usually should
    have gone through `ddp-import-mpi`, without which our runtime knows nothing of its
    reductions. This pass reports that at the first operation of the dialect.

    Accepted:

    ```mlir
    module attributes {dlti.map = #dlti.map<"MPI:Implementation" = "MPICH">} {
      func.func @step(%g: memref<8xf32>) {
        %c = mpi.comm_world : !mpi.comm
        mpi.allreduce(%g, %g, MPI_SUM, %c) : memref<8xf32>, memref<8xf32>
        return
      }
    }
    ```
  }];
}

def DDPCheckLoweredPass : DDP_ModulePass<"ddp-check-lowered"> {
  let summary = "Fail unless only the LLVM dialect is left";
  let description = [{
    The previous conversions silently keep operations for which they have no pattern.
    This pass reports each kind of remaining operation once, with its location.
  }];
}
