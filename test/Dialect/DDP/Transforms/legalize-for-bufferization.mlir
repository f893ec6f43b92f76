// RUN: ddphook-opt %s --pass-pipeline="builtin.module(func.func(ddp-legalize-for-bufferization))" | FileCheck %s

// A body that reads the destination, and one that does not.
// CHECK-LABEL: func.func @maps(
// CHECK:         linalg.generic {{.+}} ins(%{{.+}} : tensor<4xf32>) outs(%{{.+}} : tensor<4xf32>)
// CHECK-NEXT:    ^bb0(%[[X:.+]]: f32, %[[Y:.+]]: f32):
// CHECK-NEXT:      arith.addf %[[X]], %[[Y]]
// CHECK:         linalg.map { math.absf }
func.func @maps(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %r = linalg.map ins(%a : tensor<4xf32>) outs(%b : tensor<4xf32>) (%x: f32, %y: f32) {
    %s = arith.addf %x, %y : f32
    linalg.yield %s : f32
  }
  %t = linalg.map { math.absf } ins(%a : tensor<4xf32>) outs(%b : tensor<4xf32>)
  return %r, %t : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @switches(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: tensor<4xf32>, %[[B:[a-z0-9]+]]: tensor<4xf32>, %[[N:[a-z0-9]+]]: index)
// CHECK:         %[[C3:.+]] = arith.constant 3 : index
// CHECK:         %[[IS3:.+]] = arith.cmpi eq, %[[N]], %[[C3]]
// CHECK:         %[[R:.+]] = scf.if %[[IS3]] -> (tensor<4xf32>) {
// CHECK:           scf.yield %[[A]]
// CHECK:         } else {
// CHECK:           %[[C5:.+]] = arith.constant 5 : index
// CHECK:           %[[IS5:.+]] = arith.cmpi eq, %[[N]], %[[C5]]
// CHECK:           %[[I:.+]] = scf.if %[[IS5]] -> (tensor<4xf32>) {
// CHECK:             scf.yield %[[B]]
// CHECK:           } else {
// CHECK:             %[[E:.+]] = linalg.exp
// CHECK:             scf.yield %[[E]]
// CHECK:           }
// CHECK:           scf.yield %[[I]]
// CHECK:         }
// CHECK:         %[[D:.+]] = scf.execute_region -> tensor<4xf32> {
// CHECK:           scf.yield %[[B]]
// CHECK:         %[[COPY:.+]] = bufferization.alloc_tensor() copy(%[[D]])
// CHECK:         return %[[R]], %[[COPY]]
func.func @switches(%a: tensor<4xf32>, %b: tensor<4xf32>, %n: index)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %r = scf.index_switch %n -> tensor<4xf32>
  case 3 {
    scf.yield %a : tensor<4xf32>
  }
  case 5 {
    scf.yield %b : tensor<4xf32>
  }
  default {
    %e = linalg.exp ins(%a : tensor<4xf32>) outs(%b : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %e : tensor<4xf32>
  }
  %s = scf.index_switch %n -> tensor<4xf32>
  default {
    scf.yield %b : tensor<4xf32>
  }
  return %r, %s : tensor<4xf32>, tensor<4xf32>
}

// A switch between numbers is no matter of memory.
// CHECK-LABEL: func.func @numbers(
// CHECK:         scf.index_switch
func.func @numbers(%n: index) -> f32 {
  %r = scf.index_switch %n -> f32
  default {
    %c = arith.constant 1.0 : f32
    scf.yield %c : f32
  }
  return %r : f32
}

// CHECK-LABEL: func.func @slices(
// CHECK:         tensor.extract_slice %{{.+}}[%{{.+}}, 1, 1] [1, 1, 2] [1, 1, 2]
// CHECK:         tensor.insert_slice %{{.+}} into %{{.+}}[1, 1, 1] [1, 1, 2] [1, 1, 2]
func.func @slices(%a: tensor<2x3x4xf32>, %i: index) -> tensor<2x3x4xf32> {
  %x = tensor.extract_slice %a[%i, 1, 1] [1, 1, 2] [1, 2, 2] : tensor<2x3x4xf32> to tensor<1x2xf32>
  %y = tensor.insert_slice %x into %a[1, 1, 1] [1, 1, 2] [3, 1, 2] : tensor<1x2xf32> into tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}

// No iterations: the destination as it was. A part of it written: the rest stays.
// CHECK-LABEL: func.func @unwritten(
// CHECK-SAME:    %{{.+}}: tensor<0xf32>, %[[A:[a-z0-9]+]]: tensor<f32>, %[[B:[a-z0-9]+]]: tensor<4x2xf32>
// CHECK-NOT:     reduction
// CHECK:         %[[C:.+]] = bufferization.alloc_tensor() copy(%[[B]])
// CHECK:         %[[D:.+]] = linalg.generic {{.+}} outs(%[[C]] : tensor<4x2xf32>)
// CHECK:         return %[[A]], %[[D]]
func.func @unwritten(%x: tensor<0xf32>, %a: tensor<f32>, %b: tensor<4x2xf32>,
                     %y: tensor<4xf32>) -> (tensor<f32>, tensor<4x2xf32>) {
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>],
                       iterator_types = ["reduction"]}
      ins(%x : tensor<0xf32>) outs(%a : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<f32>
  %s = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i, 0)>],
                       iterator_types = ["parallel"]}
      ins(%y : tensor<4xf32>) outs(%b : tensor<4x2xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<4x2xf32>
  return %r, %s : tensor<f32>, tensor<4x2xf32>
}

