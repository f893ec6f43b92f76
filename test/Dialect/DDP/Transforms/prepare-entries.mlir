// RUN: ddphook-opt %s --ddp-prepare-entries -split-input-file | FileCheck %s

// The example of the documentation: an argument updated in place, a scalar, a
// value that is computed straight into its out-parameter. An `index` and memory
// stay what they are; memory may be written.

// CHECK-LABEL: func @step(
// CHECK-SAME:    %[[W:[a-z0-9]+]]: memref<4xf32> {ddp.inout}, %[[G:[a-z0-9]+]]: memref<4xf32>, %[[N:[a-z0-9]+]]: index, %[[M:[a-z0-9]+]]: memref<2xf32> {ddp.inout},
// CHECK-SAME:    %[[LOSS:[a-z0-9]+]]: memref<f32>, %[[OUT:[a-z0-9]+]]: memref<4xf32>)
// CHECK-SAME:    attributes {ddp.result_arguments = array<i64: 0, -1, -1>}
// CHECK-DAG:     %[[TW:.+]] = bufferization.to_tensor %[[W]] restrict writable
// CHECK-DAG:     %[[TOUT:.+]] = bufferization.to_tensor %[[OUT]] restrict writable
// CHECK-DAG:     %[[C:.+]] = arith.constant 2.0
// CHECK:         %[[G0:.+]] = bufferization.to_tensor %[[G]] restrict :
// CHECK-NEXT:    %[[U:.+]] = linalg.sub ins(%[[TW]], %[[G0]] : {{.+}}) outs(%[[TW]] :
// CHECK-NEXT:    %[[G1:.+]] = bufferization.to_tensor %[[G]] restrict :
// CHECK-NEXT:    %[[X:.+]] = linalg.exp ins(%[[G1]] : {{.+}}) outs(%[[TOUT]] :
// CHECK-NOT:     tensor.empty
// CHECK-DAG:     memref.store %[[C]], %[[LOSS]][]
// CHECK-DAG:     bufferization.materialize_in_destination %[[X]] in writable %[[OUT]]
// CHECK:         bufferization.materialize_in_destination %[[U]] in writable %[[W]]
// CHECK-NEXT:    return{{$}}
func.func @step(%w: tensor<4xf32> {bufferization.writable = true},
                %g: tensor<4xf32>, %n: index, %m: memref<2xf32>)
    -> (tensor<4xf32>, f32, tensor<4xf32>) {
  %c = arith.constant 2.0 : f32
  %u = linalg.sub ins(%w, %g : tensor<4xf32>, tensor<4xf32>)
      outs(%w : tensor<4xf32>) -> tensor<4xf32>
  %e = tensor.empty() : tensor<4xf32>
  %x = linalg.exp ins(%g : tensor<4xf32>) outs(%e : tensor<4xf32>)
      -> tensor<4xf32>
  return %u, %c, %x : tensor<4xf32>, f32, tensor<4xf32>
}

// -----

// Without permission an update goes elsewhere; `writable = false` says the same.

// CHECK-LABEL: func @read_only(
// CHECK-SAME:    %{{.+}}: memref<4xf32>, %{{.+}}: memref<4xf32>, %{{.+}}: memref<4xf32>, %{{.+}}: memref<4xf32>)
// CHECK-SAME:    attributes {ddp.result_arguments = array<i64: -1, -1>}
// CHECK-NOT:     to_tensor %{{.+}} restrict writable
func.func @read_only(%v: tensor<4xf32>,
                     %w: tensor<4xf32> {bufferization.writable = false})
    -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = linalg.exp ins(%v : tensor<4xf32>) outs(%v : tensor<4xf32>)
      -> tensor<4xf32>
  %1 = linalg.exp ins(%w : tensor<4xf32>) outs(%w : tensor<4xf32>)
      -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// The value from before an update, beside it: copied before it is overwritten.

