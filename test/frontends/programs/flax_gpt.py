# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A GPT in Flax, which writes with the table it reads with; AdamW with a clipped norm
and a schedule; JAX adds up the gradients by itself."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

VOCABULARY, WIDTH, HEADS, LAYERS, CONTEXT = 32, 16, 2, 2, 12


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        y = nn.LayerNorm()(x)
        y = nn.MultiHeadDotProductAttention(num_heads=HEADS, use_bias=False)(y, mask=mask)
        x = x + y
        y = nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))
        return x + nn.Dense(WIDTH)(nn.gelu(y))


class GPT(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(VOCABULARY, WIDTH, name="wte")
        positions = nn.Embed(CONTEXT, WIDTH, name="wpe")
        x = embed(tokens) + positions(jnp.arange(tokens.shape[1]))
        mask = nn.make_causal_mask(tokens)
        for _ in range(LAYERS):
            x = Block()(x, mask)
        return embed.attend(nn.LayerNorm()(x))


model = GPT()
optimizer = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(optax.warmup_cosine_decay_schedule(1e-3, 1e-2, 10, 100), b2=0.95),
)


def train_step(params, opt_state, tokens):
    def loss_fn(params):
        logits = model.apply(params, tokens[:, :-1])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        return jax.lax.pmean(losses.mean(), "dp")

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def program():
    mesh = Mesh(jax.devices()[:2], ("dp",))
    rng = np.random.default_rng(3)
    tokens = rng.integers(VOCABULARY, size=(4, CONTEXT + 1), dtype=np.int32)
    params = jax.jit(model.init)(jax.random.key(0), tokens[:, :-1])
    step = jax.jit(
        jax.shard_map(
            train_step, mesh=mesh, in_specs=(P(), P(), P("dp")), out_specs=P()
        )
    )
    params, opt_state = jax.device_put(
        (params, optimizer.init(params)), NamedSharding(mesh, P())
    )
    tokens = jax.device_put(tokens, NamedSharding(mesh, P("dp")))
    return step, (params, opt_state, tokens), params
