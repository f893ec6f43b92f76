# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The relative errors of compression in metrics, as docs/tracing.md defines them, compared
with NumPy: for casts, all codes, and low rank, on each rank's own data.
"""

import json

import numpy as np
import pytest

import cases
import model
import quantization_model
import runner
import topk_model
from cases import Function, Grad, Module
from tensors import Tensor
from test_topk import sized

SHAPES = [(300,), (37, 53), (4, 5, 6)]
STEPS = 4


def run(tmp_path, dtype, options, world=2, interval=1, **more):
    """Returns inputs, outputs, and each rank's samples by step."""
    module = Module([Function("step", [Grad(shape, dtype) for shape in SHAPES])])
    directory = runner.Directory(tmp_path)
    directory.write_module(sized(module, world))
    inputs = cases.make_inputs(module, "step", world, STEPS, [runner.SEED, world])
    directory.write_inputs(inputs)
    metrics = {
        "DDPHOOK_METRICS": str(tmp_path / "metrics.{rank}"),
        "DDPHOOK_METRICS_INTERVAL": interval,
        "DDPHOOK_METRICS_ERRORS": "1",
        **more,
    }
    got = runner.run(directory, "step", world, STEPS, options, metrics)
    samples = [
        [json.loads(line) for line in open(tmp_path / f"metrics.{rank}")]
        for rank in range(world)
    ]
    return inputs, got, samples


def flat(tensors):
    return np.concatenate([tensor.data.reshape(-1) for tensor in tensors])


def wide(dtype, data):
    return model._values(Tensor(dtype, data)).astype(np.float64)


def error_of(sample):
    (bucket,) = sample["buckets"]
    assert bucket["bucket"] == "b0"
    return bucket["relative_error"]


@pytest.mark.parametrize(
    "hook, dtype",
    [("fp16", "f32"), ("fp16", "f64"), ("bf16", "f32"), ("bf16 accumulate=f32", "f32")],
)
def test_casts(tmp_path, hook, dtype):
    """Elements are rounded before they are divided."""
    inputs, _, samples = run(tmp_path, dtype, f"hook={hook}")
    for rank, steps in enumerate(samples):
        for step, sample in enumerate(steps):
            whole = flat(inputs[rank][step])
            wire = {"fp16": "f16", "bf16": "bf16"}[hook.split()[0]]
            kept = wide(wire, model.cast(Tensor(dtype, whole), wire).data)
            want = np.linalg.norm(whole - kept) / np.linalg.norm(whole)
            assert 0 < want < 0.01
            assert error_of(sample) == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize(
    "hook, code, block, dtype",
    [
        ("int8", "i8", 256, "f32"),
        ("int8 error-feedback=true", "i8", 256, "bf16"),
        ("int4", "i4", 64, "f32"),
        ("int4 error-feedback=false block-size=96", "i4", 96, "f64"),
        ("int8 rounding=stochastic random-seed=5", "i8", 256, "f32"),
        ("fp8", "f8E4M3FN", 256, "f16"),
        ("fp8 format=f8E5M2", "f8E5M2", 256, "f32"),
        ("quantization_pertensor", "ui8", None, "f32"),
        ("quantization_perchannel", "ui8", 512, "f64"),
    ],
)
def test_codes(tmp_path, hook, code, block, dtype):
    """With error feedback, the error refers to the gradient plus the kept error."""
    inputs, _, samples = run(tmp_path, dtype, f"hook={hook}")
    feedback = "error-feedback=true" in hook or hook == "int4"
    for rank, steps in enumerate(samples):
        before = None
        for step, sample in enumerate(steps):
            put = flat(inputs[rank][step])
            if before is not None:
                put = model._add(Tensor(dtype, put), Tensor(dtype, before)).data
            values = model._values(Tensor(dtype, put))
            random = None
            if "stochastic" in hook:
                stream = quantization_model.stream(5, "step.arg0")
                random = quantization_model.random_numbers(
                    len(values), stream, step, rank + 1
                )
            if code != "ui8" and dtype != "f64":
                values = values.astype(np.float32)
            lost = quantization_model.encoding_error(values, code, block, random)
            whole = np.linalg.norm(values.astype(np.float64))
            want = np.linalg.norm(lost.astype(np.float64)) / whole
            assert error_of(sample) == pytest.approx(want, rel=1e-6)
            if feedback:
                before = quantization_model.encoding_error(
                    model._values(Tensor(dtype, put)), code, block
                ).view(put.dtype)


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize(
    "options, dtype",
    [("", "f32"), ("error-feedback=false", "f32"), ("", "bf16"), ("density=1", "f64")],
)
def test_largest_elements(tmp_path, options, dtype, world):
    """The error is what a rank does not send of its gradient plus its kept error."""
    inputs, _, samples = run(tmp_path, dtype, f"hook=topk {options}", world)
    share = {"density=1": 1.0}.get(options, 0.01)
    bucket = topk_model.Bucket(world, share, "feedback=false" not in options)
    for step in range(STEPS):
        gradients = [Tensor(dtype, flat(inputs[rank][step])) for rank in range(world)]
        before = list(bucket.errors)
        bucket.reduce(gradients)
        for rank, gradient in enumerate(gradients):
            put = model.cast(gradient, "f32").data
            if bucket.feedback:
                put = put + before[rank]
            whole = np.linalg.norm(put.astype(np.float64))
            lost = np.linalg.norm(bucket.errors[rank].astype(np.float64))
            assert (lost == 0) == (share == 1.0)
            assert error_of(samples[rank][step]) == pytest.approx(lost / whole, rel=1e-6)


