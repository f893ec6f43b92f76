# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs for test_jax.py, each run in a separate process:

    jax_programs.py PROGRAM DEVICES

JAX gets DEVICES CPU devices, which it must know before it starts. XLA does not optimize:
compiling takes most of the time.
"""

import os
import pathlib
import sys
import warnings

DEVICES = int(sys.argv[2])
os.environ["XLA_FLAGS"] = (
    f"--xla_force_host_platform_device_count={DEVICES} --xla_backend_optimization_level=0"
)
os.environ["JAX_PLATFORMS"] = "cpu"

import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import ddphook
import ddphook.jax

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "parity"))
SEED = int(os.environ.get("DDPHOOK_TEST_SEED", "20261"))
GENERATOR = np.random.default_rng(SEED)


def data_mesh():
    return Mesh(np.array(jax.devices()), ("data",))


def normal(*shape):
    return GENERATOR.standard_normal(shape, dtype=np.float32)


def weights():
    return {"a": 0.2 * normal(32, 48), "b": np.zeros(48, np.float32), "c": 0.2 * normal(48, 16)}


def loss_of(w, x, y):
    return jnp.mean((jnp.tanh(x @ w["a"] + w["b"]) @ w["c"] - y) ** 2)


def updated(w, gradients):
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradients)


def averaging_step(w, x, y):
    """The step with explicit reductions."""
    loss, gradients = jax.value_and_grad(loss_of)(w, x, y)
    return updated(w, jax.lax.pmean(gradients, "data")), jax.lax.pmean(loss, "data")


def summing_step(w, x, y):
    """The step whose reductions come from shard_map, since `w` is replicated."""
    count = jax.lax.axis_size("data")
    loss, gradients = jax.value_and_grad(lambda w: loss_of(w, x, y) / count)(w)
    return updated(w, gradients), jax.lax.psum(loss, "data")


SPECS = dict(in_specs=(P(), P("data"), P("data")), out_specs=(P(), P()))


def batches(count, size=8):
    teacher = normal(32, 16)
    for _ in range(count):
        x = normal(DEVICES * size, 32)
        yield x, np.tanh(x @ teacher)


def largest_difference(a, b):
    return max(np.abs(x - y).max() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))


def trains_as_jax_does():
    """Casts match training without compression to 16 bits; with PowerSGD, the loss falls as
    much, to a fifth."""
    mesh = data_mesh()
    check_vma = DEVICES == 3
    step = summing_step if check_vma else averaging_step
    plain = jax.jit(jax.shard_map(step, mesh=mesh, check_vma=check_vma, **SPECS))
    first, data = weights(), list(batches(20))
    right, losses = first, []
    for x, y in data:
        right, loss = plain(right, x, y)
        losses.append(float(loss))
    moved = largest_difference(right, first)
    assert losses[-1] < 0.8 * losses[0]
    for hook, options, far in (
        ("allreduce", {}, 1e-5),
        ("fp16", {}, 1e-2),
        ("fp16", {"wrapper": "bf16", "bucket_cap_mb": 0.001}, 1e-1),
        ("powersgd", {"matrix_approximation_rank": 4, "start_powerSGD_iter": 2}, None),
    ):
        compressed = ddphook.jax.compress(
            step, hook, mesh=mesh, check_vma=check_vma, **SPECS, **options
        )
        w, got, state = first, [], compressed.init(first, *data[0])
        for x, y in data:
            (w, loss), state = compressed(state, w, x, y)
            got.append(float(loss))
        off = largest_difference(w, right)
        assert jax.tree.structure(w) == jax.tree.structure(first)
        if far:
            assert off <= far * moved, (hook, options, off, moved)
            assert (off > 1e-6 * moved) == (hook != "allreduce"), (hook, off, moved)
            continue
        assert off > 1e-3 * moved
        assert abs(got[-1] - losses[-1]) < 0.2 * (losses[0] - losses[-1]), (got, losses)
        assert int(state["powersgd.iter"]) == len(data)


def equals_the_model():
    """PowerSGD of gradients alone matches its model in NumPy, states included."""
    import powersgd_model
    from tensors import Tensor

    mesh = data_mesh()
    shapes = {"p": (24, 16), "q": (16,), "r": (8, 3, 5), "s": (24, 16)}
    config = powersgd_model.Config(matrix_approximation_rank=2)
    # In the order of the bucket, which the manifest has.
    step = ddphook.jax.compress(
        lambda gradients: jax.lax.pmean(jax.tree.map(lambda g: g[0], gradients), "data"),
        "powersgd",
        mesh=mesh,
        in_specs=P("data"),
        out_specs=P(),
        check_vma=False,
        matrix_approximation_rank=2,
        start_powerSGD_iter=2,
    )
    example = {n: jax.ShapeDtypeStruct((DEVICES, *s), np.float32) for n, s in shapes.items()}
    state = step.init(example)
    [bucket] = step.manifest(example)["buckets"]
    order = bucket["gradients"]
    assert sorted(order) == sorted(shapes)
    model = powersgd_model.Model(config, DEVICES, [[shapes[n] for n in order]], "f32")
    for _ in range(5):
        gradients = {name: normal(DEVICES, *shape) for name, shape in shapes.items()}
        flat = [
            [Tensor("f32", np.concatenate([gradients[n][r].reshape(-1) for n in order]))]
            for r in range(DEVICES)
        ]
        want = model.step(flat)[0][0].data
        got, state = step(state, gradients)
        got = np.concatenate([np.asarray(got[n]).reshape(-1) for n in order])
        np.testing.assert_allclose(got, want, rtol=0, atol=1.5e-5 * np.abs(want).max())
    for rank in range(DEVICES):
        snapshot = model.snapshot(rank)
        want = snapshot.error[0].data
        np.testing.assert_allclose(
            state["b0.error"][rank], want, rtol=0, atol=1.5e-5 * np.abs(want).max()
        )
    want = snapshot.q[0].data
    np.testing.assert_allclose(state["b0.q"], want, rtol=0, atol=6e-5 * np.abs(want).max())
    assert int(state["powersgd.iter"]) == snapshot.iter == 5


def powersgd(mesh, **more):
    return ddphook.jax.compress(
        averaging_step,
        "powersgd",
        mesh=mesh,
        check_vma=False,
        start_powerSGD_iter=2,
        **SPECS,
        **more,
    )


def assert_equal_trees(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def state_is_a_checkpoint():
    """A state saved by NumPy continues with equal bits in another step of the same kind."""
    mesh, data, w = data_mesh(), list(batches(6)), weights()
    step = powersgd(mesh)
    state = step.init(w, *data[0])
    for number, (x, y) in enumerate(data):
        if number == 3:
            with tempfile.TemporaryDirectory() as folder:
                np.savez(f"{folder}/state.npz", **state)
                saved = dict(np.load(f"{folder}/state.npz"))
            saved_w = jax.tree.map(np.asarray, w)
        (w, _), state = step(state, w, x, y)
    other = powersgd(mesh)
    for x, y in data[3:]:
        (saved_w, _), saved = other(saved, saved_w, x, y)
    assert_equal_trees(w, saved_w)
    assert_equal_trees(dict(state), dict(saved))
    # The error matters: without it, the result differs.
    kept = powersgd(mesh, donate=False)
    (w1, _), _ = kept({**state, "b1.error": 0 * state["b1.error"]}, w, *data[0])
    (w2, _), _ = kept(state, w, *data[0])
    assert largest_difference(w1, w2) > 0


def runs_in_jit_and_scan():
    mesh, data, first = data_mesh(), list(batches(5)), weights()
    step = powersgd(mesh, donate=False)
    state = before = step.init(first, *data[0])
    w = first
    for x, y in data:
        (w, _), state = step(state, w, x, y)

    @jax.jit
    def all_steps(w, state, xs, ys):
        def body(carry, batch):
            w, state = carry
            (w, loss), state = step(state, w, *batch)
            return (w, state), loss

        return jax.lax.scan(body, (w, state), (xs, ys))[0]

    xs, ys = (np.stack(arrays) for arrays in zip(*data))
    scanned, scanned_state = all_steps(first, before, xs, ys)
    assert largest_difference(scanned, w) < 1e-6
    assert int(scanned_state["powersgd.iter"]) == 5
    assert not before["b1.error"].is_deleted()


def donates():
    mesh, data, w = data_mesh(), list(batches(2)), weights()
    step = powersgd(mesh)
    state = step.init(w, *data[0])
    kept = dict(state)
    _, state = step(state, w, *data[0])
    expect(ddphook.InvalidArgumentError, "was donated", step, kept, w, *data[0])
    assert kept["b1.error"].is_deleted() and not state["b1.error"].is_deleted()
    assert state["b1.error"].shape == (DEVICES, 32 * 48 + 48 + 48 * 16)
    assert state["b1.error"].sharding.spec == P("data")
    # A batch of another size makes another program with the same state.
    (_, _), state = step(state, w, *next(batches(1, size=2)))
    assert int(state["powersgd.iter"]) == 2


def reduces_over_one_axis_of_two():
    """Sums of activations over `model` are exact, whatever the axes, since gradients are
    computed from them; gradients are compressed over `data`."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))

    def step(w, x):
        def loss(w):
            return jnp.mean(jax.lax.psum(x @ w, "model") ** 2)

        return jax.lax.pmean(jax.grad(loss)(w), "data")

    specs = dict(in_specs=(P("model"), P("data", "model")), out_specs=P("model"))
    w, x = normal(8, 16), normal(12, 8)
    right = jax.jit(jax.shard_map(step, mesh=mesh, check_vma=False, **specs))(w, x)
    steps = {
        axis: ddphook.jax.compress(
            step, "fp16", mesh=mesh, axis=axis, check_vma=False, **specs
        )
        for axis in ("data", ("data", "model"), None)
    }
    hooks = {
        axis: [bucket["hook"] for bucket in compressed.manifest(w, x)["buckets"]]
        for axis, compressed in steps.items()
    }
    for found in hooks.values():
        assert sorted(found) == ["#ddp.allreduce", "#ddp.allreduce", "#ddp.fp16"]
    for axis, compressed in steps.items():
        got, state = compressed(compressed.init(w, x), w, x)
        off = np.abs(got - right).max() / np.abs(right).max()
        assert 0 < off < 1e-2 and state == {}, (axis, off)


