// The step of docs/examples/digits with its linalg in kernels, executed by the emulated
// device. Five steps on one and two ranks, by bits.

// REQUIRES: codegen
// RUN: rm -rf %t && mkdir %t

// DEFINE: %{hook} =
// DEFINE: %{compare} = ddphook-cc %digits -o %t/host.so --shared --ddp-pipeline="%{hook}" \
// DEFINE:   && ddphook-cc %digits -o %t/device.so --shared --device=cuda --ddp-pipeline="%{hook}" \
// DEFINE:   && env EMULATED_CUDA_DEVICES=2 %python %S/Inputs/device_memory.py ddphook-exec %t/host.so %t/device.so %t cuda_emulated

// REDEFINE: %{hook} = hook=allreduce
// RUN: %{compare}
// REDEFINE: %{hook} = hook=fp16
// RUN: %{compare}
