# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the step of gpt.py as StableHLO, and trains with JAX.

    export.py STEP.mlir TRAINING STEPS

Trains on two devices of this host, and writes into the folder TRAINING what
docs/examples/jax/train.py needs: what training begins with, each rank's batches, and
the losses that JAX got.
"""

import os
import pathlib
import sys

# Before JAX is imported.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import numpy as np
from safetensors.numpy import save_file

EXAMPLES = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(EXAMPLES), str(EXAMPLES / "jax")]
import gpt
import partition
import shared

RANKS, BATCH = 2, 16  # sequences of each rank


def batches(steps):
    text = np.frombuffer(shared.read_text(), np.uint8).astype(np.int32)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        starts = rng.integers(len(text) - gpt.CONTEXT, size=(RANKS * BATCH, 1))
        yield text[starts + np.arange(gpt.CONTEXT + 1)]


def main(path, folder, steps):
    folder = pathlib.Path(folder)
    kept = gpt.begin()
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(kept)]
    first = {f"arg{i}": leaf for i, leaf in enumerate(leaves)}
    save_file(first, folder / "params.safetensors")
    losses = []
    for number, tokens in enumerate(batches(int(steps))):
        if number == 0:
            module = gpt.step.lower(*kept, tokens).compiler_ir("stablehlo")
            pathlib.Path(path).write_text(partition.print_generic(module))
        *kept, loss = gpt.step(*kept, tokens)
        losses.append(np.asarray(loss))
        for rank, part in enumerate(np.split(tokens, RANKS)):
            batch = {f"arg{len(leaves)}": part}
            save_file(batch, folder / f"batch.{number}.{rank}.safetensors")
    save_file({"losses": np.stack(losses)}, folder / "jax.safetensors")


if __name__ == "__main__":
    main(*sys.argv[1:])
