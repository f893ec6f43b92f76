// RUN: ddphook-opt %s --pass-pipeline='builtin.module(func.func(ddp-split-empty-tensors))' | FileCheck %s

ddp.process_group @dp

!t = tensor<4xf32>

// CHECK-LABEL: func.func @shared(
// CHECK-SAME:      %[[A:.+]]: tensor<4xf32>, %{{.+}}: index)
// CHECK:         %[[E2:.+]] = tensor.empty()
// CHECK-NEXT:    %[[E0:.+]] = tensor.empty()
// CHECK-NEXT:    %{{.+}} = linalg.exp ins(%[[A]] : {{.+}}) outs(%[[E0]] :
// CHECK-NEXT:    %[[E1:.+]] = tensor.empty()
// CHECK-NEXT:    %{{.+}} = linalg.abs ins(%{{.+}} : {{.+}}) outs(%[[E1]] :
// CHECK-NEXT:    %{{.+}} = scf.for {{.+}} iter_args(%{{.+}} = %[[E2]]) ->
// CHECK-NEXT:      %[[E3:.+]] = tensor.empty()
// CHECK-NEXT:      %{{.+}} = linalg.exp ins(%[[A]] : {{.+}}) outs(%[[E3]] :
func.func @shared(%a: !t, %n: index) -> (!t, !t) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %e = tensor.empty() : !t
  %0 = linalg.exp ins(%a : !t) outs(%e : !t) -> !t
  %1 = linalg.abs ins(%0 : !t) outs(%e : !t) -> !t
  %2 = scf.for %i = %c0 to %n step %c1 iter_args(%x = %e) -> !t {
    %3 = linalg.exp ins(%a : !t) outs(%e : !t) -> !t
    scf.yield %3 : !t
  }
  return %1, %2 : !t, !t
}

// Each writer but the last fills a tensor of his own; readers share one.
// CHECK-LABEL: func.func @filled(
// CHECK-SAME:      %[[A:[a-z0-9]+]]: tensor<4xf32>)
// CHECK-DAG:     %[[E0:.+]] = tensor.empty()
// CHECK-DAG:     %[[E1:.+]] = tensor.empty()
// CHECK:         %[[F0:.+]] = linalg.fill {{.+}} outs(%[[E1]] :
// CHECK-NEXT:    %[[F1:.+]] = linalg.fill {{.+}} outs(%[[E0]] :
// CHECK-NEXT:    %{{.+}} = linalg.add ins(%[[A]], %[[F0]] : {{.+}}) outs(%[[F1]] :
// CHECK-NEXT:    %{{.+}} = linalg.mul ins(%[[A]], %[[F0]] : {{.+}}) outs(%[[F0]] :
func.func @filled(%a: !t) -> (!t, !t) {
  %x = arith.constant 1.0 : f32
  %e = tensor.empty() : !t
  %f = linalg.fill ins(%x : f32) outs(%e : !t) -> !t
  %0 = linalg.add ins(%a, %f : !t, !t) outs(%f : !t) -> !t
  %1 = linalg.mul ins(%a, %f : !t, !t) outs(%f : !t) -> !t
  return %0, %1 : !t, !t
}

// Put together slice by slice, and not shared at all: left alone.
// CHECK-LABEL: func.func @slices(
// CHECK:         tensor.empty()
// CHECK-NOT:     tensor.empty()
// CHECK:         return
func.func @slices(%a: tensor<2xf32>) -> !t {
  %e = tensor.empty() : !t
  %s = tensor.extract_slice %e[0] [2] [1] : !t to tensor<2xf32>
  %0 = linalg.exp ins(%a : tensor<2xf32>) outs(%s : tensor<2xf32>) -> tensor<2xf32>
  %r = tensor.insert_slice %0 into %e[0] [2] [1] : tensor<2xf32> into !t
  return %r : !t
}
// CHECK-LABEL: func.func @filled_and_read(
// CHECK:         linalg.fill
// CHECK-NOT:     linalg.fill
// CHECK:         return
func.func @filled_and_read(%a: !t) -> (!t, !t) {
  %x = arith.constant 1.0 : f32
  %e = tensor.empty() : !t
  %f = linalg.fill ins(%x : f32) outs(%e : !t) -> !t
  %0 = linalg.add ins(%a, %f : !t, !t) outs(%f : !t) -> !t
  return %0, %f : !t, !t
}

// One that nobody uses.
// CHECK-LABEL: func.func @unused(
// CHECK-NEXT:    tensor.empty
// CHECK-NEXT:    return
func.func @unused() {
  %e = tensor.empty() : tensor<4xf32>
  return
}

// What is in flight is named by the start, by the wait, and as `into` where
// there is a condition: that stays one tensor. Only empty arrays have contents.
// CHECK-LABEL: func.func @in_flight(
// CHECK:         %[[E:.+]] = tensor.empty() : tensor<0xf32>
// CHECK:         %{{.+}}, %{{.+}} = ddp.flat.all_reduce_start sum %[[A:.+]] on @dp into
// CHECK:         ddp.flat.wait %{{.+}}, %{{.+}} reading %[[A]] :
func.func @in_flight(%o: tensor<0xf32>) -> (tensor<0xf32>, tensor<0xf32>) {
  %e = tensor.empty() : tensor<0xf32>
  %x, %ticket = ddp.flat.all_reduce_start sum %e on @dp into %o
      : tensor<0xf32>, tensor<0xf32>
  %r = ddp.flat.wait %x, %ticket reading %e : tensor<0xf32>, tensor<0xf32>
  %s = linalg.exp ins(%r : tensor<0xf32>) outs(%e : tensor<0xf32>) -> tensor<0xf32>
  return %r, %s : tensor<0xf32>, tensor<0xf32>
}

// CHECK-LABEL: func.func @in_flight_if(
// CHECK-SAME:      %[[C:.+]]: i1
// CHECK-COUNT-2: linalg.fill
// CHECK:         %{{.+}}, %{{.+}} = ddp.flat.all_reduce_start sum %[[F:.+]] on @dp into %[[F]] if %[[C]]
func.func @in_flight_if(%c: i1 {ddp.replicated}, %a: !t) -> (!t, !t) {
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : !t
  %f = linalg.fill ins(%one : f32) outs(%e : !t) -> !t
  %x, %ticket = ddp.flat.all_reduce_start sum %f on @dp into %f if %c : !t, !t
  %r = scf.if %c -> !t {
    %w = ddp.flat.wait %x, %ticket : !t
    scf.yield %w : !t
  } else {
    %w = ddp.flat.wait %x, %ticket : !t
    scf.yield %w : !t
  }
  %s = linalg.add ins(%a, %a : !t, !t) outs(%f : !t) -> !t
  return %r, %s : !t, !t
}
