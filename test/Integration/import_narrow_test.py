# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of 16-bit numbers and collectives on parts of tensors, compared with JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jax_steps import F32, SEED, export, imported, lower, mesh, run, shard_map, split


def regression(w, b, x, y):
    """Twelve steps of a linear model in 16 bits."""

    def body(model, _):
        def loss(model):
            return jnp.mean((x @ model[0] + model[1] - y) ** 2)

        value, gradients = jax.value_and_grad(loss)(model)
        gradients, value = jax.lax.pmean((gradients, value), "dp")
        model = jax.tree.map(lambda p, g: p - jnp.asarray(1, p.dtype) * g, model, gradients)
        return model, value

    return jax.lax.scan(body, (w, b), None, length=12)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_trains_as_jax_does(tmp_path, dtype):
    """A gradient is a sum over 2048 rows. Summed in bfloat16 it stops growing at a few
    hundred, and the loss is ten times JAX's."""
    random = np.random.default_rng(SEED)
    x = random.standard_normal((4096, 8))
    truth = random.standard_normal((8, 4))
    dtype = jnp.dtype(dtype)
    x, y = jnp.asarray(x, dtype), jnp.asarray(x @ truth + 3, dtype)
    arguments = (jnp.zeros((8, 4), dtype), jnp.zeros(4, dtype), x, y)
    specs, devices = (P(), P(), P("dp"), P("dp")), mesh(2)
    step = shard_map(regression, devices, specs, check_vma=False)
    (w, b), losses = step(*arguments)
    parts, last = split(arguments, specs, devices), {}
    for option in ("", "keep-accumulators"):
        program = imported(export(step, arguments), option)
        assert ("ddp.widen_accumulators" in program) == (option == "")
        got = run(tmp_path, lower(program), parts, "allreduce")
        last[option] = got[2].astype(np.float32)
        if not option:
            np.testing.assert_allclose(
                got[0].astype(np.float32), np.asarray(w, np.float32), atol=2**-4
            )
    right = np.asarray(losses, np.float32)
    # Both losses are small differences of large numbers: the rest is rounding.
    assert right[-1] < 2**-7 * right[0]
    np.testing.assert_allclose(last[""], right, rtol=2**-3, atol=2**-9 * right[0])
    if dtype == jnp.bfloat16:
        assert last["keep-accumulators"][-1] > 2 * right[-1]


def convolution(k, x):
    def loss(k):
        out = jax.lax.conv_general_dilated(
            x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jnp.sum(out)

    value, gradient = jax.value_and_grad(loss)(k)
    return jax.lax.psum(gradient, "dp"), jax.lax.psum(value, "dp")


def test_convolutions(tmp_path):
    """A convolution of ones, whose exact sums need accumulators of float32."""
    k = jnp.ones((3, 3, 64, 2), jnp.bfloat16) / 64
    x = jnp.ones((2, 16, 32, 64), jnp.bfloat16)
    specs, devices = (P(), P("dp")), mesh(2)
    step = shard_map(convolution, devices, specs, check_vma=False)
    right = [np.asarray(a, np.float32) for a in step(k, x)]
    assert right[0].max() == 1024
    got = run(
        tmp_path, lower(imported(export(step, (k, x)))), split((k, x), specs, devices), "allreduce"
    )
    for mine, theirs in zip(got, right, strict=True):
        np.testing.assert_allclose(mine.astype(np.float32), theirs, rtol=2**-7)


def sharded(w, x, y):
    """ZeRO and an exchange of experts: gradients are reduced and scattered, each rank
    updates its part of the parameters, and an all-gather puts them together."""
    loss, g = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
    part = jax.lax.psum_scatter(g, "dp", scatter_dimension=1, tiled=True)
    mine = jax.lax.psum_scatter(w, "dp", scatter_dimension=1, tiled=True) / 2
    mine = mine - 0.05 * part
    turned = jax.lax.all_to_all(mine, "dp", split_axis=0, concat_axis=1, tiled=True)
    mine = jax.lax.all_to_all(turned, "dp", split_axis=1, concat_axis=0, tiled=True)
    whole = jax.lax.all_gather(mine, "dp", axis=1, tiled=True)
    return whole, jax.lax.pmean(loss, "dp")


@pytest.mark.parametrize("hook", ["allreduce", "fp16"])
def test_parts(tmp_path, hook):
    random = np.random.default_rng(SEED)
    w, x, y = (
        jnp.asarray(random.standard_normal(shape), jnp.float32)
        for shape in ((6, 8), (16, 6), (16, 8))
    )
    specs, devices = (P(), P("dp"), P("dp")), mesh(2)
    step = shard_map(sharded, devices, specs, check_vma=False)
    program = imported(export(step, (w, x, y)))
    for name in ("reduce_scatter", "all_gather", "all_to_all"):
        assert f'"ddp.{name}"' in program
    got = run(tmp_path, lower(program), split((w, x, y), specs, devices), hook)
    far = 2**-9 if hook == "fp16" else F32
    for mine, right in zip(got, step(w, x, y), strict=True):
        np.testing.assert_allclose(mine, right, rtol=4 * far, atol=4 * far)
