// RUN: ddphook-opt %s --ddp-fuse | FileCheck %s

ddp.process_group @dp
ddp.process_group @other

//===----------------------------------------------------------------------===//
// project
//===----------------------------------------------------------------------===//

// Error, members, the rest: one pass. Qᵀ reads M where it lies.
// CHECK-LABEL: func.func @project(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [5, 8x9, 9x8]>, %[[ARG1:[a-z0-9]+]]: !ddp.bucket<f32, [5, 8x9, 9x8]>, %[[ARG2:[a-z0-9]+]]: !ddp.bucket<f32, [8x2, 9x2]>) -> (!ddp.bucket<f32, [8x2, 9x2]>, !ddp.bucket<f32, [5]>)
// CHECK-NEXT:   %[[M:.+]]:3 = ddp.project %[[ARG0]] plus %[[ARG1]] members [2, 1] by %[[ARG2]] : (!ddp.bucket<f32, [5, 8x9, 9x8]>, !ddp.bucket<f32, [5, 8x9, 9x8]>, !ddp.bucket<f32, [8x2, 9x2]>) -> (!ddp.bucket<f32, [5, 8x9, 9x8]>, !ddp.bucket<f32, [9x2, 8x2]>, !ddp.bucket<f32, [5]>)
// CHECK-NEXT:   %[[R:.+]] = ddp.all_reduce sum %[[M]]#1 on @dp : !ddp.bucket<f32, [9x2, 8x2]>
// CHECK-NEXT:   %[[Q:.+]] = ddp.matmul transpose_lhs %[[M]]#0 members [2, 1], %[[R]] : (!ddp.bucket<f32, [5, 8x9, 9x8]>, !ddp.bucket<f32, [9x2, 8x2]>) -> !ddp.bucket<f32, [8x2, 9x2]>
// CHECK-NEXT:   return %[[Q]], %[[M]]#2 : !ddp.bucket<f32, [8x2, 9x2]>, !ddp.bucket<f32, [5]>
func.func @project(%g: !ddp.bucket<f32, [5, 8x9, 9x8]>,
                   %e: !ddp.bucket<f32, [5, 8x9, 9x8]>,
                   %q: !ddp.bucket<f32, [8x2, 9x2]>)
    -> (!ddp.bucket<f32, [8x2, 9x2]>, !ddp.bucket<f32, [5]>) {
  %m = ddp.add %g, %e
      : !ddp.bucket<f32, [5, 8x9, 9x8]>, !ddp.bucket<f32, [5, 8x9, 9x8]>
  %x = ddp.extract %m [2, 1] : !ddp.bucket<f32, [5, 8x9, 9x8]>
  %p = ddp.matmul %x, %q
      : (!ddp.bucket<f32, [9x8, 8x9]>, !ddp.bucket<f32, [8x2, 9x2]>)
      -> !ddp.bucket<f32, [9x2, 8x2]>
  %v = ddp.extract %m [0] : !ddp.bucket<f32, [5, 8x9, 9x8]>
  %s = ddp.all_reduce sum %p on @dp : !ddp.bucket<f32, [9x2, 8x2]>
  %w = ddp.matmul transpose_lhs %x, %s
      : (!ddp.bucket<f32, [9x8, 8x9]>, !ddp.bucket<f32, [9x2, 8x2]>)
      -> !ddp.bucket<f32, [8x2, 9x2]>
  return %w, %v : !ddp.bucket<f32, [8x2, 9x2]>, !ddp.bucket<f32, [5]>
}

// Without a rest.
// CHECK-LABEL: func.func @project_all(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [8x9]>, %[[ARG1:[a-z0-9]+]]: !ddp.bucket<f32, [8x9]>, %[[ARG2:[a-z0-9]+]]: !ddp.bucket<f32, [9x2]>) -> (!ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [8x9]>)
// CHECK-NEXT:   %[[M:.+]]:2 = ddp.project %[[ARG0]] plus %[[ARG1]] members [0] by %[[ARG2]] : (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [9x2]>) -> (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x2]>)
// CHECK-NEXT:   return %[[M]]#1, %[[M]]#0 : !ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [8x9]>
func.func @project_all(%g: !ddp.bucket<f32, [8x9]>, %e: !ddp.bucket<f32, [8x9]>,
                       %q: !ddp.bucket<f32, [9x2]>)
    -> (!ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [8x9]>) {
  %m = ddp.add %g, %e : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>
  %x = ddp.extract %m [0] : !ddp.bucket<f32, [8x9]>
  %p = ddp.matmul %x, %q
      : (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [9x2]>)
      -> !ddp.bucket<f32, [8x2]>
  return %p, %m : !ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [8x9]>
}

