// RUN: ddphook-opt %s --ddp-fold-results --allow-unregistered-dialect | FileCheck %s

// CHECK-LABEL: func.func private @twice(
// CHECK-SAME:      %[[A:.+]]: tensor<4xf32>) -> tensor<4xf32> {
// CHECK:         %[[R:.+]] = linalg.exp
// CHECK:         return %[[R]] : tensor<4xf32>
func.func private @twice(%a: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %r = linalg.exp ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %r, %r, %a : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// What a callee returned twice is the same value in its caller.
// CHECK-LABEL: func.func private @caller(
// CHECK-SAME:      %[[A:.+]]: tensor<4xf32>) -> tensor<4xf32> {
// CHECK:         %[[R:.+]] = call @twice(%[[A]]) {mark} : (tensor<4xf32>) -> tensor<4xf32>
// CHECK:         return %[[R]] : tensor<4xf32>
func.func private @caller(%a: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %r:3 = call @twice(%a) {mark}
      : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  return %r#1, %r#0, %r#2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @public(
// CHECK-SAME:      %[[A:.+]]: tensor<4xf32>)
// CHECK:         %[[R:.+]] = call @caller(%[[A]]) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK:         return %[[R]], %[[R]], %[[A]]
func.func @public(%a: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %r:3 = call @caller(%a)
      : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  return %r#0, %r#1, %r#2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// The same on one path only is not the same.
// CHECK-LABEL: func.func private @paths(
// CHECK-SAME:      -> (f32, f32, f32) {
func.func private @paths(%c: i1, %x: f32, %y: f32) -> (f32, f32, f32, f32) {
  %z = arith.addf %x, %y : f32
  cf.cond_br %c, ^bb1, ^bb2
^bb1:
  return %x, %x, %z, %y : f32, f32, f32, f32
^bb2:
  return %z, %y, %z, %y : f32, f32, f32, f32
}
// CHECK-LABEL: func.func @calls_paths(
// CHECK-SAME:      %[[C:.+]]: i1, %[[X:.+]]: f32, %[[Y:.+]]: f32)
// CHECK:         %[[R:.+]]:3 = call @paths
// CHECK:         return %[[R]]#0, %[[R]]#1, %[[R]]#2, %[[Y]]
func.func @calls_paths(%c: i1, %x: f32, %y: f32) -> (f32, f32, f32, f32) {
  %r:4 = call @paths(%c, %x, %y) : (i1, f32, f32) -> (f32, f32, f32, f32)
  return %r#0, %r#1, %r#2, %r#3 : f32, f32, f32, f32
}

// A function that something else refers to, or that calls itself. What the
// former returns twice it copies, since callers may write to each result.
// CHECK-LABEL: func.func private @referred(
// CHECK-SAME:      -> (f32, f32)
func.func private @referred(%x: f32) -> (f32, f32) {
  return %x, %x : f32, f32
}
// CHECK-LABEL: func.func private @referred_tensors(
// CHECK:         %[[X:.+]] = linalg.exp
// CHECK:         %[[COPY:.+]] = bufferization.alloc_tensor() copy(%[[X]])
// CHECK:         return %[[X]], %[[COPY]]
func.func private @referred_tensors(%a: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %x = linalg.exp ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
  return %x, %x : tensor<4xf32>, tensor<4xf32>
}
// CHECK-LABEL: func.func private @recursive(
// CHECK-SAME:      %{{.+}}: f32) -> f32 {
// CHECK:         call @recursive(%{{.+}}) : (f32) -> f32
func.func private @recursive(%x: f32) -> (f32, f32) {
  %r:2 = call @recursive(%x) : (f32) -> (f32, f32)
  return %r#0, %r#0 : f32, f32
}
// CHECK-LABEL: func.func @refers(
func.func @refers(%x: f32) -> (f32, f32) {
  "foo.table"() ({
    "foo.row"() {entry = @referred, other = @referred_tensors} : () -> ()
  }) : () -> ()
  %r:2 = call @referred(%x) : (f32) -> (f32, f32)
  return %r#0, %r#1 : f32, f32
}
