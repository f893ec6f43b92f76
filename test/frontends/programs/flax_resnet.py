# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A residual net in Flax, whose normalization takes statistics over all devices;
momentum, weight decay in the loss, a cosine schedule."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


class TrainState(train_state.TrainState):
    batch_stats: Any


class ResNetBlock(nn.Module):
    filters: int
    strides: tuple[int, int] = (1, 1)
    train: bool = True

    @nn.compact
    def __call__(self, x):
        conv = functools.partial(nn.Conv, use_bias=False)
        norm = functools.partial(
            nn.BatchNorm,
            use_running_average=not self.train,
            momentum=0.9,
            axis_name="batch",
        )
        residual = x
        y = conv(self.filters, (3, 3), self.strides)(x)
        y = nn.relu(norm()(y))
        y = conv(self.filters, (3, 3))(y)
        y = norm(scale_init=nn.initializers.constant(0.5))(y)
        if residual.shape != y.shape:
            residual = conv(self.filters, (1, 1), self.strides, name="conv_proj")(x)
            residual = norm(name="norm_proj")(residual)
        return nn.relu(residual + y)


class ResNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(8, (3, 3), use_bias=False, name="conv_init")(x)
        x = ResNetBlock(8)(x)
        x = ResNetBlock(16, strides=(2, 2))(x)
        return nn.Dense(10)(jnp.mean(x, axis=(1, 2)))


def train_step(state, batch):
    def loss_fn(params):
        logits, new_state = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats},
            batch["image"],
            mutable=["batch_stats"],
        )
        loss = optax.softmax_cross_entropy(logits, jax.nn.one_hot(batch["label"], 10))
        weights = [x for x in jax.tree.leaves(params) if x.ndim > 1]
        penalty = sum(jnp.sum(x**2) for x in weights)
        return loss.mean() + 0.5 * 1e-4 * penalty, new_state

    (loss, new_state), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    grads = jax.lax.pmean(grads, axis_name="batch")
    state = state.apply_gradients(grads=grads, batch_stats=new_state["batch_stats"])
    return state, jax.lax.pmean(loss, axis_name="batch")


def program():
    mesh = Mesh(jax.devices()[:2], ("batch",))
    rng = np.random.default_rng(2)
    images = rng.normal(size=(8, 8, 8, 3)).astype(np.float32)
    labels = rng.integers(10, size=(8,), dtype=np.int32)
    model = ResNet()
    variables = jax.jit(model.init)(jax.random.key(0), images)
    schedule = optax.cosine_decay_schedule(init_value=0.1, decay_steps=100)
    state = TrainState.create(
        apply_fn=model.apply,
        params=variables["params"],
        tx=optax.sgd(schedule, momentum=0.9),
        batch_stats=variables["batch_stats"],
    )
    step = jax.jit(
        jax.shard_map(
            train_step,
            mesh=mesh,
            in_specs=(P(), P("batch")),
            out_specs=P(),
            check_vma=False,
        ),
        donate_argnums=0,
    )
    state = jax.device_put(state, NamedSharding(mesh, P()))
    batch = {"image": images, "label": labels}
    batch = jax.device_put(batch, NamedSharding(mesh, P("batch")))
    return step, (state, batch), state.params
