# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A conv net in the style of Equinox: modules are dataclasses that JAX knows as trees,
for one image, mapped over the batch; some fields are no arrays. Lion."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

static = functools.partial(dataclasses.field, metadata={"static": True})


def module(cls):
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True)(cls))


@module
class Linear:
    weight: jax.Array
    bias: jax.Array

    @staticmethod
    def make(inputs, outputs, key):
        limit = 1 / inputs**0.5
        keys = jax.random.split(key)
        weight = jax.random.uniform(keys[0], (outputs, inputs), minval=-limit, maxval=limit)
        return Linear(weight, jax.random.uniform(keys[1], (outputs,), maxval=limit))

    def __call__(self, x):
        return self.weight @ x + self.bias


@module
class Conv2d:
    weight: jax.Array
    stride: int = static(default=1)

    def __call__(self, x):
        strides = (self.stride, self.stride)
        return jax.lax.conv(x[None], self.weight, strides, "SAME")[0]


@module
class GroupNorm:
    scale: jax.Array
    offset: jax.Array
    groups: int = static(default=1)

    def __call__(self, x):
        y = x.reshape(self.groups, -1)
        mean, variance = y.mean(1, keepdims=True), y.var(1, keepdims=True)
        y = ((y - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(x.shape)
        return y * self.scale[:, None, None] + self.offset[:, None, None]


@module
class CNN:
    layers: list
    head: Linear

    def __call__(self, image):
        x = image
        for layer in self.layers:
            x = jax.nn.silu(layer(x)) if isinstance(layer, GroupNorm) else layer(x)
        return self.head(x.mean((1, 2)))


def make_cnn(key):
    keys = jax.random.split(key, 3)
    return CNN(
        layers=[
            Conv2d(jax.random.normal(keys[0], (8, 3, 3, 3)) / 5),
            GroupNorm(jnp.ones(8), jnp.zeros(8), groups=2),
            Conv2d(jax.random.normal(keys[1], (12, 8, 3, 3)) / 8, stride=2),
            GroupNorm(jnp.ones(12), jnp.zeros(12), groups=3),
        ],
        head=Linear.make(12, 5, keys[2]),
    )


optimizer = optax.lion(1e-3)


def loss_fn(model, images, labels):
    scores = jax.nn.log_softmax(jax.vmap(model)(images))
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))


@jax.jit
def make_step(model, opt_state, images, labels):
    loss, grads = jax.value_and_grad(loss_fn)(model, images, labels)
    updates, opt_state = optimizer.update(grads, opt_state, model)
    return loss, optax.apply_updates(model, updates), opt_state


def program():
    mesh = Mesh(jax.devices()[:2], ("batch",))
    rng = np.random.default_rng(5)
    model = jax.jit(make_cnn)(jax.random.key(0))
    images = rng.normal(size=(6, 3, 6, 6)).astype(np.float32)
    labels = rng.integers(5, size=(6,), dtype=np.int32)
    model, opt_state = jax.device_put(
        (model, optimizer.init(model)), NamedSharding(mesh, P())
    )
    images, labels = jax.device_put((images, labels), NamedSharding(mesh, P("batch")))
    return make_step, (model, opt_state, images, labels), model
