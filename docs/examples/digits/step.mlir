// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One training step of a small network that reads handwritten digits, as every
// rank runs it on images of its own:
//
//   images 32x64 → 128 → relu → 64 → relu → 10 → softmax cross-entropy
//
// forward, backward, then gradient descent with momentum. Where a gradient is
// ready, `ddp.all_reduce mean` averages it over all ranks: how it gets there
// (in which bucket, rounded to what) is up to `ddp-pipeline`.
//
// Parameters and velocities are arguments that the step updates in place:
// `bufferization.writable` allows it, and the result that is such an argument's
// new value *is* that argument's memory.

// Matrix products read (m, n, k); these are for a transposed operand.
#lhs = affine_map<(m, n, k) -> (m, k)>
#lhs_transposed = affine_map<(m, n, k) -> (k, m)>
#rhs = affine_map<(m, n, k) -> (k, n)>
#rhs_transposed = affine_map<(m, n, k) -> (n, k)>
#product = affine_map<(m, n, k) -> (m, n)>

// One value an element, one an image, one a batch.
#element = affine_map<(image, class) -> (image, class)>
#image = affine_map<(image, class) -> (image)>
#batch = affine_map<(image, class) -> ()>

#weight = affine_map<(i, o) -> (i, o)>
#bias = affine_map<(o) -> (o)>

