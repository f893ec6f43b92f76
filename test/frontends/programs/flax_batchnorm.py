# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A conv net in Flax, each device of which normalizes its own batch; the running
statistics are averaged in every step. Nesterov's momentum and decay of the weights."""

from typing import Any

import flax.linen as nn
import jax
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


class TrainState(train_state.TrainState):
    batch_stats: Any


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        for features in (8, 16):
            x = nn.Conv(features, (3, 3), use_bias=False)(x)
            x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
            x = nn.avg_pool(nn.relu(x), (2, 2), strides=(2, 2))
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


def train_step(state, images, labels):
    def loss_fn(params):
        variables = {"params": params, "batch_stats": state.batch_stats}
        logits, updates = state.apply_fn(
            variables, images, train=True, mutable=["batch_stats"]
        )
        loss = optax.softmax_cross_entropy(logits, jax.nn.one_hot(labels, 10)).mean()
        return loss, updates

    (loss, updates), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    grads, loss = jax.lax.pmean((grads, loss), axis_name="data")
    stats = jax.lax.pmean(updates["batch_stats"], axis_name="data")
    return state.apply_gradients(grads=grads, batch_stats=stats), loss


def program():
    mesh = Mesh(jax.devices()[:2], ("data",))
    rng = np.random.default_rng(22)
    images = rng.normal(size=(8, 8, 8, 3)).astype(np.float32)
    labels = rng.integers(10, size=(8,), dtype=np.int32)
    model = Net()
    variables = jax.jit(model.init, static_argnums=2)(jax.random.key(0), images, True)
    state = TrainState.create(
        apply_fn=model.apply,
        params=variables["params"],
        tx=optax.chain(
            optax.add_decayed_weights(1e-4),
            optax.sgd(0.05, momentum=0.9, nesterov=True),
        ),
        batch_stats=variables["batch_stats"],
    )
    step = jax.jit(
        jax.shard_map(
            train_step,
            mesh=mesh,
            in_specs=(P(), P("data"), P("data")),
            out_specs=P(),
            check_vma=False,
        )
    )
    state = jax.device_put(state, NamedSharding(mesh, P()))
    images, labels = jax.device_put((images, labels), NamedSharding(mesh, P("data")))
    return step, (state, images, labels), state.params
