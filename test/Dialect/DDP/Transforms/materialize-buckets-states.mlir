// RUN: ddphook-opt %s --pass-pipeline='builtin.module(func.func(ddp-materialize-buckets))' | FileCheck %s --implicit-check-not='memref.alloc(' --implicit-check-not=materialize_in_destination

// Every allocation and every copy is named below; there are no others.

ddp.state @s : !ddp.bucket<f16, [2x2, 3]> per_rank zero
ddp.state @n : i64 replicated zero
ddp.state @g : tensor<625xi32> replicated mt19937 seed 0

// Load and store are the same memory; it may be overwritten, since a new value
// is stored.
// CHECK-LABEL: func.func @load_store(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: tensor<7xf16>)
// CHECK:         %[[SB:.+]] = ddp.state_buffer @s : memref<7xf16>
// CHECK:         %[[T:.+]] = bufferization.to_tensor %[[SB]] restrict writable : memref<7xf16> to tensor<7xf16>
// CHECK:         %[[M:.+]] = ddp.flat.add %[[T]], %[[ARG0]] into %[[T]]
// CHECK:         %[[SB1:.+]] = ddp.state_buffer @s : memref<7xf16>
// CHECK:         bufferization.materialize_in_destination %[[M]] in writable %[[SB1]]
func.func @load_store(%g: tensor<7xf16>) -> tensor<7xf16> {
  %e = ddp.load @s : tensor<7xf16>
  %m = ddp.flat.add %e, %g into %e : tensor<7xf16>, tensor<7xf16>, tensor<7xf16>
  ddp.store %m, @s : tensor<7xf16>
  return %g : tensor<7xf16>
}

// What is only loaded is only read.
// CHECK-LABEL: func.func @only_load(
// CHECK:         %[[SB:.+]] = ddp.state_buffer @s : memref<7xf16>
// CHECK:         %[[T:.+]] = bufferization.to_tensor %[[SB]] restrict : memref<7xf16> to tensor<7xf16>
// CHECK:         %[[SB1:.+]] = ddp.state_buffer @g : memref<625xi32>
// CHECK:         %[[T1:.+]] = bufferization.to_tensor %[[SB1]] restrict : memref<625xi32> to tensor<625xi32>
// CHECK:         return %[[T]], %[[T1]]
func.func @only_load() -> (tensor<7xf16>, tensor<625xi32>) {
  %e = ddp.load @s : tensor<7xf16>
  %g = ddp.load @g : tensor<625xi32>
  return %e, %g : tensor<7xf16>, tensor<625xi32>
}

// A store in another block is not this load's.
// CHECK-LABEL: func.func @another_block(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: tensor<7xf16>
// CHECK:         scf.if
// CHECK:           %[[SB:.+]] = ddp.state_buffer @s : memref<7xf16>
// CHECK:           %[[T:.+]] = bufferization.to_tensor %[[SB]] restrict : memref<7xf16> to tensor<7xf16>
// CHECK:           ddp.flat.add %[[T]], %[[ARG0]] into
// CHECK:         } else {
// CHECK:           %[[SB1:.+]] = ddp.state_buffer @s : memref<7xf16>
// CHECK:           bufferization.materialize_in_destination %[[ARG0]] in writable %[[SB1]]
func.func @another_block(%g: tensor<7xf16>, %c: i1) {
  scf.if %c {
    %e = ddp.load @s : tensor<7xf16>
    %into = tensor.empty() : tensor<7xf16>
    %m = ddp.flat.add %e, %g into %into : tensor<7xf16>, tensor<7xf16>, tensor<7xf16>
  } else {
    ddp.store %g, @s : tensor<7xf16>
  }
  return
}

// A number.
// CHECK-LABEL: func.func @counter(
// CHECK:         %[[SB:.+]] = ddp.state_buffer @n : memref<i64>
// CHECK:         %[[LOAD:.+]] = memref.load %[[SB]][] : memref<i64>
// CHECK:         %[[NEXT:.+]] = arith.addi %[[LOAD]], %{{.+}} : i64
// CHECK:         %[[SB1:.+]] = ddp.state_buffer @n : memref<i64>
// CHECK:         memref.store %[[NEXT]], %[[SB1]][] : memref<i64>
func.func @counter() {
  %one = arith.constant 1 : i64
  %n = ddp.load @n : i64
  %m = arith.addi %n, %one : i64
  ddp.store %m, @n : i64
  return
}

// Members of a state that gets a new value, and a bucket that becomes it. What is
// unpacked from a state is the state's memory, which is never handed on.
// CHECK-LABEL: func.func @members(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: tensor<2x2xf16>)
// CHECK:         %[[ALLOC:.+]] = memref.alloc() {alignment = 64 : i64} : memref<7xf16>
// CHECK-DAG:     %[[V:.+]] = ddp.view %[[ALLOC]][0] : memref<7xf16> to memref<2x2xf16>
// CHECK-DAG:     %[[V1:.+]] = ddp.view %[[ALLOC]][4] : memref<7xf16> to memref<3xf16>
// CHECK:         %[[SB:.+]] = ddp.state_buffer @s : memref<7xf16>
// CHECK:         %[[T:.+]] = bufferization.to_tensor %[[SB]] restrict writable : memref<7xf16> to tensor<7xf16>
// CHECK:         %[[MEM:.+]] = bufferization.to_buffer %[[T]] read_only : tensor<7xf16> to memref<7xf16>
// CHECK:         %[[V2:.+]] = ddp.view %[[MEM]][4] : memref<7xf16> to memref<3xf16>
// CHECK:         %[[T1:.+]] = bufferization.to_tensor %[[V2]] restrict : memref<3xf16> to tensor<3xf16>
// CHECK-DAG:     bufferization.materialize_in_destination %[[ARG0]] in writable %[[V]] :
// CHECK-DAG:     bufferization.materialize_in_destination %[[T1]] in writable %[[V1]] :
// CHECK:         %[[T2:.+]] = bufferization.to_tensor %[[ALLOC]] restrict writable : memref<7xf16> to tensor<7xf16>
// CHECK:         %[[SB1:.+]] = ddp.state_buffer @s : memref<7xf16>
// CHECK:         bufferization.materialize_in_destination %[[T2]] in writable %[[SB1]] :
func.func @members(%g: tensor<2x2xf16>) {
  %e = ddp.load @s : tensor<7xf16>
  %t:2 = ddp.unpack %e : tensor<7xf16> -> tensor<2x2xf16>, tensor<3xf16>
  %b = ddp.pack %g, %t#1 : tensor<2x2xf16>, tensor<3xf16> -> tensor<7xf16>
  ddp.store %b, @s : tensor<7xf16>
  return
}
