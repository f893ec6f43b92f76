// A step that reduces its gradients with MPI: half the squared distance of the rows
// to a centre, its gradient, an update by the mean over all ranks' rows.

func.func @step(%centre: tensor<8xf32>, %rows: tensor<16x8xf32>)
    -> (tensor<8xf32>, tensor<f32>) {
  %gradient = memref.alloc() : memref<8xf32>
  %loss = memref.alloc() : memref<f32>
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%gradient : memref<8xf32>)
  linalg.fill ins(%zero : f32) outs(%loss : memref<f32>)
  %c = bufferization.to_buffer %centre read_only : tensor<8xf32> to memref<8xf32>
  %r = bufferization.to_buffer %rows read_only : tensor<16x8xf32> to memref<16x8xf32>
  linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>,
                       affine_map<(i, j) -> (j)>, affine_map<(i, j) -> ()>],
      iterator_types = ["reduction", "reduction"]}
      ins(%c, %r : memref<8xf32>, memref<16x8xf32>)
      outs(%gradient, %loss : memref<8xf32>, memref<f32>) {
  ^bb0(%at: f32, %row: f32, %g: f32, %l: f32):
    %half = arith.constant 0.5 : f32
    %distance = arith.subf %at, %row : f32
    %square = arith.mulf %distance, %distance : f32
    %term = arith.mulf %half, %square : f32
    %gradients = arith.addf %g, %distance : f32
    %losses = arith.addf %l, %term : f32
    linalg.yield %gradients, %losses : f32, f32
  }

  %world = mpi.comm_world : !mpi.comm
  mpi.allreduce(%gradient, %gradient, MPI_SUM, %world)
      : memref<8xf32>, memref<8xf32>
  mpi.allreduce(%loss, %loss, MPI_SUM, %world) : memref<f32>, memref<f32>

  // A tenth of the mean over two ranks' 32 rows.
  %rate = arith.constant 0.003125 : f32
  %sum = bufferization.to_tensor %gradient restrict : memref<8xf32> to tensor<8xf32>
  %all = bufferization.to_tensor %loss restrict : memref<f32> to tensor<f32>
  %e = tensor.empty() : tensor<8xf32>
  %updated = linalg.map ins(%centre, %sum : tensor<8xf32>, tensor<8xf32>)
      outs(%e : tensor<8xf32>) (%at: f32, %g: f32, %out: f32) {
    %change = arith.mulf %rate, %g : f32
    %new = arith.subf %at, %change : f32
    linalg.yield %new : f32
  }
  return %updated, %all : tensor<8xf32>, tensor<f32>
}
