# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compressed steps in processes of one CPU device each, or in one process:

    jax_processes.py FILE DEVICES [ADDRESS PROCESS]

Writes, for each hook, the parameters after five steps, and this process's parts of states.
"""

import os
import sys

FILE, DEVICES = sys.argv[1], int(sys.argv[2])
IS_ALONE = len(sys.argv) == 3
count = DEVICES if IS_ALONE else 1
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from safetensors.numpy import save_file

import ddphook.jax

HOOKS = {"fp16": {}, "powersgd": dict(matrix_approximation_rank=2, start_powerSGD_iter=2)}


def step(w, x, y):
    def loss_of(w):
        return jnp.mean((jnp.tanh(x @ w["a"] + w["b"]) @ w["c"] - y) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(w)
    gradients, loss = jax.lax.pmean((gradients, loss), "data")
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradients), loss


def train(mesh, hook, options):
    random = np.random.default_rng(20261)

    def normal(*shape):
        return random.standard_normal(shape, dtype=np.float32)

    def split(value):
        sharding = NamedSharding(mesh, P("data"))
        return jax.make_array_from_callback(value.shape, sharding, lambda i: value[i])

    w = {"a": 0.2 * normal(32, 48), "b": np.zeros(48, np.float32), "c": 0.2 * normal(48, 16)}
    compressed = ddphook.jax.compress(
        step,
        hook=hook,
        mesh=mesh,
        in_specs=(P(), P("data"), P("data")),
        out_specs=(P(), P()),
        check_vma=False,
        **options,
    )
    state = None
    for _ in range(5):
        x, y = split(normal(8, 32)), split(normal(8, 16))
        state = compressed.init(w, x, y) if state is None else state
        (w, loss), state = jax.block_until_ready(compressed(state, w, x, y))
    results = {f"{hook} {name}": np.asarray(value) for name, value in w.items()}
    results[f"{hook} loss"] = np.asarray(loss)
    # Each device's part of a state has the device's number.
    for name, value in state.items():
        for shard in value.addressable_shards:
            number = "" if value.is_fully_replicated else shard.index[0].start
            results[f"{hook} {name}{number}"] = np.asarray(shard.data)
    return results


def main():
    if not IS_ALONE:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(sys.argv[3], DEVICES, int(sys.argv[4]))
    assert len(jax.devices()) == DEVICES
    mesh = Mesh(np.array(jax.devices()), ("data",))
    results = {}
    for hook, options in HOOKS.items():
        results |= train(mesh, hook, options)
    save_file(results, FILE)


main()
