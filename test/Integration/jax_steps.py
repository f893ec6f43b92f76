# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training steps in JAX, on JAX's own devices and, imported, on our ranks.

Of the tests of `ddp-import-stablehlo`. Environment: DDPHOOK_RUN names the tool (default:
build/bin/ddphook-run of this checkout), DDPHOOK_TEST_SEED the seed of all random inputs.
"""

import os
import pathlib
import subprocess
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "docs" / "examples" / "jax"))
import partition  # noqa: E402
import to_linalg  # noqa: E402

TOOL = pathlib.Path(os.environ.get("DDPHOOK_RUN", ROOT / "build" / "bin" / "ddphook-run"))
OPT = TOOL.with_name("ddphook-opt")
SEED = int(os.environ.get("DDPHOOK_TEST_SEED", "20261"))
HANG_S = 120
GENERIC = ("--mlir-print-op-generic", "--mlir-print-debuginfo")
# Not one over the number of ranks, which would make means of sums.
RATE = 0.3

# An error if another test has begun to use JAX.
jax.config.update("jax_num_cpu_devices", 4)

# Sums of a few products of f32, in another order than XLA's; with room.
F32 = 2**-17
# An f16 is rounded twice at most before a sum of up to four.
F16 = 4 * 2**-11


def mesh(*shape, names=("dp", "mp")):
    count = int(np.prod(shape))
    assert len(jax.devices()) >= count, "expected JAX to have four devices"
    devices = np.array(jax.devices()[:count]).reshape(shape)
    names = names[: len(shape)]
    return Mesh(devices, names, axis_types=(AxisType.Auto,) * len(shape))


# ---------------------------------------------------------------------------
# From JAX to ranks
# ---------------------------------------------------------------------------


generic = partition.print_generic


def export(step, arguments):
    return generic(step.lower(*arguments).compiler_ir("stablehlo"))


def shardy(text):
    """What Shardy's partitioner makes of a program with shardings."""
    return partition.partition(opt(text, "--inline", "--symbol-dce", *GENERIC))


