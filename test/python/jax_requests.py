# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every request to ddphook.jax has an effect, or an error or a warning says why not.

    jax_requests.py PROGRAM DEVICES
"""

import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import ddphook
import ddphook.jax
from jax_programs import (
    DEVICES,
    SPECS,
    assert_equal_trees,
    averaging_step,
    batches,
    data_mesh,
    expect,
    largest_difference,
    normal,
    updated,
    weights,
)


def compress(step, hook="powersgd", **options):
    where = dict(mesh=data_mesh(), check_vma=False, **SPECS)
    return ddphook.jax.compress(step, hook, **{**where, **options})


def warned(function, *arguments):
    """Returns the texts of the package's warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*arguments)
    return [str(w.message) for w in caught if "ddphook" in str(w.message)]


def hooks_of(step, *arguments):
    """Returns the hook of each gradient."""
    return {
        name: bucket["hook"]
        for bucket in step.manifest(*arguments)["buckets"]
        for name in bucket["gradients"]
    }


def metrics_are_exact():
    """A reduced matrix that the step only returns is exact."""

    def step(w, x, y):
        def loss(w):
            out = jnp.tanh(x @ w["a"] + w["b"]) @ w["c"]
            return jnp.mean((out - y) ** 2), out

        (value, out), gradients = jax.value_and_grad(loss, has_aux=True)(w)
        classes = jax.nn.one_hot(jnp.argmax(out, 1), 16)
        confusion = jax.lax.psum(jnp.einsum("bi,bj->ij", classes, jnp.abs(y)), "data")
        mean = jax.lax.pmean(jnp.mean(out, 0), "data")
        gradients = jax.lax.pmean(gradients, "data")
        return updated(w, gradients), (jax.lax.pmean(value, "data"), confusion, mean)

    w, ((x, y),) = weights(), batches(1, size=512)
    plain = jax.jit(
        jax.shard_map(step, mesh=data_mesh(), check_vma=False, **SPECS)
    )
    right = plain(w, x, y)
    for hook, options in (("bf16", {}), ("powersgd", dict(start_powerSGD_iter=2))):
        compressed = compress(step, hook, **options)
        state = compressed.init(w, x, y)
        for _ in range(3):
            got, state = compressed(state, w, x, y)
        assert_equal_trees(jax.tree.map(np.asarray, got[1]), right[1])
        assert largest_difference(got[0], right[0]) > 0


def exempt_takes_expressions():
    w, (batch,) = weights(), batches(1)
    for pattern, hook, matched in (
        ("^a$|^b$", "allreduce", "ab"),
        (r"^[bc]", "bf16", "bc"),
    ):
        step = compress(averaging_step, exempt=pattern, exempt_hook=hook)
        found = hooks_of(step, w, *batch)
        for name in "abc":
            expected = f"#ddp.{hook}" if name in matched else "#ddp.powersgd"
            assert found[name].startswith(expected), found
    step = compress(averaging_step, exempt="batch_stats")
    expect(ddphook.CompileError, "matches none of", step.init, w, *batch)
    wrong = ddphook.InvalidArgumentError
    expect(wrong, "expected 'exempt' to be", compress, averaging_step, exempt="")
    expect(wrong, "expected exempt_hook to", compress, averaging_step, exempt="a", exempt_hook="}")


def linear_algebra():
    """jnp.linalg in a step: its custom calls have attributes of Shardy."""

    def step(w, x, y):
        loss, g = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
        g = jax.lax.pmean(g, "data")
        square = g.T @ g + jnp.eye(16)
        factor = jnp.linalg.cholesky(square)
        q, r = jnp.linalg.qr(square)
        u, s, v = jnp.linalg.svd(square)
        values, vectors = jnp.linalg.eigh(square)
        scale = jnp.linalg.det(square / 16) + s[0] + values[0] + r[0, 0]
        move = jnp.linalg.solve(square, jnp.linalg.inv(factor) @ q @ u @ v @ vectors)
        return w - 0.01 * g @ move / (1 + scale), jax.lax.pmean(loss, "data")

    w, (batch,) = 0.2 * normal(32, 16), batches(1)
    right = jax.jit(jax.shard_map(step, mesh=data_mesh(), check_vma=False, **SPECS))(w, *batch)
    exact = compress(step, "allreduce")
    got, _ = exact(exact.init(w, *batch), w, *batch)
    assert largest_difference(got, right) < 1e-5
    low = compress(step, "fp16")
    low(low.init(w, *batch), w, *batch)


