# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of corpus.py that has JAX in it.

    export_jax.py FOLDER PROGRAM...

For each program it writes into FOLDER/PROGRAM what each rank gets, what JAX's own
devices give, and the step: imported, and lowered to linalg. The name is printed when
that is done.
"""

import importlib
import json
import os
import pathlib
import sys
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "programs"), str(HERE.parent / "Integration")]
# XLA's programs run once: most of its optimizations take longer than they save.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

import jax
import numpy as np
from safetensors.numpy import save_file

import jax_steps


def parts(tree, rank):
    """What a rank has of each tensor."""
    arrays = [leaf.addressable_shards for leaf in jax.tree.leaves(tree)]
    return [np.asarray(shards[rank].data, order="C") for shards in arrays]


def name_of(path):
    """As in a checkpoint: layers.0.weight."""
    steps = []
    for key in path:
        names = (getattr(key, field, None) for field in ("key", "name", "idx"))
        steps.append(next(str(name) for name in names if name is not None))
    return ".".join(steps)


def export(name, folder):
    program = importlib.import_module(name)
    step, arguments, trained = program.program()
    lowered = step.lower(*arguments)
    text = jax_steps.generic(lowered.compiler_ir("stablehlo"))
    leaves, _ = jax.tree_util.tree_flatten_with_path(trained)
    gradients = [(name_of(path), parts(leaf, 0)[0].size) for path, leaf in leaves]
    ranks = len(jax.tree.leaves(arguments)[0].addressable_shards)
    described = {"gradients": gradients, "ranks": ranks, "entry": "main"}
    (folder / "step.json").write_text(json.dumps(described))
    for rank in range(ranks):
        given = {f"arg{i}": part for i, part in enumerate(parts(arguments, rank))}
        save_file(given, folder / f"in.{rank}")
    # Donated arguments are gone then.
    results = lowered.compile()(*arguments)
    for rank in range(ranks):
        given = {f"result{i}": part for i, part in enumerate(parts(results, rank))}
        save_file(given, folder / f"expected.{rank}")
    if "sdy.manual_computation" not in text:
        text = jax_steps.shardy(text)
    imported = jax_steps.imported(text, getattr(program, "IMPORT_OPTIONS", ""))
    (folder / "imported.mlir").write_text(imported)
    (folder / "linalg.mlir").write_text(jax_steps.lower(imported))


def main(folder, *programs):
    for name in programs:
        try:
            export(name, pathlib.Path(folder, name))
        except Exception:
            pathlib.Path(folder, name, "error").write_text(traceback.format_exc())
        print(name, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
