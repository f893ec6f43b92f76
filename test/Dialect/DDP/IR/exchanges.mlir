// RUN: ddphook-opt %s | FileCheck %s
// RUN: ddphook-opt %s | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --emit-bytecode | ddphook-opt | FileCheck %s

// Collectives on parts and broadcasts: of tensors, of buckets, on flat arrays.

ddp.process_group @dp size 4
ddp.process_group @pairs ranks [[0, 1], [2, 3]]
ddp.process_group @all

!b = !ddp.bucket<f32, [4x8, 2]>

// CHECK-LABEL: func.func @tensors(
// CHECK-SAME:    %[[G:[a-z0-9]+]]: tensor<4x8xf32>, %[[E:[a-z0-9]+]]: tensor<0xf16>, %[[S:[a-z0-9]+]]: tensor<f64>)
func.func @tensors(%g: tensor<4x8xf32>, %e: tensor<0xf16>, %s: tensor<f64>) {
  // CHECK-NEXT: %[[P:.+]] = ddp.reduce_scatter mean %[[G]] on @dp : tensor<4x8xf32> -> tensor<8xf32>
  %p = ddp.reduce_scatter mean %g on @dp : tensor<4x8xf32> -> tensor<8xf32>
  // CHECK-NEXT: ddp.all_gather %[[P]] on @dp : tensor<8xf32> -> tensor<4x8xf32>
  %0 = ddp.all_gather %p on @dp : tensor<8xf32> -> tensor<4x8xf32>
  // CHECK-NEXT: ddp.all_gather %[[P]] on @dp wire bf16 : tensor<8xf32> -> tensor<29xf32>
  %1 = ddp.all_gather %p on @dp wire bf16 : tensor<8xf32> -> tensor<29xf32>
  // CHECK-NEXT: ddp.all_gather %[[P]] on @dp wire !ddp.encoded<i8, 256> : tensor<8xf32> -> tensor<29xf32>
  %codes = ddp.all_gather %p on @dp wire !ddp.encoded<i8, 256> : tensor<8xf32> -> tensor<29xf32>
  // CHECK-NEXT: ddp.all_gather %[[P]] on @dp wire f16 as "b0" : tensor<8xf32> -> tensor<4x8xf32>
  %8 = ddp.all_gather %p on @dp wire f16 as "b0" : tensor<8xf32> -> tensor<4x8xf32>
  // The lists of ranks say the size, too.
  // CHECK-NEXT: ddp.reduce_scatter sum %[[G]] on @pairs wire f16 {ddp.hook = #ddp.allreduce, note = "kept"} : tensor<4x8xf32> -> tensor<16xf32>
  %2 = ddp.reduce_scatter sum %g on @pairs wire f16 {ddp.hook = #ddp.allreduce, note = "kept"} : tensor<4x8xf32> -> tensor<16xf32>
  // CHECK-NEXT: ddp.all_to_all %[[G]] on @dp : tensor<4x8xf32>
  %3 = ddp.all_to_all %g on @dp : tensor<4x8xf32>
  // CHECK-NEXT: ddp.broadcast %[[G]] from 1 on @pairs : tensor<4x8xf32>
  %4 = ddp.broadcast %g from 1 on @pairs : tensor<4x8xf32>
  // Without a size any root may be one.
  // CHECK-NEXT: ddp.broadcast %[[S]] from 1000000 on @all : tensor<f64>
  %5 = ddp.broadcast %s from 1000000 on @all : tensor<f64>
  // CHECK-NEXT: ddp.reduce_scatter sum %[[S]] on @dp : tensor<f64> -> tensor<1xf64>
  %6 = ddp.reduce_scatter sum %s on @dp : tensor<f64> -> tensor<1xf64>
  // CHECK-NEXT: ddp.reduce_scatter sum %[[E]] on @dp : tensor<0xf16> -> tensor<0xf16>
  %7 = ddp.reduce_scatter sum %e on @dp : tensor<0xf16> -> tensor<0xf16>
  return
}

// CHECK-LABEL: func.func @buckets(
func.func @buckets(%g: !b) -> (!b, !b, !b) {
  // CHECK-NEXT: %[[P:.+]] = ddp.reduce_scatter mean %{{.+}} on @dp : !ddp.bucket<f32, [4x8, 2]> -> tensor<9xf32>
  %p = ddp.reduce_scatter mean %g on @dp : !b -> tensor<9xf32>
  // CHECK-NEXT: ddp.all_gather %[[P]] on @dp : tensor<9xf32> -> !ddp.bucket<f32, [4x8, 2]>
  %0 = ddp.all_gather %p on @dp : tensor<9xf32> -> !b
  // CHECK-NEXT: ddp.all_to_all %{{.+}} on @pairs : !ddp.bucket<f32, [4x8, 2]>
  %1 = ddp.all_to_all %g on @pairs : !b
  // CHECK-NEXT: ddp.broadcast %{{.+}} from 3 on @dp : !ddp.bucket<f32, [4x8, 2]>
  %2 = ddp.broadcast %g from 3 on @dp : !b
  return %0, %1, %2 : !b, !b, !b
}

// CHECK-LABEL: func.func @flat(
func.func @flat(%g: tensor<34xf32>, %p: tensor<9xf32>, %o: tensor<34xf32>,
                %m: memref<4x8xf32>, %q: memref<8xf32>) {
  // CHECK-NEXT: %{{.+}} = ddp.flat.reduce_scatter mean %{{.+}} on @dp wire f16 into %{{.+}} : tensor<34xf32>, tensor<9xf32>
  %0 = ddp.flat.reduce_scatter mean %g on @dp wire f16 into %p : tensor<34xf32>, tensor<9xf32>
  // CHECK-NEXT: %{{.+}} = ddp.flat.all_gather %{{.+}} on @dp wire bf16 into %{{.+}} : tensor<9xf32>, tensor<34xf32>
  %1 = ddp.flat.all_gather %p on @dp wire bf16 into %o : tensor<9xf32>, tensor<34xf32>
  // CHECK-NEXT: %{{.+}} = ddp.flat.all_to_all %{{.+}} on @pairs into %{{.+}} : tensor<34xf32>, tensor<34xf32>
  %2 = ddp.flat.all_to_all %g on @pairs into %o : tensor<34xf32>, tensor<34xf32>
  // CHECK-NEXT: %{{.+}} = ddp.flat.broadcast %{{.+}} from 2 on @dp into %{{.+}} : tensor<34xf32>, tensor<34xf32>
  %3 = ddp.flat.broadcast %g from 2 on @dp into %o : tensor<34xf32>, tensor<34xf32>
  // CHECK-NEXT: ddp.flat.reduce_scatter sum %{{.+}} on @dp into %{{.+}} : memref<4x8xf32>, memref<8xf32>
  ddp.flat.reduce_scatter sum %m on @dp into %q : memref<4x8xf32>, memref<8xf32>
  // CHECK-NEXT: ddp.flat.all_gather %{{.+}} on @dp into %{{.+}} : memref<8xf32>, memref<4x8xf32>
  ddp.flat.all_gather %q on @dp into %m : memref<8xf32>, memref<4x8xf32>
  // CHECK-NEXT: ddp.flat.all_to_all %{{.+}} on @dp into %{{.+}} : memref<8xf32>, memref<8xf32>
  ddp.flat.all_to_all %q on @dp into %q : memref<8xf32>, memref<8xf32>
  // CHECK-NEXT: ddp.flat.broadcast %{{.+}} from 0 on @dp into %{{.+}} : memref<8xf32>, memref<8xf32>
  ddp.flat.broadcast %q from 0 on @dp into %q : memref<8xf32>, memref<8xf32>
  return
}
