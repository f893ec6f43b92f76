# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Encoded all-reduces, to the last bit: quantization hooks are compared with PyTorch's on
real process groups, and all encodings with quantization_model.py, which is checked
against PyTorch's hooks where they exist.
"""

import itertools
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import cases
import model
import quantization_model
import runner
from cases import Function, Grad, Module, Options
from oracle import WORLD
from tensors import Tensor, difference
from test_parity import check

ROOT = pathlib.Path(__file__).resolve().parents[2]
AFFINE = [
    ("quantization_pertensor",),
    ("quantization_perchannel",),
    ("quantization_perchannel", 1),
    ("quantization_perchannel", 100),
    ("quantization_perchannel", 100000),
]
SCALED = [
    ("int8",),
    ("int8", 32),
    ("int8", 4096),
    ("int4", 64),
    ("int4", 32),
    ("fp8",),
    ("fp8", 1024),
    ("fp8", 256, "f8E5M2"),
    ("fp8", 32, "f8E5M2"),
    ("fp16", "f32"),
    ("bf16", "f32"),
]
DTYPES = ["f16", "bf16", "f32", "f64"]
VALUES = ["gaussian", "wide", "subnormal", "special", "halfway"]
SHAPES = [(), (3, 11), (1, 257), (1024,)]


def gradients(hooks, reductions):
    """Returns gradients, each of which makes a bucket (with cap 0)."""
    return [
        Grad(shape, dtype, reduction, values=values, hook=hook)
        for hook in hooks
        for dtype in DTYPES
        for reduction in reductions
        for shape in SHAPES
        for values in VALUES
        if shape in SHAPES[-2:] or values == "gaussian"
    ]


ONE_EACH = Options(bucket_cap_mb=0)


OTHER_WORLDS = [
    pytest.param(w, marks=pytest.mark.full("as two ranks; others are next to the model"))
    for w in (1, 3, 4)
]


@pytest.mark.parametrize("world", [2, *OTHER_WORLDS])
def test_pytorchs_hooks(pool, tmp_path, world):
    grads = gradients(AFFINE, ["mean"])
    check(tmp_path, pool.run_groups, Module([Function("step", grads)]), ONE_EACH, world)


@pytest.mark.parametrize(
    "transport, world",
    [("shm", 1), ("shm", 2), ("gloo", 3), ("shm", 4), ("gloo", 2), ("shm", 5)],
)
def test_all_encodings(tmp_path, transport, world):
    """Tests means and sums. In buckets of several gradients, blocks begin with a bucket."""
    grads = gradients(SCALED + AFFINE[:2], ["mean" if world % 2 else "sum"])
    module = Module([Function("step", grads)])
    options = ONE_EACH if world % 2 else Options(bucket_cap_mb=0.01)
    check(
        tmp_path,
        cases.model_reference,
        module,
        options,
        world,
        steps=1,
        env={"DDPHOOK_TRANSPORT": transport},
    )


@pytest.mark.parametrize(
    "transport, world", [("shm", 2), ("gloo", 2), ("shm", 3), ("gloo", 4)]
)
def test_arrays_of_many_chunks(tmp_path, transport, world):
    """Arrays are longer than a transport's chunks, with prime sizes."""
    hooks = [("int8",), ("int4", 4096), ("fp8", 96, "f8E5M2"), ("bf16", "f32"), *AFFINE[:4]]
    grads = [
        Grad((size,), dtype, values="gaussian", hook=hook)
        for hook in hooks
        for size, dtype in [(700001, "f32"), (104729, "bf16"), (104729, "f64")]
    ]
    module = Module([Function("step", grads)])
    env = {"DDPHOOK_TRANSPORT": transport}
    reference = cases.model_reference
    check(tmp_path, reference, module, ONE_EACH, world, steps=1, env=env)


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("wrapper", ["fp16", "bf16"])
def test_wrappers(tmp_path, wrapper, world):
    for hook in ["int8", "fp8", "quantization_pertensor", "quantization_perchannel"]:
        module = cases.everything()
        options = Options(hook=hook, wrapper=wrapper)
        directory = tmp_path / hook
        directory.mkdir()
        check(directory, cases.model_reference, module, options, world)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_exempt_gradients(tmp_path, world):
    """Some gradients are sent unchanged, or in another encoding."""
    module = cases.everything()
    for exempt_hook in [None, "bf16", "fp8"]:
        options = Options(hook="int8", exempt=r"arg1?[02468]$", exempt_hook=exempt_hook)
        directory = tmp_path / str(exempt_hook)
        directory.mkdir()
        check(directory, cases.model_reference, module, options, world)


