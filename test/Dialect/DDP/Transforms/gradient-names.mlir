// Names of gradients: what gives them, in which order, and that no option of
// ddp-bucketize changes them.

// RUN: ddphook-opt %s -split-input-file --ddp-bucketize | FileCheck %s
// RUN: ddphook-opt %s -split-input-file --ddp-bucketize="bucket-cap-mb=0" \
// RUN:   | FileCheck %s --check-prefix=EACH
// RUN: ddphook-opt %s -split-input-file --ddp-bucketize="order=reverse" \
// RUN:   | FileCheck %s --check-prefix=REVERSE

ddp.process_group @dp

// Given names first: of the operation, of its argument, in locations.
// CHECK-LABEL: func.func @given
// CHECK: ddp.all_reduce mean %{{.*}} on @dp as "b0" : !ddp.bucket<f32, [2, 3, 4, 5]> of ["w", "b", "conv/kernel", "scale"]
// CHECK-NOT: ddp.name =
// EACH-LABEL: func.func @given
// EACH: as "b0" : !ddp.bucket<f32, [2]> of ["w"]
// EACH: as "b1" : !ddp.bucket<f32, [3]> of ["b"]
// EACH: as "b2" : !ddp.bucket<f32, [4]> of ["conv/kernel"]
// EACH: as "b3" : !ddp.bucket<f32, [5]> of ["scale"]
// REVERSE-LABEL: func.func @given
// REVERSE: of ["scale", "conv/kernel", "b", "w"]
func.func @given(%g0: tensor<2xf32> loc("not this"), %g1: tensor<3xf32> {ddp.name = "b"},
                 %g2: tensor<4xf32>, %g3: tensor<5xf32> loc("scale"))
    -> (tensor<2xf32>, tensor<3xf32>, tensor<4xf32>, tensor<5xf32>) {
  %0 = ddp.all_reduce mean %g0 on @dp {ddp.name = "w"} : tensor<2xf32>
  %1 = ddp.all_reduce mean %g1 on @dp : tensor<3xf32> loc("nor this")
  %2 = ddp.all_reduce mean %g2 on @dp : tensor<4xf32>
      loc(callsite(fused["conv/kernel"("conv.mlir":1:1), "more"] at "main.mlir":2:2))
  %3 = ddp.all_reduce mean %g3 on @dp : tensor<5xf32>
  return %0, %1, %2, %3 : tensor<2xf32>, tensor<3xf32>, tensor<4xf32>, tensor<5xf32>
}

// -----

ddp.process_group @dp

// Then places: among arguments, among results, in the function.
// CHECK-LABEL: func.func @places
// CHECK: of ["places.arg1", "places.result1", "places.gradient2"]
// REVERSE-LABEL: func.func @places
// REVERSE: of ["places.gradient2", "places.result1", "places.arg1"]
func.func @places(%a: tensor<2xf32>, %b: tensor<2xf32>)
    -> (tensor<2xf32>, tensor<2xf32>) {
  %x = arith.addf %a, %b : tensor<2xf32>
  %y = arith.mulf %a, %b : tensor<2xf32>
  %0 = ddp.all_reduce mean %b on @dp : tensor<2xf32>
  %1 = ddp.all_reduce mean %x on @dp : tensor<2xf32>
  %2 = ddp.all_reduce mean %y on @dp : tensor<2xf32>
  %3 = arith.addf %0, %2 : tensor<2xf32>
  return %3, %1 : tensor<2xf32>, tensor<2xf32>
}

// -----

ddp.process_group @dp

// Names that are derived and taken get a number, in program order; given ones
// stay, wherever they stand.
// CHECK-LABEL: func.func @taken
// CHECK: of ["taken.arg0#1", "w", "w#1", "w#2", "taken.arg0"]
func.func @taken(%a: tensor<2xf32>, %b: tensor<2xf32> {ddp.name = "w"})
    -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %0 = ddp.all_reduce mean %a on @dp : tensor<2xf32>
  %1 = ddp.all_reduce mean %b on @dp : tensor<2xf32>
  %2 = ddp.all_reduce mean %b on @dp : tensor<2xf32>
  %3 = ddp.all_reduce mean %a on @dp : tensor<2xf32> loc("w")
  %4 = ddp.all_reduce mean %a on @dp {ddp.name = "taken.arg0"} : tensor<2xf32>
  return %0, %1, %2, %3, %4 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>,
      tensor<2xf32>, tensor<2xf32>
}

// -----

ddp.process_group @dp

// An argument's name may be said again by one reduction of it.
// CHECK-LABEL: func.func @again
// CHECK: of ["w#1", "w"]
func.func @again(%a: tensor<2xf32> {ddp.name = "w"})
    -> (tensor<2xf32>, tensor<2xf32>) {
  %0 = ddp.all_reduce mean %a on @dp : tensor<2xf32>
  %1 = ddp.all_reduce mean %a on @dp {ddp.name = "w"} : tensor<2xf32>
  return %0, %1 : tensor<2xf32>, tensor<2xf32>
}

// -----

ddp.process_group @dp

// In branches too, and in two functions.
// CHECK-LABEL: func.func @branch
// CHECK: of ["branch.arg1"]
// CHECK: of ["branch.gradient1"]
// CHECK-LABEL: func.func @other
// CHECK: of ["other.arg0"]
func.func @branch(%c: i1, %a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = scf.if %c -> tensor<2xf32> {
    %1 = ddp.all_reduce mean %a on @dp : tensor<2xf32>
    scf.yield %1 : tensor<2xf32>
  } else {
    %2 = arith.addf %a, %a : tensor<2xf32>
    %3 = ddp.all_reduce mean %2 on @dp : tensor<2xf32>
    scf.yield %3 : tensor<2xf32>
  }
  return %0 : tensor<2xf32>
}
func.func @other(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = ddp.all_reduce mean %a on @dp : tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

ddp.process_group @dp

// Gradients in memory have names by the same rules.
// CHECK-LABEL: func.func @in_memory
// CHECK: into %arg0 : memref<2xf32>, {ddp.name = "w"} : memref<2xf32>
// CHECK: into %arg1 : memref<2xf32>, {ddp.name = "in_memory.arg1"} : memref<2xf32>
// CHECK: into %arg1 : memref<2xf32>, {ddp.name = "b"} : memref<2xf32>
// CHECK: into %alloc : memref<2xf32>, {ddp.name = "in_memory.gradient3"} : memref<2xf32>
// CHECK: of ["in_memory.result0"]
func.func @in_memory(%a: memref<2xf32> {ddp.name = "w"}, %b: memref<2xf32>,
                     %t: tensor<2xf32>) -> tensor<2xf32> {
  ddp.all_reduce mean %a on @dp into %a : memref<2xf32>, : memref<2xf32>
  ddp.all_reduce mean %b on @dp into %b : memref<2xf32>, : memref<2xf32>
  ddp.all_reduce mean %b on @dp into %b : memref<2xf32>, : memref<2xf32> loc("b")
  %m = memref.alloc() : memref<2xf32>
  linalg.add ins(%a, %b : memref<2xf32>, memref<2xf32>) outs(%m : memref<2xf32>)
  ddp.all_reduce mean %m on @dp into %m : memref<2xf32>, : memref<2xf32>
  %s = arith.addf %t, %t : tensor<2xf32>
  %0 = ddp.all_reduce mean %s on @dp : tensor<2xf32>
  return %0 : tensor<2xf32>
}
