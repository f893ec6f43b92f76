# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A layer of four experts in plain JAX, of which each token is sent to two; tokens that
an expert has no room for are dropped; a loss keeps the experts even."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TOKENS, WIDTH, HIDDEN, EXPERTS, CHOICES, CAPACITY = 16, 12, 20, 4, 2, 10


def init(key):
    keys = jax.random.split(key, 3)
    return {
        "router": jax.random.normal(keys[0], (WIDTH, EXPERTS)) / 4,
        "experts": {
            "up": jax.random.normal(keys[1], (EXPERTS, WIDTH, HIDDEN)) / 4,
            "down": jax.random.normal(keys[2], (EXPERTS, HIDDEN, WIDTH)) / 4,
        },
    }


def moe(params, x):
    gates = jax.nn.softmax(x @ params["router"])
    values, chosen = jax.lax.top_k(gates, CHOICES)
    values = values / values.sum(-1, keepdims=True)
    masks = jax.nn.one_hot(chosen, EXPERTS)
    # The place of each token in its expert's queue, first choices first.
    queue = masks.transpose(1, 0, 2).reshape(-1, EXPERTS)
    places = (jnp.cumsum(queue, axis=0) - 1) * queue
    places = places.reshape(CHOICES, -1, EXPERTS).transpose(1, 0, 2)
    masks = masks * (places < CAPACITY)
    slots = jax.nn.one_hot(places.astype(jnp.int32), CAPACITY) * masks[..., None]
    combine = jnp.einsum("tc,tces->tes", values, slots)
    dispatch = slots.sum(1)
    inputs = jnp.einsum("tes,tw->esw", dispatch, x)
    hidden = jax.nn.gelu(jnp.einsum("esw,ewh->esh", inputs, params["experts"]["up"]))
    outputs = jnp.einsum("esh,ehw->esw", hidden, params["experts"]["down"])
    balance = EXPERTS * jnp.sum(gates.mean(0) * masks[:, 0].mean(0))
    return jnp.einsum("tes,esw->tw", combine, outputs), balance


def loss_fn(params, x, y):
    output, balance = moe(params, x)
    return jnp.mean((x + output - y) ** 2) + 1e-2 * balance


def train_step(params, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    size = jax.lax.axis_size("data")
    grads = jax.tree.map(lambda g: jax.lax.psum(g, "data") / size, grads)
    params = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
    return params, jax.lax.pmean(loss, "data")


def program():
    mesh = Mesh(jax.devices()[:2], ("data",))
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(2, 2 * TOKENS, WIDTH)).astype(np.float32)
    step = jax.jit(
        jax.shard_map(
            train_step,
            mesh=mesh,
            in_specs=(P(), P("data"), P("data")),
            out_specs=P(),
            check_vma=False,
        )
    )
    params = jax.device_put(jax.jit(init)(jax.random.key(0)), NamedSharding(mesh, P()))
    x, y = jax.device_put((x, y), NamedSharding(mesh, P("data")))
    return step, (params, x, y), params