def projection_error(matrix, columns):
    """Returns the squared loss of a matrix that is projected on these columns."""
    basis, singular, _ = np.linalg.svd(columns, full_matrices=False)
    basis = basis[:, singular > 1e-5 * singular[0]]
    return np.linalg.norm(matrix - basis @ (basis.T @ matrix)) ** 2


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize(
    "options, dtype",
    [
        ("", "f32"),
        ("use_error_feedback=false", "f64"),
        ("group-mb=0.001", "f32"),
    ],
)
def test_low_rank(tmp_path, options, dtype, world):
    """A matrix decodes to its projection on the columns of P. These columns span the result,
    so they come from all ranks. The bucket's other gradients are sent whole, and so is the
    whole bucket before the first compressed step."""
    start = 2
    hook = (
        "hook=powersgd matrix_approximation_rank=2 min_compression_rate=1 "
        f"start_powerSGD_iter={start} {options}"
    )
    inputs, got, samples = run(tmp_path, dtype, hook, world)
    for rank, steps in enumerate(samples):
        kept = [0, 0]
        for step, sample in enumerate(steps):
            if step < start:
                assert "relative_error" not in sample["buckets"][0]
                continue
            lost = whole = 0
            for i, number in enumerate((1, 2)):
                put = wide(dtype, inputs[rank][step][number].data)
                put = put.reshape(put.shape[0], -1) + kept[i]
                result = wide(dtype, got[rank][step][number].data).reshape(put.shape)
                lost += projection_error(put, result)
                whole += np.linalg.norm(put) ** 2
                if "use_error_feedback=false" not in options:
                    kept[i] = put - result
            want = np.sqrt(lost / whole)
            assert 0.1 < want < 1
            assert error_of(sample) == pytest.approx(want, rel=1e-4)