// Without an error.
// CHECK-LABEL: func.func @project_without_error(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [8x9, 5]>, %[[ARG1:[a-z0-9]+]]: !ddp.bucket<f32, [9x2]>) -> (!ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [5]>)
// CHECK-NEXT:   %[[M:.+]]:2 = ddp.project %[[ARG0]] members [0] by %[[ARG1]] : (!ddp.bucket<f32, [8x9, 5]>, !ddp.bucket<f32, [9x2]>) -> (!ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [5]>)
// CHECK-NEXT:   return %[[M]]#0, %[[M]]#1 : !ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [5]>
func.func @project_without_error(%g: !ddp.bucket<f32, [8x9, 5]>,
                                 %q: !ddp.bucket<f32, [9x2]>)
    -> (!ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [5]>) {
  %x = ddp.extract %g [0] : !ddp.bucket<f32, [8x9, 5]>
  %p = ddp.matmul %x, %q
      : (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [9x2]>)
      -> !ddp.bucket<f32, [8x2]>
  %v = ddp.extract %g [1] : !ddp.bucket<f32, [8x9, 5]>
  return %p, %v : !ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [5]>
}

// With neither it stays a product, of members where they are.
// CHECK-LABEL: func.func @product(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [5, 8x9]>, %[[ARG1:[a-z0-9]+]]: !ddp.bucket<f32, [9x2]>) -> !ddp.bucket<f32, [8x2]>
// CHECK-NEXT:   %[[P:.+]] = ddp.matmul %[[ARG0]] members [1], %[[ARG1]] : (!ddp.bucket<f32, [5, 8x9]>, !ddp.bucket<f32, [9x2]>) -> !ddp.bucket<f32, [8x2]>
// CHECK-NEXT:   return %[[P]] : !ddp.bucket<f32, [8x2]>
func.func @product(%g: !ddp.bucket<f32, [5, 8x9]>, %q: !ddp.bucket<f32, [9x2]>)
    -> !ddp.bucket<f32, [8x2]> {
  %x = ddp.extract %g [1] : !ddp.bucket<f32, [5, 8x9]>
  %p = ddp.matmul %x, %q
      : (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [9x2]>)
      -> !ddp.bucket<f32, [8x2]>
  return %p : !ddp.bucket<f32, [8x2]>
}

// P and the rest that travel together are born together.
// CHECK-LABEL: func.func @packed(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [8x9, 5]>, %[[ARG1:[a-z0-9]+]]: !ddp.bucket<f32, [9x2]>) -> !ddp.bucket<f32, [8x2, 5]>
// CHECK-NEXT:   %[[M:.+]] = ddp.project %[[ARG0]] members [0] by %[[ARG1]] packed : (!ddp.bucket<f32, [8x9, 5]>, !ddp.bucket<f32, [9x2]>) -> !ddp.bucket<f32, [8x2, 5]>
// CHECK-NEXT:   return %[[M]] : !ddp.bucket<f32, [8x2, 5]>
func.func @packed(%g: !ddp.bucket<f32, [8x9, 5]>, %q: !ddp.bucket<f32, [9x2]>)
    -> !ddp.bucket<f32, [8x2, 5]> {
  %x = ddp.extract %g [0] : !ddp.bucket<f32, [8x9, 5]>
  %p = ddp.matmul %x, %q
      : (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [9x2]>)
      -> !ddp.bucket<f32, [8x2]>
  %v = ddp.extract %g [1] : !ddp.bucket<f32, [8x9, 5]>
  %c = ddp.concat %p, %v : !ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [5]>
      -> !ddp.bucket<f32, [8x2, 5]>
  return %c : !ddp.bucket<f32, [8x2, 5]>
}

