// In bf16 a sum of 2048 ones, or of 2048 products of ones, is 256. In an imported step both
// are 2048. Without the attribute the program computes what is written.

// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-run %s --entry=step --ranks=1 --outputs=%t/wide
// RUN: sed 's/attributes {ddp.widen_accumulators}//' %s > %t/exact.mlir
// RUN: ddphook-run %t/exact.mlir --entry=step --ranks=1 --outputs=%t/exact
// On no CPU does that need a function of the compiler's library.
// RUN: ddphook-cc %t/exact.mlir --march=haswell -o %t/exact.o
// RUN: llvm-nm --undefined-only %t/exact.o | FileCheck %s --check-prefix=SYMBOLS
// SYMBOLS-NOT: {{__(trunc|extend)}}
// A file ends with its elements of two bytes: 0x4500 is 2048, 0x4380 is 256.
// RUN: %python -c "import sys; data = lambda name: open(f'{sys.argv[1]}/{name}', 'rb').read()[-16:]; \
// RUN:   assert data('wide') == bytes.fromhex('0045' * 8), data('wide'); \
// RUN:   assert data('exact') == bytes.fromhex('8043' * 8), data('exact')" %t

module attributes {ddp.widen_accumulators} {
  func.func @step() -> (tensor<4xbf16>, tensor<2x2xbf16>) {
    %zero = arith.constant 0.0 : bf16
    %one = arith.constant 1.0 : bf16
    %e0 = tensor.empty() : tensor<2048x4xbf16>
    %x = linalg.fill ins(%one : bf16) outs(%e0 : tensor<2048x4xbf16>) -> tensor<2048x4xbf16>
    %e1 = tensor.empty() : tensor<4xbf16>
    %f1 = linalg.fill ins(%zero : bf16) outs(%e1 : tensor<4xbf16>) -> tensor<4xbf16>
    %sum = linalg.reduce { arith.addf } ins(%x : tensor<2048x4xbf16>)
        outs(%f1 : tensor<4xbf16>) dimensions = [0]
    %e2 = tensor.empty() : tensor<2x2048xbf16>
    %a = linalg.fill ins(%one : bf16) outs(%e2 : tensor<2x2048xbf16>) -> tensor<2x2048xbf16>
    %e3 = tensor.empty() : tensor<2048x2xbf16>
    %b = linalg.fill ins(%one : bf16) outs(%e3 : tensor<2048x2xbf16>) -> tensor<2048x2xbf16>
    %e4 = tensor.empty() : tensor<2x2xbf16>
    %f4 = linalg.fill ins(%zero : bf16) outs(%e4 : tensor<2x2xbf16>) -> tensor<2x2xbf16>
    %product = linalg.matmul ins(%a, %b : tensor<2x2048xbf16>, tensor<2048x2xbf16>)
        outs(%f4 : tensor<2x2xbf16>) -> tensor<2x2xbf16>
    return %sum, %product : tensor<4xbf16>, tensor<2x2xbf16>
  }
}
