// RUN: ddphook-opt %s --ddp-outline-gpu-kernels --split-input-file --verify-diagnostics

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

func.func @dynamic(%a: memref<?xf32>) {
  // expected-error @below {{cannot become a kernel: expected static shapes}}
  linalg.exp ins(%a : memref<?xf32>) outs(%a : memref<?xf32>)
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

func.func @dynamic_strides(%a: memref<4x4xf32, strided<[?, 1]>>) {
  // expected-error @below {{cannot become a kernel: expected static shapes and strides, but got 'memref<4x4xf32, strided<[?, 1]>>'}}
  linalg.exp ins(%a : memref<4x4xf32, strided<[?, 1]>>)
      outs(%a : memref<4x4xf32, strided<[?, 1]>>)
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// Also behind an operation that it could share a launch with.
func.func @no_strides(%a: memref<8xf32, affine_map<(i) -> (i floordiv 2)>>, %b: memref<8xf32>) {
  linalg.exp ins(%b : memref<8xf32>) outs(%b : memref<8xf32>)
  // expected-error @below {{cannot become a kernel: expected static shapes and strides, but got 'memref<8xf32, affine_map<(d0) -> (d0 floordiv 2)>>'}}
  linalg.exp ins(%a : memref<8xf32, affine_map<(i) -> (i floordiv 2)>>)
      outs(%b : memref<8xf32>)
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// Which of the columns would be the result?
func.func @race(%a: memref<4x4xf32>, %b: memref<4xf32>) {
  // expected-error @below {{cannot become a kernel: expected one element of each result for every iteration of the parallel loops, but got affine_map<(d0, d1) -> (d0)>}}
  linalg.generic
      {indexing_maps = [affine_map<(i, j) -> (i, j)>,
                        affine_map<(i, j) -> (i)>],
       iterator_types = ["parallel", "parallel"]}
      ins(%a : memref<4x4xf32>) outs(%b : memref<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  }
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

func.func @vector(%a: memref<4xvector<2xf32>>, %v: vector<2xf32>) {
  // expected-error @below {{cannot become a kernel: expected arrays and scalars, but got 'vector<2xf32>'}}
  linalg.generic
      {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      outs(%a : memref<4xvector<2xf32>>) {
  ^bb0(%x: vector<2xf32>):
    linalg.yield %v : vector<2xf32>
  }
  return
}

}