// In another order, or where P is needed by itself, they are joined afterwards.
// CHECK-LABEL: func @not_packed(
// CHECK:         %[[P:.+]]:2 = ddp.project %{{.+}} members [0] by %{{.+}} : {{.+}} -> (!ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [5]>)
// CHECK-NEXT:    ddp.concat %[[P]]#1, %[[P]]#0
// CHECK:         %[[R:.+]]:2 = ddp.project %{{.+}} members [0] by %{{.+}} : {{.+}} -> (!ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [5]>)
// CHECK-NEXT:    ddp.concat %[[R]]#0, %[[R]]#1
func.func @not_packed(%g: !ddp.bucket<f32, [8x9, 5]>,
                      %h: !ddp.bucket<f32, [8x9, 5]>,
                      %q: !ddp.bucket<f32, [9x2]>)
    -> (!ddp.bucket<f32, [5, 8x2]>, !ddp.bucket<f32, [8x2, 5]>,
        !ddp.bucket<f32, [8x2]>) {
  %x = ddp.extract %g [0] : !ddp.bucket<f32, [8x9, 5]>
  %p = ddp.matmul %x, %q
      : (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [9x2]>)
      -> !ddp.bucket<f32, [8x2]>
  %v = ddp.extract %g [1] : !ddp.bucket<f32, [8x9, 5]>
  %c = ddp.concat %v, %p : !ddp.bucket<f32, [5]>, !ddp.bucket<f32, [8x2]>
      -> !ddp.bucket<f32, [5, 8x2]>
  %y = ddp.extract %h [0] : !ddp.bucket<f32, [8x9, 5]>
  %r = ddp.matmul %y, %q
      : (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [9x2]>)
      -> !ddp.bucket<f32, [8x2]>
  %w = ddp.extract %h [1] : !ddp.bucket<f32, [8x9, 5]>
  %d = ddp.concat %r, %w : !ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [5]>
      -> !ddp.bucket<f32, [8x2, 5]>
  return %c, %d, %r : !ddp.bucket<f32, [5, 8x2]>, !ddp.bucket<f32, [8x2, 5]>,
      !ddp.bucket<f32, [8x2]>
}

// The sum is needed before the product; the rest is; the sum is made in another
// block, perhaps where the product is not.
// CHECK-LABEL: func @project_not_fused(
// CHECK-NOT:     ddp.project
// CHECK:         ddp.add
// CHECK-NOT:     ddp.project
// CHECK-LABEL: func @rest_before(
// CHECK-NOT:     ddp.project
// CHECK-LABEL: func @other_block(
// CHECK-NOT:     plus
// CHECK:         return
func.func @project_not_fused(%g: !ddp.bucket<f32, [8x9]>,
                             %q: !ddp.bucket<f32, [9x2]>)
    -> (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x2]>) {
  %m = ddp.add %g, %g : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>
  %n = ddp.scale %m by 2.0 : !ddp.bucket<f32, [8x9]>
  %p = ddp.matmul %m members [0], %q
      : (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [9x2]>)
      -> !ddp.bucket<f32, [8x2]>
  return %n, %p : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x2]>
}
func.func @rest_before(%g: !ddp.bucket<f32, [8x9, 5]>,
                       %q: !ddp.bucket<f32, [9x2]>)
    -> (!ddp.bucket<f32, [5]>, !ddp.bucket<f32, [8x2]>) {
  %v = ddp.extract %g [1] : !ddp.bucket<f32, [8x9, 5]>
  %w = ddp.scale %v by 2.0 : !ddp.bucket<f32, [5]>
  %p = ddp.matmul %g members [0], %q
      : (!ddp.bucket<f32, [8x9, 5]>, !ddp.bucket<f32, [9x2]>)
      -> !ddp.bucket<f32, [8x2]>
  return %w, %p : !ddp.bucket<f32, [5]>, !ddp.bucket<f32, [8x2]>
}
func.func @other_block(%g: !ddp.bucket<f32, [8x9]>,
                       %q: !ddp.bucket<f32, [9x2]>, %c: i1)
    -> !ddp.bucket<f32, [8x9]> {
  %m = ddp.add %g, %g : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>
  scf.if %c {
    %p = ddp.matmul %m members [0], %q
        : (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [9x2]>)
        -> !ddp.bucket<f32, [8x2]>
    %s = ddp.all_reduce sum %p on @dp : !ddp.bucket<f32, [8x2]>
  }
  return %m : !ddp.bucket<f32, [8x9]>
}