def programs_with_everything():
    """Loops, branches, random numbers, large constants, functions that JAX keeps, and
    reordered devices: without compression, bits equal JAX's."""
    mesh = Mesh(np.array(jax.devices()[::-1]), ("data",))
    constant = normal(64, 64)

    def step(w, x, key):
        key = jax.random.wrap_key_data(key)

        def loss(w):
            def body(h, _):
                return jnp.tanh(h @ w), None

            h, _ = jax.lax.scan(body, x @ constant, None, length=3)
            h = h * jax.random.bernoulli(key, 0.5, h.shape)
            h = jax.lax.cond(h.sum() > 0, lambda h: 2 * h, lambda h: h, h)
            return jnp.mean(jax.scipy.special.erf(h) ** 2)

        return jax.lax.pmean(jax.value_and_grad(loss)(w), "data")

    where = dict(
        mesh=mesh, in_specs=(P(), P("data"), P()), out_specs=P(), check_vma=False
    )
    args = normal(64, 64), normal(8, 64), jax.random.key_data(jax.random.key(SEED))
    right = jax.jit(jax.shard_map(step, **where))(*args)
    exact = ddphook.jax.compress(step, "allreduce", **where)
    got, state = exact(exact.init(*args), *args)
    assert state == {} and np.abs(right[1]).max() > 0
    # The mean divides before the sum, which gives the same for two ranks.
    assert_equal_trees(got, right)
    low = ddphook.jax.compress(step, "powersgd", start_powerSGD_iter=2, **where)
    state = low.init(*args)
    for number in range(3):
        (loss, gradient), state = low(state, *args)
        assert loss == right[0]
        assert (largest_difference(gradient, right[1]) > 0) == (number == 2)


