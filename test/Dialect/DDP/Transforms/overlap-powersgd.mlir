// PowerSGD's buckets and groups beside each other.

// RUN: ddphook-opt %s --pass-pipeline='builtin.module(ddp-bucketize{bucket-cap-mb=0},ddp-expand-hooks{hook=powersgd start-powersgd-iter=2},ddp-pack-collectives,ddp-fuse,ddp-merge-branches,ddp-overlap{interleave=true})' | FileCheck %s --check-prefix=BUCKETS

// Two buckets: the second one is projected while P of the first travels, and so
// on. In the vanilla phase both are in flight.

// BUCKETS-LABEL: func @step(
// BUCKETS:         %[[V0:.+]] = ddp.all_reduce_start mean {{.+}} on @dp as "b0" if %[[C:.+]] :
// BUCKETS:         %[[V1:.+]] = ddp.all_reduce_start mean {{.+}} on @dp as "b1" if %[[C]] :
// BUCKETS:         scf.if %[[C]]
// BUCKETS-NEXT:      ddp.wait %[[V0]]
// BUCKETS-NEXT:      ddp.wait %[[V1]]
// BUCKETS-NEXT:      scf.yield
// BUCKETS:         } else {
// BUCKETS-DAG:       ddp.wait %[[V0]]
// BUCKETS-DAG:       ddp.wait %[[V1]]
// BUCKETS:           %[[M0:.+]]:2 = ddp.project
// BUCKETS-NEXT:      %[[P0:.+]] = ddp.all_reduce_start sum %[[M0]]#1 on @dp as "b0"
// BUCKETS:           %[[M1:.+]]:2 = ddp.project
// BUCKETS-NEXT:      %[[P1:.+]] = ddp.all_reduce_start sum %[[M1]]#1 on @dp as "b1"
// BUCKETS-NEXT:      %[[R0:.+]] = ddp.wait %[[P0]]
// BUCKETS-NEXT:      %[[O0:.+]] = ddp.orthogonalize %[[R0]]
// BUCKETS-NEXT:      %[[Q0:.+]] = ddp.matmul transpose_lhs %[[M0]]#0 members [0], %[[O0]]
// BUCKETS-NEXT:      %[[FQ0:.+]] = ddp.all_reduce_start sum %[[Q0]]
// BUCKETS-NEXT:      %[[R1:.+]] = ddp.wait %[[P1]]
// BUCKETS-NEXT:      ddp.orthogonalize %[[R1]]
// BUCKETS-NEXT:      ddp.matmul transpose_lhs %[[M1]]#0
// BUCKETS-NEXT:      %[[FQ1:.+]] = ddp.all_reduce_start sum
// BUCKETS-NEXT:      ddp.wait %[[FQ0]]
// BUCKETS-NEXT:      ddp.scale
// BUCKETS-NEXT:      ddp.reconstruct
// BUCKETS-NEXT:      ddp.store {{.+}}, @b0.q
// BUCKETS-NEXT:      ddp.store {{.+}}, @b0.error
// BUCKETS-NEXT:      ddp.wait %[[FQ1]]

// RUN: ddphook-opt %s --pass-pipeline='builtin.module(ddp-bucketize,ddp-expand-hooks{hook=powersgd start-powersgd-iter=2 group-mb=0.001},ddp-pack-collectives,ddp-fuse,ddp-merge-branches,ddp-overlap{interleave=true})' | FileCheck %s --check-prefix=GROUPS

// Three groups of one bucket alternate as buckets do: the others are projected
// while the factors of the first one travel.

// GROUPS-LABEL: func @groups(
// GROUPS:         } else {
// GROUPS:           %[[G:.+]]:3 = ddp.split
// GROUPS:           %[[E:.+]]:3 = ddp.split
// GROUPS:           %[[M0:.+]]:2 = ddp.project %[[G]]#0 plus %[[E]]#0
// GROUPS-NEXT:      %[[P0:.+]] = ddp.all_reduce_start sum %[[M0]]#1
// GROUPS:           %[[M1:.+]]:2 = ddp.project %[[G]]#1 plus %[[E]]#1
// GROUPS-NEXT:      %[[P1:.+]] = ddp.all_reduce_start sum %[[M1]]#1
// GROUPS:           %[[M2:.+]]:2 = ddp.project %[[G]]#2 plus %[[E]]#2
// GROUPS-NEXT:      %[[R0:.+]] = ddp.wait %[[P0]]
// GROUPS-NEXT:      %[[O0:.+]] = ddp.orthogonalize %[[R0]]
// GROUPS-NEXT:      %[[F0:.+]] = ddp.matmul transpose_lhs %[[M0]]#0 members [0], %[[O0]]
// GROUPS-NEXT:      %[[Q0:.+]] = ddp.all_reduce_start sum %[[F0]]
// GROUPS-NEXT:      %[[R1:.+]] = ddp.wait %[[P1]]
// GROUPS-NEXT:      %[[O1:.+]] = ddp.orthogonalize %[[R1]]
// GROUPS-NEXT:      %[[F1:.+]] = ddp.matmul transpose_lhs %[[M1]]#0 members [0], %[[O1]]
// GROUPS-NEXT:      %[[Q1:.+]] = ddp.all_reduce_start sum %[[F1]]
// GROUPS-NEXT:      %[[RQ0:.+]] = ddp.wait %[[Q0]]
// GROUPS-NEXT:      %[[DQ0:.+]] = ddp.scale %[[RQ0]]
// GROUPS-NEXT:      ddp.reconstruct %[[O0]], %[[DQ0]] members [0] from %[[M0]]#0
// GROUPS-NEXT:      ddp.all_reduce_start sum %[[M2]]#1
// GROUPS-NEXT:      ddp.wait %[[Q1]]

ddp.process_group @dp
func.func @step(%a: tensor<20x31xf32>, %b: tensor<16x19xf32>)
    -> (tensor<20x31xf32>, tensor<16x19xf32>) {
  %0 = ddp.all_reduce mean %a on @dp : tensor<20x31xf32>
  %1 = ddp.all_reduce mean %b on @dp : tensor<16x19xf32>
  return %0, %1 : tensor<20x31xf32>, tensor<16x19xf32>
}
func.func @groups(%a: tensor<20x31xf32>, %b: tensor<16x19xf32>, %c: tensor<18x17xf32>)
    -> (tensor<20x31xf32>, tensor<16x19xf32>, tensor<18x17xf32>) {
  %0 = ddp.all_reduce mean %a on @dp : tensor<20x31xf32>
  %1 = ddp.all_reduce mean %b on @dp : tensor<16x19xf32>
  %2 = ddp.all_reduce mean %c on @dp : tensor<18x17xf32>
  return %0, %1, %2 : tensor<20x31xf32>, tensor<16x19xf32>, tensor<18x17xf32>
}
