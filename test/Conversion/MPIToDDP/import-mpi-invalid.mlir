// RUN: ddphook-opt %s --ddp-import-mpi -split-input-file -verify-diagnostics
// RUN: ddphook-opt %s --ddp-import-mpi=keep-others=true -split-input-file | FileCheck %s

// CHECK-LABEL: func.func @reductions(
func.func @reductions(%g: memref<4xf32>, %n: memref<4xi32>, %d: memref<?xf32>,
                      %h: memref<4xf16>, %o: memref<4xf32, 1>) {
  %world = mpi.comm_world : !mpi.comm
  // CHECK: mpi.allreduce({{.+}}, MPI_MAX,
  // expected-error@+1 {{'mpi.allreduce' op expected MPI_SUM, the only reduction that the runtime has}}
  mpi.allreduce(%g, %g, MPI_MAX, %world) : memref<4xf32>, memref<4xf32>
  // CHECK: mpi.allreduce({{.+}} memref<4xi32>
  // expected-error@+1 {{'mpi.allreduce' op expected elements of f16, bf16, f32 or f64}}
  mpi.allreduce(%n, %n, MPI_SUM, %world) : memref<4xi32>, memref<4xi32>
  // CHECK: mpi.allreduce({{.+}} memref<?xf32>
  // expected-error@+1 {{'mpi.allreduce' op expected memrefs of static shape}}
  mpi.allreduce(%d, %d, MPI_SUM, %world) : memref<?xf32>, memref<?xf32>
  // CHECK: mpi.allreduce({{.+}} memref<4xf32>, memref<4xf16>
  // expected-error@+1 {{'mpi.allreduce' op expected two memrefs of one shape and element type}}
  mpi.allreduce(%g, %h, MPI_SUM, %world) : memref<4xf32>, memref<4xf16>
  // CHECK: mpi.allreduce({{.+}} memref<4xf32, 1>
  // expected-error@+1 {{'mpi.allreduce' op expected memrefs without a memory space}}
  mpi.allreduce(%o, %o, MPI_SUM, %world) : memref<4xf32, 1>, memref<4xf32, 1>
  return
}

// -----

// CHECK-LABEL: func.func @communicators(
func.func @communicators(%g: memref<4xf32>, %c: !mpi.comm, %i: i32) -> i32 {
  %world = mpi.comm_world : !mpi.comm
  // expected-error@+1 {{'mpi.allreduce' op expected the communicator of 'mpi.comm_world'}}
  mpi.allreduce(%g, %g, MPI_SUM, %c) : memref<4xf32>, memref<4xf32>
  // expected-error@+1 {{'mpi.comm_split' op expected reductions over 'mpi.comm_world' only}}
  %part = mpi.comm_split(%world, %i, %i) : !mpi.comm
  // expected-error@+1 {{'mpi.allreduce' op expected the communicator of 'mpi.comm_world'}}
  mpi.allreduce(%g, %g, MPI_SUM, %part) : memref<4xf32>, memref<4xf32>
  // CHECK: mpi.comm_size
  // expected-error@+1 {{'mpi.comm_size' op expected a program that does not need the rank or the number of ranks, which compiled code does not know}}
  %n = mpi.comm_size(%world) : i32
  return %n : i32
}

// -----

// CHECK-LABEL: func.func @others(
func.func @others(%g: memref<4xf32>, %i: i32) -> !mpi.retval {
  %world = mpi.comm_world : !mpi.comm
  // CHECK: mpi.send
  // expected-error@+1 {{'mpi.send' op expected all-reduces only, since ddp has neither messages between two ranks nor barriers}}
  mpi.send(%g, %i, %i, %world) : memref<4xf32>, i32, i32
  // CHECK: mpi.barrier
  // expected-error@+1 {{'mpi.barrier' op expected all-reduces only}}
  mpi.barrier(%world)
  // CHECK: mpi.allreduce
  // expected-error@+1 {{'mpi.allreduce' op expected its status to be used by 'mpi.retval_check' only}}
  %s = mpi.allreduce(%g, %g, MPI_SUM, %world)
      : memref<4xf32>, memref<4xf32> -> !mpi.retval
  return %s : !mpi.retval
}
