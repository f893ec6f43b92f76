// RUN: ddphook-opt %s --ddp-expand-averages -split-input-file | FileCheck %s

ddp.process_group @dp
ddp.process_group @node

// Two parameters in one collective, in the first step behind the warmup and in
// every fourth from there on.
// CHECK: ddp.state @average0.iter : i64 replicated zero kind iteration role "average.iter" of {{\[}}["together.arg0", "together.arg1"]]{{$}}
// CHECK-LABEL: func.func @together(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: tensor<4x8xf32>, %[[ARG1:[a-z0-9]+]]: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>)
// CHECK-DAG:    %[[ITER:.+]] = ddp.load @average0.iter : i64
// CHECK-DAG:    %[[K:.+]] = arith.constant 1 : i64
// CHECK-DAG:    %[[NEXT:.+]] = arith.addi %[[ITER]], %[[K]] : i64
// CHECK:        ddp.store %[[NEXT]], @average0.iter : i64
// CHECK-DAG:    %[[K1:.+]] = arith.constant 100 : i64
// CHECK-DAG:    %[[SUBI:.+]] = arith.subi %[[ITER]], %[[K1]] : i64
// CHECK-DAG:    %[[IS:.+]] = arith.cmpi sge, %[[ITER]], %[[K1]] : i64
// CHECK-DAG:    %[[K2:.+]] = arith.constant 4 : i64
// CHECK-DAG:    %[[REMSI:.+]] = arith.remsi %[[SUBI]], %[[K2]] : i64
// CHECK-DAG:    %[[K3:.+]] = arith.constant 0 : i64
// CHECK-DAG:    %[[IS1:.+]] = arith.cmpi eq, %[[REMSI]], %[[K3]] : i64
// CHECK-DAG:    %[[ANDI:.+]] = arith.andi %[[IS]], %[[IS1]] : i1
// CHECK:        %[[OUT:.+]]:2 = scf.if %[[ANDI]] -> (tensor<4x8xf32>, tensor<8xf32>) {
// CHECK-NEXT:     %[[B:.+]] = ddp.pack %[[ARG0]], %[[ARG1]] : tensor<4x8xf32>, tensor<8xf32> -> !ddp.bucket<f32, [4x8, 8]>
// CHECK-NEXT:     %[[R:.+]] = ddp.all_reduce mean %[[B]] on @dp {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [4x8, 8]>
// CHECK-NEXT:     %[[U:.+]]:2 = ddp.unpack %[[R]] : !ddp.bucket<f32, [4x8, 8]> -> tensor<4x8xf32>, tensor<8xf32>
// CHECK-NEXT:     %[[C0:.+]] = linalg.copy ins(%[[U]]#0 : tensor<4x8xf32>) outs(%[[ARG0]] : tensor<4x8xf32>)
// CHECK-NEXT:     %[[C1:.+]] = linalg.copy ins(%[[U]]#1 : tensor<8xf32>) outs(%[[ARG1]] : tensor<8xf32>)
// CHECK-NEXT:     scf.yield %[[C0]], %[[C1]] : tensor<4x8xf32>, tensor<8xf32>
// CHECK-NEXT:   } else {
// CHECK-NEXT:     scf.yield %[[ARG0]], %[[ARG1]] : tensor<4x8xf32>, tensor<8xf32>
// CHECK-NEXT:   }
// CHECK-NEXT:   return %[[OUT]]#0, %[[OUT]]#1 : tensor<4x8xf32>, tensor<8xf32>
func.func @together(%w: tensor<4x8xf32>, %b: tensor<8xf32>)
    -> (tensor<4x8xf32>, tensor<8xf32>) {
  %0 = ddp.average %w on @dp every 4 warmup 100 : tensor<4x8xf32>
  %1 = ddp.average %b on @dp every 4 warmup 100 : tensor<8xf32>
  return %0, %1 : tensor<4x8xf32>, tensor<8xf32>
}

// -----

ddp.process_group @dp
ddp.process_group @node

