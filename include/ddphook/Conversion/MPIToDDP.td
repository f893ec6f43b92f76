// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the pass from mpi's all-reduces to ddp's.

include "ddphook/PassBase.td"

def DDPImportMPIPass : DDP_ModulePass<"ddp-import-mpi"> {
  let summary = "turn the all-reduces of MLIR's mpi dialect into ddp.all_reduce";
  let text = [{
    Converts a program that reduces memrefs with MPI to one that `ddp-pipeline`
    compiles:

    - `mpi.allreduce` with `MPI_SUM` over `mpi.comm_world` becomes `ddp.all_reduce
      sum` over a process group of the whole job, `@world`. Averages are sums in
      MPI, and remain sums; all hooks work on sums.
    - Memrefs of rank 0, such as the loss, are reduced exactly: they get the hook
      `#ddp.allreduce`.
    - `mpi.init` and `mpi.finalize` are removed: the runtime connects the ranks.
    - An `mpi.retval_check` of one of these becomes a constant: a job whose ranks do
      not connect, or that loses one, fails with an error of the runtime.

    Anything else of the mpi dialect is an error that names the operation: another
    reduction, another communicator, a rank or a number of ranks, which compiled code
    does not know. With `keep-others` it stays as it is.

    Pre-condition: memrefs of static shape and without a memory space. Post-condition:
    no operation of the mpi dialect is left (without `keep-others`).
  }];
  let before = [{
    %world = mpi.comm_world : !mpi.comm
    mpi.allreduce(%g, %sum, MPI_SUM, %world)
        : memref<8x4xf32>, memref<8x4xf32>
  }];
  let after = [{
    ddp.process_group @world
    ddp.all_reduce sum %g on @world into %sum : memref<8x4xf32>,
        : memref<8x4xf32>
  }];
  let options = [
    Option<"keepOthers", "keep-others", "bool", /*default=*/"false",
           "Leave operations without an equivalent in ddp unchanged">,
  ];
  let dialects = ["arith::Arith", "ddp::DDP"];
}
