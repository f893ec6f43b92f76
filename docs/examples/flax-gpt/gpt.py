# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small GPT in Flax over bytes, and its training step on two devices.

Layer norms in front as in GPT-2, and one table for the bytes that come in and those
that go out. Nothing here knows of ddphook.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

VOCABULARY = 256  # bytes
WIDTH, LAYERS, HEADS, CONTEXT = 48, 2, 4, 32
MESH = jax.make_mesh((2,), ("dp",), axis_types=(AxisType.Auto,))


class Block(nn.Module):
    """Causal self-attention, then a perceptron, each added to its input."""

    @nn.compact
    def __call__(self, x, mask):
        attend = nn.MultiHeadDotProductAttention(num_heads=HEADS, use_bias=False)
        x = x + attend(nn.LayerNorm()(x), mask=mask)
        y = nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))
        return x + nn.Dense(WIDTH)(nn.gelu(y))


class GPT(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        table = nn.Embed(VOCABULARY, WIDTH, name="bytes")
        positions = nn.Embed(CONTEXT, WIDTH, name="positions")
        x = table(tokens) + positions(jnp.arange(tokens.shape[1]))
        mask = nn.make_causal_mask(tokens)
        for _ in range(LAYERS):
            x = Block()(x, mask)
        return table.attend(nn.LayerNorm()(x))


model = GPT()
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-3))


def loss_of(params, tokens):
    logits = model.apply(params, tokens[:, :-1])
    labels = tokens[:, 1:]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@jax.jit
@jax.shard_map(mesh=MESH, in_specs=(P(), P(), P("dp")), out_specs=P(), check_vma=False)
def step(params, state, tokens):
    loss, grads = jax.value_and_grad(loss_of)(params, tokens)
    grads, loss = jax.lax.pmean((grads, loss), "dp")
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


def begin():
    """Parameters, and what the optimizer keeps."""
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, CONTEXT), jnp.int32))
    return params, optimizer.init(params)