module {
  ddp.process_group @dp

  // `%rate` is the learning rate. The last result is the loss of this rank's
  // images before the update.
  func.func @step(
      %images: tensor<32x64xf32>, %labels: tensor<32xi32>, %rate: f32,
      %w1: tensor<64x128xf32> {bufferization.writable = true},
      %b1: tensor<128xf32> {bufferization.writable = true},
      %w2: tensor<128x64xf32> {bufferization.writable = true},
      %b2: tensor<64xf32> {bufferization.writable = true},
      %w3: tensor<64x10xf32> {bufferization.writable = true},
      %b3: tensor<10xf32> {bufferization.writable = true},
      %vw1: tensor<64x128xf32> {bufferization.writable = true},
      %vb1: tensor<128xf32> {bufferization.writable = true},
      %vw2: tensor<128x64xf32> {bufferization.writable = true},
      %vb2: tensor<64xf32> {bufferization.writable = true},
      %vw3: tensor<64x10xf32> {bufferization.writable = true},
      %vb3: tensor<10xf32> {bufferization.writable = true})
      -> (tensor<64x128xf32>, tensor<128xf32>, tensor<128x64xf32>,
          tensor<64xf32>, tensor<64x10xf32>, tensor<10xf32>,
          tensor<64x128xf32>, tensor<128xf32>, tensor<128x64xf32>,
          tensor<64xf32>, tensor<64x10xf32>, tensor<10xf32>, tensor<f32>) {
    %zero = arith.constant 0.0 : f32
    %one = arith.constant 1.0 : f32
    %minus_infinity = arith.constant 0xFF800000 : f32
    %batch_size = arith.constant 32.0 : f32
    %momentum = arith.constant 0.9 : f32

    //===------------------------------------------------------------------===//
    // Forward, layer 1: h1 = relu(images · w1 + b1)
    //===------------------------------------------------------------------===//
    %z1_memory = tensor.empty() : tensor<32x128xf32>
    %z1_bias = linalg.broadcast ins(%b1 : tensor<128xf32>)
        outs(%z1_memory : tensor<32x128xf32>) dimensions = [0]
    %z1 = linalg.matmul
        ins(%images, %w1 : tensor<32x64xf32>, tensor<64x128xf32>)
        outs(%z1_bias : tensor<32x128xf32>) -> tensor<32x128xf32>
    %h1 = linalg.generic
        {indexing_maps = [#element], iterator_types = ["parallel", "parallel"]}
        outs(%z1 : tensor<32x128xf32>) {
    ^bb0(%z: f32):
      %h = arith.maximumf %z, %zero : f32
      linalg.yield %h : f32
    } -> tensor<32x128xf32>

    //===------------------------------------------------------------------===//
    // Forward, layer 2: h2 = relu(h1 · w2 + b2)
    //===------------------------------------------------------------------===//
    %z2_memory = tensor.empty() : tensor<32x64xf32>
    %z2_bias = linalg.broadcast ins(%b2 : tensor<64xf32>)
        outs(%z2_memory : tensor<32x64xf32>) dimensions = [0]
    %z2 = linalg.matmul
        ins(%h1, %w2 : tensor<32x128xf32>, tensor<128x64xf32>)
        outs(%z2_bias : tensor<32x64xf32>) -> tensor<32x64xf32>
    %h2 = linalg.generic
        {indexing_maps = [#element], iterator_types = ["parallel", "parallel"]}
        outs(%z2 : tensor<32x64xf32>) {
    ^bb0(%z: f32):
      %h = arith.maximumf %z, %zero : f32
      linalg.yield %h : f32
    } -> tensor<32x64xf32>

    //===------------------------------------------------------------------===//
    // Forward, layer 3: logits = h2 · w3 + b3
    //===------------------------------------------------------------------===//
    %logits_memory = tensor.empty() : tensor<32x10xf32>
    %logits_bias = linalg.broadcast ins(%b3 : tensor<10xf32>)
        outs(%logits_memory : tensor<32x10xf32>) dimensions = [0]
    %logits = linalg.matmul
        ins(%h2, %w3 : tensor<32x64xf32>, tensor<64x10xf32>)
        outs(%logits_bias : tensor<32x10xf32>) -> tensor<32x10xf32>

    //===------------------------------------------------------------------===//
    // Softmax cross-entropy. The largest logit of an image is subtracted first,
    // so that no exponential overflows.
    //===------------------------------------------------------------------===//
    %row_memory = tensor.empty() : tensor<32xf32>
    %max_init = linalg.fill ins(%minus_infinity : f32)
        outs(%row_memory : tensor<32xf32>) -> tensor<32xf32>
    %max = linalg.reduce {arith.maximumf} ins(%logits : tensor<32x10xf32>)
        outs(%max_init : tensor<32xf32>) dimensions = [1]
    %shifted = linalg.generic
        {indexing_maps = [#image, #element],
         iterator_types = ["parallel", "parallel"]}
        ins(%max : tensor<32xf32>) outs(%logits : tensor<32x10xf32>) {
    ^bb0(%m: f32, %logit: f32):
      %difference = arith.subf %logit, %m : f32
      linalg.yield %difference : f32
    } -> tensor<32x10xf32>
    %exp_memory = tensor.empty() : tensor<32x10xf32>
    %exp = linalg.exp ins(%shifted : tensor<32x10xf32>)
        outs(%exp_memory : tensor<32x10xf32>) -> tensor<32x10xf32>
    %sum_init = linalg.fill ins(%zero : f32)
        outs(%row_memory : tensor<32xf32>) -> tensor<32xf32>
    %sum = linalg.reduce {arith.addf} ins(%exp : tensor<32x10xf32>)
        outs(%sum_init : tensor<32xf32>) dimensions = [1]

    // loss = mean over images of log(sum) - shifted[label]
    %loss_memory = tensor.empty() : tensor<f32>
    %loss_init = linalg.fill ins(%zero : f32)
        outs(%loss_memory : tensor<f32>) -> tensor<f32>
    %loss = linalg.generic
        {indexing_maps = [#element, #image, #image, #batch],
         iterator_types = ["reduction", "reduction"]}
        ins(%shifted, %sum, %labels
            : tensor<32x10xf32>, tensor<32xf32>, tensor<32xi32>)
        outs(%loss_init : tensor<f32>) {
    ^bb0(%logit: f32, %s: f32, %label: i32, %total: f32):
      %class = linalg.index 1 : index
      %class_i32 = arith.index_cast %class : index to i32
      %is_label = arith.cmpi eq, %class_i32, %label : i32
      %log_sum = math.log %s : f32
      %surprise = arith.subf %log_sum, %logit : f32
      %share = arith.divf %surprise, %batch_size : f32
      %term = arith.select %is_label, %share, %zero : f32
      %next = arith.addf %total, %term : f32
      linalg.yield %next : f32
    } -> tensor<f32>

    // d loss / d logits = (softmax - one-hot of the label) / batch size
    %d_logits = linalg.generic
        {indexing_maps = [#image, #image, #element],
         iterator_types = ["parallel", "parallel"]}
        ins(%sum, %labels : tensor<32xf32>, tensor<32xi32>)
        outs(%exp : tensor<32x10xf32>) {
    ^bb0(%s: f32, %label: i32, %e: f32):
      %class = linalg.index 1 : index
      %class_i32 = arith.index_cast %class : index to i32
      %is_label = arith.cmpi eq, %class_i32, %label : i32
      %target = arith.select %is_label, %one, %zero : f32
      %probability = arith.divf %e, %s : f32
      %error = arith.subf %probability, %target : f32
      %share = arith.divf %error, %batch_size : f32
      linalg.yield %share : f32
    } -> tensor<32x10xf32>

    //===------------------------------------------------------------------===//
    // Backward, layer 3: gradients of w3 and b3, then of h2
    //===------------------------------------------------------------------===//
    %gw3_memory = tensor.empty() : tensor<64x10xf32>
    %gw3_init = linalg.fill ins(%zero : f32)
        outs(%gw3_memory : tensor<64x10xf32>) -> tensor<64x10xf32>
    %gw3 = linalg.matmul indexing_maps = [#lhs_transposed, #rhs, #product]
        ins(%h2, %d_logits : tensor<32x64xf32>, tensor<32x10xf32>)
        outs(%gw3_init : tensor<64x10xf32>) -> tensor<64x10xf32>
    %rw3 = ddp.all_reduce mean %gw3 on @dp : tensor<64x10xf32>

    %gb3_memory = tensor.empty() : tensor<10xf32>
    %gb3_init = linalg.fill ins(%zero : f32)
        outs(%gb3_memory : tensor<10xf32>) -> tensor<10xf32>
    %gb3 = linalg.reduce {arith.addf} ins(%d_logits : tensor<32x10xf32>)
        outs(%gb3_init : tensor<10xf32>) dimensions = [0]
    %rb3 = ddp.all_reduce mean %gb3 on @dp : tensor<10xf32>

    %d_h2_memory = tensor.empty() : tensor<32x64xf32>
    %d_h2_init = linalg.fill ins(%zero : f32)
        outs(%d_h2_memory : tensor<32x64xf32>) -> tensor<32x64xf32>
    %d_h2 = linalg.matmul indexing_maps = [#lhs, #rhs_transposed, #product]
        ins(%d_logits, %w3 : tensor<32x10xf32>, tensor<64x10xf32>)
        outs(%d_h2_init : tensor<32x64xf32>) -> tensor<32x64xf32>

    //===------------------------------------------------------------------===//
    // Backward, layer 2: through the relu, gradients of w2 and b2, then of h1
    //===------------------------------------------------------------------===//
    %d_z2 = linalg.generic
        {indexing_maps = [#element, #element],
         iterator_types = ["parallel", "parallel"]}
        ins(%h2 : tensor<32x64xf32>) outs(%d_h2 : tensor<32x64xf32>) {
    ^bb0(%h: f32, %d: f32):
      %active = arith.cmpf ogt, %h, %zero : f32
      %passed = arith.select %active, %d, %zero : f32
      linalg.yield %passed : f32
    } -> tensor<32x64xf32>

    %gw2_memory = tensor.empty() : tensor<128x64xf32>
    %gw2_init = linalg.fill ins(%zero : f32)
        outs(%gw2_memory : tensor<128x64xf32>) -> tensor<128x64xf32>
    %gw2 = linalg.matmul indexing_maps = [#lhs_transposed, #rhs, #product]
        ins(%h1, %d_z2 : tensor<32x128xf32>, tensor<32x64xf32>)
        outs(%gw2_init : tensor<128x64xf32>) -> tensor<128x64xf32>
    %rw2 = ddp.all_reduce mean %gw2 on @dp : tensor<128x64xf32>

    %gb2_memory = tensor.empty() : tensor<64xf32>
    %gb2_init = linalg.fill ins(%zero : f32)
        outs(%gb2_memory : tensor<64xf32>) -> tensor<64xf32>
    %gb2 = linalg.reduce {arith.addf} ins(%d_z2 : tensor<32x64xf32>)
        outs(%gb2_init : tensor<64xf32>) dimensions = [0]
    %rb2 = ddp.all_reduce mean %gb2 on @dp : tensor<64xf32>

    %d_h1_memory = tensor.empty() : tensor<32x128xf32>
    %d_h1_init = linalg.fill ins(%zero : f32)
        outs(%d_h1_memory : tensor<32x128xf32>) -> tensor<32x128xf32>
    %d_h1 = linalg.matmul indexing_maps = [#lhs, #rhs_transposed, #product]
        ins(%d_z2, %w2 : tensor<32x64xf32>, tensor<128x64xf32>)
        outs(%d_h1_init : tensor<32x128xf32>) -> tensor<32x128xf32>

    //===------------------------------------------------------------------===//
    // Backward, layer 1: through the relu, gradients of w1 and b1
    //===------------------------------------------------------------------===//
    %d_z1 = linalg.generic
        {indexing_maps = [#element, #element],
         iterator_types = ["parallel", "parallel"]}
        ins(%h1 : tensor<32x128xf32>) outs(%d_h1 : tensor<32x128xf32>) {
    ^bb0(%h: f32, %d: f32):
      %active = arith.cmpf ogt, %h, %zero : f32
      %passed = arith.select %active, %d, %zero : f32
      linalg.yield %passed : f32
    } -> tensor<32x128xf32>

    %gw1_memory = tensor.empty() : tensor<64x128xf32>
    %gw1_init = linalg.fill ins(%zero : f32)
        outs(%gw1_memory : tensor<64x128xf32>) -> tensor<64x128xf32>
    %gw1 = linalg.matmul indexing_maps = [#lhs_transposed, #rhs, #product]
        ins(%images, %d_z1 : tensor<32x64xf32>, tensor<32x128xf32>)
        outs(%gw1_init : tensor<64x128xf32>) -> tensor<64x128xf32>
    %rw1 = ddp.all_reduce mean %gw1 on @dp : tensor<64x128xf32>

    %gb1_memory = tensor.empty() : tensor<128xf32>
    %gb1_init = linalg.fill ins(%zero : f32)
        outs(%gb1_memory : tensor<128xf32>) -> tensor<128xf32>
    %gb1 = linalg.reduce {arith.addf} ins(%d_z1 : tensor<32x128xf32>)
        outs(%gb1_init : tensor<128xf32>) dimensions = [0]
    %rb1 = ddp.all_reduce mean %gb1 on @dp : tensor<128xf32>

    //===------------------------------------------------------------------===//
    // Update: velocity = momentum · velocity + gradient,
    //         parameter = parameter - rate · velocity
    //===------------------------------------------------------------------===//
    %w1_new, %vw1_new = linalg.generic
        {indexing_maps = [#weight, #weight, #weight],
         iterator_types = ["parallel", "parallel"]}
        ins(%rw1 : tensor<64x128xf32>)
        outs(%w1, %vw1 : tensor<64x128xf32>, tensor<64x128xf32>) {
    ^bb0(%gradient: f32, %parameter: f32, %velocity: f32):
      %kept = arith.mulf %velocity, %momentum : f32
      %velocity_new = arith.addf %kept, %gradient : f32
      %move = arith.mulf %velocity_new, %rate : f32
      %parameter_new = arith.subf %parameter, %move : f32
      linalg.yield %parameter_new, %velocity_new : f32, f32
    } -> (tensor<64x128xf32>, tensor<64x128xf32>)

    %b1_new, %vb1_new = linalg.generic
        {indexing_maps = [#bias, #bias, #bias],
         iterator_types = ["parallel"]}
        ins(%rb1 : tensor<128xf32>)
        outs(%b1, %vb1 : tensor<128xf32>, tensor<128xf32>) {
    ^bb0(%gradient: f32, %parameter: f32, %velocity: f32):
      %kept = arith.mulf %velocity, %momentum : f32
      %velocity_new = arith.addf %kept, %gradient : f32
      %move = arith.mulf %velocity_new, %rate : f32
      %parameter_new = arith.subf %parameter, %move : f32
      linalg.yield %parameter_new, %velocity_new : f32, f32
    } -> (tensor<128xf32>, tensor<128xf32>)

    %w2_new, %vw2_new = linalg.generic
        {indexing_maps = [#weight, #weight, #weight],
         iterator_types = ["parallel", "parallel"]}
        ins(%rw2 : tensor<128x64xf32>)
        outs(%w2, %vw2 : tensor<128x64xf32>, tensor<128x64xf32>) {
    ^bb0(%gradient: f32, %parameter: f32, %velocity: f32):
      %kept = arith.mulf %velocity, %momentum : f32
      %velocity_new = arith.addf %kept, %gradient : f32
      %move = arith.mulf %velocity_new, %rate : f32
      %parameter_new = arith.subf %parameter, %move : f32
      linalg.yield %parameter_new, %velocity_new : f32, f32
    } -> (tensor<128x64xf32>, tensor<128x64xf32>)

    %b2_new, %vb2_new = linalg.generic
        {indexing_maps = [#bias, #bias, #bias],
         iterator_types = ["parallel"]}
        ins(%rb2 : tensor<64xf32>)
        outs(%b2, %vb2 : tensor<64xf32>, tensor<64xf32>) {
    ^bb0(%gradient: f32, %parameter: f32, %velocity: f32):
      %kept = arith.mulf %velocity, %momentum : f32
      %velocity_new = arith.addf %kept, %gradient : f32
      %move = arith.mulf %velocity_new, %rate : f32
      %parameter_new = arith.subf %parameter, %move : f32
      linalg.yield %parameter_new, %velocity_new : f32, f32
    } -> (tensor<64xf32>, tensor<64xf32>)

    %w3_new, %vw3_new = linalg.generic
        {indexing_maps = [#weight, #weight, #weight],
         iterator_types = ["parallel", "parallel"]}
        ins(%rw3 : tensor<64x10xf32>)
        outs(%w3, %vw3 : tensor<64x10xf32>, tensor<64x10xf32>) {
    ^bb0(%gradient: f32, %parameter: f32, %velocity: f32):
      %kept = arith.mulf %velocity, %momentum : f32
      %velocity_new = arith.addf %kept, %gradient : f32
      %move = arith.mulf %velocity_new, %rate : f32
      %parameter_new = arith.subf %parameter, %move : f32
      linalg.yield %parameter_new, %velocity_new : f32, f32
    } -> (tensor<64x10xf32>, tensor<64x10xf32>)

    %b3_new, %vb3_new = linalg.generic
        {indexing_maps = [#bias, #bias, #bias],
         iterator_types = ["parallel"]}
        ins(%rb3 : tensor<10xf32>)
        outs(%b3, %vb3 : tensor<10xf32>, tensor<10xf32>) {
    ^bb0(%gradient: f32, %parameter: f32, %velocity: f32):
      %kept = arith.mulf %velocity, %momentum : f32
      %velocity_new = arith.addf %kept, %gradient : f32
      %move = arith.mulf %velocity_new, %rate : f32
      %parameter_new = arith.subf %parameter, %move : f32
      linalg.yield %parameter_new, %velocity_new : f32, f32
    } -> (tensor<10xf32>, tensor<10xf32>)

    return %w1_new, %b1_new, %w2_new, %b2_new, %w3_new, %b3_new, %vw1_new,
           %vb1_new, %vw2_new, %vb2_new, %vw3_new, %vb3_new, %loss
        : tensor<64x128xf32>, tensor<128xf32>, tensor<128x64xf32>,
          tensor<64xf32>, tensor<64x10xf32>, tensor<10xf32>,
          tensor<64x128xf32>, tensor<128xf32>, tensor<128x64xf32>,
          tensor<64xf32>, tensor<64x10xf32>, tensor<10xf32>, tensor<f32>
  }

  // The logits of all test images: the class with the largest one wins.
  func.func @predict(
      %images: tensor<359x64xf32>,
      %w1: tensor<64x128xf32>, %b1: tensor<128xf32>, %w2: tensor<128x64xf32>,
      %b2: tensor<64xf32>, %w3: tensor<64x10xf32>, %b3: tensor<10xf32>)
      -> tensor<359x10xf32> {
    %zero = arith.constant 0.0 : f32

    // Layer 1
    %z1_memory = tensor.empty() : tensor<359x128xf32>
    %z1_bias = linalg.broadcast ins(%b1 : tensor<128xf32>)
        outs(%z1_memory : tensor<359x128xf32>) dimensions = [0]
    %z1 = linalg.matmul
        ins(%images, %w1 : tensor<359x64xf32>, tensor<64x128xf32>)
        outs(%z1_bias : tensor<359x128xf32>) -> tensor<359x128xf32>
    %h1 = linalg.generic
        {indexing_maps = [#element], iterator_types = ["parallel", "parallel"]}
        outs(%z1 : tensor<359x128xf32>) {
    ^bb0(%z: f32):
      %h = arith.maximumf %z, %zero : f32
      linalg.yield %h : f32
    } -> tensor<359x128xf32>

    // Layer 2
    %z2_memory = tensor.empty() : tensor<359x64xf32>
    %z2_bias = linalg.broadcast ins(%b2 : tensor<64xf32>)
        outs(%z2_memory : tensor<359x64xf32>) dimensions = [0]
    %z2 = linalg.matmul
        ins(%h1, %w2 : tensor<359x128xf32>, tensor<128x64xf32>)
        outs(%z2_bias : tensor<359x64xf32>) -> tensor<359x64xf32>
    %h2 = linalg.generic
        {indexing_maps = [#element], iterator_types = ["parallel", "parallel"]}
        outs(%z2 : tensor<359x64xf32>) {
    ^bb0(%z: f32):
      %h = arith.maximumf %z, %zero : f32
      linalg.yield %h : f32
    } -> tensor<359x64xf32>

    // Layer 3
    %logits_memory = tensor.empty() : tensor<359x10xf32>
    %logits_bias = linalg.broadcast ins(%b3 : tensor<10xf32>)
        outs(%logits_memory : tensor<359x10xf32>) dimensions = [0]
    %logits = linalg.matmul
        ins(%h2, %w3 : tensor<359x64xf32>, tensor<64x10xf32>)
        outs(%logits_bias : tensor<359x10xf32>) -> tensor<359x10xf32>
    return %logits : tensor<359x10xf32>
  }
}
