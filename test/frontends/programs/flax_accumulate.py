# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An autoencoder in Flax, whose gradients are added up over micro-batches in a while
loop and averaged over the devices once; the encoder's first layer is frozen."""

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

MICRO_BATCHES, BATCH, PIXELS, LATENTS = 3, 4, 20, 3


class VAE(nn.Module):
    @nn.compact
    def __call__(self, x, noise):
        hidden = nn.softplus(nn.Dense(12, name="stem")(x))
        mean = nn.Dense(LATENTS, name="mean")(hidden)
        log_variance = nn.Dense(LATENTS, name="log_variance")(hidden)
        z = mean + jnp.exp(0.5 * log_variance) * noise
        hidden = nn.softplus(nn.Dense(12, name="decoder")(z))
        return nn.Dense(PIXELS, name="pixels")(hidden), mean, log_variance


model = VAE()


def loss_fn(params, x, noise):
    logits, mean, log_variance = model.apply({"params": params}, x, noise)
    entropy = optax.sigmoid_binary_cross_entropy(logits, x).sum(-1)
    divergence = -0.5 * jnp.sum(1 + log_variance - mean**2 - jnp.exp(log_variance), -1)
    return jnp.mean(entropy + divergence)


def label(params):
    return flax.traverse_util.path_aware_map(
        lambda path, _: "frozen" if path[0] == "stem" else "trained", params
    )


optimizer = optax.multi_transform(
    {"trained": optax.sgd(0.05, momentum=0.9), "frozen": optax.set_to_zero()}, label
)


def train_step(params, opt_state, images, noise):
    def micro_batch(state):
        number, total, loss = state
        value, grads = jax.value_and_grad(loss_fn)(params, images[number], noise[number])
        return number + 1, jax.tree.map(jnp.add, total, grads), loss + value

    zeros = jax.tree.map(jnp.zeros_like, params)
    state = jax.lax.while_loop(
        lambda state: state[0] < MICRO_BATCHES, micro_batch, (0, zeros, 0.0)
    )
    _, grads, loss = jax.tree.map(lambda x: x / MICRO_BATCHES, state)
    # Only of what is trained.
    trained = {name: tree for name, tree in grads.items() if name != "stem"}
    grads = {**grads, **jax.lax.pmean(trained, "data")}
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, jax.lax.pmean(loss, "data")


def program():
    mesh = Mesh(jax.devices()[:2], ("data",))
    rng = np.random.default_rng(10)
    shape = (MICRO_BATCHES, 2 * BATCH)
    images = rng.uniform(size=(*shape, PIXELS)).astype(np.float32)
    noise = rng.normal(size=(*shape, LATENTS)).astype(np.float32)
    params = jax.jit(model.init)(jax.random.key(0), images[0], noise[0])["params"]
    specs = (P(), P(), P(None, "data"), P(None, "data"))
    step = jax.jit(
        jax.shard_map(
            train_step, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False
        )
    )
    arguments = (params, optimizer.init(params), images, noise)
    arguments = tuple(
        jax.device_put(tree, NamedSharding(mesh, spec))
        for tree, spec in zip(arguments, specs)
    )
    trained = {name: tree for name, tree in params.items() if name != "stem"}
    return step, arguments, trained
