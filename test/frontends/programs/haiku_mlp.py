# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A perceptron in the style of Haiku: parameters in a dictionary of modules' names,
drawn by `init` and used by `apply`; RMSProp written out."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

SIZES = [20, 16, 16, 4]


def init(key):
    params = {}
    for number, (inputs, outputs) in enumerate(zip(SIZES[:-1], SIZES[1:])):
        key, part = jax.random.split(key)
        params[f"mlp/~/linear_{number}"] = {
            "w": jax.random.truncated_normal(part, -2, 2, (inputs, outputs))
            / jnp.sqrt(inputs),
            "b": jnp.zeros(outputs),
        }
    return params


def apply(params, x):
    for number in range(len(SIZES) - 1):
        layer = params[f"mlp/~/linear_{number}"]
        x = x @ layer["w"] + layer["b"]
        if number < len(SIZES) - 2:
            x = jax.nn.elu(x)
    return x


def loss_fn(params, x, y):
    return jnp.mean(jnp.square(apply(params, x) - y))


def update(params, moments, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    grads, loss = jax.lax.pmean((grads, loss), "i")
    moments = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g * g, moments, grads)
    params = jax.tree.map(
        lambda p, g, m: p - 1e-2 * g * jax.lax.rsqrt(m + 1e-6), params, grads, moments
    )
    return params, moments, loss


def program():
    mesh = Mesh(jax.devices()[:2], ("i",))
    rng = np.random.default_rng(4)
    params = jax.jit(init)(jax.random.key(0))
    moments = jax.tree.map(jnp.zeros_like, params)
    x = rng.normal(size=(12, SIZES[0])).astype(np.float32)
    y = rng.normal(size=(12, SIZES[-1])).astype(np.float32)
    step = jax.jit(
        jax.shard_map(
            update,
            mesh=mesh,
            in_specs=(P(), P(), P("i"), P("i")),
            out_specs=P(),
            check_vma=False,
        )
    )
    params, moments = jax.device_put((params, moments), NamedSharding(mesh, P()))
    x, y = jax.device_put((x, y), NamedSharding(mesh, P("i")))
    return step, (params, moments, x, y), params
