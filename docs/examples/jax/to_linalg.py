# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowers StableHLO to linalg by the passes that jaxlib has, with a program's ddp
operations left as they are.

    to_linalg.py IMPORTED.mlir LINALG.mlir
"""

import sys

from jax.interpreters.mlir import make_ir_context
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo

PIPELINE = (
    "builtin.module(func.func(chlo-legalize-to-stablehlo),"
    "stablehlo-convert-to-signless,stablehlo-legalize-to-linalg)"
)


def refuse_rest(module):
    """Names what the passes have left, so that nobody has to find out from what
    cannot read it."""
    left = {}

    def note(op):
        if op.name.split(".")[0] in ("stablehlo", "chlo", "mhlo"):
            left.setdefault(op.name, op.location)
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    # The end of another operation's region.
    left.pop("stablehlo.return", None)
    if left:
        where = "".join(f"\n  {name} at {location}" for name, location in left.items())
        raise ValueError(f"jaxlib does not lower these operations to linalg:{where}")


def lower(text):
    stablehlo.register_stablehlo_passes()
    context = make_ir_context()
    # jaxlib knows nothing of ddp, and need not.
    context.allow_unregistered_dialects = True
    with context:
        module = ir.Module.parse(text)
        passmanager.PassManager.parse(PIPELINE).run(module.operation)
        refuse_rest(module)
        return module.operation.get_asm(enable_debug_info=True)


def main(source, target):
    with open(source, encoding="utf-8") as file:
        lowered = lower(file.read())
    with open(target, "w", encoding="utf-8") as file:
        file.write(lowered)


if __name__ == "__main__":
    main(*sys.argv[1:])
