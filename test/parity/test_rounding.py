# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stochastic rounding of encoded collectives, compared to the last bit with
quantization_model.py, whose random numbers are those of docs/quantization.md.
"""

import numpy as np
import pytest

import cases
import model
import quantization_model
import runner
from cases import Function, Grad, Module
from tensors import Tensor, difference
from test_hierarchy import share
from test_parity import run_launched

SEED = 7
HOOKS = {
    "int8": ("i8", 256),
    "int4 block-size=32": ("i4", 32),
    "fp8": ("f8E4M3FN", 256),
    "fp8 format=f8E5M2 block-size=64": ("f8E5M2", 64),
}


def flatten(values):
    flat = np.concatenate([value.data.reshape(-1) for value in values])
    return Tensor(values[0].dtype, flat)


def options_of(hook, feedback):
    return (
        f"hook={hook} rounding=stochastic random-seed={SEED} "
        f"error-feedback={str(feedback).lower()}"
    )


class Bucket:
    """The model of one bucket's reductions, step by step."""

    def __init__(self, hook, name, feedback):
        self.code, self.block = HOOKS[hook]
        self.stream = quantization_model.stream(SEED, name)
        self.feedback, self.step, self.errors = feedback, 0, None

    def reduce(self, flats, mean):
        """Returns the result of all ranks for their gradients."""
        dtype = flats[0].dtype
        if self.errors:
            flats = [model._add(a, b) for a, b in zip(flats, self.errors)]
        arrays = [model._values(flat) for flat in flats]
        if self.feedback:
            self.errors = []
            for rank, array in enumerate(arrays):
                random = quantization_model.random_numbers(
                    len(array), self.stream, self.step, rank + 1
                )
                lost = quantization_model.encoding_error(
                    array, self.code, self.block, random
                )
                self.errors.append(Tensor(dtype, lost.view(flats[0].data.dtype)))
        total = quantization_model.reduce_scaled(
            arrays,
            self.code,
            self.block,
            len(arrays) if mean else 1,
            (self.stream, self.step, 0),
        )
        self.step += 1
        return model.cast(Tensor("f32", total), dtype)


@pytest.mark.parametrize(
    "world, transport, more",
    [
        (1, "shm", ""),
        (2, "shm", ""),
        (2, "gloo", "overlap=false"),
        (3, "shm", "overlap=false"),
        (3, "gloo", ""),
        (4, "shm", "memory=device"),
    ],
)
@pytest.mark.parametrize("hook", HOOKS)
def test_steps(tmp_path, hook, world, transport, more):
    """Several buckets over four steps, with and without error feedback; blocks with an
    infinity feed nothing back."""
    for feedback in (False, True):
        grads = [Grad((300,), "f32"), Grad((7, 33), "f32"), Grad((5, 61), "bf16")]
        grads += [Grad((1,), "f64"), Grad((129,), "f16")]
        module = Module([Function("step", grads)])
        path = tmp_path / str(feedback)
        path.mkdir()
        directory = runner.Directory(path)
        directory.write_module(module.text())
        inputs = cases.make_inputs(module, "step", world, 4, [runner.SEED, world])
        inputs[-1][1][0].data[7] = np.inf
        directory.write_inputs(inputs)
        options = f"{options_of(hook, feedback)} bucket-cap-mb=0 {more}".strip()
        env = {"DDPHOOK_TRANSPORT": transport}
        got = runner.run(directory, "step", world, 4, options, env)
        for number, grad in enumerate(grads):
            bucket = Bucket(hook, f"step.arg{number}", feedback)
            for step in range(4):
                flats = [flatten([inputs[rank][step][number]]) for rank in range(world)]
                want = bucket.reduce(flats, mean=True)
                for rank in range(world):
                    result = flatten([got[rank][step][number]])
                    assert difference(result, want) is None, (grad, step, rank)


