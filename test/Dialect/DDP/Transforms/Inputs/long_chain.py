# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints a step whose gradient comes out of a chain of that many operations, half
# of them behind the reduction.

import sys

length = int(sys.argv[1])
print("ddp.process_group @dp")
print("func.func @step(%v0: tensor<4xf32>) -> (tensor<4xf32> {ddp.gradient}) {")
for i in range(length):
    if i == length // 2:
        print(f"  %v{i + 1} = ddp.all_reduce mean %v{i} on @dp : tensor<4xf32>")
    else:
        print(f"  %v{i + 1} = arith.negf %v{i} : tensor<4xf32>")
print(f"  return %v{length} : tensor<4xf32>")
print("}")
