# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A conv net in Flax, as one reads digits with; Adam; gradients are averaged by hand."""

import flax.linen as nn
import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(features=8, kernel_size=(3, 3))(x))
        x = nn.max_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = nn.relu(nn.Conv(features=12, kernel_size=(3, 3))(x))
        x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = x.reshape((x.shape[0], -1))
        x = nn.relu(nn.Dense(features=24)(x))
        return nn.Dense(features=10)(x)


model = CNN()
optimizer = optax.adam(1e-3)


def loss_fn(params, images, labels):
    logits = model.apply({"params": params}, images)
    return optax.softmax_cross_entropy(logits, jax.nn.one_hot(labels, 10)).mean()


def update(params, opt_state, images, labels):
    loss, grads = jax.value_and_grad(loss_fn)(params, images, labels)
    grads = jax.lax.pmean(grads, axis_name="batch")
    loss = jax.lax.pmean(loss, axis_name="batch")
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def program():
    mesh = Mesh(jax.devices()[:2], ("batch",))
    rng = np.random.default_rng(1)
    images = rng.normal(size=(8, 8, 8, 1)).astype(np.float32)
    labels = rng.integers(10, size=(8,), dtype=np.int32)
    params = jax.jit(model.init)(jax.random.key(0), images)["params"]
    step = jax.jit(
        jax.shard_map(
            update,
            mesh=mesh,
            in_specs=(P(), P(), P("batch"), P("batch")),
            out_specs=P(),
            check_vma=False,
        )
    )
    params, opt_state = jax.device_put(
        (params, optimizer.init(params)), NamedSharding(mesh, P())
    )
    images, labels = jax.device_put((images, labels), NamedSharding(mesh, P("batch")))
    return step, (params, opt_state, images, labels), params
