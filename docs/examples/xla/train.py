#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A network that learns from another one, on all devices that JAX has, with gradients
that are compressed or not:

    XLA_FLAGS=--xla_force_host_platform_device_count=4 \\
        python docs/examples/xla/train.py --hook=powersgd matrix_approximation_rank=4

What stands behind --hook are the hook's options. The state is saved and loaded half-way,
as a program does that is stopped and started again.
"""

import argparse
import ast
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import ddphook.jax

BATCH, INPUTS, WIDTH, OUTPUTS, RATE = 64, 64, 128, 16, 0.3


def loss_of(params, x, y):
    hidden = jnp.tanh(x @ params["in"] + params["bias"])
    return jnp.mean((hidden @ params["out"] - y) ** 2)


def step(params, x, y):
    """The step of one device, which has its part of the batch."""
    loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
    gradients = jax.lax.pmean(gradients, "data")
    params = jax.tree.map(lambda p, g: p - RATE * g, params, gradients)
    return params, jax.lax.pmean(loss, "data")


def initial(generator):
    def normal(*shape):
        return generator.standard_normal(shape, dtype=np.float32) / shape[0] ** 0.5

    return {"in": normal(INPUTS, WIDTH), "bias": np.zeros(WIDTH, np.float32), "out": normal(WIDTH, OUTPUTS)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hook", default="powersgd")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("options", nargs="*", metavar="OPTION=VALUE")
    flags = parser.parse_args()
    options = dict(option.split("=", 1) for option in flags.options)

    mesh = Mesh(np.array(jax.devices()), ("data",))
    compressed = ddphook.jax.compress(
        step,
        flags.hook,
        mesh=mesh,
        in_specs=(P(), P("data"), P("data")),
        out_specs=(P(), P()),
        check_vma=False,
        **{name: ast.literal_eval(value) for name, value in options.items()},
    )
    generator = np.random.default_rng(0)
    params, teacher = initial(generator), initial(generator)
    state = None
    for number in range(flags.steps):
        x = generator.standard_normal((BATCH, INPUTS), dtype=np.float32)
        y = np.tanh(x @ teacher["in"]) @ teacher["out"]
        if state is None:
            state = compressed.init(params, x, y)
            for bucket in compressed.manifest(params, x, y)["buckets"]:
                print(f"{bucket['name']}: {bucket['elements']} elements", end=", ")
                print(f"{bucket['wire_bytes']} bytes sent, {bucket['hook']}")
        if number == flags.steps // 2:
            with tempfile.TemporaryDirectory() as folder:
                np.savez(f"{folder}/state.npz", **state)
                state = dict(np.load(f"{folder}/state.npz"))
        (params, loss), state = compressed(state, params, x, y)
        # XLA's devices on a processor can wait for each other for ever where several
        # steps are on the way, those of JAX alone as well.
        jax.block_until_ready(loss)
        if number % 50 == 0 or number == flags.steps - 1:
            print(f"step {number}: loss {float(loss):.4f}")


main()
