// RUN: ddphook-opt %s | FileCheck %s
// RUN: ddphook-opt %s | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --emit-bytecode | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC

// CHECK: ddp.process_group @dp{{$}}
// GENERIC: "ddp.process_group"() <{sym_name = "dp"}> : () -> ()
ddp.process_group @dp
// CHECK: ddp.process_group @four size 4{{$}}
ddp.process_group @four size 4
// CHECK: ddp.process_group @pairs ranks {{\[\[}}0, 1], [2, 3]]{{$}}
// GENERIC: ranks = [array<i64: 0, 1>, array<i64: 2, 3>], sym_name = "pairs"
ddp.process_group @pairs ranks [[0, 1], [2, 3]]
// CHECK: ddp.process_group @strided size 2 ranks {{\[\[}}0, 2], [3, 1]]{{$}}
ddp.process_group @strided size 2 ranks [[0, 2], [3, 1]]
// CHECK: ddp.process_group @node placement intra_node{{$}}
ddp.process_group @node placement intra_node
// CHECK: ddp.process_group @across placement inter_node parent @four{{$}}
ddp.process_group @across placement inter_node parent @four
// CHECK: ddp.process_group @nodes size 4 topology hierarchical{{$}}
ddp.process_group @nodes size 4 topology hierarchical
// CHECK: ddp.process_group @alike ranks {{.+}} topology flat{{$}}
ddp.process_group @alike ranks [[0, 1], [2, 3]] topology flat
// CHECK: ddp.process_group @noted {note = "kept"}
ddp.process_group @noted {note = "kept"}

// CHECK: ddp.bucket_info "b0" mean on @dp hook #ddp.fp16 wire f16 bytes 64
// CHECK-SAME: state_bytes 0 : !ddp.bucket<f32, [4x8]>
ddp.bucket_info "b0" mean on @dp hook #ddp.fp16 wire f16 bytes 64
    state_bytes 0 : !ddp.bucket<f32, [4x8]>
// CHECK: ddp.bucket_info "b1" sum on @dp hook #ddp.noop wire f64 bytes 0
// CHECK-SAME: state_bytes 128 : !ddp.bucket<f64, []>
ddp.bucket_info "b1" sum on @dp hook #ddp.noop wire f64 bytes 0
    state_bytes 128 : !ddp.bucket<f64, []>

// CHECK: ddp.bucket_info "b2" sum on @dp {{.+}} : !ddp.bucket<f64, [2, 3]> of ["w", "b"]{{$}}
ddp.bucket_info "b2" sum on @dp hook #ddp.noop wire f64 bytes 0
    state_bytes 0 : !ddp.bucket<f64, [2, 3]> of ["w", "b"]

// CHECK-LABEL: func @named(
// CHECK-SAME: %[[A:[a-z0-9]+]]: tensor<2xf32> {ddp.name = "w"}, %[[B:[a-z0-9]+]]: !ddp.bucket<f32, [2, 3]>
func.func @named(%a: tensor<2xf32> {ddp.name = "w"},
                 %b: !ddp.bucket<f32, [2, 3]>) {
  // CHECK: ddp.all_reduce mean %[[A]] on @dp {ddp.name = "v"} : tensor<2xf32>{{$}}
  %0 = ddp.all_reduce mean %a on @dp {ddp.name = "v"} : tensor<2xf32>
  // CHECK: ddp.all_reduce sum %[[B]] on @dp as "b0" : !ddp.bucket<f32, [2, 3]> of ["x", "y"]{{$}}
  %1 = ddp.all_reduce sum %b on @dp as "b0" : !ddp.bucket<f32, [2, 3]>
      of ["x", "y"]
  return
}

