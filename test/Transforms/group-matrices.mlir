// RUN: ddphook-opt %s --split-input-file --ddp-group-matrices=group-mb=0.01 | FileCheck %s
// RUN: ddphook-opt %s --split-input-file --ddp-group-matrices | FileCheck %s --check-prefix=OFF

// Two groups: [0, 1] with the vector between the matrices, then [2].
ddp.process_group @dp
ddp.state @b0.error : !ddp.bucket<f32, [64x32, 64, 48x40]> per_rank zero
ddp.state @b0.q : !ddp.bucket<f32, [32x2, 40x2]> replicated zero

// CHECK-LABEL: func.func @packed
// CHECK-SAME:    (%[[G:.*]]: !ddp.bucket
// CHECK:         %[[E:.*]] = ddp.load @b0.error
// CHECK:         %[[BASIS:.*]] = ddp.orthogonalize
// CHECK:         %[[Q0:.*]] = ddp.extract %[[BASIS]] [0]
// CHECK:         %[[PR0:.*]]:2 = ddp.project %[[G]] plus %[[E]] members [0] others [1] by %[[Q0]] packed
// CHECK-SAME:      -> (!ddp.bucket<f32, [64x32, 64, 48x40]>, !ddp.bucket<f32, [64x2, 64]>)
// CHECK:         %[[S0:.*]] = ddp.all_reduce sum %[[PR0]]#1 on @dp as "b0"
// CHECK-DAG:     %[[V0:.*]] = ddp.extract %[[S0]] [1]
// CHECK-DAG:     %[[P0:.*]] = ddp.extract %[[S0]] [0]
// CHECK:         %[[VM0:.*]] = ddp.scale %[[V0]] by_world_of @dp
// CHECK:         %[[P10:.*]] = ddp.orthogonalize %[[P0]]
// CHECK:         %[[QL0:.*]] = ddp.matmul transpose_lhs %[[PR0]]#0 members [0], %[[P10]]
// CHECK:         %[[QS0:.*]] = ddp.all_reduce sum %[[QL0]]
// CHECK:         %[[QM0:.*]] = ddp.scale %[[QS0]] by_world_of @dp
// CHECK:         %[[R0:.*]]:2 = ddp.reconstruct %[[P10]], %[[QM0]] members [0] others [1] rest %[[VM0]] from %[[PR0]]#0 base %[[G]]
// The second group goes on with what the first one has made of bucket and M.
// CHECK:         %[[Q1:.*]] = ddp.extract %[[BASIS]] [1]
// CHECK:         %[[PR1:.*]]:2 = ddp.project %[[R0]]#0 plus %[[R0]]#1 members [2] others [] by %[[Q1]]
// CHECK-SAME:      -> (!ddp.bucket<f32, [64x32, 64, 48x40]>, !ddp.bucket<f32, [48x2]>)
// CHECK:         %[[S1:.*]] = ddp.all_reduce sum %[[PR1]]#1
// CHECK:         %[[P11:.*]] = ddp.orthogonalize %[[S1]]
// CHECK:         ddp.matmul transpose_lhs %[[PR1]]#0 members [2], %[[P11]]
// CHECK:         %[[QM1:.*]] = ddp.scale
// CHECK:         %[[R1:.*]]:2 = ddp.reconstruct %[[P11]], %[[QM1]] members [2] others [] from %[[PR1]]#0 base %[[R0]]#0
// CHECK:         %[[Q:.*]] = ddp.concat %[[QM0]], %[[QM1]] order [0, 1]
// CHECK:         ddp.store %[[Q]], @b0.q
// CHECK:         ddp.store %[[R1]]#1, @b0.error
// CHECK:         return %[[R1]]#0

