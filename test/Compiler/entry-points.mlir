// RUN: ddphook-opt %s --ddp-emit-entry-points="name=model" | FileCheck %s
// RUN: ddphook-opt %s --ddp-emit-entry-points="name=model shared" \
// RUN:   | FileCheck %s --check-prefix=SHARED

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host, entries = [
    <name = "step",
     arguments = [<type = memref<2x3xf32>, inout = true>, <type = bf16>,
                  <type = i1>, <type = index>],
     results = [<type = memref<f64>>, <type = memref<2x3xf32>, argument = 0>,
                <type = i1>]>,
    <name = "my.exp">]>} {

llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr {
  %0 = llvm.mlir.zero : !llvm.ptr
  llvm.return %0 : !llvm.ptr
}

// The plan is a constant now, and no attribute.
// CHECK-NOT: ddp.plan
// Definitions are hidden; what other objects define keeps its name.
// CHECK-DAG: llvm.mlir.global internal @ddphook.def.__ddphook_handle()
// CHECK-DAG: memref.global "private" @ddphook.def.table
// CHECK-DAG: func.func private @exp(f32) -> f32
memref.global @table : memref<2xf32> = dense<1.0>
func.func private @exp(f32) -> f32

// CHECK: func.func @ddphook.def.step({{.*}}) -> i1 attributes {llvm.linkage = #llvm.linkage<internal>}
// CHECK:   memref.get_global @ddphook.def.table
// CHECK:   call @exp
// CHECK:   call @ddphook.def.my.exp
func.func @step(%a: memref<2x3xf32>, %s: bf16, %flag: i1, %n: index,
                %r: memref<f64>) -> i1 attributes {llvm.emit_c_interface} {
  %t = memref.get_global @table : memref<2xf32>
  %x = memref.load %t[%n] : memref<2xf32>
  %y = func.call @exp(%x) : (f32) -> f32
  func.call @my.exp() : () -> ()
  return %flag : i1
}

func.func @my.exp() {
  return
}

}

// 16-bit floats travel as their bits, booleans as bytes; the result that is an
// argument has no pointer of its own; a returned scalar has one.
// CHECK-LABEL: llvm.func @model_step(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: !llvm.ptr {llvm.noalias}, %[[S:[a-z0-9]+]]: i16, %[[FLAG:[a-z0-9]+]]: i8, %[[N:[a-z0-9]+]]: i64,
// CHECK-SAME:    %[[R0:[a-z0-9]+]]: !llvm.ptr {llvm.noalias}, %[[R2:[a-z0-9]+]]: !llvm.ptr {llvm.noalias}) -> i32
// CHECK:         %[[SLOT:.*]] = llvm.mlir.addressof @ddphook.def.__ddphook_handle
// CHECK:         %[[HANDLE:.*]] = llvm.load %[[SLOT]]
// CHECK:         %[[INDEX:.*]] = llvm.mlir.constant(0 : i32)
// CHECK:         %[[ENTERED:.*]] = llvm.call @ddphook_rt_enter(%[[HANDLE]], %[[INDEX]])
// CHECK:         %[[OK:.*]] = llvm.icmp "eq" %[[ENTERED]]
// CHECK:         llvm.cond_br %[[OK]], ^[[BODY:.*]], ^[[EXIT:.*]](%[[ENTERED]] : i32)
// CHECK:       ^[[BODY]]:
// CHECK:         %[[AM:.*]] = builtin.unrealized_conversion_cast %{{.*}} to memref<2x3xf32>
// CHECK:         %[[SB:.*]] = llvm.bitcast %[[S]] : i16 to bf16
// CHECK:         %[[FB:.*]] = llvm.icmp "ne" %[[FLAG]]
// CHECK:         %[[NI:.*]] = builtin.unrealized_conversion_cast %[[N]] : i64 to index
// CHECK:         %[[RM:.*]] = builtin.unrealized_conversion_cast %{{.*}} to memref<f64>
// CHECK:         %[[RESULT:.*]] = func.call @ddphook.def.step(%[[AM]], %[[SB]], %[[FB]], %[[NI]], %[[RM]])
// CHECK:         %[[BYTE:.*]] = llvm.zext %[[RESULT]] : i1 to i8
// CHECK:         llvm.store %[[BYTE]], %[[R2]]
// CHECK:         %[[LEFT:.*]] = llvm.call @ddphook_rt_leave(%[[HANDLE]])
// CHECK:         llvm.br ^[[EXIT]](%[[LEFT]] : i32)

// CHECK-LABEL: llvm.func internal @ddphook.invoke.model_step(
// CHECK-SAME:    %[[BUFFERS:.*]]: !llvm.ptr) -> i32
// CHECK:         %[[SLOT1:.*]] = llvm.getelementptr %[[BUFFERS]][1]
// CHECK:         %[[POINTER1:.*]] = llvm.load %[[SLOT1]] : !llvm.ptr -> !llvm.ptr
// CHECK:         %[[VALUE1:.*]] = llvm.load %[[POINTER1]] : !llvm.ptr -> i16
// CHECK:         llvm.getelementptr %[[BUFFERS]][5]
// CHECK:         llvm.call @model_step(%{{.*}}, %[[VALUE1]],

// CHECK-LABEL: llvm.func @model_my_exp() -> i32
// CHECK:         llvm.mlir.constant(1 : i32)

// CHECK:       llvm.mlir.global internal constant @ddphook.name.step("step\00")
// CHECK:       llvm.mlir.global internal constant @ddphook.name.my.exp("my.exp\00")
// CHECK:       llvm.mlir.global internal constant @ddphook.entries()
// CHECK:       llvm.mlir.global internal constant @ddphook.plan("{\22abi\22:[[ABI:[0-9]+]],
// CHECK:       llvm.mlir.global external constant @model_module()
// CHECK:         llvm.mlir.constant(72 : i32)
// CHECK:         llvm.mlir.constant([[ABI]] : i32)
// CHECK-NOT:   ddphook_compiled_module
// SHARED:      llvm.mlir.alias external @ddphook_compiled_module
// SHARED:        llvm.mlir.addressof @model_module
