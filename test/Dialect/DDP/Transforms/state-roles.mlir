// RUN: ddphook-opt %s -split-input-file --ddp-bucketize --ddp-expand-hooks=hook=powersgd | FileCheck %s

// What states are to gradients. A bucket that was packed by hand has names of its
// own; of two groups one is a part of the job, whose Q is not the same everywhere.
// CHECK: ddp.state @powersgd.iter : i64 replicated zero
// CHECK-SAME: kind iteration role "powersgd.iter" of {{\[}}["x", "b7.0", "b7.1", "states.arg1"]]{{$}}
// CHECK: ddp.state @powersgd.generator : tensor<625xi32> replicated mt19937 seed 0
// CHECK-SAME: kind generator role "powersgd.generator" of {{\[}}["x", "b7.0", "b7.1", "states.arg1"]]{{$}}
// CHECK: ddp.state @b8.error : !ddp.bucket<f32, [8x9]> per_rank zero
// CHECK-SAME: kind error role "powersgd.error" of {{\[}}["x"]] under "mean #ddp.powersgd"
// CHECK: ddp.state @b8.q : !ddp.bucket<f32, [9x1]> replicated normal
// CHECK-SAME: kind factor role "powersgd.q" of {{\[}}["x"]] under "mean #ddp.powersgd"
// CHECK: ddp.state @b7.error : !ddp.bucket<f32, [3, 9x8]> per_rank zero
// CHECK-SAME: kind error role "powersgd.error" of {{\[}}["b7.0"], ["b7.1"]] under "sum #ddp.powersgd"
// CHECK: ddp.state @b7.q : !ddp.bucket<f32, [8x1]> replicated normal
// CHECK-SAME: kind factor role "powersgd.q" of {{\[}}["b7.1"]] under "sum #ddp.powersgd"
// CHECK: ddp.state @b9.error : !ddp.bucket<f32, [9x8]> per_rank zero
// CHECK: ddp.state @b9.q : !ddp.bucket<f32, [8x1]> per_rank normal
// CHECK-SAME: kind factor role "powersgd.q" of {{\[}}["states.arg1"]] under "mean in [0, 1], [2, 3] #ddp.powersgd"
// CHECK: ddp.bucket_info "b8" mean on @dp {{.*}} : !ddp.bucket<f32, [8x9]> of ["x"]
// CHECK: ddp.bucket_info "b7" sum on @dp {{.*}} : !ddp.bucket<f32, [3, 9x8]> of ["b7.0", "b7.1"]
ddp.process_group @dp
ddp.process_group @pairs ranks [[0, 1], [2, 3]]
func.func @states(%b: !ddp.bucket<f32, [3, 9x8]>, %a: tensor<9x8xf32>, %x: tensor<8x9xf32>)
    -> (!ddp.bucket<f32, [3, 9x8]>, tensor<9x8xf32>, tensor<8x9xf32>) {
  %2 = ddp.all_reduce mean %x on @dp {ddp.name = "x"} : tensor<8x9xf32>
  %0 = ddp.all_reduce sum %b on @dp as "b7" : !ddp.bucket<f32, [3, 9x8]>
  %1 = ddp.all_reduce mean %a on @pairs : tensor<9x8xf32>
  return %0, %1, %2 : !ddp.bucket<f32, [3, 9x8]>, tensor<9x8xf32>, tensor<8x9xf32>
}

// -----

// A bucket whose name begins like another one's.
// CHECK-DAG: ddp.state @x.error {{.+}} under "mean #ddp.powersgd"
// CHECK-DAG: ddp.state @x.q {{.+}} under "mean #ddp.powersgd"
// CHECK-DAG: ddp.state @x.y.error {{.+}} under "sum #ddp.powersgd"
// CHECK-DAG: ddp.state @x.y.q {{.+}} under "sum #ddp.powersgd"
ddp.process_group @dp
func.func @dots(%a: !ddp.bucket<f32, [9x8]>, %b: !ddp.bucket<f32, [9x8]>)
    -> (!ddp.bucket<f32, [9x8]>, !ddp.bucket<f32, [9x8]>) {
  %0 = ddp.all_reduce mean %a on @dp as "x" : !ddp.bucket<f32, [9x8]>
  %1 = ddp.all_reduce sum %b on @dp as "x.y" : !ddp.bucket<f32, [9x8]>
  return %0, %1 : !ddp.bucket<f32, [9x8]>, !ddp.bucket<f32, [9x8]>
}