def programs_with_other_collectives():
    """Collectives without an equivalent in ddp stay unchanged, on reordered devices, too; so
    do reductions of reduced values. Bits equal JAX's."""
    mesh = Mesh(np.array(jax.devices()[::-1]), ("data",))

    def step(w, x):
        index = jax.lax.axis_index("data")
        key = jax.random.fold_in(jax.random.key(SEED), index)
        x = x * jax.random.bernoulli(key, 0.5, x.shape)

        @jax.jit
        def gradient(w):
            # Occurs twice in the program, under one name.
            return jax.lax.pmean(jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w), "data")

        counts = jax.lax.psum(jnp.arange(3) * index, "data")
        largest = jax.lax.pmax(jnp.abs(x).max(axis=0), "data")
        others = jax.lax.all_gather(x[0], "data")
        again = jax.lax.pmean(jax.lax.pmean(w[0] * index, "data"), "data")
        return gradient(w) + gradient(2 * w), counts, largest, others, again

    where = dict(mesh=mesh, in_specs=(P(), P("data")), out_specs=P(), check_vma=False)
    args = normal(16, 16), normal(8, 16)
    right = jax.jit(jax.shard_map(step, **where))(*args)
    others = dict(keep_others=True, allow_repeated=True)
    exact = ddphook.jax.compress(step, "allreduce", **where, **others)
    got, state = exact(exact.init(*args), *args)
    assert state == {} and right[1].any() and right[4].any()
    assert_equal_trees(got, right)
    low = ddphook.jax.compress(step, "powersgd", start_powerSGD_iter=2, **where, **others)
    state = low.init(*args)
    for _ in range(3):
        got, state = jax.block_until_ready(low(state, *args))
    assert_equal_trees(got[1:4], right[1:4])
    assert largest_difference(got[0], right[0]) > 0
    others_text = "keep_others=True leaves it to XLA"
    for name, text in (("keep_others", others_text), ("allow_repeated", "not reduced over")):
        less = ddphook.jax.compress(step, "fp16", **where, **{**others, name: False})
        expect(ddphook.CompileError, text, less.init, *args)


