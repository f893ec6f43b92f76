// The step of docs/examples/digits with its linalg in kernels, executed without a
// GPU: kernels become functions of the host, launches loops (exponentials and
// logarithms remain the host's). Five steps on two ranks, by bits.

// REQUIRES: codegen
// RUN: rm -rf %t && mkdir %t

// DEFINE: %{hook} =
// DEFINE: %{compare} = ddphook-cc %digits -o %t/host.so --shared --ddp-pipeline="%{hook}" \
// DEFINE:   && ddphook-test-opt %digits --pass-pipeline='builtin.module(ddp-pipeline{%{hook} memory=device all-functions=true},ddp-outline-gpu-kernels,test-emulate-kernels)' -o %t/emulated.mlir \
// DEFINE:   && not grep linalg %t/emulated.mlir \
// DEFINE:   && ddphook-cc %t/emulated.mlir -o %t/device.so --shared \
// DEFINE:   && %python %S/Inputs/device_memory.py ddphook-exec %t/host.so %t/device.so %t

// REDEFINE: %{hook} = hook=allreduce
// RUN: %{compare}
// REDEFINE: %{hook} = hook=fp16
// RUN: %{compare}
// REDEFINE: %{hook} = hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2
// RUN: %{compare}
