// RUN: ddphook-opt %s --convert-ddp-to-runtime=memory=device --split-input-file --verify-diagnostics

ddp.state @iter : i64 replicated zero

func.func private @read(%n: memref<i64>)

func.func @passed_on() attributes {ddp.result_arguments = array<i64>} {
  %iter = ddp.state_buffer @iter : memref<i64>
  // expected-error @below {{works on state 'iter', which is in host memory: expected a load or a store of the whole state}}
  call @read(%iter) : (memref<i64>) -> ()
  return
}

// -----

ddp.state @iter : i64 replicated zero

func.func @copied(%out: memref<i64>)
    attributes {ddp.result_arguments = array<i64: -1>} {
  %iter = ddp.state_buffer @iter : memref<i64>
  // expected-error @below {{works on state 'iter', which is in host memory: expected a load or a store of the whole state}}
  memref.copy %iter, %out : memref<i64> to memref<i64>
  return
}