def test_low_rank_of_a_whole_bucket(tmp_path):
    """The bucket is one square, padded with zeros after its last gradient."""
    start = 2
    hook = (
        "hook=batched_powersgd matrix_approximation_rank=2 use_error_feedback=false "
        f"start_powerSGD_iter={start}"
    )
    inputs, got, samples = run(tmp_path, "f64", hook)
    for rank, steps in enumerate(samples):
        for step, sample in list(enumerate(steps))[start:]:
            put, result = flat(inputs[rank][step]), flat(got[rank][step])
            side = int(np.ceil(np.sqrt(len(put))))
            square = np.zeros((2, side * side))
            square[:, : len(put)] = put, result
            matrix, decoded = square.reshape(2, side, side)
            # In these columns, the result is complete.
            columns = decoded[:, : side - (side * side - len(put))]
            want = np.sqrt(projection_error(matrix, columns)) / np.linalg.norm(put)
            assert error_of(sample) == pytest.approx(want, rel=1e-4)


def test_what_has_no_error(tmp_path):
    """Without compression there is no error, and zeros lose nothing."""
    _, _, samples = run(tmp_path, "f32", "hook=allreduce")
    assert all("relative_error" not in s["buckets"][0] for s in samples[0])
    module = Module([Function("step", [Grad((70,), "f32")])])
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    zeros, infinite = np.zeros(70, np.float32), np.ones(70, np.float32)
    infinite[3] = np.inf
    # Values that overflow are finite, and are lost completely.
    large = np.full(70, 1e6, np.float32)
    steps = [[Tensor("f32", data)] for data in (zeros, infinite, large)]
    directory.write_inputs([steps])
    metrics = {
        "DDPHOOK_METRICS": str(tmp_path / "m.{rank}"),
        "DDPHOOK_METRICS_INTERVAL": "1",
        "DDPHOOK_METRICS_ERRORS": "1",
    }
    runner.run(directory, "step", 1, len(steps), "hook=fp16", metrics)
    errors = [error_of(json.loads(line)) for line in open(tmp_path / "m.0")]
    assert errors == [0, None, None]


def test_sampled_steps(tmp_path):
    """The last line, of a step that was not sampled, has the last sampled step's error."""
    inputs, _, samples = run(tmp_path, "f32", "hook=fp16", interval=3)
    assert [sample["steps"] for sample in samples[0]] == [3, STEPS]
    whole = flat(inputs[0][2])
    lost = whole - wide("f16", model.cast(Tensor("f32", whole), "f16").data)
    want = np.linalg.norm(lost) / np.linalg.norm(whole)
    for sample in samples[0]:
        assert error_of(sample) == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize(
    "hook",
    [
        "allreduce",
        "bf16",
        "int4",
        "quantization_perchannel",
        "powersgd matrix_approximation_rank=2 start_powerSGD_iter=2",
        "batched_powersgd matrix_approximation_rank=2 start_powerSGD_iter=2",
    ],
)
def test_gradients_that_are_not_finite(tmp_path, hook):
    """Every hook counts its non-finite gradients, on the rank and in the step that has them,
    even between samples; later, a hook may keep or forget them."""
    module = Module([Function("step", [Grad(shape, "f32") for shape in SHAPES])])
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    inputs = cases.make_inputs(module, "step", 2, STEPS, [runner.SEED, 2])
    inputs[1][2][1].data[3, 5] = np.nan
    directory.write_inputs(inputs)
    metrics = {
        "DDPHOOK_METRICS": str(tmp_path / "m.{rank}"),
        "DDPHOOK_METRICS_INTERVAL": "3",
        "DDPHOOK_METRICS_NON_FINITE": "1",
    }
    runner.run(directory, "step", 2, STEPS, f"hook={hook}", metrics)
    first = [json.loads(open(tmp_path / f"m.{rank}").readline()) for rank in (0, 1)]
    for sample in first:
        (bucket,) = sample["buckets"]
        assert sample["steps"] == 3
        assert sample["non_finite"] >= bucket["non_finite"]
    # Low rank spreads a rank's values to the factors of all ranks.
    if "powersgd" not in hook:
        assert [sample["buckets"][0]["non_finite"] for sample in first] == [0, 1]
    assert first[1]["buckets"][0]["non_finite"] >= 1