@pytest.mark.parametrize("transport, world", [("shm", 2), ("gloo", 2), ("shm", 3)])
def test_arrays_of_many_chunks(tmp_path, transport, world):
    """The array is longer than a transport's chunks, with a prime size."""
    module = Module([Function("step", [Grad((700001,), "f32", values="gaussian")])])
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    inputs = cases.make_inputs(module, "step", world, 2, [runner.SEED, world])
    directory.write_inputs(inputs)
    env = {"DDPHOOK_TRANSPORT": transport, "DDPHOOK_THREADS": "3"}
    for hook in HOOKS:
        options = options_of(hook, feedback=True)
        got = runner.run(directory, "step", world, 2, options, env)
        bucket = Bucket(hook, "step.arg0", feedback=True)
        for step in range(2):
            flats = [flatten(inputs[rank][step]) for rank in range(world)]
            want = bucket.reduce(flats, mean=True)
            for rank in range(world):
                assert difference(flatten(got[rank][step]), want) is None, (hook, step)


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("world, transport", [(1, "shm"), (3, "shm"), (4, "gloo")])
def test_reduce_scatter(tmp_path, world, transport, hook):
    """A part equals that of the all-reduce of a gradient with the same name."""
    size, steps = 931, 3
    part = -(-size // world)
    text = f"""ddp.process_group @dp size {world}
func.func @step(%x: tensor<7x133xf32>) -> tensor<{part}xf32> {{
  %s = ddp.reduce_scatter sum %x on @dp {{ddp.name = "w"}}
      : tensor<7x133xf32> -> tensor<{part}xf32>
  return %s : tensor<{part}xf32>
}}
"""
    random = np.random.default_rng([runner.SEED, world])
    inputs = [
        [
            [Tensor("f32", random.standard_normal((7, 133)).astype(np.float32))]
            for _ in range(steps)
        ]
        for _ in range(world)
    ]
    directory = runner.Directory(tmp_path)
    directory.write_module(text)
    directory.write_inputs(inputs)
    env = {"DDPHOOK_TRANSPORT": transport}
    for feedback in (False, True):
        options = options_of(hook, feedback)
        got = runner.run(directory, "step", world, steps, options, env)
        bucket = Bucket(hook, "w", feedback)
        for step in range(steps):
            flats = [flatten(inputs[rank][step]) for rank in range(world)]
            whole = bucket.reduce(flats, mean=False).data
            whole = np.pad(whole, (0, part * world - size))
            for rank in range(world):
                want = Tensor("f32", whole[rank * part : (rank + 1) * part])
                assert difference(got[rank][step][0], want) is None, (step, rank)


@pytest.mark.parametrize("nodes", ["ab", "aa", "aabb", "abcabc"])
def test_hierarchy(tmp_path, free_port, nodes):
    """A node's shards have different random numbers, by the shard's number."""
    module = Module([Function("step", [Grad((5, 201), "f32", values="gaussian")])])
    inputs = cases.make_inputs(module, "step", len(nodes), 2, runner.SEED)
    for i, (hook, (code, block)) in enumerate(HOOKS.items()):
        path = tmp_path / str(i)
        path.mkdir()
        directory = runner.Directory(path)
        directory.write_module(module.text())
        directory.write_inputs(inputs)
        options = options_of(hook, feedback=False) + " topology=hierarchical"
        got = run_launched(directory, len(nodes), 2, options, free_port, nodes)
        stream = quantization_model.stream(SEED, "step.arg0")
        for step in range(2):
            ranks = {}
            for rank, node in enumerate(nodes):
                ranks.setdefault(node, []).append(flatten(inputs[rank][step]))
            sums = [model.run_hook(("allreduce",), node, True)[0] for node in ranks.values()]
            shares = len(next(iter(ranks.values())))
            want = [
                quantization_model.reduce_scaled(
                    [share(total, number, shares).data for total in sums],
                    code,
                    block,
                    len(sums),
                    (stream, step, number),
                )
                for number in range(shares)
            ]
            want = Tensor("f32", np.concatenate(want))
            for rank in range(len(nodes)):
                result = flatten(got[rank][step])
                assert difference(result, want) is None, (hook, step, rank)


@pytest.mark.parametrize("hook", ["int8", "int4", "fp8"])
def test_the_mean_of_many_steps(tmp_path, hook):
    """The average of 64 reductions of the same gradients is closer to their mean than a single
    one, by about the square root of 64; rounded to nearest, it would not be closer. Error
    feedback is off, since it would have the same effect."""
    steps, world = 64, 2
    module = Module([Function("step", [Grad((4096,), "f32", values="gaussian")])])
    inputs = cases.make_inputs(module, "step", world, 1, runner.SEED)
    inputs = [rank * steps for rank in inputs]
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    directory.write_inputs(inputs)
    mean = np.mean([rank[0][0].data.astype(np.float64) for rank in inputs], axis=0)

    def errors(options):
        got = runner.run(directory, "step", world, steps, options)
        all_steps = np.array([step[0].data.astype(np.float64) for step in got[0]])
        one = np.mean((all_steps[0] - mean) ** 2)
        return one, np.mean((all_steps.mean(axis=0) - mean) ** 2)

    one, average = errors(options_of(hook, feedback=False))
    assert one / average == pytest.approx(steps, rel=0.15)
    one, average = errors(f"hook={hook} error-feedback=false")
    assert one == pytest.approx(average, rel=1e-9)