def reduces_in_loops_and_branches():
    """Loops and branches on which all devices agree, with hooks without states."""
    mesh = data_mesh()

    def gradient(w, x):
        return jax.lax.pmean(jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w), "data")

    def step(w, x):
        def body(carry, x):
            w, number = carry
            g = gradient(w, x)
            # Alternates, although it is computed from a reduced value.
            once = (number + (jnp.sum(g * g) < 0)) % 2 == 0
            g = jax.lax.cond(once, lambda: g, lambda: gradient(w / 2, x))
            return (w - g, number + 1), once

        (w, _), turns = jax.lax.scan(body, (w, 0), x)
        return w, turns

    def on_its_own(w, x):
        return jax.lax.cond(jnp.sum(x) > 0, lambda: gradient(w, x[0]), lambda: w), x

    where = dict(mesh=mesh, in_specs=(P(), P(None, "data")), check_vma=False)
    reduced = dict(where, out_specs=(P(), P()))
    args = 2 * normal(12, 6), normal(5, 4 * DEVICES, 12)
    right, turns = jax.jit(jax.shard_map(step, **reduced))(*args)
    assert list(turns) == [True, False, True, False, True]
    for hook, far in (("allreduce", 2e-6), ("fp16", 1e-2)):
        compressed = ddphook.jax.compress(step, hook, **reduced)
        (got, ours), state = compressed(compressed.init(*args), *args)
        assert largest_difference(got, right) <= far and (ours == turns).all() and state == {}
    low = ddphook.jax.compress(step, "powersgd", **reduced)
    expect(ddphook.CompileError, "a hook without states in 'stablehlo.while'", low.init, *args)
    alone = ddphook.jax.compress(on_its_own, "fp16", **where, out_specs=(P(), P(None, "data")))
    expect(ddphook.CompileError, "execute this operation equally often", alone.init, *args)


