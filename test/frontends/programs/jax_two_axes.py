# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Perceptrons over a mesh of two axes: the batch is split over one, the hidden layers
over the other, whose sums are in the forward and the backward pass."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

WIDTH, HIDDEN, LAYERS = 8, 24, 2
SPECS = [{"up": P(None, "model"), "bias": P("model"), "down": P("model", None)}] * LAYERS


def init(key):
    layers = []
    for part in jax.random.split(key, LAYERS):
        keys = jax.random.split(part, 2)
        layers.append(
            {
                "up": jax.random.normal(keys[0], (WIDTH, HIDDEN)) / WIDTH**0.5,
                "bias": jnp.zeros(HIDDEN),
                "down": jax.random.normal(keys[1], (HIDDEN, WIDTH)) / HIDDEN**0.5,
            }
        )
    return layers


def forward(layers, x):
    for layer in layers:
        hidden = jax.nn.gelu(x @ layer["up"] + layer["bias"])
        x = x + jax.lax.psum(hidden @ layer["down"], "model")
    return x


def train_step(layers, x, y):
    def loss_fn(layers):
        return jax.lax.pmean(jnp.mean((forward(layers, x) - y) ** 2), "data")

    loss, grads = jax.value_and_grad(loss_fn)(layers)
    return jax.tree.map(lambda p, g: p - 0.1 * g, layers, grads), loss


def program():
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))
    rng = np.random.default_rng(11)
    x, y = rng.normal(size=(2, 8, WIDTH)).astype(np.float32)
    step = jax.jit(
        jax.shard_map(
            train_step,
            mesh=mesh,
            in_specs=(SPECS, P("data"), P("data")),
            out_specs=(SPECS, P()),
        )
    )
    layers = jax.tree.map(
        lambda leaf, spec: jax.device_put(leaf, NamedSharding(mesh, spec)),
        jax.jit(init)(jax.random.key(0)),
        SPECS,
    )
    x, y = jax.device_put((x, y), NamedSharding(mesh, P("data")))
    return step, (layers, x, y), layers


# Sums over the other axis are part of the model.
IMPORT_OPTIONS = "gradient-axes=data"
