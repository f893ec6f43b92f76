// RUN: ddphook-opt %s --ddp-import-mpi -split-input-file | FileCheck %s
// RUN: ddphook-opt %s --ddp-import-mpi -split-input-file --remarks-filter=ddp-import-mpi 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// One group for all; scalars are reduced exactly. What asks whether all went well
// gets the answer.
// REMARK-DAG: [Passed] Reduction {{.+}}world, exact=false
// REMARK-DAG: [Passed] Reduction {{.+}}world, exact=true
// CHECK:       ddp.process_group @world{{$}}
// CHECK-LABEL: func.func @step(
// CHECK-SAME:      %[[G:.+]]: memref<8x4xf32>, %[[S:.+]]: memref<8x4xf32, strided<[4, 1]>>, %[[L:.+]]: memref<f32>
// CHECK-NEXT:    %[[YES:.+]] = arith.constant true
// CHECK-NEXT:    ddp.all_reduce sum %[[G]] on @world into %[[S]] : memref<8x4xf32, strided<[4, 1]>>, {trace = "weight"} : memref<8x4xf32>
// CHECK-NEXT:    %[[ALSO:.+]] = arith.constant true
// CHECK-NEXT:    ddp.all_reduce sum %[[L]] on @world into %[[L]] : memref<f32>, {ddp.hook = #ddp.allreduce} : memref<f32>
// CHECK-NEXT:    %[[NO:.+]] = arith.constant false
// CHECK-NEXT:    return %[[YES]], %[[ALSO]], %[[NO]]
func.func @step(%g: memref<8x4xf32>, %sum: memref<8x4xf32, strided<[4, 1]>>,
                %loss: memref<f32>) -> (i1, i1, i1) {
  %ready = mpi.init : !mpi.retval
  %begun = mpi.retval_check %ready = <MPI_SUCCESS> : i1
  %world = mpi.comm_world : !mpi.comm
  %s = mpi.allreduce(%g, %sum, MPI_SUM, %world) {trace = "weight"}
      : memref<8x4xf32>, memref<8x4xf32, strided<[4, 1]>> -> !mpi.retval
  %good = mpi.retval_check %s = <MPI_SUCCESS> : i1
  %t = mpi.allreduce(%loss, %loss, MPI_SUM, %world)
      : memref<f32>, memref<f32> -> !mpi.retval
  %lost = mpi.retval_check %t = <MPI_ERR_COMM> : i1
  mpi.finalize
  return %begun, %good, %lost : i1, i1, i1
}

// -----

// The name is taken.
// CHECK:       ddp.process_group @world_0
// CHECK:       ddp.process_group @world size 2
// CHECK:         ddp.all_reduce sum %{{.+}} on @world_0
ddp.process_group @world size 2
func.func @step(%g: memref<4xbf16>) {
  %world = mpi.comm_world : !mpi.comm
  mpi.allreduce(%g, %g, MPI_SUM, %world) : memref<4xbf16>, memref<4xbf16>
  return
}

// -----

// Nothing to import leaves nothing behind.
// CHECK-NOT:   ddp.process_group
// CHECK-LABEL: func.func @nothing(
// CHECK-NEXT:    return
func.func @nothing() {
  %world = mpi.comm_world : !mpi.comm
  return
}
