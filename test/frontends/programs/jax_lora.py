# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LoRA in plain JAX: two small matrices beside each frozen one of bfloat16."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

SIZES, RANK, SCALE = (24, 32, 8), 3, 2.0


def init(key):
    base, adapters = [], []
    for inputs, outputs in zip(SIZES[:-1], SIZES[1:]):
        key, *keys = jax.random.split(key, 4)
        weight = jax.random.normal(keys[0], (inputs, outputs)) / inputs**0.5
        base.append(weight.astype(jnp.bfloat16))
        adapters.append(
            {
                "a": jax.random.normal(keys[1], (inputs, RANK)) / inputs**0.5,
                # Trained for a while, not zero as at the beginning.
                "b": jax.random.normal(keys[2], (RANK, outputs)) / 10,
            }
        )
    return base, adapters


def forward(base, adapters, x):
    for number, (weight, adapter) in enumerate(zip(base, adapters)):
        frozen = x @ jax.lax.stop_gradient(weight).astype(x.dtype)
        x = frozen + SCALE / RANK * (x @ adapter["a"]) @ adapter["b"]
        if number < len(base) - 1:
            x = jnp.tanh(x)
    return x


optimizer = optax.chain(optax.trace(0.9), optax.scale(-0.05))


def train_step(adapters, opt_state, base, x, y):
    def loss_fn(adapters):
        loss = jnp.mean(optax.huber_loss(forward(base, adapters, x), y))
        return jax.lax.pmean(loss, "dp")

    loss, grads = jax.value_and_grad(loss_fn)(adapters)
    updates, opt_state = optimizer.update(grads, opt_state)
    return optax.apply_updates(adapters, updates), opt_state, loss


def program():
    mesh = Mesh(jax.devices()[:2], ("dp",))
    rng = np.random.default_rng(9)
    base, adapters = jax.jit(init)(jax.random.key(0))
    x = rng.normal(size=(10, SIZES[0])).astype(np.float32)
    y = rng.normal(size=(10, SIZES[-1])).astype(np.float32)
    step = jax.jit(
        jax.shard_map(
            train_step,
            mesh=mesh,
            in_specs=(P(), P(), P(), P("dp"), P("dp")),
            out_specs=P(),
        )
    )
    base, adapters, opt_state = jax.device_put(
        (base, adapters, optimizer.init(adapters)), NamedSharding(mesh, P())
    )
    x, y = jax.device_put((x, y), NamedSharding(mesh, P("dp")))
    return step, (adapters, opt_state, base, x, y), adapters
