// RUN: ddphook-opt %s --split-input-file --verify-diagnostics --ddp-verify-order
// RUN: ddphook-opt %s --split-input-file --verify-diagnostics --ddp-flatten --ddp-verify-order
// RUN: sed -E 's/%%([a-z0-9]+) = ddp\.(reduce_scatter|all_gather) (.*) -> (.*)$/%%f_\1 = ddp.exchange_start \2 \3 -> !ddp.future<\4> %%\1 = ddp.wait %%f_\1 : !ddp.future<\4>/; s/%%([a-z0-9]+) = ddp\.(all_to_all|broadcast) (.*) : (.*)$/%%f_\1 = ddp.exchange_start \2 \3 : \4 -> !ddp.future<\4> %%\1 = ddp.wait %%f_\1 : !ddp.future<\4>/' %s > %t
// RUN: ddphook-opt %t --split-input-file --verify-diagnostics --ddp-verify-order
// RUN: ddphook-opt %t --split-input-file --verify-diagnostics --ddp-flatten --ddp-verify-order

// Which ranks run what behind parts of a group, and behind what is put together
// of them; and the same where every exchange is started and awaited.

ddp.process_group @dp size 4
func.func @behind_what_is_gathered(%g: tensor<8xf32>) -> tensor<8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %s = ddp.reduce_scatter mean %g on @dp : tensor<8xf32> -> tensor<2xf32>
  %w = ddp.all_gather %s on @dp : tensor<2xf32> -> tensor<8xf32>
  %x = tensor.extract %w[%c0] : tensor<8xf32>
  %c = arith.cmpf olt, %x, %zero : f32
  %r = scf.if %c -> tensor<8xf32> {
    %0 = ddp.all_to_all %g on @dp : tensor<8xf32>
    scf.yield %0 : tensor<8xf32>
  } else {
    scf.yield %g : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}

// -----

ddp.process_group @dp size 4
func.func @behind_a_broadcast(%g: tensor<8xf32>) -> tensor<8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %w = ddp.broadcast %g from 1 on @dp : tensor<8xf32>
  %x = tensor.extract %w[%c0] : tensor<8xf32>
  %c = arith.cmpf olt, %x, %zero : f32
  %r = scf.if %c -> tensor<8xf32> {
    %0 = ddp.all_to_all %g on @dp : tensor<8xf32>
    scf.yield %0 : tensor<8xf32>
  } else {
    scf.yield %g : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}

// -----

ddp.process_group @dp size 4
func.func @behind_a_part(%g: tensor<8xf32>) -> tensor<8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %s = ddp.reduce_scatter mean %g on @dp : tensor<8xf32> -> tensor<2xf32>
  %x = tensor.extract %s[%c0] : tensor<2xf32>
  %c = arith.cmpf olt, %x, %zero : f32
  // expected-note @+1 {{this determines how often it runs}}
  %r = scf.if %c -> tensor<8xf32> {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    %0 = ddp.all_to_all %g on @dp : tensor<8xf32>
    scf.yield %0 : tensor<8xf32>
  } else {
    scf.yield %g : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}

// -----

ddp.process_group @dp size 4
func.func @behind_an_exchange(%g: tensor<8xf32>) -> tensor<2xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = ddp.all_reduce mean %g on @dp : tensor<8xf32>
  %y = ddp.all_to_all %m on @dp : tensor<8xf32>
  %x = tensor.extract %y[%c0] : tensor<8xf32>
  %c = arith.cmpf olt, %x, %zero : f32
  %e = tensor.empty() : tensor<2xf32>
  // expected-note @+1 {{this determines how often it runs}}
  %r = scf.if %c -> tensor<2xf32> {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    %0 = ddp.reduce_scatter sum %g on @dp : tensor<8xf32> -> tensor<2xf32>
    scf.yield %0 : tensor<2xf32>
  } else {
    scf.yield %e : tensor<2xf32>
  }
  return %r : tensor<2xf32>
}

// -----

// A bucket that is exchanged differs between ranks, and is unpacked all the same;
// the only part of a group of one is the whole.
ddp.process_group @dp size 4
ddp.process_group @one size 1
ddp.bucket_info "b0" mean on @dp hook #ddp.allreduce wire f32 bytes 32
    state_bytes 0 : !ddp.bucket<f32, [8]>
func.func @unpacked(%g: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %b = ddp.pack %g : tensor<8xf32> -> !ddp.bucket<f32, [8]>
  %m = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [8]>
  %x = ddp.all_to_all %m on @dp : !ddp.bucket<f32, [8]>
  %r = ddp.unpack %x : !ddp.bucket<f32, [8]> -> tensor<8xf32>
  %s = ddp.reduce_scatter mean %g on @one : tensor<8xf32> -> tensor<8xf32>
  return %r, %s : tensor<8xf32>, tensor<8xf32>
}

// -----

// What is in flight: the operand may be read, the destination may not, and nothing
// is in an empty array, wherever that lies.
ddp.process_group @dp size 4
func.func @in_flight(%a: memref<8xf32>, %b: memref<2xf32>, %c: memref<8xf32>) {
  %t = ddp.flat.exchange_start reduce_scatter sum %a on @dp into %b : memref<8xf32>, memref<2xf32>
  %x = ddp.flat.exchange_start all_to_all %a on @dp into %c : memref<8xf32>, memref<8xf32>
  %nothing = ddp.view %a[4] : memref<8xf32> to memref<0xf32>
  %y = ddp.flat.exchange_start broadcast %nothing from 0 on @dp into %nothing : memref<0xf32>, memref<0xf32>
  ddp.flat.wait %b, %t : memref<2xf32>
  ddp.flat.wait %c, %x : memref<8xf32>
  ddp.flat.wait %nothing, %y : memref<0xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @written_in_flight(%a: memref<8xf32>, %b: memref<2xf32>) {
  %zero = arith.constant 0.0 : f32
  // expected-note @+1 {{the collective is started here}}
  %t = ddp.flat.exchange_start reduce_scatter sum %a on @dp into %b : memref<8xf32>, memref<2xf32>
  // expected-error @+1 {{expected no access to memory that a collective in flight uses}}
  linalg.fill ins(%zero : f32) outs(%a : memref<8xf32>)
  ddp.flat.wait %b, %t : memref<2xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @read_in_flight(%a: memref<2xf32>, %b: memref<8xf32>, %c: memref<8xf32>) {
  // expected-note @+1 {{the collective is started here}}
  %t = ddp.flat.exchange_start all_gather %a on @dp into %b : memref<2xf32>, memref<8xf32>
  // expected-error @+1 {{expected no access to memory that a collective in flight uses}}
  memref.copy %b, %c : memref<8xf32> to memref<8xf32>
  ddp.flat.wait %b, %t : memref<8xf32>
  return
}
