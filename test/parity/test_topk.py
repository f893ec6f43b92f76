# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The hook `topk` over several steps, compared to the last bit with a model in NumPy:
ties, infinities and NaNs, all element types, means and sums, several buckets, wrappers,
collectives in flight, checkpoints, and the bytes on the wire."""

import itertools
import json
import re

import numpy as np
import pytest

import cases
import model
import runner
import test_resume as resuming
from cases import Function, Grad, Module
from tensors import DTYPES, Tensor, difference
from topk_model import Bucket, kept

STEPS = 4
WORLDS = [(1, "shm"), (2, "gloo"), (3, "shm"), (4, "shm"), (4, "gloo")]
# Of 3001 elements, these keep one, some, and all.
DENSITIES = [1e-9, 0.03, 1.0]
SHAPES = [(300,), (7, 133), (3, 0), (), (1769,), (1,)]


def sized(module, world):
    """Returns the module's text, with the size of its group."""
    return re.sub(r"(process_group @dp)", rf"\1 size {world}", module.text())


def values(kind, dtype, shape, seed):
    """Returns gradients of a kind, in this type."""
    random = np.random.default_rng([runner.SEED, *seed])
    array = random.standard_normal(shape).astype(np.float32)
    if kind == "ties":
        array = random.integers(-3, 4, shape).astype(np.float32) / 2
    elif kind == "special":
        strange = [0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-149, -(2.0**-126)]
        chosen = random.random(shape) < 0.01
        array = np.where(chosen, random.choice(strange, shape), array)
    return model.cast(Tensor("f32", np.asarray(array, np.float32)), dtype)


def make_inputs(module, world, kind):
    (function,) = module.functions
    inputs = [
        [
            [
                values(kind, grad.dtype, grad.shape, (rank, step, number))
                for number, grad in enumerate(function.grads)
            ]
            for step in range(STEPS)
        ]
        for rank in range(world)
    ]
    # One rank has only zeros at first.
    for tensor in inputs[0][1]:
        tensor.data[...] = 0
    return inputs


def flat(tensors):
    data = np.concatenate([tensor.data.reshape(-1) for tensor in tensors])
    return Tensor(tensors[0].dtype, data)


def run(path, module, inputs, options, env=None, *flags):
    """Returns results [rank][step][number]."""
    directory = runner.Directory(path)
    world = len(inputs)
    directory.write_module(sized(module, world))
    directory.write_inputs(inputs)
    arguments = [*directory.arguments("step", world, len(inputs[0]), options), *flags]
    result = runner.finish(runner.start(arguments, env))
    assert result.code == 0, result.stderr
    return directory.read_outputs(world, len(inputs[0]))


def check(got, inputs, members, bucket, mean):
    """Checks a bucket of the gradients of these numbers, on all ranks and in all steps."""
    for step in range(len(inputs[0])):
        gradients = [flat([rank[step][i] for i in members]) for rank in inputs]
        want = bucket.reduce(gradients, mean)
        for rank, steps in enumerate(got):
            problem = difference(flat([steps[step][i] for i in members]), want)
            assert problem is None, f"rank {rank}, step {step}: {problem}"


