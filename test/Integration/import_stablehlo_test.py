# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of JAX, on our ranks and on JAX's own devices.

Each test writes a training step in JAX for a mesh of devices, runs it on as many
devices of this host, and exports it. `ddp-import-stablehlo` and jaxlib's lowering to
linalg follow, as docs/examples/jax has them, then ddphook-run: the ranks get the parts
of the arguments that JAX's devices got, and have to give the results that they gave.

Environment: DDPHOOK_RUN names the tool (default: build/bin/ddphook-run of this
checkout), DDPHOOK_TEST_SEED the seed of all random inputs.
"""

import functools

import flax.linen as nn
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.interpreters.mlir import make_ir_context
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib.mlir import ir

from jax_steps import (
    F16,
    F32,
    NAMES,
    RATE,
    SEED,
    accumulate,
    assert_close,
    export,
    generic,
    imported,
    loss,
    lower,
    make_arguments,
    mesh,
    move,
    random,
    run,
    run_steps,
    shard_map,
    shardy,
    split,
    step_of_means,
    step_of_sums,
    value_and_sums,
)


@pytest.mark.parametrize("hook", ["allreduce", "fp16"])
@pytest.mark.parametrize(
    "how, ranks",
    # Shardy reduces nothing on one device.
    [(how, ranks) for how in ("sums", "means") for ranks in (1, 2, 4)]
    + [("jit", 2), ("jit", 4)],
)
def test_equals_jax(tmp_path, how, ranks, hook):
    devices, arguments = mesh(ranks), make_arguments()
    specs = (P(), P("dp"), P("dp"))
    if how == "sums":
        step = shard_map(step_of_sums, devices, specs)
    elif how == "means":
        step = shard_map(step_of_means, devices, specs, check_vma=False)
    else:

        def whole(params, x, y):
            value, grads = jax.value_and_grad(loss)(params, x, y)
            return move(params, grads), value

        shardings = tuple(NamedSharding(devices, spec) for spec in specs)
        step = jax.jit(
            whole, in_shardings=shardings, out_shardings=NamedSharding(devices, P())
        )
    text = export(step, arguments)
    if how == "jit":
        text = shardy(text)
    program = imported(text)
    kind = "mean" if how == "means" else "sum"
    for name in NAMES:
        [line] = [line for line in program.split("\n") if f'ddp.name = "{name}"' in line]
        # A group of one has nothing to divide by.
        assert f"<reduction {kind}>" in line or ranks == 1
    [value] = [line for line in program.split("\n") if "ddp.hook = #ddp.allreduce" in line]
    assert "tensor<f32>" in value
    got = run(tmp_path, lower(program), split(arguments, specs, devices), hook)
    tolerance = F16 if hook == "fp16" else F32
    assert_close(got, step(*arguments), arguments[0], tolerance)
    if hook == "fp16" and ranks > 1:
        # A hook that does nothing would be as close as f32 is.
        with pytest.raises(AssertionError):
            assert_close(got, step(*arguments), arguments[0], F32)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("step", [step_of_sums, step_of_means])
def test_narrow_parameters(tmp_path, step, dtype):
    devices, arguments = mesh(2), make_arguments(jnp.dtype(dtype))
    specs = (P(), P("dp"), P("dp"))
    step = shard_map(step, devices, specs, check_vma=step is step_of_sums)
    program = imported(export(step, arguments))
    got = run(tmp_path, lower(program), split(arguments, specs, devices), "allreduce")
    # A few roundings of numbers as large as the parameters, which are below 1.
    digits = 8 if dtype == "bfloat16" else 11
    expected = jax.tree.leaves(step(*arguments))
    for mine, right in zip(got, expected, strict=True):
        right = np.asarray(right).astype(np.float32)
        np.testing.assert_allclose(
            mine.astype(np.float32), right, rtol=4 * 2**-digits, atol=4 * 2**-digits
        )


@pytest.mark.parametrize("how", ["one", "chained", "inner"])
def test_two_axes(tmp_path, how):
    """Over both axes of a mesh at once or one by one, and over one of them."""
    devices, arguments = mesh(2, 2), make_arguments()
    batch = P("dp") if how == "inner" else P(("dp", "mp"))
    specs = (P(), batch, batch)

    def chained(params, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        grads, value = jax.lax.pmean((grads, value), "dp")
        grads, value = jax.lax.pmean((grads, value), "mp")
        return move(params, grads), value

    body = {
        "one": functools.partial(step_of_sums, axes=("dp", "mp")),
        "chained": chained,
        "inner": step_of_sums,
    }[how]
    step = shard_map(body, devices, specs, check_vma=how != "chained")
    program = imported(export(step, arguments))
    assert ('sym_name = "dp_mp"' in program) == (how == "one")
    assert ('sym_name = "mp"' in program) == (how == "chained")
    assert program.count("<reduction mean>") == {"one": 1, "chained": 8, "inner": 1}[how]
    got = run(tmp_path, lower(program), split(arguments, specs, devices), "allreduce")
    assert_close(got, step(*arguments), arguments[0], F32)


# ---------------------------------------------------------------------------
# Loops and branches
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["allreduce", "fp16"])
@pytest.mark.parametrize("reduce_each", [True, False])
def test_scan(tmp_path, reduce_each, hook):
    devices, arguments = mesh(2), make_arguments(batch=(3, 8))
    specs = (P(), P(None, "dp"), P(None, "dp"))
    body = functools.partial(accumulate, reduce_each=reduce_each)
    step = shard_map(body, devices, specs, check_vma=False)
    program = imported(export(step, arguments))
    # A loop adds to the gradient by which its parameter is moved.
    for name in NAMES:
        assert f'ddp.name = "{name}"' in program
    got = run(tmp_path, lower(program), split(arguments, specs, devices), hook)
    tolerance = F16 if hook == "fp16" else F32
    assert_close(got, step(*arguments), arguments[0], tolerance)


def test_states_in_a_loop(tmp_path):
    """To a hook with states each iteration is a step: as if the program had been run
    so many times."""
    count, devices = 4, mesh(2)
    params, xs, ys = make_arguments(batch=(count, 8))
    hook = "powersgd matrix-approximation-rank=1 start-powersgd-iter=2"
    specs = (P(), P(None, "dp"), P(None, "dp"))
    body = functools.partial(accumulate, reduce_each=True)
    step = shard_map(body, devices, specs, check_vma=False)
    program = lower(imported(export(step, (params, xs, ys))))
    got = run(tmp_path, program, split((params, xs, ys), specs, devices), hook)

    def gradients(params, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return jax.lax.pmean(grads, "dp"), jax.lax.pmean(value, "dp")

    specs = (P(), P("dp"), P("dp"))
    step = shard_map(gradients, devices, specs, check_vma=False)
    program = lower(imported(export(step, (params, xs[0], ys[0]))))
    batches = [split((params, x, y), specs, devices) for x, y in zip(xs, ys)]
    steps = run_steps(tmp_path, program, batches, hook)
    before = jax.tree.leaves(params)
    for i, old in enumerate(before):
        total = sum(results[i].astype(np.float64) for results in steps)
        assert_close([got[i]], [old - RATE * total], [old], F32)
    # The hook has lost something, from its third step on.
    exact = [jax.tree.leaves(step(params, x, y)) for x, y in zip(xs, ys)]
    np.testing.assert_allclose(steps[1][1], exact[1][1], rtol=0, atol=2**-20)
    assert np.abs(steps[2][1] - exact[2][1]).max() > 2**-10


def test_branch(tmp_path):
    """What all ranks have alike may decide whether they reduce."""
    devices, arguments = mesh(2), make_arguments()
    specs = (P(), P("dp"), P("dp"))

    def branch(params, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        grads = jax.lax.cond(
            params["in"]["b"][0] < 1,
            lambda grads: jax.lax.pmean(grads, "dp"),
            lambda grads: jax.tree.map(jnp.zeros_like, grads),
            grads,
        )
        return move(params, grads), jax.lax.pmean(value, "dp")

    step = shard_map(branch, devices, specs, check_vma=False)
    program = imported(export(step, arguments))
    got = run(tmp_path, lower(program), split(arguments, specs, devices), "allreduce")
    assert_close(got, step(*arguments), arguments[0], F32)


# ---------------------------------------------------------------------------
# Other ways to write a step
# ---------------------------------------------------------------------------


def test_update_outside(tmp_path):
    """Parameters are moved outside of shard_map, by every rank."""
    devices, arguments = mesh(2), make_arguments()
    specs = (P(), P("dp"), P("dp"))
    inner = jax.shard_map(
        value_and_sums, mesh=devices, in_specs=specs, out_specs=(P(), P())
    )

    def outer(params, x, y):
        value, grads = inner(params, x, y)
        return move(params, grads), value

    step = jax.jit(outer)
    program = imported(export(step, arguments))
    got = run(tmp_path, lower(program), split(arguments, specs, devices), "allreduce")
    assert_close(got, step(*arguments), arguments[0], F32)


def test_constraints(tmp_path):
    """Outside of shard_map, of what is split in the same way, and of what is whole."""
    devices, arguments = mesh(2), make_arguments()
    specs = (P(), P("dp"), P("dp"))
    double = jax.shard_map(
        lambda x: 2 * x, mesh=devices, in_specs=P("dp"), out_specs=P("dp")
    )
    inner = jax.shard_map(
        step_of_sums, mesh=devices, in_specs=specs, out_specs=(P(), P())
    )

    def constrain(tree, *axes):
        return jax.lax.with_sharding_constraint(tree, NamedSharding(devices, P(*axes)))

    def outer(params, x, y):
        x = constrain(constrain(x, "dp"), P.UNCONSTRAINED)
        x = constrain(double(x), "dp")
        params, value = inner(constrain(params), x, constrain(y, "dp", None))
        return constrain(params), value

    step = jax.jit(outer)
    program = imported(export(step, arguments))
    got = run(tmp_path, lower(program), split(arguments, specs, devices), "allreduce")
    assert_close(got, step(*arguments), arguments[0], F32)


def test_sums_in_16_bits(tmp_path):
    """A hook by hand; the division comes behind the conversion back."""
    devices, arguments = mesh(2), make_arguments()
    specs = (P(), P("dp"), P("dp"))

    def by_hand(params, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)

        def reduce(grad):
            total = jax.lax.psum(grad.astype(jnp.bfloat16), "dp")
            return total.astype(jnp.float32) / 2

        return move(params, jax.tree.map(reduce, grads)), jax.lax.pmean(value, "dp")

    step = shard_map(by_hand, devices, specs, check_vma=False)
    program = imported(export(step, arguments))
    assert program.count("<reduction mean>") == 4
    got = run(tmp_path, lower(program), split(arguments, specs, devices), "allreduce")
    # A bf16 is rounded twice at most before a sum of two, which is rounded.
    assert_close(got, step(*arguments), arguments[0], 4 * 2**-8)


def test_small_numbers_in_f16(tmp_path):
    """Four of the least f16 are a number, a quarter of each is none."""
    devices, argument = mesh(4), np.full((4, 3), 2**-24, np.float16)

    def average(x):
        mean = jax.lax.pmean(x, "dp")
        wide = jax.lax.psum(x, "dp").astype(jnp.float32) / 4
        return mean, wide

    step = jax.jit(
        jax.shard_map(average, mesh=devices, in_specs=P("dp"), out_specs=(P(), P()))
    )
    program = imported(export(step, (argument,)))
    parts = split((argument,), (P("dp"),), devices)
    got = run(tmp_path, lower(program), parts, "allreduce")
    for mine, right in zip(got, step(argument), strict=True):
        assert np.all(mine == 2**-24)
        np.testing.assert_array_equal(mine, right)


def test_checkpoint(tmp_path):
    """Activations are computed again, behind a barrier."""
    devices, arguments = mesh(2), make_arguments()
    specs = (P(), P("dp"), P("dp"))

    def again(params, x, y):
        value, grads = value_and_sums(params, x, y, jax.checkpoint(loss))
        return move(params, grads), value

    step = shard_map(again, devices, specs)
    text = export(step, arguments)
    assert "stablehlo.optimization_barrier" in text
    got = run(
        tmp_path, lower(imported(text)), split(arguments, specs, devices), "allreduce"
    )
    assert_close(got, step(*arguments), arguments[0], F32)


def test_adam(tmp_path):
    """Every gradient reaches every result by way of their norm, and has its own name."""
    devices, (params, x, y) = mesh(2), make_arguments()
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(0.01, eps=0.1))

    def update(params, state, x, y):
        value, grads = value_and_sums(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    arguments = (params, optimizer.init(params), x, y)
    specs = (P(), P(), P("dp"), P("dp"))
    mapped = jax.shard_map(update, mesh=devices, in_specs=specs, out_specs=(P(), P(), P()))
    step = jax.jit(mapped, keep_unused=True)
    program = imported(export(step, arguments))
    for name in NAMES:
        assert program.count(f'ddp.name = "{name}"') == 1
    got = run(tmp_path, lower(program), split(arguments, specs, devices), "allreduce")
    # The norm, its root and quotients of moments; the parameters' moves are small.
    assert_close(got, step(*arguments), params, 2**-12)


def test_other_exports():
    """What jax.export, pmap and meshes of explicit axes write."""
    devices, (params, x, y) = mesh(2), make_arguments()
    specs = (P(), P("dp"), P("dp"))
    exported = jax.export.export(shard_map(step_of_sums, devices, specs))(params, x, y)
    with make_ir_context():
        text = generic(ir.Module.parse(exported.mlir_module()))
    assert imported(text).count("<reduction sum>") == 3

    mapped = jax.pmap(
        step_of_means,
        axis_name="dp",
        in_axes=(None, 0, 0),
        devices=list(devices.devices.flat),
    )
    parts = [np.stack(np.split(array, 2)) for array in (x, y)]
    text = generic(mapped.lower(params, *parts).compiler_ir("stablehlo"))
    assert imported(text).count("<reduction mean>") == 4

    explicit = Mesh(devices.devices, ("dp",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(explicit):
        put = [
            jax.device_put(tree, NamedSharding(explicit, spec))
            for tree, spec in zip((params, x, y), specs)
        ]
        text = export(jax.jit(jax.value_and_grad(loss)), put)
    assert imported(shardy(text)).count("<reduction sum>") == 4


@pytest.mark.parametrize(
    "axis, group", [("é", "__"), ('"a\\b"', "_a_b_"), ("a\nb\t", "a_b_")]
)
def test_names_of_axes(tmp_path, axis, group):
    """Any text. XLA itself does not run all of these programs."""
    devices, argument = mesh(2, names=(axis,)), random(4, 3)
    mapped = jax.shard_map(
        lambda x: jax.lax.psum(x, axis), mesh=devices, in_specs=P(axis), out_specs=P()
    )
    program = imported(export(jax.jit(mapped), (argument,)))
    assert f'sym_name = "{group}"' in program
    parts = split((argument,), (P(axis),), devices)
    got = run(tmp_path, lower(program), parts, "allreduce")
    assert_close(got, [argument[:2] + argument[2:]], [], F32)


# ---------------------------------------------------------------------------
# Indices
# ---------------------------------------------------------------------------


def _gradient_of(function):
    def gradient(table, rows):
        scale = jnp.arange(1.0, 1 + function(table, rows).size)
        return jax.grad(lambda t: jnp.vdot(function(t, rows), scale))(table)

    return gradient


def _add_to_rows_of_bytes(table, rows):
    dimensions = jax.lax.ScatterDimensionNumbers(
        update_window_dims=(2,),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
    )
    updates = jnp.ones((*rows.shape, table.shape[1]))
    indices = rows.astype(jnp.uint8)[..., None]
    return jax.lax.scatter_add(table, indices, updates, dimensions, mode="drop")


SCATTERS = {
    "embedding": _gradient_of(lambda table, rows: table[rows]),
    "take": _gradient_of(lambda table, rows: jnp.take(table, rows, axis=1)),
    "bytes": _add_to_rows_of_bytes,
    "along": _gradient_of(lambda table, rows: jnp.take_along_axis(table, rows[:1], 1)),
    "column": _gradient_of(lambda table, rows: table[rows[0], 2]),
    "window": _gradient_of(
        lambda table, rows: jax.lax.dynamic_slice(table, (rows[0, 1], 1), (2, 3))
    ),
    "set": lambda table, rows: table.at[rows[0, 1]].set(-1.0),
    "multiply": lambda table, rows: table.at[rows, 1].multiply(1.5),
    "maximum": lambda table, rows: table.at[:, rows[:, 0]].max(0.5),
    "minimum": lambda table, rows: table.at[rows[0]].min(0.25),
    "dropped": lambda table, rows: table.at[rows + 2].add(1.0, mode="drop"),
    "clipped": lambda table, rows: table.at[rows + 2].add(1.0, mode="clip"),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_scatter(tmp_path, name):
    devices, table = mesh(2), random(6, 5)
    # Some twice, some of them from behind, one of neither end with 2 more.
    rows = np.array([[1, 4, 1], [0, 4, 3], [2, 0, 1], [4, 4, -5]], np.int32)
    specs = (P(), P("dp"))

    def step(table, rows):
        return jax.lax.psum(SCATTERS[name](table, rows), "dp")

    step = jax.jit(
        jax.shard_map(step, mesh=devices, in_specs=specs, out_specs=P(), check_vma=False),
        # A gradient of indexing does not need the table.
        keep_unused=True,
    )
    program = imported(export(step, (table, rows)))
    got = run(
        tmp_path, lower(program), split((table, rows), specs, devices), "allreduce"
    )
    assert_close(got, step(table, rows), [], F32)


def test_top_k(tmp_path):
    devices = mesh(2)
    # Equal numbers, zeros of both signs, infinities, none at all.
    rows = np.array(
        [
            [1, 3, 3, 2, 3],
            [0.0, -0.0, -1, -0.0, 0.0],
            [np.inf, np.nan, -np.inf, 5, np.inf],
            [-1, -2, -3, -4, -5],
        ],
        np.float32,
    )
    numbers = np.array([[3, 3, -2, 3, 7]] * 2, np.int32)
    specs = (P("dp"), P("dp"))

    def step(rows, numbers):
        chosen = [*jax.lax.top_k(rows, 4), *jax.lax.top_k(numbers, 2)]
        # A sum that compares bits, zeros and NaN with them.
        chosen[0] = jax.lax.bitcast_convert_type(chosen[0], jnp.int32)
        return [jax.lax.psum(part.astype(jnp.float32), "dp") for part in chosen]

    mapped = jax.shard_map(step, mesh=devices, in_specs=specs, out_specs=P())
    step = jax.jit(mapped)
    program = imported(export(step, (rows, numbers)))
    assert program.count('"chlo.top_k"') == 2
    parts = split((rows, numbers), specs, devices)
    got = run(tmp_path, lower(program), parts, "allreduce")
    for mine, right in zip(got, step(rows, numbers), strict=True):
        np.testing.assert_array_equal(mine, right)


# ---------------------------------------------------------------------------
# A model of other people's layers
# ---------------------------------------------------------------------------


class Block(nn.Module):
    """A transformer block, in front of one linear layer."""

    @nn.compact
    def __call__(self, x):
        x = x + nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(x))
        hidden = nn.gelu(nn.Dense(32)(nn.LayerNorm()(x)))
        return nn.Dense(5)(x + nn.Dense(16)(hidden))


@pytest.mark.parametrize("hook", ["allreduce", "fp16"])
def test_transformer_block(tmp_path, hook):
    devices, model = mesh(2), Block()
    x, labels = random(4, 6, 16), np.abs(random(4, 6) * 2).astype(np.int64) % 5
    y = np.eye(5, dtype=np.float32)[labels]
    params = model.init(jax.random.key(SEED), x)["params"]
    # The momentum begins with the gradient, whose size does not depend on itself.
    optimizer = optax.sgd(RATE, momentum=0.9)
    state = optimizer.init(params)

    def step(params, state, x, y):
        def mean(params):
            logits = model.apply({"params": params}, x)
            value = optax.losses.softmax_cross_entropy(logits, y).mean()
            return jax.lax.pmean(value, "dp")

        value, grads = jax.value_and_grad(mean)(params)
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    arguments, specs = (params, state, x, y), (P(), P(), P("dp"), P("dp"))
    step = shard_map(step, devices, specs)
    program = imported(export(step, arguments))
    leaves = len(jax.tree.leaves(params))
    assert program.count('"ddp.all_reduce"') == leaves + 1
    assert 'ddp.name = "0.Dense_0.kernel"' in program
    got = run(tmp_path, lower(program), split(arguments, specs, devices), hook)
    (moved, momentum), value = step(*arguments)
    # A key's bias changes no attention: its gradient is zero but for roundings.
    flat = jax.tree_util.tree_flatten_with_path(params)[0]
    for i, (path, before) in enumerate(flat):
        if jax.tree_util.keystr(path).endswith("['key']['bias']"):
            np.testing.assert_allclose(got[i], before, rtol=0, atol=2**-17)
            continue
        tolerance = 2 * F16 if hook == "fp16" else 2**-14
        assert_close(
            [got[i]], [jax.tree.leaves(moved)[i]], [before], tolerance
        )
    np.testing.assert_allclose(got[-1], value, rtol=2**-17)
