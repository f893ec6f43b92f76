// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the conversion of bufferized ddp operations to calls.

include "ddphook/PassBase.td"

def ConvertDDPToRuntimePass : DDP_ModulePass<"convert-ddp-to-runtime"> {
  let summary = "turn ddp operations into calls of the runtime, and write the plan";
  let description = [{
    Every operation on flat arrays becomes an `llvm.call` of the corresponding
    function of `ddphook/runtime/compiled.h`. The runtime provides the arena, and
    views of it become `memref.view`s. Everything that ranks must agree on and that
    the runtime must allocate is in the plan (docs/plan.md), the module's attribute
    `ddp.plan`. The runtime stores the module's handle in `@__ddphook_handle`.

    With `memory=device` the module works on arrays in a device's memory. Contiguous
    `memref.copy`s become calls of `ddphook_rt_copy`, contiguous `linalg.fill`s of
    zeros calls of `ddphook_rt_zero`. A state of an integer type remains in the
    host's memory and is accessed through a pointer, so every remaining memref is
    device memory. Operations on these memrefs are not converted:
    `ddphook-cc --device=cuda` turns them into kernels, and `ddp-check-device-memory`
    rejects the rest.

    Pre-condition: bufferized, `ddp-plan-arena`. Post-condition: no operation of the
    ddp dialect is left; anything that cannot be converted is an error.

    In outline:

    ```
    func.func @step(%b: memref<40xf32> {ddp.inout}) {
      ddp.flat.all_reduce mean %b on @dp wire f16 into %b
    }
    // becomes
    module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host,
        process_groups = [<name = "dp">],
        collectives = [<group = 0, count = 40, dtype = f32, wire_dtype = f16,
                        divide = true>],
        entries = [<name = "step",
                    arguments = [<type = memref<40xf32>, inout = true>]>]>}
    func.func @step(%b: memref<40xf32>) {
      … %handle, from @__ddphook_handle; %in and %out, the address of %b
      llvm.call @ddphook_rt_collective(%handle, %collective, %in, %out, %step)
    }
    ```
  }];
  let options = [
    Option<"memory", "memory", "::mlir::ddp::ArrayMemory",
           /*default=*/"::mlir::ddp::ArrayMemory::Host",
           "Memory that holds the arrays",
           [{::llvm::cl::values(
               clEnumValN(::mlir::ddp::ArrayMemory::Host, "host",
                          "in the host's memory"),
               clEnumValN(::mlir::ddp::ArrayMemory::Device, "device",
                          "in a device's memory"))}]>,
  ];
  let dialects = ["LLVM::LLVM", "arith::Arith", "ddp::DDP"];
}
