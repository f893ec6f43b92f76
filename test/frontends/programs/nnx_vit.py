# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A vision transformer in Flax's NNX, split into its graph and its state; AdamW."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

PATCH, WIDTH, HEADS = 4, 16, 2


class Encoder(nnx.Module):
    def __init__(self, rngs):
        self.norm1 = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(
            num_heads=HEADS,
            in_features=WIDTH,
            use_bias=False,
            decode=False,
            rngs=rngs,
        )
        self.norm2 = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.wide = nnx.Linear(WIDTH, 2 * WIDTH, rngs=rngs)
        self.narrow = nnx.Linear(2 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(nnx.gelu(self.wide(self.norm2(x))))


class ViT(nnx.Module):
    def __init__(self, rngs):
        self.patches = nnx.Conv(
            3, WIDTH, (PATCH, PATCH), strides=(PATCH, PATCH), rngs=rngs
        )
        init = nnx.initializers.normal(0.02)
        self.cls = nnx.Param(init(rngs.params(), (1, 1, WIDTH)))
        self.positions = nnx.Param(init(rngs.params(), (1, 5, WIDTH)))
        self.encoder = Encoder(rngs)
        self.head = nnx.Linear(WIDTH, 6, rngs=rngs)

    def __call__(self, images):
        x = self.patches(images)
        x = x.reshape(x.shape[0], -1, WIDTH)
        cls = jnp.broadcast_to(self.cls[...], (x.shape[0], 1, WIDTH))
        x = jnp.concatenate([cls, x], axis=1) + self.positions[...]
        return self.head(self.encoder(x)[:, 0])


optimizer = optax.adamw(1e-3)


def program():
    mesh = Mesh(jax.devices()[:2], ("data",))
    rng = np.random.default_rng(7)
    images = rng.normal(size=(4, 8, 8, 3)).astype(np.float32)
    labels = rng.integers(6, size=(4,), dtype=np.int32)
    graph, params = nnx.split(ViT(nnx.Rngs(0)), nnx.Param)

    @jax.jit
    def train_step(params, opt_state, images, labels):
        def loss_fn(params):
            logits = nnx.merge(graph, params)(images)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    params, opt_state = jax.device_put(
        (params, optimizer.init(params)), NamedSharding(mesh, P())
    )
    images, labels = jax.device_put((images, labels), NamedSharding(mesh, P("data")))
    return train_step, (params, opt_state, images, labels), params
