# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hooks of another dialect (test/lib), built from ddphook's parts for that: signs and the
largest elements, both with error feedback. Several steps are compared with a model in
NumPy, to the last bit.
"""

import json
import pathlib

import numpy as np
import pytest

import cases
import model
import quantization_model
import runner
from cases import Function, Grad, Module
from tensors import Tensor, difference

STEPS = 4
SIZES = [(300,), (7, 133), (1,)]
DTYPES = ["f16", "bf16", "f32", "f64"]
WORLDS = [(1, "shm"), (2, "gloo"), (3, "shm"), (4, "shm"), (4, "gloo")]


def plugin():
    """Returns the dialect as a plugin of the tools."""
    build = pathlib.Path(runner.tool()).resolve().parents[1]
    return build / "lib" / "DDPHookTestHookPlugin.so"


def run(path, hook, dtype, world, transport, **variables):
    """Returns flat gradients and results by step and rank, for one bucket."""
    module = Module([Function("step", [Grad(shape, dtype) for shape in SIZES])])
    directory = runner.Directory(path)
    text = module.text().replace("@dp\n", f"@dp size {world}\n", 1)
    assert f"size {world}" in text
    directory.write_module(text)
    inputs = cases.make_inputs(module, "step", world, STEPS, [runner.SEED, world])
    # A step that loss scaling would skip, and a step in which one rank has only zeros.
    inputs[-1][1][0].data[7] = 0x7F80 if dtype == "bf16" else np.inf
    for tensor in inputs[0][2]:
        tensor.data[...] = 0
    directory.write_inputs(inputs)
    arguments = directory.arguments("step", world, STEPS, f"hook={hook}")
    arguments.append(f"--load-dialect-plugin={plugin()}")
    result = runner.finish(
        runner.start(arguments, {"DDPHOOK_TRANSPORT": transport, **variables})
    )
    assert result.code == 0, result.stderr
    got = directory.read_outputs(world, STEPS)

    def flat(tensors):
        return np.concatenate([tensor.data.reshape(-1) for tensor in tensors])

    def by_step(ranks):
        return [
            [Tensor(dtype, flat(ranks[rank][step])) for rank in range(world)]
            for step in range(STEPS)
        ]

    return by_step(inputs), by_step(got)


def check(got, want, step):
    for rank, tensor in enumerate(got):
        problem = difference(tensor, want)
        assert problem is None, f"rank {rank}, step {step}: {problem}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("world, transport", WORLDS)
def test_signs(tmp_path, world, transport, dtype):
    block = [0, 64][(DTYPES.index(dtype) + world) % 2]
    hook = f"testhook.sign block-size={block}"
    inputs, got = run(tmp_path, hook, dtype, world, transport)
    errors = [Tensor(dtype, np.zeros_like(inputs[0][0].data))] * world
    for step, gradients in enumerate(inputs):
        sent = [model._add(*pair) for pair in zip(gradients, errors)]
        arrays = [model._values(tensor) for tensor in sent]
        total = quantization_model.reduce_signs(arrays, block, world)
        check(got[step], model.cast(Tensor("f32", total), dtype), step)
        lost = [quantization_model.encoding_error(a, "ui1", block) for a in arrays]
        errors = [Tensor(dtype, error.view(sent[0].data.dtype)) for error in lost]


def largest(values, keep):
    """Returns the indices of the largest magnitudes in order; ties prefer the first."""
    magnitudes = values.view(np.uint32).astype(np.int64) & 0x7FFFFFFF
    return np.sort(np.argsort(-magnitudes, kind="stable")[:keep])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("world, transport", WORLDS)
def test_largest_elements(tmp_path, world, transport, dtype):
    density = [0.0, 0.03, 1.0][(DTYPES.index(dtype) + world) % 3]
    hook = f"testhook.top_k density={density}"
    inputs, got = run(tmp_path, hook, dtype, world, transport)
    size = inputs[0][0].data.size
    keep = max(1, int(density * size))
    rests = [np.zeros(size, np.float32)] * world
    for step, gradients in enumerate(inputs):
        total = np.zeros(size, np.float32)
        for rank, gradient in enumerate(gradients):
            with np.errstate(all="ignore"):
                m = model.cast(gradient, "f32").data + rests[rank]
                places = largest(m, keep)
                total[places] += m[places]
            rests[rank] = m.copy()
            rests[rank][places] = 0
        mean = model.divide(Tensor("f32", total), world)
        check(got[step], model.cast(mean, dtype), step)


@pytest.mark.parametrize("world", [1, 3])
def test_bytes_of_largest_elements(tmp_path, world):
    """The metrics compare the bytes on the wire with the whole bucket."""
    path = str(tmp_path / "metrics.{rank}")
    metrics = {"DDPHOOK_METRICS": path, "DDPHOOK_METRICS_INTERVAL": "1"}
    hook = "testhook.top_k density=0.03"
    inputs, _ = run(tmp_path, hook, "f16", world, "shm", **metrics)
    size = inputs[0][0].data.size
    for rank in range(world):
        lines = open(path.format(rank=rank)).read().splitlines()
        for step, line in enumerate(lines[:STEPS], 1):
            sample = json.loads(line)
            assert sample["wire_bytes"] == step * 8 * int(0.03 * size)
            assert sample["uncompressed_bytes"] == step * 2 * size