@pytest.mark.parametrize("kind", ["gaussian", "ties", "special"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("world, transport", WORLDS)
def test_one_bucket(tmp_path, world, transport, dtype, kind):
    """The bucket also has gradients of no element and of one element."""
    number = list(DTYPES).index(dtype) + world
    density, feedback = DENSITIES[number % 3], number % 4 != 0
    kind_of = ["mean", "sum"][number % 2]
    grads = [Grad(shape, dtype, kind_of) for shape in SHAPES]
    module = Module([Function("step", grads)])
    inputs = make_inputs(module, world, kind)
    options = f"hook=topk density={density} error-feedback={str(feedback).lower()}"
    got = run(tmp_path, module, inputs, options, {"DDPHOOK_TRANSPORT": transport})
    bucket = Bucket(world, density, feedback)
    check(got, inputs, range(len(grads)), bucket, kind_of == "mean")


@pytest.mark.parametrize("strange", [np.inf, np.nan])
def test_a_gradient_that_is_not_finite(tmp_path, strange):
    """A non-finite gradient affects only its own step, whatever is kept."""
    module = Module([Function("step", [Grad((40, 25), "f32")])])
    inputs = make_inputs(module, 2, "gaussian")
    inputs[1][1][0].data[...] = strange
    got = run(tmp_path, module, inputs, "hook=topk density=0.05")
    check(got, inputs, [0], Bucket(2, 0.05), mean=True)
    finite = [bool(np.isfinite(tensor.data).all()) for (tensor,) in got[0]]
    assert finite == [step != 1 for step in range(STEPS)]


@pytest.mark.parametrize("overlap", ["true", "false"])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_several_buckets(tmp_path, world, overlap):
    """Each gradient has a bucket, of all types, including empty ones; some have another hook.
    They are produced between the reductions, with the default density."""
    grads = [
        Grad(shape, dtype, kind)
        for shape, (dtype, kind) in itertools.product(
            [(41, 17), (0, 4), (1,)], itertools.product(DTYPES, ["mean", "sum"])
        )
    ]
    grads.append(Grad((19,), "f32", hook=("allreduce",)))
    order = list(np.random.default_rng(runner.SEED).permutation(len(grads)))
    body = "produced" if overlap == "true" else "plain"
    module = Module([Function("step", grads, None, body, order)])
    inputs = make_inputs(module, world, "gaussian")
    options = f"hook=topk bucket-cap-mb=0 overlap={overlap} overlap-depth=2"
    got = run(tmp_path, module, inputs, options)
    if body == "produced":
        inputs = [
            [[cases._negated(tensor) for tensor in step] for step in rank]
            for rank in inputs
        ]
    for number, grad in enumerate(grads[:-1]):
        bucket = Bucket(world)
        check(got, inputs, [number], bucket, grad.reduction == "mean")


@pytest.mark.parametrize("wrapper, narrow", [("fp16", "f16"), ("bf16", "bf16")])
def test_wrappers(tmp_path, wrapper, narrow):
    """The bucket is cast first; errors, values and sums stay f32."""
    module = Module([Function("step", [Grad((1009,))])])
    inputs = make_inputs(module, 3, "special")
    got = run(tmp_path, module, inputs, f"hook=topk density=0.1 wrapper={wrapper}")
    bucket = Bucket(3, 0.1)
    for step in range(STEPS):
        gradients = [model.cast(flat(rank[step]), narrow) for rank in inputs]
        want = model.cast(bucket.reduce(gradients), "f32")
        for rank in got:
            assert difference(flat(rank[step]), want) is None


def test_subgroups(tmp_path):
    """A group of a part of the job derives its size from its ranks."""
    module = Module(
        [Function("step", [Grad((500,), group="pair")])],
        {"dp": "", "pair": "ranks [[0, 2], [1, 3]]"},
    )
    inputs = make_inputs(module, 4, "gaussian")
    got = run(tmp_path, module, inputs, "hook=topk density=0.1")
    for members in ([0, 2], [1, 3]):
        of_group = [inputs[rank] for rank in members]
        check([got[rank] for rank in members], of_group, [0], Bucket(2, 0.1), True)


@pytest.mark.parametrize("options", ["", "bucket-cap-mb=0.001 wrapper=bf16"])
def test_resume(tmp_path, options):
    text = resuming.MODULE.replace("@dp\n", "@dp size 3\n", 1)
    pipeline = f"hook=topk density=0.05 {options}"
    for states in resuming.check_resume(tmp_path, text, pipeline, 3):
        assert states and all(
            name.endswith(".error") and state.dtype == "f32" and state.data.any()
            for name, state in states.items()
        )


def test_errors_go_over_to_other_buckets_and_densities(tmp_path):
    """A gradient's error is what was not sent of it, whatever its bucket."""
    grads = [Grad((40, 7)), Grad((90,)), Grad((3, 3))]
    module = Module([Function("step", grads)])
    inputs = make_inputs(module, 2, "gaussian")
    halves = [[rank[:2] for rank in inputs], [rank[2:] for rank in inputs]]
    state = str(tmp_path / "state.{rank}.safetensors")
    first = run(
        tmp_path, module, halves[0], "hook=topk density=0.1", None, f"--state-out={state}"
    )
    whole = Bucket(2, 0.1)
    check(first, halves[0], range(3), whole, True)
    second = run(
        tmp_path,
        module,
        halves[1],
        "hook=topk density=0.2 bucket-cap-mb=0",
        None,
        f"--state-in=strict:{state}",
    )
    begin = 0
    for number, grad in enumerate(grads):
        bucket = Bucket(2, 0.2)
        bucket.errors = [error[begin : begin + grad.size] for error in whole.errors]
        check(second, halves[1], [number], bucket, True)
        begin += grad.size
    # A hook without error feedback refuses the state.
    directory = runner.Directory(tmp_path)
    arguments = directory.arguments("step", 2, 2, "hook=topk error-feedback=false")
    result = runner.finish(runner.start([*arguments, f"--state-in=strict:{state}"]))
    assert result.code != 0 and "error" in result.stderr


@pytest.mark.parametrize("world", [1, 2, 4])
def test_bytes_and_metrics(tmp_path, world):
    module = Module([Function("step", [Grad((5000,), "f16")])])
    inputs = make_inputs(module, world, "gaussian")
    metrics = {
        "DDPHOOK_METRICS": str(tmp_path / "metrics.{rank}"),
        "DDPHOOK_METRICS_INTERVAL": "1",
        "DDPHOOK_METRICS_ERRORS": "1",
    }
    run(tmp_path, module, inputs, "hook=topk density=0.01", metrics)
    bucket = Bucket(world, 0.01)
    samples = [
        [json.loads(line) for line in open(tmp_path / f"metrics.{rank}")]
        for rank in range(world)
    ]
    for step in range(STEPS):
        bucket.reduce([flat(rank[step]) for rank in inputs])
        for rank in range(world):
            sample = samples[rank][step]
            assert sample["wire_bytes"] == (step + 1) * 8 * kept(0.01, 5000)
            assert sample["uncompressed_bytes"] == (step + 1) * 2 * 5000
            (error,) = sample["error_feedback"]
            assert error["state"] == "b0.error"
            norm = np.linalg.norm(bucket.errors[rank].astype(np.float64))
            assert error["norm"] == pytest.approx(norm, rel=1e-7)
