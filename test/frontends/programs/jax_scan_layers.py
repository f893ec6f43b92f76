# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A language model in the style of Llama: one scan over stacked layers, which are
computed again in the backward pass; bfloat16 in the layers, float32 outside; rotated
positions, RMS norms, gated perceptrons; the loss is scaled."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

VOCABULARY, LAYERS, WIDTH, HEADS, HIDDEN, CONTEXT = 24, 3, 16, 2, 24, 8


def init(key):
    shapes = {
        "attention_norm": (LAYERS, WIDTH),
        "qkv": (LAYERS, WIDTH, 3 * WIDTH),
        "out": (LAYERS, WIDTH, WIDTH),
        "ffn_norm": (LAYERS, WIDTH),
        "gate": (LAYERS, WIDTH, HIDDEN),
        "up": (LAYERS, WIDTH, HIDDEN),
        "down": (LAYERS, HIDDEN, WIDTH),
    }
    keys = iter(jax.random.split(key, len(shapes) + 2))
    layers = {
        name: jnp.ones(shape)
        if name.endswith("norm")
        else jax.random.normal(next(keys), shape) / shape[1] ** 0.5
        for name, shape in shapes.items()
    }
    return {
        "embed": jax.random.normal(next(keys), (VOCABULARY, WIDTH)),
        "layers": layers,
        "norm": jnp.ones(WIDTH),
        "head": jax.random.normal(next(keys), (WIDTH, VOCABULARY)) / WIDTH**0.5,
    }


def rms_norm(x, scale):
    mean = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
    return (x * jax.lax.rsqrt(mean + 1e-6)).astype(x.dtype) * scale


def rotate(x):
    length, half = x.shape[1], x.shape[-1] // 2
    angles = jnp.arange(length)[:, None] / 10000 ** (jnp.arange(half) / half)
    sin, cos = jnp.sin(angles)[:, None], jnp.cos(angles)[:, None]
    first, second = x[..., :half], x[..., half:]
    parts = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(parts, -1).astype(x.dtype)


def layer(x, params):
    params = jax.tree.map(lambda p: p.astype(x.dtype), params)
    batch, length, _ = x.shape
    qkv = rms_norm(x, params["attention_norm"]) @ params["qkv"]
    q, k, v = jnp.split(qkv.reshape(batch, length, HEADS, -1), 3, axis=-1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", rotate(q), rotate(k)) * q.shape[-1] ** -0.5
    mask = jnp.tril(jnp.ones((length, length), bool))
    scores = jax.nn.softmax(jnp.where(mask, scores.astype(jnp.float32), -1e30))
    mixed = jnp.einsum("bhqk,bkhd->bqhd", scores.astype(x.dtype), v)
    x = x + mixed.reshape(batch, length, -1) @ params["out"]
    y = rms_norm(x, params["ffn_norm"])
    y = jax.nn.silu(y @ params["gate"]) * (y @ params["up"])
    return x + y @ params["down"], None


def loss_fn(params, tokens):
    x = params["embed"][tokens[:, :-1]].astype(jnp.bfloat16)
    x, _ = jax.lax.scan(jax.checkpoint(layer), x, params["layers"])
    logits = rms_norm(x.astype(jnp.float32), params["norm"]) @ params["head"]
    scores = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(scores, tokens[:, 1:, None], axis=-1))


def train_step(params, tokens):
    scale = 1024.0
    scaled, grads = jax.value_and_grad(lambda p: scale * loss_fn(p, tokens))(params)
    grads = jax.lax.pmean(grads, "data")
    params = jax.tree.map(lambda p, g: p - 0.3 / scale * g, params, grads)
    return params, jax.lax.pmean(scaled / scale, "data")


def program():
    mesh = Mesh(jax.devices()[:2], ("data",))
    rng = np.random.default_rng(12)
    tokens = rng.integers(VOCABULARY, size=(4, CONTEXT + 1), dtype=np.int32)
    step = jax.jit(
        jax.shard_map(
            train_step,
            mesh=mesh,
            in_specs=(P(), P("data")),
            out_specs=P(),
            check_vma=False,
        )
    )
    params = jax.device_put(jax.jit(init)(jax.random.key(0)), NamedSharding(mesh, P()))
    tokens = jax.device_put(tokens, NamedSharding(mesh, P("data")))
    return step, (params, tokens), params