// CHECK-LABEL: func @pack_unpack(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: tensor<4x8xf32>, %[[B:[a-z0-9]+]]: tensor<f32>, %[[C:[a-z0-9]+]]: tensor<0x3xf32>
func.func @pack_unpack(%a: tensor<4x8xf32>, %b: tensor<f32>,
                       %c: tensor<0x3xf32>) {
  // CHECK: %[[P:.+]] = ddp.pack %[[A]], %[[B]], %[[C]] : tensor<4x8xf32>, tensor<f32>, tensor<0x3xf32> -> !ddp.bucket<f32, [4x8, scalar, 0x3]>
  %0 = ddp.pack %a, %b, %c : tensor<4x8xf32>, tensor<f32>, tensor<0x3xf32>
      -> !ddp.bucket<f32, [4x8, scalar, 0x3]>
  // CHECK: %{{.+}}:3 = ddp.unpack %[[P]] : !ddp.bucket<f32, [4x8, scalar, 0x3]> -> tensor<4x8xf32>, tensor<f32>, tensor<0x3xf32>
  %1:3 = ddp.unpack %0 : !ddp.bucket<f32, [4x8, scalar, 0x3]>
      -> tensor<4x8xf32>, tensor<f32>, tensor<0x3xf32>
  // CHECK: %[[FLAT:.+]] = ddp.pack %[[A]], %[[B]], %[[C]] {{.+}} -> tensor<33xf32>
  %2 = ddp.pack %a, %b, %c : tensor<4x8xf32>, tensor<f32>, tensor<0x3xf32>
      -> tensor<33xf32>
  // CHECK: %{{.+}}:2 = ddp.unpack %[[FLAT]] : tensor<33xf32> -> tensor<4x8xf32>, tensor<f32>
  %3:2 = ddp.unpack %2 : tensor<33xf32> -> tensor<4x8xf32>, tensor<f32>
  return
}

// CHECK-LABEL: func @empty_bucket(
func.func @empty_bucket() {
  // CHECK: %[[P:.+]] = ddp.pack -> !ddp.bucket<bf16, []>
  %0 = ddp.pack -> !ddp.bucket<bf16, []>
  // CHECK: ddp.unpack %[[P]] : !ddp.bucket<bf16, []>{{$}}
  ddp.unpack %0 : !ddp.bucket<bf16, []>
  // CHECK: %[[R:.+]] = ddp.all_reduce sum %[[P]] on @dp : !ddp.bucket<bf16, []>
  %1 = ddp.all_reduce sum %0 on @dp : !ddp.bucket<bf16, []>
  // CHECK: ddp.concat -> !ddp.bucket<bf16, []>
  %2 = ddp.concat -> !ddp.bucket<bf16, []>
  // CHECK: ddp.extract %[[R]] [] : !ddp.bucket<bf16, []>
  %3 = ddp.extract %1 [] : !ddp.bucket<bf16, []>
  // CHECK: ddp.concat -> tensor<0xf32>
  %4 = ddp.concat -> tensor<0xf32>
  return
}