@pytest.mark.parametrize("world", range(1, WORLD + 1))
@pytest.mark.parametrize(
    "hook, dtype",
    [
        *itertools.product(["int8", "int4", "fp8"], DTYPES),
        ("fp8 format=f8E5M2", "f32"),
    ],
)
def test_error_feedback(tmp_path, dtype, hook, world):
    """The loss of the first encoding is added to the next gradient, except in blocks with an
    infinity; runs four steps, and checks the metrics."""
    sizes, steps = [(300,), (7, 33), (1,)], 4
    grads = [Grad(shape, dtype) for shape in sizes]
    module = Module([Function("step", grads)])
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    inputs = cases.make_inputs(module, "step", world, steps, [runner.SEED, world])
    inputs[-1][1][0].data[7] = 0x7F80 if dtype == "bf16" else np.inf
    directory.write_inputs(inputs)
    options = f"hook={hook} error-feedback=true"
    metrics = {
        "DDPHOOK_METRICS": str(tmp_path / "metrics.{rank}"),
        "DDPHOOK_METRICS_INTERVAL": "1",
        "DDPHOOK_METRICS_ERRORS": "1",
    }
    got = runner.run(directory, "step", world, steps, options, metrics)
    samples = [
        [json.loads(line) for line in open(tmp_path / f"metrics.{rank}")]
        for rank in range(world)
    ]

    name, _, code = hook.partition(" format=")
    code, block = code or model.SCALED[name][0], model.SCALED[name][1]
    errors = [None] * world
    for step in range(steps):
        flats = []
        for rank in range(world):
            parts = [t.data.reshape(-1) for t in inputs[rank][step]]
            flat = np.concatenate(parts)
            if errors[rank] is not None:
                flat = model._add(Tensor(dtype, flat), Tensor(dtype, errors[rank])).data
            values = model._values(Tensor(dtype, flat))
            lost = quantization_model.encoding_error(values, code, block)
            errors[rank] = lost.view(flat.dtype)
            kept = model._values(Tensor(dtype, errors[rank])).astype(np.float64)
            (sample,) = samples[rank][step]["error_feedback"]
            assert sample["state"] == "b0.error"
            assert sample["norm"] == pytest.approx(np.linalg.norm(kept), rel=1e-7)
            flats.append(Tensor(dtype, flat))
        (want, *_) = model.run_hook((name, block, code), flats, mean=True)
        for rank in range(world):
            flat = np.concatenate([t.data.reshape(-1) for t in got[rank][step]])
            assert difference(Tensor(dtype, flat), want) is None, f"step {step}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_errors_of_affine_codes(tmp_path, dtype):
    """Checks the loss of elements whose codes go to all ranks, including a block with a NaN."""
    size, encodings = 5003, [("ui8", 0), ("ui8", 100), ("ui1", 0), ("ui1", 1000)]
    type = f"tensor<{size}x{dtype}>"
    text = f"func.func @step(%x: {type}) -> ({', '.join([type] * len(encodings))}) {{\n"
    for i, (code, block) in enumerate(encodings):
        blocks = f", {block}" if block else ""
        text += f"  %{i} = ddp.encoding_error %x as !ddp.encoded<{code}{blocks}> : {type}\n"
    names = ", ".join(f"%{i}" for i in range(len(encodings)))
    text += f"  return {names} : {', '.join([type] * len(encodings))}\n}}\n"
    directory = runner.Directory(tmp_path)
    directory.write_module(text)
    random = np.random.default_rng([runner.SEED, DTYPES.index(dtype)])
    value = model.cast(Tensor("f64", random.standard_normal(size)), dtype)
    value.data[4321] = 0x7FC0 if dtype == "bf16" else np.nan
    directory.write_inputs([[[value]]])
    got = runner.run(directory, "step", 1, 1)
    for (code, block), lost in zip(encodings, got[0][0]):
        # One block decodes to NaN as a whole: its error is zero.
        want = quantization_model.encoding_error(
            model._values(value), code, block or (None if code == "ui8" else 0)
        )
        wanted = Tensor(dtype, want.view(value.data.dtype))
        assert difference(lost, wanted) is None, f"{code} in blocks of {block}"


def test_what_the_documentation_expects():
    """The script reproduces the first row of the table in docs/quantization.md."""
    script = ROOT / "docs" / "examples" / "numerics" / "encodings.py"
    binaries = pathlib.Path(runner.tool()).parent
    options = ["--worlds", "2", "--data", "gaussian", f"--bin={binaries}"]
    done = subprocess.run(
        [sys.executable, script, *options], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs" / "quantization.md").read_text(encoding="utf-8")

    def tables(text):
        """Returns the first row of each table of errors: column to number."""
        header, found = [], []
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            if cells[:2] == ["data", "ranks"]:
                header = cells[2:]
            elif cells[:2] == ["gaussian", "2"]:
                found.append(dict(zip(header, map(float, cells[2:]), strict=True)))
        return found

    got, expected = tables(done.stdout), tables(page)
    assert [len(table) for table in got] == [8, 4, 9]
    assert [len(table) for table in expected] == [6]
    for name, error in expected[0].items():
        assert got[0][name] == pytest.approx(error, rel=0.15), name
