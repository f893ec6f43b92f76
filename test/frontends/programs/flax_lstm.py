# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads sequences with an LSTM of Flax, a loop over time in both directions; Adagrad."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


class Reader(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(20, 8)(tokens)
        x = nn.RNN(nn.OptimizedLSTMCell(12))(x)
        return nn.Dense(4)(x[:, -1])


def program():
    mesh = Mesh(jax.devices()[:2], ("data",))
    rng = np.random.default_rng(6)
    tokens = rng.integers(20, size=(6, 9), dtype=np.int32)
    labels = rng.integers(4, size=(6,), dtype=np.int32)
    model = Reader()
    state = train_state.TrainState.create(
        apply_fn=model.apply,
        params=jax.jit(model.init)(jax.random.key(0), tokens)["params"],
        tx=optax.adagrad(0.05),
    )

    def train_step(state, tokens, labels):
        def loss_fn(params):
            logits = state.apply_fn({"params": params}, tokens)
            one_hot = jax.nn.one_hot(labels, 4)
            return jnp.mean(optax.softmax_cross_entropy(logits, one_hot))

        loss, grads = jax.value_and_grad(loss_fn)(state.params)
        grads = jax.lax.pmean(grads, "data")
        return state.apply_gradients(grads=grads), jax.lax.pmean(loss, "data")

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
    tokens, labels = jax.device_put((tokens, labels), NamedSharding(mesh, P("data")))
    return step, (state, tokens, labels), state.params