// OFF-LABEL: func.func @packed
// OFF-COUNT-1: ddp.project
// OFF-NOT:     ddp.project
func.func @packed(%g: !ddp.bucket<f32, [64x32, 64, 48x40]>)
    -> !ddp.bucket<f32, [64x32, 64, 48x40]> {
  %e = ddp.load @b0.error : !ddp.bucket<f32, [64x32, 64, 48x40]>
  %q = ddp.load @b0.q : !ddp.bucket<f32, [32x2, 40x2]>
  %q0 = ddp.orthogonalize %q epsilon 0.0 : !ddp.bucket<f32, [32x2, 40x2]>
  %m, %pv = ddp.project %g plus %e members [0, 2] by %q0 packed
      : (!ddp.bucket<f32, [64x32, 64, 48x40]>,
         !ddp.bucket<f32, [64x32, 64, 48x40]>, !ddp.bucket<f32, [32x2, 40x2]>)
      -> (!ddp.bucket<f32, [64x32, 64, 48x40]>,
          !ddp.bucket<f32, [64x2, 48x2, 64]>)
  %s = ddp.all_reduce sum %pv on @dp as "b0" {ddp.hook = #ddp.allreduce}
      : !ddp.bucket<f32, [64x2, 48x2, 64]>
  %p = ddp.extract %s [0, 1] : !ddp.bucket<f32, [64x2, 48x2, 64]>
  %v = ddp.extract %s [2] : !ddp.bucket<f32, [64x2, 48x2, 64]>
  %vm = ddp.scale %v by_world_of @dp : !ddp.bucket<f32, [64]>
  %p1 = ddp.orthogonalize %p epsilon 0.0 : !ddp.bucket<f32, [64x2, 48x2]>
  %ql = ddp.matmul transpose_lhs %m members [0, 2], %p1
      : (!ddp.bucket<f32, [64x32, 64, 48x40]>, !ddp.bucket<f32, [64x2, 48x2]>)
      -> !ddp.bucket<f32, [32x2, 40x2]>
  %qs = ddp.all_reduce sum %ql on @dp as "b0" {ddp.hook = #ddp.allreduce}
      : !ddp.bucket<f32, [32x2, 40x2]>
  %qm = ddp.scale %qs by_world_of @dp : !ddp.bucket<f32, [32x2, 40x2]>
  ddp.store %qm, @b0.q : !ddp.bucket<f32, [32x2, 40x2]>
  %out, %err = ddp.reconstruct %p1, %qm members [0, 2] rest %vm from %m
      : (!ddp.bucket<f32, [64x2, 48x2]>, !ddp.bucket<f32, [32x2, 40x2]>,
         !ddp.bucket<f32, [64]>, !ddp.bucket<f32, [64x32, 64, 48x40]>)
      -> (!ddp.bucket<f32, [64x32, 64, 48x40]>,
          !ddp.bucket<f32, [64x32, 64, 48x40]>)
  ddp.store %err, @b0.error : !ddp.bucket<f32, [64x32, 64, 48x40]>
  return %out : !ddp.bucket<f32, [64x32, 64, 48x40]>
}

// -----

// A sum is not divided, and there is no error: the gradient's own chain.
ddp.process_group @dp

// CHECK-LABEL: func.func @without_error
// CHECK:         %[[P0:.*]] = ddp.project %[[G:.*]] members [0] others [] by
// CHECK-NOT:     by_world_of
// CHECK:         %[[G0:.*]] = ddp.reconstruct {{.*}} members [0] others [] base %[[G]]
// CHECK:         ddp.project %[[G0]] members [1] others [2] by
// CHECK:         ddp.matmul transpose_lhs %[[G0]] members [1]
// CHECK:         %[[G1:.*]] = ddp.reconstruct {{.*}} members [1] others [2] rest {{.*}} base %[[G0]]
// CHECK:         return %[[G1]]
func.func @without_error(%g: !ddp.bucket<f32, [64x32, 64x32, 64]>,
                         %q: !ddp.bucket<f32, [32x1, 32x1]>)
    -> !ddp.bucket<f32, [64x32, 64x32, 64]> {
  %p, %v = ddp.project %g members [0, 1] by %q
      : (!ddp.bucket<f32, [64x32, 64x32, 64]>, !ddp.bucket<f32, [32x1, 32x1]>)
      -> (!ddp.bucket<f32, [64x1, 64x1]>, !ddp.bucket<f32, [64]>)
  %ps = ddp.all_reduce sum %p on @dp as "b0" : !ddp.bucket<f32, [64x1, 64x1]>
  %vs = ddp.all_reduce sum %v on @dp as "b0" : !ddp.bucket<f32, [64]>
  %p1 = ddp.orthogonalize %ps epsilon 0.0 : !ddp.bucket<f32, [64x1, 64x1]>
  %ql = ddp.matmul transpose_lhs %g members [0, 1], %p1
      : (!ddp.bucket<f32, [64x32, 64x32, 64]>, !ddp.bucket<f32, [64x1, 64x1]>)
      -> !ddp.bucket<f32, [32x1, 32x1]>
  %qs = ddp.all_reduce sum %ql on @dp as "b0" : !ddp.bucket<f32, [32x1, 32x1]>
  %out = ddp.reconstruct %p1, %qs members [0, 1] rest %vs
      : (!ddp.bucket<f32, [64x1, 64x1]>, !ddp.bucket<f32, [32x1, 32x1]>,
         !ddp.bucket<f32, [64]>) -> !ddp.bucket<f32, [64x32, 64x32, 64]>
  return %out : !ddp.bucket<f32, [64x32, 64x32, 64]>
}

// -----

// P is used by something else: left alone.
ddp.process_group @dp

// CHECK-LABEL: func.func @other_user
// CHECK-COUNT-1: ddp.project
// CHECK-NOT:     ddp.project
func.func @other_user(%g: !ddp.bucket<f32, [64x32, 64x32]>,
                      %q: !ddp.bucket<f32, [32x1, 32x1]>)
    -> (!ddp.bucket<f32, [64x32, 64x32]>, !ddp.bucket<f32, [64x1, 64x1]>) {
  %m, %p = ddp.project %g plus %g members [0, 1] by %q
      : (!ddp.bucket<f32, [64x32, 64x32]>, !ddp.bucket<f32, [64x32, 64x32]>,
         !ddp.bucket<f32, [32x1, 32x1]>)
      -> (!ddp.bucket<f32, [64x32, 64x32]>, !ddp.bucket<f32, [64x1, 64x1]>)
  %ps = ddp.all_reduce sum %p on @dp as "b0" : !ddp.bucket<f32, [64x1, 64x1]>
  return %m, %ps
      : !ddp.bucket<f32, [64x32, 64x32]>, !ddp.bucket<f32, [64x1, 64x1]>
}
