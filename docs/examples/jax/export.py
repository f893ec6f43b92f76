# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A training step in JAX, for two devices, and what JAX makes of it.

    export.py STEP.mlir [TRAINING]

Writes the step as StableHLO. With a folder TRAINING it also trains with JAX on two
devices of this host, and writes into the folder what train.py needs: the initial
parameters, each rank's batches, and the losses that JAX got.

Nothing in the step knows of ddphook.
"""

import os
import pathlib
import sys

# Before JAX is imported.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from safetensors.numpy import save_file

RANKS, STEPS, BATCH, RATE = 2, 30, 256, 0.4
DIGITS = pathlib.Path(__file__).parents[1] / "digits" / "digits.txt"
MESH = jax.make_mesh((RANKS,), ("dp",), axis_types=(AxisType.Auto,))


def loss(params, images, labels):
    hidden = jnp.tanh(images @ params["hidden"]["w"] + params["hidden"]["b"])
    logits = hidden @ params["output"]["w"] + params["output"]["b"]
    return -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(logits), axis=-1))


@jax.jit
@jax.shard_map(mesh=MESH, in_specs=(P(), P("dp"), P("dp")), out_specs=(P(), P()))
def step(params, images, labels):
    """Moves the parameters by the gradient of the whole batch's loss."""

    def mean_loss(params):
        return jax.lax.pmean(loss(params, images, labels), "dp")

    value, grads = jax.value_and_grad(mean_loss)(params)
    return jax.tree.map(lambda p, g: p - RATE * g, params, grads), value


def make_params():
    keys = jax.random.split(jax.random.key(1))
    return {
        "hidden": {"w": jax.random.normal(keys[0], (64, 32)) / 8, "b": jnp.zeros(32)},
        "output": {"w": jax.random.normal(keys[1], (32, 10)) / 6, "b": jnp.zeros(10)},
    }


def read_digits():
    """Pixels from 0 to 1, and ones in the columns of the labels."""
    rows = [
        line.split() for line in DIGITS.read_text().splitlines() if line[0] != "#"
    ]
    # A character a pixel, 0 to g.
    images = np.array([[int(c, 17) for c in pixels] for pixels, _ in rows], np.float32)
    labels = np.eye(10, dtype=np.float32)[[int(label) for _, label in rows]]
    return images / 16, labels


def write_step(path, *arguments):
    """All of it in the generic form, which needs no StableHLO to be read."""
    module = step.lower(*arguments).compiler_ir("stablehlo")
    text = module.operation.get_asm(print_generic_op_form=True, enable_debug_info=True)
    pathlib.Path(path).write_text(text, encoding="utf-8")


def train(folder, params, images, labels):
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    save_file(dict(enumerate_names(leaves)), folder / "params.safetensors")
    losses = []
    for number in range(STEPS):
        rows = np.arange(number * BATCH, (number + 1) * BATCH) % len(images)
        params, value = step(params, images[rows], labels[rows])
        losses.append(np.asarray(value))
        for rank, part in enumerate(np.split(rows, RANKS)):
            batch = enumerate_names([images[part], labels[part]], len(leaves))
            save_file(dict(batch), folder / f"batch.{number}.{rank}.safetensors")
    save_file({"losses": np.stack(losses)}, folder / "jax.safetensors")


def enumerate_names(arrays, start=0):
    """The names that ddphook-run and ddphook-exec have for arguments."""
    return ((f"arg{start + i}", array) for i, array in enumerate(arrays))


def main(path, folder=None):
    params, (images, labels) = make_params(), read_digits()
    write_step(path, params, images[:BATCH], labels[:BATCH])
    if folder:
        train(pathlib.Path(folder), params, images, labels)


if __name__ == "__main__":
    main(*sys.argv[1:])