// CHECK-LABEL: func @before_and_after(
// CHECK-SAME:    %[[W:[a-z0-9]+]]: memref<4xf32> {ddp.inout}, %[[OLD:[a-z0-9]+]]: memref<4xf32>)
// CHECK-SAME:    array<i64: 0, -1>
// CHECK:         %[[TW:.+]] = bufferization.to_tensor %[[W]]
// CHECK:         %[[U:.+]] = linalg.exp
// CHECK:         bufferization.materialize_in_destination %[[TW]] in writable %[[OLD]]
// CHECK-NEXT:    bufferization.materialize_in_destination %[[U]] in writable %[[W]]
// CHECK-NEXT:    return
func.func @before_and_after(%w: tensor<4xf32> {bufferization.writable = true})
    -> (tensor<4xf32>, tensor<4xf32>) {
  %u = linalg.exp ins(%w : tensor<4xf32>) outs(%w : tensor<4xf32>)
      -> tensor<4xf32>
  return %u, %w : tensor<4xf32>, tensor<4xf32>
}

// -----

// Updated by a chain of operations, and in a loop.

// CHECK-LABEL: func @chain(
// CHECK-SAME:    array<i64: 1, 0>
func.func @chain(%v: tensor<4xf32> {bufferization.writable = true},
                 %w: tensor<4xf32> {bufferization.writable = true})
    -> (tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %0 = linalg.exp ins(%w : tensor<4xf32>) outs(%w : tensor<4xf32>)
      -> tensor<4xf32>
  %1 = linalg.exp ins(%0 : tensor<4xf32>) outs(%0 : tensor<4xf32>)
      -> tensor<4xf32>
  %2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%acc = %v) -> tensor<4xf32> {
    %3 = linalg.exp ins(%acc : tensor<4xf32>) outs(%acc : tensor<4xf32>)
        -> tensor<4xf32>
    scf.yield %3 : tensor<4xf32>
  }
  return %1, %2 : tensor<4xf32>, tensor<4xf32>
}

// -----

// A result that is an argument, one that is returned twice, a 0-D and a
// zero-sized one, integers.

// CHECK-LABEL: func @results(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<f32>, %[[B:[a-z0-9]+]]: memref<0x3xf32>, %[[C:[a-z0-9]+]]: i64,
// CHECK-SAME:    %[[O0:[a-z0-9]+]]: memref<f32>, %[[O1:[a-z0-9]+]]: memref<f32>, %[[O2:[a-z0-9]+]]: memref<0x3xf32>, %[[O3:[a-z0-9]+]]: memref<i64>, %[[O4:[a-z0-9]+]]: memref<4xf32>, %[[O5:[a-z0-9]+]]: memref<4xf32>)
// CHECK-SAME:    array<i64: -1, -1, -1, -1, -1, -1>
// CHECK:         %[[E:.+]] = tensor.empty
// CHECK:         %[[T:.+]] = linalg.fill {{.+}} outs(%[[E]]
// CHECK-DAG:     bufferization.materialize_in_destination %{{.+}} in writable %[[O0]]
// CHECK-DAG:     bufferization.materialize_in_destination %{{.+}} in writable %[[O1]]
// CHECK-DAG:     bufferization.materialize_in_destination %{{.+}} in writable %[[O2]]
// CHECK-DAG:     memref.store %[[C]], %[[O3]][] : memref<i64>
// CHECK-DAG:     bufferization.materialize_in_destination %[[T]] in writable %[[O4]]
// CHECK-DAG:     bufferization.materialize_in_destination %[[T]] in writable %[[O5]]
// CHECK:         return{{$}}
func.func @results(%a: tensor<f32>, %b: tensor<0x3xf32>, %c: i64)
    -> (tensor<f32>, tensor<f32>, tensor<0x3xf32>, i64, tensor<4xf32>,
        tensor<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %t = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %a, %a, %b, %c, %t, %t : tensor<f32>, tensor<f32>, tensor<0x3xf32>,
      i64, tensor<4xf32>, tensor<4xf32>
}

// -----

