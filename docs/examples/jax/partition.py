# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the program of one device out of one whose `jit` got shardings, by the passes
of Shardy that jaxlib has: they put in the all-reduces.

    ddphook-opt STEP.mlir --inline --symbol-dce --mlir-print-op-generic \\
        --mlir-print-debuginfo -o INLINED.mlir
    partition.py INLINED.mlir PARTITIONED.mlir

jaxlib's own inliner does not know the function dialect, and what converts tensors to
parts does not follow calls, so they have to be inlined before.
"""

import sys

from jax.interpreters.mlir import make_ir_context
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo

PROPAGATE = (
    "builtin.module(func.func(chlo-legalize-to-stablehlo),"
    "sdy-propagation-pipeline,sdy-close-shardings,"
    "func.func(sdy-insert-explicit-reshards{enable-full-version=true},"
    "sdy-reshard-to-collectives))"
)
TO_PARTS = "builtin.module(sdy-convert-global-to-local,sdy-drop-sharding-and-mesh)"


def print_generic(module):
    return module.operation.get_asm(print_generic_op_form=True, enable_debug_info=True)


def partition(text):
    stablehlo.register_stablehlo_passes()
    with make_ir_context():
        module = ir.Module.parse(text)
        passmanager.PassManager.parse(PROPAGATE).run(module.operation)
        # The next pass ends the process where it pads by a constant of Shardy's,
        # of which it does not know that it is zero.
        text = print_generic(module).replace('"sdy.constant"', '"stablehlo.constant"')
        module = ir.Module.parse(text)
        meshes = [
            op.get_asm(print_generic_op_form=True)
            for op in module.body.operations
            if op.operation.name == "sdy.mesh"
        ]
        passmanager.PassManager.parse(TO_PARTS).run(module.operation)
        # The names of its axes are those of process groups and gradient-axes.
        at_start = ir.InsertionPoint.at_block_begin(module.body)
        for mesh in meshes:
            at_start.insert(ir.Operation.parse(mesh))
        return print_generic(module)


def main(source, target):
    with open(source, encoding="utf-8") as file:
        partitioned = partition(file.read())
    with open(target, "w", encoding="utf-8") as file:
        file.write(partitioned)


if __name__ == "__main__":
    main(*sys.argv[1:])