def kernels_compress():
    """PowerSGD compresses the layouts of JAX's libraries as much as PyTorch's."""

    def step(p, x):
        g = jax.grad(lambda p: jnp.sum(jnp.tanh(x * p)))(p)
        return p - 0.1 * jax.lax.pmean(g, "data")

    def rate(shape, rank, **options):
        low = compress(
            step,
            in_specs=(P(), P()),
            out_specs=P(),
            matrix_approximation_rank=rank,
            start_powerSGD_iter=2,
            **options,
        )
        like = jax.ShapeDtypeStruct(shape, jnp.float32)
        [bucket] = low.manifest(like, jax.ShapeDtypeStruct((), jnp.float32))["buckets"]
        return bucket["elements"] * 4 / bucket["wire_bytes"]

    for shape, ranks, as_torch in (
        ((3, 3, 256, 256), (230, 57), (2, 1)),
        ((256, 256, 3, 3), (230, 57), (230, 57)),
        ((12, 768, 3072), (614, 153), (11, 2)),
        ((768, 12, 64), (384, 96), (384, 96)),
        ((12, 64, 768), (59, 14), (11, 2)),
        ((1, 1, 64, 128), (42, 10), (1, 1)),
    ):
        for rank, expected, other in zip((1, 4), ranks, as_torch):
            assert int(rate(shape, rank)) == expected, (shape, rank)
            if other < 2:
                kept = []
                said = warned(lambda: kept.append(rate(shape, rank, matrix_view="first")))
                assert "more than half" in said[0] and int(kept[0]) == other
            else:
                assert int(rate(shape, rank, matrix_view="first")) == other

    # Train a kernel and stacked layers, whose gradients have rank 1 on each device. With
    # two devices, rank 2 loses nothing if the matrices are chosen as described.
    p = (np.zeros((3, 3, 16, 32), np.float32), np.zeros((3, 64, 80), np.float32))
    x = (
        np.einsum("dhwi,do->dhwio", normal(DEVICES, 3, 3, 16), normal(DEVICES, 32)),
        np.einsum("dli,dlo->dlio", normal(DEVICES, 3, 64), normal(DEVICES, 3, 80)),
    )

    def train(p, x):
        def loss(p):
            return sum(jnp.mean((a - b[0]) ** 2) for a, b in zip(p, x))

        value, g = jax.value_and_grad(loss)(p)
        g = jax.lax.pmean(g, "data")
        return jax.tree.map(lambda a, b: a - 1000 * b, p, g), jax.lax.pmean(value, "data")

    losses = {}
    for hook, options in (
        ("allreduce", {}),
        ("powersgd", dict(matrix_approximation_rank=2, start_powerSGD_iter=2)),
    ):
        low = compress(train, hook, in_specs=(P(), P("data")), **options)
        state, w = low.init(p, x), p
        for _ in range(20):
            (w, loss), state = jax.block_until_ready(low(state, w, x))
        losses[hook] = float(loss)
    assert abs(losses["powersgd"] / losses["allreduce"] - 1) < 1e-3, losses