// CHECK-LABEL: func @extract_concat(
// CHECK-SAME:    %[[B:[a-z0-9]+]]: !ddp.bucket<f32, [4x8, 8, 3]>
func.func @extract_concat(%b: !ddp.bucket<f32, [4x8, 8, 3]>,
                          %x: tensor<4xf16>, %y: tensor<0xf16>) {
  // CHECK: %[[X:.+]] = ddp.extract %[[B]] [0] : !ddp.bucket<f32, [4x8, 8, 3]>
  %0 = ddp.extract %b [0] : !ddp.bucket<f32, [4x8, 8, 3]>
  // CHECK: %[[Y:.+]] = ddp.extract %[[B]] [1, 2] : !ddp.bucket<f32, [4x8, 8, 3]>
  %1 = ddp.extract %b [1, 2] : !ddp.bucket<f32, [4x8, 8, 3]>
  // CHECK: ddp.concat %[[Y]], %[[X]] : !ddp.bucket<f32, [8, 3]>, !ddp.bucket<f32, [4x8]> -> !ddp.bucket<f32, [8, 3, 4x8]>
  %2 = ddp.concat %1, %0 : !ddp.bucket<f32, [8, 3]>, !ddp.bucket<f32, [4x8]>
      -> !ddp.bucket<f32, [8, 3, 4x8]>
  // CHECK: ddp.concat %{{.+}}, %{{.+}} : tensor<4xf16>, tensor<0xf16> -> tensor<4xf16>
  %3 = ddp.concat %x, %y : tensor<4xf16>, tensor<0xf16> -> tensor<4xf16>
  // CHECK: %[[P:.+]]:2 = ddp.split %[[B]] : !ddp.bucket<f32, [4x8, 8, 3]> -> !ddp.bucket<f32, [4x8]>, !ddp.bucket<f32, [8, 3]>
  %4:2 = ddp.split %b : !ddp.bucket<f32, [4x8, 8, 3]>
      -> !ddp.bucket<f32, [4x8]>, !ddp.bucket<f32, [8, 3]>
  // CHECK: %[[F:.+]]:2 = ddp.split %{{.+}} : tensor<4xf16> -> tensor<4xf16>, tensor<0xf16>
  %5:2 = ddp.split %x : tensor<4xf16> -> tensor<4xf16>, tensor<0xf16>
  // CHECK: ddp.concat %[[F]]#0, %[[F]]#1 into %{{.+}} : tensor<4xf16>, : tensor<4xf16>, tensor<0xf16> -> tensor<4xf16>
  %6 = ddp.concat %5#0, %5#1 into %x : tensor<4xf16>,
      : tensor<4xf16>, tensor<0xf16> -> tensor<4xf16>
  return
}