// Another period, warmup, group or element type is another collective, with a
// counter of its own.
// CHECK: ddp.state @average0.iter
// CHECK: ddp.state @average1.iter
// CHECK: ddp.state @average2.iter
// CHECK: ddp.state @average3.iter
// CHECK: ddp.state @average4.iter
// CHECK-LABEL: func @apart(
// CHECK-COUNT-5: scf.if
// CHECK-NOT:     scf.if
func.func @apart(%w: tensor<4xf32>, %h: tensor<4xf64>) {
  %0 = ddp.average %w on @dp every 4 : tensor<4xf32>
  %1 = ddp.average %w on @dp every 5 : tensor<4xf32>
  %2 = ddp.average %w on @dp every 4 warmup 1 : tensor<4xf32>
  %3 = ddp.average %w on @node every 4 : tensor<4xf32>
  %4 = ddp.average %h on @dp every 4 : tensor<4xf64>
  return
}

// -----

ddp.process_group @dp

// What uses the first average comes behind the last one.
// CHECK-LABEL: func @users(
// CHECK:         %[[A:.+]]:2 = scf.if
// CHECK:         linalg.exp ins(%[[A]]#0
// CHECK:         return
func.func @users(%w: tensor<4xf32>, %v: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = ddp.average %w on @dp every 4 : tensor<4xf32>
  %e = tensor.empty() : tensor<4xf32>
  %x = linalg.exp ins(%0 : tensor<4xf32>) outs(%e : tensor<4xf32>)
      -> tensor<4xf32>
  %1 = ddp.average %v on @dp every 4 : tensor<4xf32>
  return %x, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

ddp.process_group @dp

// The counter is that of what is averaged, by names that do not depend on what
// else the program averages.
// CHECK: ddp.state @average0.iter {{.+}} of {{\[}}["w", "names.arg1", "named", "names.result3", "names.average4"]]
// CHECK: ddp.state @average1.iter {{.+}} of {{\[}}["w#1"]]
func.func @names(%w: tensor<4xf32> {ddp.name = "w"}, %b: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %n = arith.addf %b, %b : tensor<4xf32>
  %0 = ddp.average %w on @dp every 4 : tensor<4xf32>
  %1 = ddp.average %b on @dp every 4 : tensor<4xf32>
  %2 = ddp.average %b on @dp every 4 : tensor<4xf32> loc("named")
  %3 = ddp.average %n on @dp every 4 : tensor<4xf32>
  %4 = ddp.average %n on @dp every 4 : tensor<4xf32>
  %5 = ddp.average %w on @dp every 5 : tensor<4xf32>
  %6 = arith.addf %4, %4 : tensor<4xf32>
  return %0, %1, %2, %3, %6 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>,
      tensor<4xf32>, tensor<4xf32>
}

// -----

ddp.process_group @dp

// A copy of an average comes behind the last one: memory is as new then.
// CHECK-LABEL: func.func @copied
// CHECK: %[[AVERAGES:.*]]:2 = scf.if
// CHECK: bufferization.alloc_tensor() copy(%[[AVERAGES]]#0)
func.func @copied(%w: tensor<4xf32>, %b: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = ddp.average %w on @dp every 2 : tensor<4xf32>
  %1 = bufferization.alloc_tensor() copy(%0) : tensor<4xf32>
  %2 = ddp.average %b on @dp every 2 : tensor<4xf32>
  return %1, %2 : tensor<4xf32>, tensor<4xf32>
}

// -----

ddp.process_group @dp

// The first average runs where the last one stands, but reads its parameter as
// it was before it was overwritten.
// CHECK-LABEL: func @in_memory(
// CHECK-SAME:    %[[M:[a-z0-9]+]]: memref<4xf32>
// CHECK:         %[[T:.+]] = bufferization.to_tensor %[[M]]
// CHECK-NEXT:    %[[COPY:.+]] = bufferization.alloc_tensor() copy(%[[T]])
// CHECK-NEXT:    memref.copy %{{.+}}, %[[M]]
// CHECK:         ddp.pack %[[COPY]], %{{.+}} :
func.func @in_memory(%m: memref<4xf32>, %n: memref<4xf32>, %v: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %t = bufferization.to_tensor %m restrict : memref<4xf32> to tensor<4xf32>
  %0 = ddp.average %t on @dp every 4 : tensor<4xf32>
  memref.copy %n, %m : memref<4xf32> to memref<4xf32>
  %1 = ddp.average %v on @dp every 4 : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

ddp.process_group @dp

// So does what depends on the first average; what only reads changes nothing.
// CHECK-LABEL: func @user_in_memory(
// CHECK-SAME:    %[[M:[a-z0-9]+]]: memref<4xf32>
// CHECK:         %[[T:.+]] = bufferization.to_tensor %[[M]]
// CHECK:         %[[COPY:.+]] = bufferization.alloc_tensor() copy(%[[T]])
// CHECK-NEXT:    memref.copy %{{.+}}, %[[M]]
// CHECK:         linalg.add ins(%{{.+}}, %[[COPY]] :
func.func @user_in_memory(%m: memref<4xf32>, %n: memref<4xf32>,
                          %u: tensor<4xf32>, %v: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %t = bufferization.to_tensor %m restrict : memref<4xf32> to tensor<4xf32>
  %0 = ddp.average %u on @dp every 4 : tensor<4xf32>
  %e = tensor.empty() : tensor<4xf32>
  %sum = linalg.add ins(%0, %t : tensor<4xf32>, tensor<4xf32>)
      outs(%e : tensor<4xf32>) -> tensor<4xf32>
  memref.copy %n, %m : memref<4xf32> to memref<4xf32>
  %1 = ddp.average %v on @dp every 4 : tensor<4xf32>
  return %sum, %1 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func @read_only(
// CHECK-NOT:     alloc_tensor
func.func @read_only(%m: memref<4xf32>, %n: memref<4xf32>, %v: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>, f32) {
  %c0 = arith.constant 0 : index
  %t = bufferization.to_tensor %m restrict : memref<4xf32> to tensor<4xf32>
  %0 = ddp.average %t on @dp every 4 : tensor<4xf32>
  %x = memref.load %m[%c0] : memref<4xf32>
  %1 = ddp.average %v on @dp every 4 : tensor<4xf32>
  return %0, %1, %x : tensor<4xf32>, tensor<4xf32>, f32
}

// -----

ddp.process_group @dp

// An average of an average, also through other operations: one collective after the
// other.
// CHECK: ddp.state @average0.iter {{.+}} {{\[}}["chain.arg0", "chain.arg1"]]
// CHECK: ddp.state @average1.iter
// CHECK-LABEL: func @chain(
// CHECK-COUNT-2: scf.if
// CHECK-NOT:     scf.if
func.func @chain(%v: tensor<4xf32>, %w: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = ddp.average %v on @dp every 4 : tensor<4xf32>
  %1 = ddp.average %w on @dp every 4 : tensor<4xf32>
  %e = tensor.empty() : tensor<4xf32>
  %x = linalg.exp ins(%0 : tensor<4xf32>) outs(%e : tensor<4xf32>)
      -> tensor<4xf32>
  %2 = ddp.average %x on @dp every 4 : tensor<4xf32>
  return %1, %2 : tensor<4xf32>, tensor<4xf32>
}

// -----

ddp.process_group @dp

// What has effects and needs an average stays between the two.
// CHECK-LABEL: func @between(
// CHECK:         %[[FIRST:.+]] = scf.if
// CHECK:         ddp.all_reduce sum %[[FIRST]]
// CHECK:         scf.if
func.func @between(%v: tensor<4xf32>, %w: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = ddp.average %v on @dp every 4 : tensor<4xf32>
  %1 = ddp.all_reduce sum %0 on @dp : tensor<4xf32>
  %2 = ddp.average %w on @dp every 4 : tensor<4xf32>
  return %1, %2 : tensor<4xf32>, tensor<4xf32>
}