def sharded_optimizer():
    """ZeRO: hooks that cast compress its reduce-scatters; PowerSGD is refused by name."""

    def step(w, x, y):
        loss, g = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
        part = jax.lax.psum_scatter(g, "data", scatter_dimension=1, tiled=True)
        mine = jax.lax.psum_scatter(w, "data", scatter_dimension=1, tiled=True) / DEVICES
        mine = mine - 0.05 * part / DEVICES
        turned = jax.lax.all_to_all(mine, "data", split_axis=0, concat_axis=1, tiled=True)
        mine = jax.lax.all_to_all(turned, "data", split_axis=1, concat_axis=0, tiled=True)
        return jax.lax.all_gather(mine, "data", axis=1, tiled=True), jax.lax.pmean(loss, "data")

    w, (batch,) = 0.2 * normal(32, 16), batches(1)
    right = jax.jit(jax.shard_map(step, mesh=data_mesh(), check_vma=False, **SPECS))(w, *batch)
    exact = compress(step, "allreduce")
    got, _ = exact(exact.init(w, *batch), w, *batch)
    assert largest_difference(got, right) < 1e-6
    half = compress(step, "fp16")
    assert warned(half.init, w, *batch) == []
    rounded, _ = half(half.init(w, *batch), w, *batch)
    assert 0 < largest_difference(rounded, right) < 1e-3
    assert "xf16>" in half.module(w, *batch)
    low = compress(step, "powersgd")
    expect(ddphook.CompileError, "reduces whole gradients only", low.init, w, *batch)

    def without_loss(w, x, y):
        g = jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
        part = jax.lax.psum_scatter(g, "data", scatter_dimension=1, tiled=True)
        return jax.lax.all_gather(part, "data", axis=1, tiled=True), jnp.zeros(())

    half = compress(without_loss, "fp16")
    assert warned(half.init, w, *batch) == []
    assert [s["wire_dtype"] for s in half.manifest(w, *batch)["scatters"]] == ["float16"]


def warns_of_what_does_nothing():
    w, (batch,) = weights(), batches(1)
    assert warned(compress(averaging_step, "fp16").init, w, *batch) == []
    assert warned(compress(averaging_step, "allreduce").init, w, *batch) == []

    def metrics(w, x, y):
        return w, jax.lax.pmean(jnp.mean(x) + jnp.mean(y), "data")

    [said] = warned(compress(metrics, "fp16").init, w, *batch)
    assert "no reduction of the step has the hook" in said
    everything = compress(averaging_step, "fp16", exempt=".")
    [said] = warned(everything.init, w, *batch)
    assert "no reduction of the step has the hook" in said

    def narrow(w, x, y):
        w16 = jax.tree.map(lambda p: p.astype(jnp.bfloat16), w)
        new, loss = averaging_step(w16, x, y)
        return jax.tree.map(lambda a, b: a + 0 * b, new, w16), loss

    [said] = warned(compress(narrow, "bf16").init, w, *batch)
    assert "more than half" in said

    def permuted(w, x, y):
        g = jax.grad(lambda w: jnp.mean((x @ w["a"]) ** 2))(w)
        pairs = [(i, (i + 1) % DEVICES) for i in range(DEVICES)]
        other = jax.tree.map(lambda v: jax.lax.ppermute(v, "data", pairs), g)
        return updated(w, other), jax.lax.pmean(jnp.mean(x), "data")

    step = compress(permuted, "fp16")
    expect(ddphook.CompileError, "keep_others=True leaves it to XLA", step.init, w, *batch)
    [said] = warned(compress(permuted, "fp16", keep_others=True).init, w, *batch)
    assert "no reduction of the step has the hook" in said


def names_of_types():
    w, (batch,) = weights(), batches(1)
    for dtype in ("f32", "float32", jnp.float32, np.dtype("float32")):
        step = compress(averaging_step, "allreduce_and_upcast", reduce_dtype=dtype)
        assert "f32" in hooks_of(step, w, *batch)["a"]
    step = compress(averaging_step, "allreduce_and_upcast", reduce_dtype="wide")
    expect(ddphook.CompileError, "expected reduce-dtype to be a type such as f32", step.init, w, *batch)


def no_vmap():
    w, (batch,) = weights(), batches(1)
    step = compress(averaging_step, "fp16")
    state = step.init(w, *batch)
    many = jax.tree.map(lambda a: np.stack([a, a]), (w, *batch))
    for around in (jax.vmap, lambda f: jax.jit(jax.vmap(f)), lambda f: jax.vmap(jax.jit(f))):
        mapped = around(lambda *args: step(state, *args)[0][1])
        expect(ddphook.UnsupportedError, "no jax.vmap around a step", mapped, *many)


if __name__ == "__main__":
    {
        f.__name__: f
        for f in (
            metrics_are_exact,
            exempt_takes_expressions,
            linear_algebra,
            kernels_compress,
            sharded_optimizer,
            warns_of_what_does_nothing,
            names_of_types,
            no_vmap,
        )
    }[sys.argv[1]]()
