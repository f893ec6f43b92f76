// RUN: ddphook-opt %s -split-input-file -verify-diagnostics --ddp-export-stablehlo

ddp.process_group @dp
func.func @ranks(%g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'ddp.all_reduce' op expected the number of ranks of @dp to be known; set num-ranks}}
  %0 = ddp.all_reduce sum %g on @dp {ddp.hook = #ddp.allreduce} : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

ddp.process_group @pairs ranks [[0, 1], [2, 3]]
// expected-error @below {{'ddp.process_group' op expected a job of 4 ranks, but the job of this group has 2}}
ddp.process_group @dp size 2

// -----

ddp.process_group @node placement intra_node
func.func @placement(%g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{expected a process group whose ranks the compiler knows, but @node depends on the machines of a job}}
  %0 = ddp.all_reduce sum %g on @node {ddp.hook = #ddp.allreduce} : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

ddp.process_group @dp size 2
func.func @unexpanded(%g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'ddp.all_reduce' op has no form in StableHLO; run 'ddp-expand-hooks' first}}
  %0 = ddp.all_reduce sum %g on @dp {ddp.hook = #ddp.fp16} : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

ddp.process_group @dp size 2
// expected-error @below {{'func.func' op has no form in StableHLO with a value of type 'memref<4xf32>'}}
func.func @memory(%g: memref<4xf32>) {
  ddp.all_reduce sum %g on @dp into %g : memref<4xf32>, {ddp.hook = #ddp.allreduce} : memref<4xf32>
  return
}

// -----

ddp.process_group @dp size 2
func.func @inMemory() {
  %m = "stablehlo.custom_call"() : () -> memref<4xf32>
  // expected-error @below {{'ddp.all_reduce' op has no form in StableHLO with an operand in memory}}
  ddp.all_reduce sum %m on @dp into %m : memref<4xf32>, {ddp.hook = #ddp.allreduce} : memref<4xf32>
  return
}

// -----

func.func @readsMemory() {
  %m = "stablehlo.custom_call"() : () -> memref<4xf32>
  // expected-error @below {{'ddp.is_finite' op has no form in StableHLO with an operand in memory}}
  %0 = ddp.is_finite %m : memref<4xf32>
  return
}

// -----

func.func @branch() {
  %c = "stablehlo.custom_call"() : () -> i1
  // expected-error @below {{'scf.if' op has no form in StableHLO with an operand of type 'i1' that is not made in this function}}
  scf.if %c {
  }
  return
}

// -----

ddp.process_group @dp size 2
ddp.state @generator : tensor<625xi32> replicated mt19937 seed 0
func.func @random() -> tensor<4xf32> {
  // expected-error @below {{'ddp.random_normal' op has no form in StableHLO; expected no random numbers in a step, as with warm_start = true}}
  %0 = ddp.random_normal from @generator draws [4] : () -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

ddp.process_group @dp size 2
func.func @flight(%g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'ddp.all_reduce_start' op has no form in StableHLO; expected a module before 'ddp-fuse' and 'ddp-overlap'}}
  %0 = ddp.all_reduce_start sum %g on @dp : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
  %1 = ddp.wait %0 : !ddp.future<tensor<4xf32>>
  return %1 : tensor<4xf32>
}

// -----

func.func @flat(%g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'ddp.pack' op has no form in StableHLO; expected a module before 'ddp-flatten'}}
  %0 = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @foreign(%g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'arith.addf' op has no form in StableHLO}}
  %0 = arith.addf %g, %g : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error @below {{'memref.global' op has no form in StableHLO}}
memref.global @table : memref<4xf32>

// -----

// expected-error @below {{'func.func' op has no form in StableHLO with a value of type '!ddp.bucket<f32, [4]>'}}
func.func @bucket(%g: !ddp.bucket<f32, [4]>) {
  return
}

// -----

func.func @left(%g: tensor<4xf32>) {
  %0 = ddp.pack %g : tensor<4xf32> -> !ddp.bucket<f32, [4]>
  // expected-error @below {{'stablehlo.custom_call' op has no form in StableHLO with an operand of type '!ddp.bucket<f32, [4]>'}}
  "stablehlo.custom_call"(%0) : (!ddp.bucket<f32, [4]>) -> ()
  return
}

// -----

func.func @foreignBucket() {
  %0 = "stablehlo.custom_call"() : () -> !ddp.bucket<f32, [4]>
  // expected-error @below {{'ddp.unpack' op has no form in StableHLO with an operand of type '!ddp.bucket<f32, [4]>' that is not made in this function}}
  %1 = ddp.unpack %0 : !ddp.bucket<f32, [4]> -> tensor<4xf32>
  return
}

// -----

func.func @integers(%x: tensor<4xi64>) -> tensor<4xi1> {
  // expected-error @below {{'arith.cmpi' op has no form in StableHLO}}
  %0 = arith.cmpi eq, %x, %x : tensor<4xi64>
  return %0 : tensor<4xi1>
}

// -----

func.func @sumOfIntegers(%x: tensor<4xi64>) -> tensor<4xi64> {
  // expected-error @below {{'arith.addi' op has no form in StableHLO}}
  %0 = arith.addi %x, %x : tensor<4xi64>
  return %0 : tensor<4xi64>
}

// -----

func.func @number() {
  // expected-error @below {{'arith.constant' op has no form in StableHLO}}
  %0 = arith.constant 1.0 : f32
  return
}

// -----

func.func @unsigned() {
  %0 = arith.constant 1 : i64
  // expected-error @below {{'arith.cmpi' op has no form in StableHLO}}
  %1 = arith.cmpi ult, %0, %0 : i64
  return
}

// -----

ddp.state @iter : i64 replicated zero role "powersgd.iter" of [["w", "b"]]
func.func @loop(%g: tensor<i1>) {
  // expected-note @below {{in this operation}}
  %0 = "stablehlo.while"(%g) ({
  ^bb0(%a: tensor<i1>):
    "stablehlo.return"(%a) : (tensor<i1>) -> ()
  }, {
  ^bb0(%a: tensor<i1>):
    // expected-error @below {{expected a hook without states in 'stablehlo.while', where XLA keeps no state between steps, but got one with state @iter of gradient "w" and 1 more; reduce what 'stablehlo.while' returns (in JAX: 'pmean' after 'value_and_grad', with check_vma=False), or set another hook}}
    %i = ddp.load @iter : i64
    "stablehlo.return"(%a) : (tensor<i1>) -> ()
  }) : (tensor<i1>) -> tensor<i1>
  return
}

// -----

ddp.state @iter : i64 replicated zero
func.func private @callee() {
  // expected-error @below {{'ddp.load' op expected no state in a function that is called; run 'ddp-inline-collectives'}}
  %i = ddp.load @iter : i64
  return
}
func.func @caller() {
  // expected-note @below {{it is called here}}
  call @callee() : () -> ()
  return
}

// -----

ddp.state @iter : i64 replicated zero
// expected-error @below {{'func.func' op expected a single block, since it has states}}
func.func @blocks() {
  %i = ddp.load @iter : i64
  cf.br ^next
^next:
  return
}

// -----

// expected-error @below {{expected a file for the states of @states; set manifest}}
module {
  ddp.state @iter : i64 replicated zero
  func.func @states() {
    %i = ddp.load @iter : i64
    ddp.store %i, @iter : i64
    return
  }
}

// -----

ddp.state @generator : tensor<625xi32> replicated mt19937 seed 0
func.func @words() {
  // expected-error @below {{'ddp.load' op has no form in StableHLO with a result of type 'tensor<625xi32>'}}
  %0 = ddp.load @generator : tensor<625xi32>
  return
}

// -----

ddp.process_group @dp size 2
func.func @codes(%b: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error @below {{'ddp.all_reduce' op has no form in StableHLO with the wire type '!ddp.encoded<i8, 256>', for which StableHLO has no operation}}
  %0 = ddp.all_reduce mean %b on @dp wire !ddp.encoded<i8, 256> {ddp.hook = #ddp.allreduce} : tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

ddp.process_group @dp size 2
func.func @parts(%b: tensor<8xf32>) -> tensor<4xf32> {
  // expected-error @below {{'ddp.reduce_scatter' op has no form in StableHLO with the wire type '!ddp.encoded<i8, 256>', for which StableHLO has no operation}}
  %0 = ddp.reduce_scatter mean %b on @dp wire !ddp.encoded<i8, 256> : tensor<8xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

ddp.process_group @dp size 2
func.func @wholes(%b: tensor<4xf32>) -> tensor<8xf32> {
  // expected-error @below {{'ddp.all_gather' op has no form in StableHLO with the wire type '!ddp.encoded<i8, 256>', for which StableHLO has no operation}}
  %0 = ddp.all_gather %b on @dp wire !ddp.encoded<i8, 256> : tensor<4xf32> -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

ddp.process_group @dp size 2
func.func @last_channel(%g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'stablehlo.all_gather' op expected a channel_handle of at most 4611686018427387904, but got #stablehlo.channel_handle<handle = 9223372036854775807, type = 1>}}
  %0 = "stablehlo.all_gather"(%g) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 9223372036854775807, type = 1>, replica_groups = dense<[[0], [1]]> : tensor<2x1xi64>, use_global_device_ids}> : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