def numbers_of_python():
    """Python's numbers take the type of the arrays they meet, as in JAX, even 16-bit types."""
    mesh = data_mesh()

    def step(w, x, rate):
        gradient = jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
        return w - rate * jax.lax.pmean(gradient, "data")

    where = dict(
        mesh=mesh, in_specs=(P(), P("data"), P()), out_specs=P(), check_vma=False
    )
    plain = jax.jit(jax.shard_map(step, **where))
    exact = ddphook.jax.compress(step, "allreduce", **where)
    w, x = normal(6, 5), normal(2 * DEVICES, 6)
    for kind in (jnp.bfloat16, np.float32):
        arrays = w.astype(kind), x.astype(kind)
        for rate in (0.5, 1, np.float32(0.5), jnp.asarray(0.5), jnp.float32(1) * 0.5):
            right = plain(*arrays, rate)
            got, _ = exact({}, *arrays, rate)
            assert got.dtype == right.dtype, (kind, rate)
            assert_equal_trees(got, right)


def statistics_in_a_loss():
    """Sums of sums, which JAX creates for the gradient of a squared mean."""
    mesh = data_mesh()

    def step(w, x):
        def loss(w):
            return jnp.sum(jax.lax.pmean(jnp.tanh(x @ w).mean(axis=0), "data") ** 2)

        return jax.lax.pmean(jax.grad(loss)(w), "data")

    where = dict(mesh=mesh, in_specs=(P(), P("data")), out_specs=P(), check_vma=False)
    args = normal(12, 6), normal(4 * DEVICES, 12)
    right = jax.jit(jax.shard_map(step, **where))(*args)
    exact = ddphook.jax.compress(step, "allreduce", **where)
    got, _ = exact(exact.init(*args), *args)
    assert np.abs(right).max() > 0
    assert largest_difference(got, right) <= 2e-6 * np.abs(right).max()


def explicit_meshes():
    """Meshes with shardings in types, the default of jax.make_mesh."""
    mesh = jax.make_mesh((DEVICES,), ("data",))
    data, w = list(batches(3)), weights()

    def put(value, *spec):
        return jax.device_put(value, NamedSharding(mesh, P(*spec)))

    step, automatic = powersgd(mesh), powersgd(data_mesh())
    ours, theirs = put(w), w
    state = step.init(ours, put(data[0][0], "data"), put(data[0][1], "data"))
    other = automatic.init(theirs, *data[0])
    for x, y in data:
        (ours, _), state = step(state, ours, put(x, "data"), put(y, "data"))
        (theirs, _), other = automatic(other, theirs, x, y)
    assert_equal_trees(jax.tree.map(np.asarray, ours), jax.tree.map(np.asarray, theirs))


def expect(kind, text, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"expected an error with {text!r}")


