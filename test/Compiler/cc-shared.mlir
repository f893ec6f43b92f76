// A shared object with an entry point called like a function of the C library,
// run by the tool that needs no compiler.
//
// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-cc %s -o %t/m.so --shared --ddp-pipeline=hook=bf16
// RUN: llvm-nm -D --defined-only %t/m.so | FileCheck %s --check-prefix=SYMBOLS
// SYMBOLS-DAG: cc_shared_step
// SYMBOLS-DAG: cc_shared_module
// SYMBOLS-DAG: ddphook_compiled_module
// SYMBOLS-NOT: {{ step$}}
// RUN: ddphook-exec %t/m.so --entry=step --ranks=2 --steps=2 \
// RUN:   --inputs=random:7 --outputs='%t/exec.{rank}.{step}.safetensors'
// RUN: ddphook-run %s --entry=step --ranks=2 --steps=2 \
// RUN:   --ddp-pipeline=hook=bf16 \
// RUN:   --inputs=random:7 --outputs='%t/run.{rank}.{step}.safetensors'
//
// Both ranks have the same result, both ways the same bytes, and steps differ.
// RUN: cmp %t/exec.0.0.safetensors %t/exec.1.0.safetensors
// RUN: cmp %t/exec.0.0.safetensors %t/run.0.0.safetensors
// RUN: cmp %t/exec.1.1.safetensors %t/run.1.1.safetensors
// RUN: not cmp %t/exec.0.0.safetensors %t/exec.0.1.safetensors
//
// Without compression the result is another one.
// RUN: ddphook-run %s --entry=step --ranks=2 --inputs=random:7 \
// RUN:   --outputs='%t/plain.{rank}.safetensors'
// RUN: not cmp %t/exec.0.0.safetensors %t/plain.0.safetensors
//
// --emit=shared is the same as --shared; the other forms are text.
// RUN: ddphook-cc %s -o %t/e.so --emit=shared --ddp-pipeline=hook=bf16
// RUN: cmp %t/m.so %t/e.so
// RUN: ddphook-cc %s -o - --emit=llvm | FileCheck %s --check-prefix=LLVM
// LLVM: define {{.*}} @cc_shared_step(ptr
// RUN: ddphook-cc %s -o - --emit=mlir | FileCheck %s --check-prefix=MLIR
// MLIR: llvm.func @cc_shared_step(

ddp.process_group @dp
func.func @step(%g: tensor<30x20xf32>) -> tensor<30x20xf32> {
  %r = ddp.all_reduce mean %g on @dp : tensor<30x20xf32>
  return %r : tensor<30x20xf32>
}