def opt(text, *flags):
    done = subprocess.run(
        [OPT, *flags], input=text, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def imported(text, options=""):
    """The imported program, after checks that nothing foreign reduces in it."""
    flag = f"--ddp-import-stablehlo={options}"
    program = opt(text, flag, *GENERIC)
    assert "stablehlo.all_reduce" not in program and "sdy." not in program
    return program


def lower(program):
    flags = ["--ddp-inline-collectives", "--ddp-convert-stablehlo-control-flow"]
    flags += ["--ddp-convert-stablehlo-scatter", "--ddp-convert-chlo-top-k"]
    return to_linalg.lower(opt(program, *flags, *GENERIC))


def run_steps(folder, program, steps, hook):
    """The results of each step, which are the same on all ranks; steps[i][rank] are a
    rank's arguments."""
    (folder / "program.mlir").write_text(program, encoding="utf-8")
    for number, parts in enumerate(steps):
        for rank, arrays in enumerate(parts):
            named = {f"arg{i}": np.asarray(a, order="C") for i, a in enumerate(arrays)}
            save_file(named, folder / f"in.{rank}.{number}.safetensors")
    ranks = len(steps[0])
    done = subprocess.run(
        [
            TOOL,
            folder / "program.mlir",
            "--entry=main",
            f"--ranks={ranks}",
            f"--steps={len(steps)}",
            f"--inputs={folder}/in.{{rank}}.{{step}}.safetensors",
            f"--outputs={folder}/out.{{rank}}.{{step}}.safetensors",
            f"--ddp-pipeline=hook={hook}",
        ],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = []
    for number in range(len(steps)):
        files = [
            load_file(folder / f"out.{rank}.{number}.safetensors")
            for rank in range(ranks)
        ]
        for named in files[1:]:
            for name, array in named.items():
                np.testing.assert_array_equal(array, files[0][name])
        results.append([files[0][f"result{i}"] for i in range(len(files[0]))])
    return results


def run(folder, program, parts, hook):
    """The results of one step; parts[rank] are the rank's arguments."""
    return run_steps(folder, program, [parts], hook)[0]


def split(arguments, specs, devices):
    """Which part of each argument JAX gives to each device."""
    leaves = jax.tree.leaves(arguments)
    specs = jax.tree.leaves(
        jax.tree.map(
            lambda spec, tree: jax.tree.map(lambda _: spec, tree),
            specs,
            arguments,
            is_leaf=lambda x: isinstance(x, P),
        ),
        is_leaf=lambda x: isinstance(x, P),
    )
    places = [
        NamedSharding(devices, spec).devices_indices_map(leaf.shape)
        for spec, leaf in zip(specs, leaves, strict=True)
    ]
    return [
        [np.asarray(leaf)[place[device]] for leaf, place in zip(leaves, places)]
        for device in devices.devices.flat
    ]


def assert_close(got, expected, before, tolerance):
    """Results are JAX's, up to that part of the largest move from what a parameter was
    before, or of the result."""
    expected = [np.asarray(array) for array in jax.tree.leaves(expected)]
    before = [np.asarray(array) for array in jax.tree.leaves(before)]
    assert len(got) == len(expected)
    for i, (mine, right) in enumerate(zip(got, expected)):
        assert mine.shape == right.shape
        mine, right = mine.astype(np.float64), right.astype(np.float64)
        move = right - before[i].astype(np.float64) if i < len(before) else right
        assert np.abs(move).max() > 0
        np.testing.assert_allclose(
            mine, right, rtol=0, atol=tolerance * np.abs(move).max()
        )


# ---------------------------------------------------------------------------
# A network of two layers
# ---------------------------------------------------------------------------


def random(*shape, dtype=np.float32):
    print(f"seed {SEED}")
    seed = [SEED, *shape]
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def make_arguments(dtype=np.float32, batch=(16,)):
    params = {"in": {"b": random(12), "w": random(8, 12)}, "out": random(12, 4)}
    params = jax.tree.map(lambda p: (p / 4).astype(dtype), params)
    return params, random(*batch, 8, dtype=dtype), random(*batch, 4, dtype=dtype)


def loss(params, x, y):
    hidden = jnp.tanh(x @ params["in"]["w"] + params["in"]["b"])
    return jnp.mean((hidden @ params["out"] - y) ** 2)


def move(params, grads):
    return jax.tree.map(lambda p, g: p - RATE * g, params, grads)


def step_of_sums(params, x, y, axes="dp"):
    """JAX adds up the gradients of the mean by itself."""

    def mean(params):
        return jax.lax.pmean(loss(params, x, y), axes)

    value, grads = jax.value_and_grad(mean)(params)
    return move(params, grads), value


def step_of_means(params, x, y, axes="dp"):
    """The gradients are those of a rank's own loss until they are averaged."""
    value, grads = jax.value_and_grad(loss)(params, x, y)
    return move(params, jax.lax.pmean(grads, axes)), jax.lax.pmean(value, axes)


def shard_map(step, devices, specs, **options):
    mapped = jax.shard_map(
        step, mesh=devices, in_specs=specs, out_specs=(P(), P()), **options
    )
    return jax.jit(mapped, keep_unused=True)


NAMES = ["in.b", "in.w", "out"]


def accumulate(params, x, y, reduce_each):
    """Adds up the gradients of several batches, reduced one by one or at the end."""

    def body(total, batch):
        value, grads = jax.value_and_grad(loss)(params, *batch)
        if reduce_each:
            grads, value = jax.lax.pmean((grads, value), "dp")
        return jax.tree.map(jnp.add, total, grads), value

    zeros = jax.tree.map(jnp.zeros_like, params)
    grads, values = jax.lax.scan(body, zeros, (x, y))
    value = values.sum()
    if not reduce_each:
        grads, value = jax.lax.pmean((grads, value), "dp")
    return move(params, grads), value


def value_and_sums(params, x, y, function=loss):
    def mean(params):
        return jax.lax.pmean(function(params, x, y), "dp")

    return jax.value_and_grad(mean)(params)
