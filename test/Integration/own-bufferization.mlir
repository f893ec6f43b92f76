// One-Shot Bufferize between the halves of the pipeline, after the elimination of empty
// tensors that upstream recommends. The gradient is used after its average, so that it must
// not be computed in the bucket, nor in a tensor that is inserted into the bucket.

// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-opt %s -o %t/whole.mlir --ddp-pipeline="hook=allreduce"
// RUN: ddphook-opt %s -o %t/halves.mlir --pass-pipeline="builtin.module(ddp-tensor-pipeline{hook=allreduce},eliminate-empty-tensors,one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},ddp-memory-pipeline)"
// RUN: ddphook-run %t/whole.mlir --entry=step --ranks=2 --inputs=random:7 --outputs=%t/whole.{rank}
// RUN: ddphook-run %t/halves.mlir --entry=step --ranks=2 --inputs=random:7 --outputs=%t/halves.{rank}
// RUN: cmp %t/whole.0 %t/halves.0
// RUN: cmp %t/whole.1 %t/halves.1

ddp.process_group @dp size 2
func.func @step(%x: tensor<6xf32>) -> (tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) {
  %e = tensor.empty() : tensor<6xf32>
  %g = linalg.map { arith.addf } ins(%x, %x : tensor<6xf32>, tensor<6xf32>)
      outs(%e : tensor<6xf32>)
  %r = ddp.all_reduce mean %g on @dp {ddp.name = "a"} : tensor<6xf32>
  %e2 = tensor.empty() : tensor<6xf32>
  %d = linalg.map { arith.subf } ins(%g, %r : tensor<6xf32>, tensor<6xf32>)
      outs(%e2 : tensor<6xf32>)

  %e3 = tensor.empty() : tensor<6xf32>
  %h = linalg.map { arith.mulf } ins(%x, %x : tensor<6xf32>, tensor<6xf32>)
      outs(%e3 : tensor<6xf32>)
  %zero = arith.constant 0.0 : f32
  %e4 = tensor.empty() : tensor<12xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e4 : tensor<12xf32>) -> tensor<12xf32>
  %i = tensor.insert_slice %h into %f[6] [6] [1] : tensor<6xf32> into tensor<12xf32>
  %s = ddp.all_reduce mean %i on @dp {ddp.name = "b"} : tensor<12xf32>
  %t = tensor.extract_slice %s[6] [6] [1] : tensor<12xf32> to tensor<6xf32>
  %e5 = tensor.empty() : tensor<6xf32>
  %c = linalg.map { arith.subf } ins(%h, %t : tensor<6xf32>, tensor<6xf32>)
      outs(%e5 : tensor<6xf32>)
  return %r, %d, %c : tensor<6xf32>, tensor<6xf32>, tensor<6xf32>
}