//===----------------------------------------------------------------------===//
// reconstruct
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func.func @reconstruct(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [5, 8x9, 9x8]>, %[[ARG1:[a-z0-9]+]]: !ddp.bucket<f32, [9x2, 8x2]>, %[[ARG2:[a-z0-9]+]]: !ddp.bucket<f32, [8x2, 9x2]>, %[[ARG3:[a-z0-9]+]]: !ddp.bucket<f32, [5]>) -> (!ddp.bucket<f32, [5, 8x9, 9x8]>, !ddp.bucket<f32, [5, 8x9, 9x8]>)
// CHECK-NEXT:   %[[OUT:.+]]:2 = ddp.reconstruct %[[ARG1]], %[[ARG2]] members [2, 1] rest %[[ARG3]] from %[[ARG0]] : (!ddp.bucket<f32, [9x2, 8x2]>, !ddp.bucket<f32, [8x2, 9x2]>, !ddp.bucket<f32, [5]>, !ddp.bucket<f32, [5, 8x9, 9x8]>) -> (!ddp.bucket<f32, [5, 8x9, 9x8]>, !ddp.bucket<f32, [5, 8x9, 9x8]>)
// CHECK-NEXT:   return %[[OUT]]#0, %[[OUT]]#1 : !ddp.bucket<f32, [5, 8x9, 9x8]>, !ddp.bucket<f32, [5, 8x9, 9x8]>
func.func @reconstruct(%m: !ddp.bucket<f32, [5, 8x9, 9x8]>,
                       %p: !ddp.bucket<f32, [9x2, 8x2]>,
                       %q: !ddp.bucket<f32, [8x2, 9x2]>,
                       %v: !ddp.bucket<f32, [5]>)
    -> (!ddp.bucket<f32, [5, 8x9, 9x8]>, !ddp.bucket<f32, [5, 8x9, 9x8]>) {
  %x = ddp.matmul transpose_rhs %p, %q
      : (!ddp.bucket<f32, [9x2, 8x2]>, !ddp.bucket<f32, [8x2, 9x2]>)
      -> !ddp.bucket<f32, [9x8, 8x9]>
  %o = ddp.concat %x, %v order [2, 1, 0]
      : !ddp.bucket<f32, [9x8, 8x9]>, !ddp.bucket<f32, [5]>
      -> !ddp.bucket<f32, [5, 8x9, 9x8]>
  %e = ddp.sub %m, %o
      : !ddp.bucket<f32, [5, 8x9, 9x8]>, !ddp.bucket<f32, [5, 8x9, 9x8]>
  return %o, %e
      : !ddp.bucket<f32, [5, 8x9, 9x8]>, !ddp.bucket<f32, [5, 8x9, 9x8]>
}

// On `sum` the error is that of the mean.
// CHECK-LABEL: func.func @reconstruct_sum(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [8x9]>, %[[ARG1:[a-z0-9]+]]: !ddp.bucket<f32, [8x2]>, %[[ARG2:[a-z0-9]+]]: !ddp.bucket<f32, [9x2]>) -> (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>)
// CHECK-NEXT:   %[[OUT:.+]]:2 = ddp.reconstruct %[[ARG1]], %[[ARG2]] members [0] from %[[ARG0]] by_world_of @other : (!ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [9x2]>, !ddp.bucket<f32, [8x9]>) -> (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>)
// CHECK-NEXT:   return %[[OUT]]#0, %[[OUT]]#1 : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>
func.func @reconstruct_sum(%m: !ddp.bucket<f32, [8x9]>,
                           %p: !ddp.bucket<f32, [8x2]>,
                           %q: !ddp.bucket<f32, [9x2]>)
    -> (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>) {
  %x = ddp.matmul transpose_rhs %p, %q
      : (!ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [9x2]>)
      -> !ddp.bucket<f32, [8x9]>
  %o = ddp.concat %x order [0] : !ddp.bucket<f32, [8x9]>
      -> !ddp.bucket<f32, [8x9]>
  %d = ddp.scale %o by_world_of @other : !ddp.bucket<f32, [8x9]>
  %e = ddp.sub %m, %d : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>
  return %o, %e : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>
}

