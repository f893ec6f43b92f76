// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the conversion of bufferized ddp operations to calls.

include "ddphook/PassBase.td"

def ConvertDDPToRuntimePass : DDP_ModulePass<"convert-ddp-to-runtime"> {
  let summary = "turn ddp operations into calls of the runtime, and write the plan";
  let text = [{
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
  }];
  let before = [{
    ddp.process_group @dp
    func.func @step(%b: memref<40xf32> {ddp.inout}) {
      ddp.flat.all_reduce mean %b on @dp wire f16 into %b
          : memref<40xf32>, memref<40xf32>
      return
    }
  }];
  let after = [{
    module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host,
        process_groups = [<name = "dp">],
        collectives = [<group = 0, count = 40, dtype = f32, wire_dtype = f16,
                        divide = true>],
        entries = [<name = "step",
                    arguments = [<type = memref<40xf32>, inout = true>]>]>} {
      llvm.func @ddphook_rt_collective(!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, i64)
      llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr {
        %null = llvm.mlir.zero : !llvm.ptr
        llvm.return %null : !llvm.ptr
      }
      func.func @step(%b: memref<40xf32>) {
        %slot = llvm.mlir.addressof @__ddphook_handle : !llvm.ptr
        %handle = llvm.load %slot : !llvm.ptr -> !llvm.ptr
        %b0 = memref.extract_aligned_pointer_as_index %b
            : memref<40xf32> -> index
        %b1 = arith.index_cast %b0 : index to i64
        %in = llvm.inttoptr %b1 : i64 to !llvm.ptr
        %b2 = memref.extract_aligned_pointer_as_index %b
            : memref<40xf32> -> index
        %b3 = arith.index_cast %b2 : index to i64
        %out = llvm.inttoptr %b3 : i64 to !llvm.ptr
        %collective = llvm.mlir.constant(0 : i32) : i32
        %step = llvm.mlir.constant(0 : i64) : i64
        llvm.call @ddphook_rt_collective(%handle, %collective, %in, %out, %step)
            : (!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, i64) -> ()
        return
      }
    }
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
