// In PTX: numbers of 32 bits become offsets of 64 in one multiplication, so that
// the bytes of an array do not matter; with one element more they have 64 bits.

// RUN: rm -rf %t && mkdir %t
// RUN: sed s/SIZE/2147479551/ %s > %t/most.mlir
// RUN: ddphook-cc %t/most.mlir --device=cuda --emit=ptx -o %t/most.ptx
// RUN: FileCheck %s --check-prefix=MOST --input-file=%t/most.ptx
// RUN: sed s/SIZE/2147479552/ %s > %t/more.mlir
// RUN: ddphook-cc %t/more.mlir --device=cuda --emit=ptx -o %t/more.ptx
// RUN: FileCheck %s --check-prefix=MORE --input-file=%t/more.ptx

// MOST:     shl.b32 {{.*}}, 10;
// MOST-NOT: shl.b64
// MOST:     mul.wide.u32 {{.*}}, 4;
// MOST:     ld.global.v4.b32
// MOST-NOT: shl.b64

// The block's number times 4096 bytes.
// MORE:     shl.b64 {{.*}}, 12;
// MORE:     ld.global.v4.b32

!t = tensor<SIZExf32>

func.func @step(%a: !t {bufferization.writable = true}) -> !t {
  %0 = linalg.square ins(%a : !t) outs(%a : !t) -> !t
  return %0 : !t
}