// CHECK-LABEL: func.func @copies_onto_itself(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: tensor<4xf32>, %[[B:[a-z0-9]+]]: tensor<4xf32>
// CHECK-NEXT:    %[[COPY:.+]] = linalg.copy ins(%[[A]] : tensor<4xf32>) outs(%[[B]] : tensor<4xf32>)
// CHECK-NEXT:    return %[[A]], %[[COPY]]
func.func @copies_onto_itself(%a: tensor<4xf32>, %b: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %r = linalg.copy ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.copy ins(%a : tensor<4xf32>) outs(%b : tensor<4xf32>) -> tensor<4xf32>
  return %r, %s : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @selects(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: tensor<4xf32>, %[[B:[a-z0-9]+]]: tensor<4xf32>, %[[C:[a-z0-9]+]]: i1
// CHECK:         scf.if %[[C]]
// CHECK:           scf.yield %[[A]]
// CHECK:           scf.yield %[[B]]
func.func @selects(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %r = arith.select %c, %a, %b : tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @selects_bucket(
// CHECK:         scf.if {{.+}} -> (!ddp.bucket<f32, [4]>)
func.func @selects_bucket(%a: !ddp.bucket<f32, [4]>, %b: !ddp.bucket<f32, [4]>, %c: i1)
    -> !ddp.bucket<f32, [4]> {
  %r = arith.select %c, %a, %b : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// CHECK-LABEL: func.func @yields(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: tensor<4xf32>, %[[B:[a-z0-9]+]]: tensor<4xf32>
// CHECK:         scf.execute_region -> tensor<4xf32>
// CHECK:           cf.br ^[[JOIN:bb[0-9]+]](%[[A]] : tensor<4xf32>)
// CHECK:           cf.br ^[[JOIN]](%[[B]] : tensor<4xf32>)
// CHECK:         ^[[JOIN]](%[[Y:.+]]: tensor<4xf32>):
// CHECK:           scf.yield %[[Y]]
// CHECK-NOT:       scf.yield
// CHECK:         return
func.func @yields(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %r = scf.execute_region -> tensor<4xf32> {
    cf.cond_br %c, ^x, ^y
  ^x:
    scf.yield %a : tensor<4xf32>
  ^y:
    scf.yield %b : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// Two results that may be one memory, one of them a copy: a caller that writes over the
// first one would change the second one as well.
// CHECK-LABEL: func.func private @one_memory
// CHECK: %[[FILLED:.*]] = linalg.fill
// CHECK: %[[SLICE:.*]] = tensor.extract_slice %[[FILLED]]
// CHECK: %[[COPY:.*]] = bufferization.alloc_tensor() copy(%[[SLICE]])
// CHECK: return %[[FILLED]], %[[COPY]], %[[FILLED]]
func.func private @one_memory(%v: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %c = arith.constant 0.5 : f32
  %0 = linalg.fill ins(%c : f32) outs(%v : tensor<4xf32>) -> tensor<4xf32>
  %1 = tensor.extract_slice %0[0] [4] [1] : tensor<4xf32> to tensor<4xf32>
  return %0, %1, %0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// What is copied onto itself is no memory of its own.
// CHECK-LABEL: func.func private @copied_onto_itself
// CHECK: %[[FILLED:.*]] = linalg.fill
// CHECK-NOT: linalg.copy
// CHECK-NOT: bufferization.materialize_in_destination
// CHECK: %[[VIEW:.*]] = tensor.expand_shape %[[FILLED]]
// CHECK: %[[COPY:.*]] = bufferization.alloc_tensor() copy(%[[VIEW]])
// CHECK: return %[[FILLED]], %[[COPY]]
func.func private @copied_onto_itself(%v: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<2x2xf32>) {
  %c = arith.constant 0.5 : f32
  %0 = linalg.fill ins(%c : f32) outs(%v : tensor<4xf32>) -> tensor<4xf32>
  %1 = linalg.copy ins(%0 : tensor<4xf32>) outs(%0 : tensor<4xf32>) -> tensor<4xf32>
  %2 = bufferization.materialize_in_destination %1 in %1
      : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = tensor.expand_shape %2 [[0, 1]] output_shape [2, 2]
      : tensor<4xf32> into tensor<2x2xf32>
  return %0, %3 : tensor<4xf32>, tensor<2x2xf32>
}

// Two results that are equal in one return only stay two results.
// CHECK-LABEL: func.func private @equal_in_one_return
// CHECK: %[[FILLED:.*]] = linalg.fill
// CHECK: %[[COPY:.*]] = bufferization.alloc_tensor() copy(%[[FILLED]])
// CHECK: return %[[FILLED]], %[[COPY]]
// CHECK: return %[[FILLED]], %{{.*}}
func.func private @equal_in_one_return(%v: tensor<4xf32>, %w: tensor<4xf32>, %b: i1)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %c = arith.constant 0.5 : f32
  %0 = linalg.fill ins(%c : f32) outs(%v : tensor<4xf32>) -> tensor<4xf32>
  cf.cond_br %b, ^x, ^y
^x:
  return %0, %0 : tensor<4xf32>, tensor<4xf32>
^y:
  return %0, %w : tensor<4xf32>, tensor<4xf32>
}

// What an iteration reads of an output is what that was before the loop: another
// row, and a row that another insertion is given. The place of its own insertion
// is read there, and may be computed in.
// CHECK-LABEL: func.func @outputs(
// CHECK-SAME:      %[[A:.+]]: tensor<4x2xf32>, %[[B:.+]]: tensor<4x2xf32>, %[[C:.+]]: tensor<4x2xf32>)
// CHECK:         scf.forall (%[[I:.+]]) in (4) shared_outs(%[[O:.+]] = %[[A]], %[[P:.+]] = %[[B]], %[[Q:.+]] = %[[C]])
// CHECK:           tensor.extract_slice %[[A]][%{{.+}}, 0]
// CHECK:           tensor.extract_slice %[[B]][%[[I]], 0]
// CHECK:           tensor.extract_slice %[[Q]][%[[I]], 0]
// CHECK:         scf.forall.in_parallel
// CHECK-NEXT:      tensor.parallel_insert_slice %{{.+}} into %[[O]][%[[I]], 0]
// CHECK-NEXT:      tensor.parallel_insert_slice %{{.+}} into %[[P]][%[[I]], 0]
// CHECK-NEXT:      tensor.parallel_insert_slice %{{.+}} into %[[Q]][%[[I]], 0]
func.func @outputs(%a: tensor<4x2xf32>, %b: tensor<4x2xf32>, %c: tensor<4x2xf32>)
    -> (tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>) {
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %r:3 = scf.forall (%i) in (4) shared_outs(%o = %a, %p = %b, %q = %c)
      -> (tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>) {
    %j = arith.addi %i, %c1 : index
    %k = arith.remui %j, %c4 : index
    %x = tensor.extract_slice %o[%k, 0] [1, 2] [1, 1] : tensor<4x2xf32> to tensor<2xf32>
    %y = tensor.extract_slice %p[%i, 0] [1, 2] [1, 1] : tensor<4x2xf32> to tensor<2xf32>
    %z = tensor.extract_slice %q[%i, 0] [1, 2] [1, 1] : tensor<4x2xf32> to tensor<2xf32>
    %w = linalg.add ins(%x, %y : tensor<2xf32>, tensor<2xf32>) outs(%z : tensor<2xf32>) -> tensor<2xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %y into %o[%i, 0] [1, 2] [1, 1] : tensor<2xf32> into tensor<4x2xf32>
      tensor.parallel_insert_slice %x into %p[%i, 0] [1, 2] [1, 1] : tensor<2xf32> into tensor<4x2xf32>
      tensor.parallel_insert_slice %w into %q[%i, 0] [1, 2] [1, 1] : tensor<2xf32> into tensor<4x2xf32>
    }
  }
  return %r#0, %r#1, %r#2 : tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>
}

// A loop that is not known to the analysis: what is written begins with a copy in
// each iteration, and what is only read does not.
// CHECK-LABEL: func.func @unknown_loop(
// CHECK-SAME:      %[[A:.+]]: tensor<2xf32>, %[[B:.+]]: tensor<2xf32>
// CHECK:         scf.parallel
// CHECK-NEXT:      %[[COPY:.+]] = bufferization.alloc_tensor() copy(%[[A]])
// CHECK-NEXT:      linalg.add ins(%[[COPY]], %[[B]] : {{.+}}) outs(%[[COPY]] :
func.func @unknown_loop(%a: tensor<2xf32>, %b: tensor<2xf32>, %m: memref<4xf32>) -> tensor<2xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.parallel (%i) = (%c0) to (%c4) step (%c1) {
    %w = linalg.add ins(%a, %b : tensor<2xf32>, tensor<2xf32>) outs(%a : tensor<2xf32>) -> tensor<2xf32>
    %v = tensor.extract %w[%c0] : tensor<2xf32>
    memref.store %v, %m[%i] : memref<4xf32>
  }
  return %b : tensor<2xf32>
}