// Two results of one operation that begin in the same memory: the out-parameter
// of the first is no argument that the second updates.

// CHECK-LABEL: func @shared_destination(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<4xf32>, %[[O0:[a-z0-9]+]]: memref<4xf32>, %[[O1:[a-z0-9]+]]: memref<4xf32>)
// CHECK-SAME:    attributes {ddp.result_arguments = array<i64: -1, -1>}
// CHECK:         %[[R:.+]]:2 = linalg.generic
// CHECK-DAG:     bufferization.materialize_in_destination %[[R]]#0 in writable %[[O0]]
// CHECK-DAG:     bufferization.materialize_in_destination %[[R]]#1 in writable %[[O1]]
// CHECK:         return{{$}}
#id = affine_map<(d0) -> (d0)>
func.func @shared_destination(%x: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %t = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>)
      -> tensor<4xf32>
  %r:2 = linalg.generic
      {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      outs(%t, %t : tensor<4xf32>, tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %n = arith.negf %b : f32
    linalg.yield %a, %n : f32, f32
  } -> (tensor<4xf32>, tensor<4xf32>)
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// Two ways out: each writes the out-parameter.

// CHECK-LABEL: func @two_returns(
// CHECK-SAME:    %[[W:[a-z0-9]+]]: memref<4xf32> {ddp.inout}, %[[C:[a-z0-9]+]]: i1, %[[O:[a-z0-9]+]]: memref<f32>)
// CHECK-SAME:    array<i64: 0, -1>
// CHECK:         cf.cond_br
// CHECK:         memref.store %{{.+}}, %[[O]][]
// CHECK-NEXT:    bufferization.materialize_in_destination %{{.+}} in writable %[[W]]
// CHECK-NEXT:    return{{$}}
// CHECK:         memref.store %{{.+}}, %[[O]][]
// CHECK-NEXT:    bufferization.materialize_in_destination %{{.+}} in writable %[[W]]
// CHECK-NEXT:    return{{$}}
func.func @two_returns(%w: tensor<4xf32> {bufferization.writable = true},
                       %c: i1) -> (tensor<4xf32>, f32) {
  %one = arith.constant 1.0 : f32
  %two = arith.constant 2.0 : f32
  cf.cond_br %c, ^a, ^b
^a:
  return %w, %one : tensor<4xf32>, f32
^b:
  %u = linalg.exp ins(%w : tensor<4xf32>) outs(%w : tensor<4xf32>)
      -> tensor<4xf32>
  return %u, %two : tensor<4xf32>, f32
}

// -----

// Public functions that the module itself calls keep a private twin for those
// calls, also where one calls the other, whatever their order.

// CHECK-LABEL: func.func @outer(%{{.+}}: memref<4xf32>, %{{.+}}: memref<4xf32>)
// CHECK:         call @[[MIDDLE:middle_[0-9]+]](
// CHECK-LABEL: func.func @middle(%{{.+}}: memref<4xf32>, %{{.+}}: memref<4xf32>)
// CHECK:         call @[[INNER:inner_[0-9]+]](
// CHECK-LABEL: func.func @inner(%{{.+}}: memref<4xf32>, %{{.+}}: memref<4xf32>)
// CHECK:       func.func private @[[MIDDLE]](%{{.+}}: tensor<4xf32>) -> tensor<4xf32>
// CHECK:         call @[[INNER]](
// CHECK:       func.func private @[[INNER]](%{{.+}}: tensor<4xf32>) -> tensor<4xf32>
func.func @outer(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @middle(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @middle(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @inner(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @inner(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.negf %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Private functions and declarations are nobody's entries; neither is, without
// collectives, a function of unknown shapes.

// CHECK-LABEL: func.func private @private(%{{.+}}: tensor<4xf32>) -> tensor<4xf32>
func.func private @private(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
// CHECK: func.func private @declared(tensor<4xf32>) -> tensor<4xf32>
func.func private @declared(tensor<4xf32>) -> tensor<4xf32>
// CHECK-LABEL: func.func @dynamic(%{{.+}}: tensor<?xf32>) -> tensor<?xf32>
func.func @dynamic(%x: tensor<?xf32>) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}

// -----

// A collective in flight and its wait read the same.

// CHECK-LABEL: func.func @in_flight(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<4xf32>, %[[C:[a-z0-9]+]]: i1
// CHECK:         %[[T:.+]] = bufferization.to_tensor %[[X]] restrict :
// CHECK-NEXT:    %[[F:.+]], %[[TICKET:.+]] = ddp.flat.all_reduce_start mean %[[T]] on @dp into %{{.+}} :
// CHECK-NEXT:    %[[U:.+]] = bufferization.to_tensor %[[X]] restrict :
// CHECK-NEXT:    ddp.flat.all_reduce_start sum %[[U]] on @dp into %[[U]] if %[[C]] :
// CHECK:         ddp.flat.wait %[[F]], %[[TICKET]] reading %[[T]] :
// CHECK-NOT:     to_tensor
// CHECK:         return
ddp.process_group @dp
func.func @in_flight(%x: tensor<4xf32>, %c: i1) -> (tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %f, %t = ddp.flat.all_reduce_start mean %x on @dp into %e : tensor<4xf32>, tensor<4xf32>
  %g, %s = ddp.flat.all_reduce_start sum %x on @dp into %x if %c
      : tensor<4xf32>, tensor<4xf32>
  %v = ddp.flat.wait %f, %t reading %x : tensor<4xf32>, tensor<4xf32>
  %w = scf.if %c -> tensor<4xf32> {
    %r = ddp.flat.wait %g, %s : tensor<4xf32>
    scf.yield %r : tensor<4xf32>
  } else {
    %r = ddp.flat.wait %g, %s reading %x : tensor<4xf32>, tensor<4xf32>
    scf.yield %r : tensor<4xf32>
  }
  return %v, %w : tensor<4xf32>, tensor<4xf32>
}

// -----

// A loop that begins with one value twice gives two: the value is not computed where
// only one of them belongs.

// CHECK-LABEL: func.func @begins_with_it_twice(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<4xf32>, %{{.+}}: index, %[[OUT:[a-z0-9]+]]: memref<4xf32>, %{{.+}}: memref<4xf32>
// CHECK-NOT:     bufferization.to_tensor %[[OUT]]
// CHECK:         %[[E:.+]] = tensor.empty
// CHECK:         linalg.exp {{.+}} outs(%[[E]] :
// CHECK:         %[[R:.+]]:2 = scf.for
// CHECK:         bufferization.materialize_in_destination %[[R]]#0 in writable %[[OUT]]
ddp.process_group @dp
func.func @begins_with_it_twice(%x: tensor<4xf32>, %n: index)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %e = tensor.empty() : tensor<4xf32>
  %y = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %y, %b = %y)
      -> (tensor<4xf32>, tensor<4xf32>) {
    scf.yield %b, %x : tensor<4xf32>, tensor<4xf32>
  }
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// What a parallel loop inserts is an argument: its end has room for insertions
// only.

// CHECK-LABEL: func @inserted(
// CHECK-SAME:    %{{.+}}: memref<4x2xf32>, %[[K:[a-z0-9]+]]: memref<2xf32>
// CHECK:         scf.forall
// CHECK:           %[[T:.+]] = bufferization.to_tensor %[[K]] restrict :
// CHECK-NEXT:      scf.forall.in_parallel
// CHECK-NEXT:        tensor.parallel_insert_slice %[[T]] into
func.func @inserted(%a: tensor<4x2xf32>, %k: tensor<2xf32>) -> tensor<4x2xf32> {
  %r = scf.forall (%i) in (4) shared_outs(%o = %a) -> tensor<4x2xf32> {
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %k into %o[%i, 0] [1, 2] [1, 1] : tensor<2xf32> into tensor<4x2xf32>
    }
  }
  return %r : tensor<4x2xf32>
}