// Without error feedback; a 4-D member.
// CHECK-LABEL: func.func @reconstruct_without_error(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [8x2]>, %[[ARG1:[a-z0-9]+]]: !ddp.bucket<f32, [12x2]>, %[[ARG2:[a-z0-9]+]]: !ddp.bucket<f32, [scalar]>) -> !ddp.bucket<f32, [scalar, 8x3x2x2]>
// CHECK-NEXT:   %[[OUT:.+]] = ddp.reconstruct %[[ARG0]], %[[ARG1]] members [1] rest %[[ARG2]] : (!ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [12x2]>, !ddp.bucket<f32, [scalar]>) -> !ddp.bucket<f32, [scalar, 8x3x2x2]>
// CHECK-NEXT:   return %[[OUT]] : !ddp.bucket<f32, [scalar, 8x3x2x2]>
func.func @reconstruct_without_error(%p: !ddp.bucket<f32, [8x2]>,
                                     %q: !ddp.bucket<f32, [12x2]>,
                                     %v: !ddp.bucket<f32, [scalar]>)
    -> !ddp.bucket<f32, [scalar, 8x3x2x2]> {
  %x = ddp.matmul transpose_rhs %p, %q
      : (!ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [12x2]>)
      -> !ddp.bucket<f32, [8x3x2x2]>
  %o = ddp.concat %x, %v order [1, 0]
      : !ddp.bucket<f32, [8x3x2x2]>, !ddp.bucket<f32, [scalar]>
      -> !ddp.bucket<f32, [scalar, 8x3x2x2]>
  return %o : !ddp.bucket<f32, [scalar, 8x3x2x2]>
}

// The error's matrix comes later; a constant is no group's size; the subtraction
// goes the other way: the bucket is put together in one pass, the error apart.
// CHECK-LABEL: func @error_apart(
// CHECK:         %[[O:.+]] = ddp.reconstruct %{{.+}}, %{{.+}} members [0] : ({{.+}}) -> !ddp.bucket<f32, [8x9]>
// CHECK:         ddp.sub %{{.+}}, %[[O]]
// CHECK:         %[[D:.+]] = ddp.scale %[[O]] by 5.0
// CHECK:         ddp.sub %{{.+}}, %[[D]]
// CHECK:         ddp.sub %[[O]], %{{.+}}
func.func @error_apart(%m: !ddp.bucket<f32, [8x9]>,
                       %p: !ddp.bucket<f32, [8x2]>,
                       %q: !ddp.bucket<f32, [9x2]>)
    -> (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>,
        !ddp.bucket<f32, [8x9]>) {
  %x = ddp.matmul transpose_rhs %p, %q
      : (!ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [9x2]>)
      -> !ddp.bucket<f32, [8x9]>
  %o = ddp.concat %x order [0] : !ddp.bucket<f32, [8x9]>
      -> !ddp.bucket<f32, [8x9]>
  %late = ddp.scale %m by 2.0 : !ddp.bucket<f32, [8x9]>
  %e = ddp.sub %late, %o : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>
  %d = ddp.scale %o by 5.0e-1 : !ddp.bucket<f32, [8x9]>
  %f = ddp.sub %m, %d : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>
  %h = ddp.sub %o, %m : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>
  return %e, %f, %h : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>,
      !ddp.bucket<f32, [8x9]>
}

