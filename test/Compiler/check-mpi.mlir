// RUN: ddphook-opt %s --ddp-lower-to-llvm --split-input-file --verify-diagnostics | FileCheck %s
// RUN: sed '/^.. -----/,$d' %s > %t-check-mpi.mlir
// RUN: not ddphook-cc %t-check-mpi.mlir -o %t.o 2>&1 | FileCheck %s --check-prefix=CC

// Who forgets ddp-import-mpi is told so, once and at the operation.
// CC: check-mpi.mlir:{{[0-9]+}}:8: error: 'mpi.comm_world' op expected a program without 'mpi' operations; ddp-import-mpi, run before ddp-pipeline, imports them
// CC-NOT: error:
// CC-NOT: DLTI

func.func @step(%g: memref<8xf32>) {
  // expected-error @+2 {{'mpi.comm_world' op expected a program without 'mpi' operations; ddp-import-mpi, run before ddp-pipeline, imports them}}
  // expected-note @+1 {{to call MPI alongside ddphook's runtime, name the MPI implementation: module attributes {dlti.map = #dlti.map<"MPI:Implementation" = "MPICH">}}}
  %c = mpi.comm_world : !mpi.comm
  mpi.allreduce(%g, %g, MPI_SUM, %c) : memref<8xf32>, memref<8xf32>
  return
}

// -----

// CHECK: llvm.func @MPI_Allreduce
// CHECK-LABEL: llvm.func @calls_mpich
// CHECK: llvm.call @MPI_Allreduce
module attributes {dlti.map = #dlti.map<"MPI:Implementation" = "MPICH">} {
  func.func @calls_mpich(%g: memref<8xf32>) {
    %c = mpi.comm_world : !mpi.comm
    mpi.allreduce(%g, %g, MPI_SUM, %c) : memref<8xf32>, memref<8xf32>
    return
  }
}
