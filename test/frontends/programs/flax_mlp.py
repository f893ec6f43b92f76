# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A perceptron in Flax, with integer labels and momentum; `jit` gets shardings."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


class MLP(nn.Module):
    widths: tuple[int, ...] = (32, 24)

    @nn.compact
    def __call__(self, x):
        for width in self.widths:
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(10)(x)


def train_step(state, images, labels):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, images)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return losses.mean(), logits

    (loss, logits), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    accuracy = jnp.mean(jnp.argmax(logits, -1) == labels)
    return state.apply_gradients(grads=grads), {"loss": loss, "accuracy": accuracy}


def program():
    mesh = Mesh(jax.devices()[:2], ("data",))
    whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    rng = np.random.default_rng(0)
    images = rng.normal(size=(16, 64)).astype(np.float32)
    labels = rng.integers(10, size=(16,), dtype=np.int32)
    model = MLP()
    state = train_state.TrainState.create(
        apply_fn=model.apply,
        params=jax.jit(model.init)(jax.random.key(0), images)["params"],
        tx=optax.sgd(0.1, momentum=0.9, nesterov=True),
    )
    step = jax.jit(
        train_step, in_shardings=(whole, split, split), out_shardings=(whole, whole)
    )
    state = jax.device_put(state, whole)
    images, labels = jax.device_put((images, labels), split)
    return step, (state, images, labels), state.params