def refuses():
    mesh, w, (batch,) = data_mesh(), weights(), batches(1)
    compress, where = ddphook.jax.compress, dict(mesh=mesh, check_vma=False, **SPECS)
    wrong = ddphook.InvalidArgumentError
    expect(wrong, "expected axis to be of ('data',)", compress, averaging_step, axis="x", **where)
    expect(wrong, "expected hook to be a name", compress, averaging_step, "a b", **where)
    expect(wrong, "expected random_seed to", compress, averaging_step, "int8", random_seed="}", **where)
    for options, text in (
        (dict(hook="zip"), "expected hook=allreduce, fp16"),
        (dict(rank=2), "rank"),
        (dict(hook="powersgd", warm_start=False), "'ddp.random_normal' op has no form in StableHLO"),
        (dict(hook="topk"), "with hook=topk: 'ddp.sparsify' op has no form in StableHLO"),
        (dict(hook="topk", density=2), "with hook=topk density=2: expected density"),
        (dict(hook="post_local_sgd"), "depends on the machines of a job"),
    ):
        step = compress(averaging_step, **where, **options)
        expect(ddphook.CompileError, text, step.init, w, *batch)
    # shard_map has already summed these gradients.
    step = compress(averaging_step, **{**where, "check_vma": True})
    expect(ddphook.CompileError, "not reduced over the same ranks yet", step.init, w, *batch)
    step = compress(lambda w, x, y: (w, 0.0), **where)
    expect(wrong, "expected a step that reduces over the mesh", step.init, w, *batch)
    expect(
        ddphook.UnsupportedError,
        "jax.random.key_data",
        step.init,
        jax.random.key(0),
        *batch,
    )
    step = powersgd(mesh)
    state = step.init(w, *batch)
    expect(wrong, "expected a state 'powersgd.iter'", step, {}, w, *batch)
    expect(wrong, "expected no state 'more'", step, {**state, "more": 1}, w, *batch)
    wider = {**state, "b1.q": np.zeros(3, np.float32)}
    expect(wrong, "expected state 'b1.q' of float32", step, wider, w, *batch)
    # The exported function's derivative is that of its placeholder, zero.
    for derive in (jax.grad, lambda f: jax.jit(jax.value_and_grad(f))):
        loss = derive(lambda w: step(state, w, *batch)[0][1])
        expect(ddphook.UnsupportedError, "no derivative of a step", loss, w)
    # No failed call has used up the state.
    step(state, w, *batch)
    whole = jax.jit(jax.shard_map(averaging_step, **where))
    step = compress(whole, **where)
    expect(wrong, "already uses jax.shard_map", step.init, w, *batch)
    # The same step without shard_map is accepted.
    step = compress(jax.jit(averaging_step), **where)
    step(step.init(w, *batch), w, *batch)
    # An error of the step is raised unchanged.
    step = compress(lambda w, x, y: w["a"] @ x, **where)
    expect(TypeError, "dot_general", step.init, w, *batch)


def reduces_nothing():
    """A step whose gradients stay on their devices causes a warning."""
    mesh = data_mesh()

    def step(is_reduced, w, x):
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(w)
        gradient = jax.lax.pmean(gradient, "data") if is_reduced else gradient
        return w - gradient, jax.lax.pmean(loss, "data")

    where = dict(mesh=mesh, in_specs=(P(), P("data")), out_specs=(P(), P()), check_vma=False)
    said = {"allreduce": "reduces no gradient", "fp16": "no reduction of the step has the hook"}
    for hook, text in said.items():
        for is_reduced in (True, False):
            given = jax.tree_util.Partial(step, is_reduced)
            compressed = ddphook.jax.compress(given, hook, **where)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for rows in (1, 2):
                    compressed.manifest(normal(4, 3), normal(rows * DEVICES, 4))
            texts = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
            assert len(texts) == (not is_reduced), texts
            assert all(text in each for each in texts), texts


if __name__ == "__main__":
    print(f"seed {SEED}")
    {
        f.__name__: f
        for f in (
            trains_as_jax_does,
            equals_the_model,
            state_is_a_checkpoint,
            runs_in_jit_and_scan,
            donates,
            reduces_over_one_axis_of_two,
            programs_with_everything,
            programs_with_other_collectives,
            reduces_in_loops_and_branches,
            numbers_of_python,
            statistics_in_a_loss,
            explicit_meshes,
            reduces_nothing,
            refuses,
        )
    }[sys.argv[1]]()
    assert "torch" not in sys.modules
