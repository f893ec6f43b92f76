// RUN: ddphook-opt %s --load-dialect-plugin=%testhook-plugin --split-input-file --verify-diagnostics --ddp-bucketize --ddp-expand-hooks --ddp-verify-order | FileCheck %s

// Hooks of another dialect (test/lib) that send signs and the largest elements,
// with error feedback, from the parts that ddphook has for them.

// CHECK: ddp.state @b0.error : !ddp.bucket<f16, [100, 7]> per_rank zero kind error role "testhook.error" of {{\[\[}}"sign.arg0"], ["sign.arg1"{{\]\]}} under "mean #testhook.sign"
// CHECK: ddp.state @b1.rest : !ddp.bucket<f32, [100]> per_rank zero kind error role "testhook.rest" of {{\[\[}}"top.arg0"{{\]\]}} under "mean #testhook.top_k<density = 1.000000e-01 : f64>"
ddp.process_group @dp size 2

// CHECK-LABEL: func.func @sign(
// CHECK:         %[[E:.+]] = ddp.load @b0.error
// CHECK-NEXT:    %[[M:.+]] = ddp.add %{{.+}}, %[[E]]
// CHECK-NEXT:    %[[L:.+]] = ddp.encoding_error %[[M]] as !ddp.encoded<ui1, 1024>
// CHECK-NEXT:    ddp.store %[[L]], @b0.error
// CHECK-NEXT:    ddp.all_reduce mean %[[M]] on @dp wire !ddp.encoded<ui1, 1024> as "b0" {ddp.hook = #ddp.allreduce}
func.func @sign(%g: tensor<100xf16>, %h: tensor<7xf16>) -> (tensor<100xf16>, tensor<7xf16>)
    attributes {ddp.hook = #testhook.sign} {
  %r = ddp.all_reduce mean %g on @dp : tensor<100xf16>
  %s = ddp.all_reduce mean %h on @dp : tensor<7xf16>
  return %r, %s : tensor<100xf16>, tensor<7xf16>
}

// CHECK-LABEL: func.func @top(
// CHECK:         %[[G:.+]] = ddp.cast %{{.+}} : !ddp.bucket<f16, [100]> -> !ddp.bucket<f32, [100]>
// CHECK-NEXT:    %[[E:.+]] = ddp.load @b1.rest
// CHECK-NEXT:    %[[M:.+]] = ddp.add %[[G]], %[[E]]
// CHECK-NEXT:    %[[LARGEST:.+]], %[[REST:.+]] = ddp.sparsify %[[M]] keep 10
// CHECK-NEXT:    ddp.store %[[REST]], @b1.rest
// CHECK-NEXT:    %[[ALL:.+]] = ddp.all_gather %[[LARGEST]] on @dp as "b1" : tensor<20xf32> -> tensor<40xf32>
// CHECK-NEXT:    %[[SUM:.+]] = ddp.densify %[[ALL]] keep 10
// CHECK-NEXT:    %[[MEAN:.+]] = ddp.scale %[[SUM]] by_world_of @dp
// CHECK-NEXT:    ddp.cast %[[MEAN]] : !ddp.bucket<f32, [100]> -> !ddp.bucket<f16, [100]>
func.func @top(%g: tensor<100xf16>) -> tensor<100xf16>
    attributes {ddp.hook = #testhook.top_k<density = 0.1>} {
  %r = ddp.all_reduce mean %g on @dp : tensor<100xf16>
  return %r : tensor<100xf16>
}

// CHECK: ddp.bucket_info "b0" mean on @dp hook #testhook.sign wire !ddp.encoded<ui1, 1024> bytes 22 state_bytes 214
// CHECK: ddp.bucket_info "b1" mean on @dp hook #testhook.top_k<density = 1.000000e-01 : f64> wire f32 bytes 80 state_bytes 400

// -----

// What these hooks refuse.

ddp.process_group @dp
func.func @unknown_size(%g: tensor<100xf32>) -> tensor<100xf32> {
  // expected-error @+2 {{hook #testhook.top_k could not be expanded}}
  // expected-error @+1 {{expected process group @dp to declare its size}}
  %r = ddp.all_reduce mean %g on @dp {ddp.hook = #testhook.top_k} : tensor<100xf32>
  return %r : tensor<100xf32>
}

// -----

ddp.process_group @dp topology hierarchical
func.func @hierarchical(%g: tensor<100xf32>) -> tensor<100xf32> {
  // expected-error @+2 {{hook #testhook.sign could not be expanded}}
  // expected-error @+1 {{expected a flat group, where a rank knows what its gradient loses}}
  %r = ddp.all_reduce mean %g on @dp {ddp.hook = #testhook.sign} : tensor<100xf32>
  return %r : tensor<100xf32>
}

// -----

// expected-error @+1 {{expected block_size to be a multiple of 8, but got 12}}
module attributes {ddp.hook = #testhook.sign<block_size = 12>} {}

// -----

// expected-error @+1 {{expected density to be from 0 to 1, but got 2}}
module attributes {ddp.hook = #testhook.top_k<density = 2.0>} {}
