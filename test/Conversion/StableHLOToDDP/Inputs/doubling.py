# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""doubling.py manual|reduction: thirty functions, each of which calls the one before
it twice; the first one has a manual computation or a reduction."""

import sys

FIRST = {
    "manual": """"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func private @f0(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "sdy.manual_computation"(%a) <{
      in_shardings = #sdy.sharding_per_value<[<@mesh, [{}]>]>,
      manual_axes = #sdy<manual_axes{"dp"}>,
      out_shardings = #sdy.sharding_per_value<[<@mesh, [{}]>]>}> ({
  ^bb0(%p: tensor<4xf32>):
    "sdy.return"(%p) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
""",
    "reduction": """ddp.process_group @dp size 2
func.func private @f0(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = ddp.all_reduce sum %a on @dp : tensor<4xf32>
  return %0 : tensor<4xf32>
}
""",
}

print(FIRST[sys.argv[1]])
for i in range(1, 30):
    print(f"""func.func private @f{i}(%a: tensor<4xf32>) -> tensor<4xf32> {{
  %0 = call @f{i - 1}(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = call @f{i - 1}(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}}""")