// CHECK-LABEL: func @all_reduce(
// CHECK-SAME:    %[[T:[a-z0-9]+]]: tensor<300x200xf32>, %[[S:[a-z0-9]+]]: tensor<f64>, %[[Z:[a-z0-9]+]]: tensor<0x3xbf16>
// CHECK-SAME:    %[[B:[a-z0-9]+]]: !ddp.bucket<f32, [4x8, 8]>
// CHECK-SAME:    %[[M:[a-z0-9]+]]: memref<40xf32>
func.func @all_reduce(%t: tensor<300x200xf32>, %s: tensor<f64>,
                      %z: tensor<0x3xbf16>, %b: !ddp.bucket<f32, [4x8, 8]>,
                      %m: memref<40xf32>) {
  // CHECK: ddp.all_reduce mean %[[T]] on @dp : tensor<300x200xf32>
  // GENERIC: "ddp.all_reduce"(%{{.+}}) <{group = @dp, reduction = #ddp<reduction mean>}> : (tensor<300x200xf32>) -> tensor<300x200xf32>
  %0 = ddp.all_reduce mean %t on @dp : tensor<300x200xf32>
  // CHECK: ddp.all_reduce sum %[[S]] on @dp : tensor<f64>
  %1 = ddp.all_reduce sum %s on @dp : tensor<f64>
  // CHECK: ddp.all_reduce mean %[[Z]] on @pairs : tensor<0x3xbf16>
  %2 = ddp.all_reduce mean %z on @pairs : tensor<0x3xbf16>
  // CHECK: ddp.all_reduce sum %[[B]] on @dp wire f16 as "b0" : !ddp.bucket<f32, [4x8, 8]>
  %3 = ddp.all_reduce sum %b on @dp wire f16 as "b0"
      : !ddp.bucket<f32, [4x8, 8]>
  // CHECK: ddp.flat.all_reduce mean %[[T]] on @dp wire bf16 into %[[T]] {note} : tensor<300x200xf32>, tensor<300x200xf32>
  %4 = ddp.flat.all_reduce mean %t on @dp wire bf16 into %t {note} : tensor<300x200xf32>, tensor<300x200xf32>
  // CHECK: ddp.all_reduce mean %[[M]] on @dp as "b1" into %[[M]] : memref<40xf32>, {ddp.hook = #ddp.allreduce} : memref<40xf32>
  // GENERIC: "ddp.all_reduce"(%[[M:[a-z0-9]+]], %[[M]]) <{bucket_name = "b1", group = @dp, reduction = #ddp<reduction mean>}> {ddp.hook = #ddp.allreduce} : (memref<40xf32>, memref<40xf32>) -> ()
  ddp.all_reduce mean %m on @dp as "b1" into %m : memref<40xf32>,
      {ddp.hook = #ddp.allreduce} : memref<40xf32>
  return
}

// CHECK-LABEL: func @cast(
// CHECK-SAME:    %[[B:[a-z0-9]+]]: !ddp.bucket<f32, [4x8]>, %[[T:[a-z0-9]+]]: tensor<32xf64>, %[[D:[a-z0-9]+]]: tensor<32xbf16>
// CHECK-SAME:    %[[M:[a-z0-9]+]]: memref<32xf32>, %[[N:[a-z0-9]+]]: memref<32xf16>
func.func @cast(%b: !ddp.bucket<f32, [4x8]>, %t: tensor<32xf64>,
                %d: tensor<32xbf16>, %m: memref<32xf32>, %n: memref<32xf16>) {
  // CHECK: ddp.cast %[[B]] : !ddp.bucket<f32, [4x8]> -> !ddp.bucket<f16, [4x8]>
  %0 = ddp.cast %b : !ddp.bucket<f32, [4x8]> -> !ddp.bucket<f16, [4x8]>
  // CHECK: ddp.flat.cast %[[T]] into %[[D]] : tensor<32xf64>, tensor<32xbf16>
  %1 = ddp.flat.cast %t into %d : tensor<32xf64>, tensor<32xbf16>
  // CHECK: ddp.flat.cast %[[M]] into %[[N]] : memref<32xf32>, memref<32xf16>{{$}}
  ddp.flat.cast %m into %n : memref<32xf32>, memref<32xf16>
  return
}

// CHECK-LABEL: func @scale(
// CHECK-SAME:    %[[B:[a-z0-9]+]]: !ddp.bucket<f32, [4x8]>, %[[T:[a-z0-9]+]]: tensor<32xf64>, %[[M:[a-z0-9]+]]: memref<32xf16>
func.func @scale(%b: !ddp.bucket<f32, [4x8]>, %t: tensor<32xf64>,
                 %m: memref<32xf16>) {
  // CHECK: ddp.scale %[[B]] by 2.500000e-01 : !ddp.bucket<f32, [4x8]>
  %0 = ddp.scale %b by 2.5e-1 : !ddp.bucket<f32, [4x8]>
  // CHECK: ddp.flat.scale %[[T]] by_world_of @dp into %[[T]] : tensor<32xf64>, tensor<32xf64>
  %1 = ddp.flat.scale %t by_world_of @dp into %t : tensor<32xf64>, tensor<32xf64>
  // CHECK: ddp.flat.scale %[[M]] by -3.000000e+00 into %[[M]] : memref<32xf16>, memref<32xf16>{{$}}
  ddp.flat.scale %m by -3.0 into %m : memref<32xf16>, memref<32xf16>
  return
}

// CHECK-LABEL: func @view(
// CHECK-SAME:    %[[M:[a-z0-9]+]]: memref<2080xf32>
func.func @view(%m: memref<2080xf32>) {
  // CHECK: ddp.view %[[M]][2048] : memref<2080xf32> to memref<4x8xf32>
  %0 = ddp.view %m[2048] : memref<2080xf32> to memref<4x8xf32>
  // CHECK: ddp.view %[[M]][0] : memref<2080xf32> to memref<f32>
  %1 = ddp.view %m[0] : memref<2080xf32> to memref<f32>
  // CHECK: ddp.view %[[M]][2080] : memref<2080xf32> to memref<0x3xf32>
  %2 = ddp.view %m[2080] : memref<2080xf32> to memref<0x3xf32>
  return
}

// CHECK-LABEL: func @arena(
func.func @arena() {
  // CHECK: ddp.arena : memref<65536xi8>
  %0 = ddp.arena : memref<65536xi8>
  return
}
