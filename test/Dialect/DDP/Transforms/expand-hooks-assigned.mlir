// RUN: ddphook-opt %s --ddp-expand-hooks="group-mb=0.00015" -split-input-file | FileCheck %s
// RUN: ddphook-opt %s --ddp-expand-hooks="group-mb=0.00015" --ddp-pack-collectives --ddp-fuse --ddp-overlap -split-input-file | FileCheck %s --check-prefix=FUSED
// RUN: ddphook-opt %s --ddp-expand-hooks="group-mb=0.00015" -split-input-file --remarks-filter-missed='ddp-expand-.*' -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// Over a hierarchical group PowerSGD compresses a node's mean. Groups of at most
// 314 bytes, twice what is said, are assigned to a node's ranks, one by one.

// CHECK:         ddp.process_group @dp topology hierarchical
// CHECK-DAG:     ddp.process_group @dp.node placement intra_node parent @dp
// CHECK-DAG:     ddp.process_group @dp.across placement inter_node parent @dp
// CHECK:         ddp.state @b0.share_error {{.+}}, assigned in groups [0, 2]"
ddp.process_group @dp topology hierarchical

// CHECK-LABEL: func.func @groups(
// CHECK:         ddp.all_reduce mean %{{.+}} on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [8x9, 5, 9x8]>
// CHECK:         } else {
// CHECK:           %[[ERROR:.+]] = ddp.load @b0.share_error
// CHECK:           %[[G:.+]]:2 = ddp.split
// CHECK:           %[[M:.+]] = ddp.all_reduce mean %[[G]]#0 on @dp.node {ddp.assignment = #ddp.assignment<"b0" groups[0, 2] members[0, 1] counts[72, 5]>, ddp.hook = #ddp.allreduce}
// CHECK:           ddp.matmul {{.+}} {ddp.assignment = #ddp.assignment<"b0" groups[0, 2] members[0] counts[72]>}
// CHECK:           ddp.all_reduce sum %{{.+}} on @dp as "b0" {ddp.assignment = #ddp.assignment<"b0" groups[0, 2] members[0] counts[8]>, ddp.hook = #ddp.allreduce}
// CHECK:           ddp.all_reduce sum %{{.+}} on @dp as "b0" {ddp.assignment = #ddp.assignment<"b0" groups[0, 2] members[1] counts[5]>, ddp.hook = #ddp.allreduce}
// CHECK:           ddp.scale %{{.+}} by_world_of @dp.across
// CHECK:           ddp.all_reduce sum %{{.+}} on @dp as "b0" {ddp.assignment = #ddp.assignment<"b0" groups[0, 2] members[0] counts[9]>, ddp.hook = #ddp.allreduce}
// CHECK:           ddp.all_reduce mean %[[G]]#1 on @dp.node {ddp.assignment = #ddp.assignment<"b0" groups[0, 2] members[2] counts[72]>, ddp.hook = #ddp.allreduce}

// A list of a group has all its members, as it has after fusion; P and what is not
// compressed are packed.
// FUSED-LABEL: func.func @groups(
// FUSED:         ddp.project {{.+}} packed {ddp.assignment = #ddp.assignment<"b0" groups[0, 2] members[0, 1] counts[72, 5]>}
// FUSED:         ddp.all_reduce sum %{{.+}} on @dp as "b0" {ddp.assignment = #ddp.assignment<"b0" groups[0, 2] members[0, 1] counts[8, 5]>, ddp.hook = #ddp.allreduce}
// FUSED:         ddp.matmul transpose_lhs {{.+}} {ddp.assignment = #ddp.assignment<"b0" groups[0, 2] members[0, 1] counts[72, 5]>}
// FUSED:         ddp.all_reduce sum
// FUSED:         ddp.reconstruct {{.+}} {ddp.assignment = #ddp.assignment<"b0" groups[0, 2] members[0, 1] counts[72, 5]>}
func.func @groups(%b: !ddp.bucket<f32, [8x9, 5, 9x8]>)
    -> !ddp.bucket<f32, [8x9, 5, 9x8]> {
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.powersgd}
      : !ddp.bucket<f32, [8x9, 5, 9x8]>
  return %r : !ddp.bucket<f32, [8x9, 5, 9x8]>
}

// -----

ddp.process_group @dp topology hierarchical

// With these each rank compresses its own gradient.
// CHECK:       ddp.state @b0.error
// CHECK:       ddp.state @b3.error
// CHECK-NOT:   ddp.assignment
// REMARK: each rank compresses its own gradient with local_error_feedback
// REMARK: each rank compresses its own gradient with skip_nonfinite
// REMARK: each rank compresses its own gradient with a wire_type
// REMARK: each rank compresses its own gradient with a batched hook, since the bucket is one matrix
func.func @as_ranks(%b: !ddp.bucket<f32, [8x9]>) {
  %0 = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.powersgd<local_error_feedback = true>} : !ddp.bucket<f32, [8x9]>
  %1 = ddp.all_reduce mean %b on @dp as "b1" {ddp.hook = #ddp.powersgd<skip_nonfinite = true>} : !ddp.bucket<f32, [8x9]>
  %2 = ddp.all_reduce mean %b on @dp as "b2" {ddp.hook = #ddp.powersgd<wire_type = f16>} : !ddp.bucket<f32, [8x9]>
  %3 = ddp.all_reduce mean %b on @dp as "b3" {ddp.hook = #ddp.batched_powersgd} : !ddp.bucket<f32, [8x9]>
  return
}