// The product is needed itself; the rest is not in order; no order at all;
// products of other forms; three parts.
// CHECK-LABEL: func @reconstruct_not_fused(
// CHECK-NOT:     ddp.reconstruct
// CHECK:         return
func.func @reconstruct_not_fused(%p: !ddp.bucket<f32, [8x2]>,
                                 %q: !ddp.bucket<f32, [9x2]>,
                                 %v: !ddp.bucket<f32, [5, 5]>,
                                 %m: !ddp.bucket<f32, [8x9]>)
    -> (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>,
        !ddp.bucket<f32, [8x9, 5, 5]>, !ddp.bucket<f32, [8x9, 5, 5]>,
        !ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [8x9, 5, 5, 8x9]>) {
  %x = ddp.matmul transpose_rhs %p, %q
      : (!ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [9x2]>)
      -> !ddp.bucket<f32, [8x9]>
  %o = ddp.concat %x order [0] : !ddp.bucket<f32, [8x9]>
      -> !ddp.bucket<f32, [8x9]>
  %y = ddp.matmul transpose_rhs %p, %q
      : (!ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [9x2]>)
      -> !ddp.bucket<f32, [8x9]>
  %r = ddp.concat %y, %v order [0, 2, 1]
      : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [5, 5]>
      -> !ddp.bucket<f32, [8x9, 5, 5]>
  %z = ddp.matmul transpose_rhs %p, %q
      : (!ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [9x2]>)
      -> !ddp.bucket<f32, [8x9]>
  %s = ddp.concat %z, %v : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [5, 5]>
      -> !ddp.bucket<f32, [8x9, 5, 5]>
  %w = ddp.matmul %m, %q
      : (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [9x2]>)
      -> !ddp.bucket<f32, [8x2]>
  %t = ddp.concat %w order [0] : !ddp.bucket<f32, [8x2]>
      -> !ddp.bucket<f32, [8x2]>
  %k = ddp.matmul transpose_rhs %p, %q
      : (!ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [9x2]>)
      -> !ddp.bucket<f32, [8x9]>
  %u = ddp.concat %k, %v, %m order [0, 1, 2, 3]
      : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [5, 5]>,
        !ddp.bucket<f32, [8x9]> -> !ddp.bucket<f32, [8x9, 5, 5, 8x9]>
  return %x, %o, %r, %s, %t, %u : !ddp.bucket<f32, [8x9]>,
      !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9, 5, 5]>,
      !ddp.bucket<f32, [8x9, 5, 5]>, !ddp.bucket<f32, [8x2]>,
      !ddp.bucket<f32, [8x9, 5, 5, 8x9]>
}

// After all of it, nothing of a PowerSGD step is left but what reads the
// gradient three times.
// CHECK-LABEL: func @step(
// CHECK:         ddp.orthogonalize
// CHECK-NEXT:    ddp.project
// CHECK-NEXT:    ddp.all_reduce
// CHECK-NEXT:    ddp.orthogonalize
// CHECK-NEXT:    ddp.matmul transpose_lhs %{{.+}}#0 members [0],
// CHECK-NEXT:    ddp.all_reduce
// CHECK-NEXT:    ddp.reconstruct
// CHECK-NEXT:    return
func.func @step(%g: !ddp.bucket<f32, [8x9]>, %e: !ddp.bucket<f32, [8x9]>,
                %q: !ddp.bucket<f32, [9x2]>)
    -> (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>) {
  %m = ddp.add %g, %e : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>
  %b = ddp.orthogonalize %q epsilon 0.0 : !ddp.bucket<f32, [9x2]>
  %x = ddp.extract %m [0] : !ddp.bucket<f32, [8x9]>
  %p = ddp.matmul %x, %b
      : (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [9x2]>)
      -> !ddp.bucket<f32, [8x2]>
  %s = ddp.all_reduce sum %p on @dp : !ddp.bucket<f32, [8x2]>
  %o = ddp.orthogonalize %s epsilon 0.0 : !ddp.bucket<f32, [8x2]>
  %w = ddp.matmul transpose_lhs %x, %o
      : (!ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x2]>)
      -> !ddp.bucket<f32, [9x2]>
  %t = ddp.all_reduce sum %w on @dp : !ddp.bucket<f32, [9x2]>
  %h = ddp.matmul transpose_rhs %o, %t
      : (!ddp.bucket<f32, [8x2]>, !ddp.bucket<f32, [9x2]>)
      -> !ddp.bucket<f32, [8x9]>
  %c = ddp.concat %h order [0] : !ddp.bucket<f32, [8x9]>
      -> !ddp.bucket<f32, [8x9]>
  %n = ddp.sub %m, %c : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>
  return %c, %n : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [8x9]>
}
