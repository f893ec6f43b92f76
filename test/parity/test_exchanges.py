# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reduce-scatters, all-gathers, all-to-alls and broadcasts, to the last bit. A
reduce-scatter is compared with the part of an all-reduce: by a model in NumPy, by the
all-reduce of the same program, and by torch.distributed's reduce_scatter. The same
holds for encoded reduce-scatters.
"""

import numpy as np
import pytest

import model
import quantization_model
import runner
from oracle import WORLD
from tensors import Tensor, difference

DTYPES = ["f16", "bf16", "f32", "f64"]
SHAPES = [(), (3,), (4, 8), (7, 33), (100003,)]
REDUCTIONS = ["mean", "sum"]


def part_size(count, world):
    return -(-count // world)


def part_of(flat, rank, world):
    """Returns a rank's part of an array, padded with zeros."""
    size = part_size(flat.data.size, world)
    own = flat.data[rank * size : (rank + 1) * size]
    return Tensor(flat.dtype, np.concatenate([own, np.zeros(size - own.size, own.dtype)]))


def flat(tensor):
    return Tensor(tensor.dtype, tensor.data.reshape(-1))


def type_of(shape, dtype):
    return f"tensor<{''.join(f'{size}x' for size in shape)}{dtype}>"


class Step:
    """A function that is built from operations on its arguments."""

    def __init__(self, world, attributes=""):
        self.world, self.attributes = world, attributes
        self.arguments, self.lines, self.results, self.types = [], [], [], []

    def argument(self, shape, dtype):
        self.arguments.append((shape, dtype))
        return f"%a{len(self.arguments) - 1}", shape, dtype

    def give(self, text, shape, dtype):
        name = f"%r{len(self.results)}"
        self.lines.append(f"  {name} = {text}")
        self.results.append(name)
        self.types.append(type_of(shape, dtype))
        return name, shape, dtype

    def reduce_scatter(self, value, reduction, wire=""):
        name, shape, dtype = value
        part = (part_size(int(np.prod(shape)), self.world),)
        types = f"{type_of(shape, dtype)} -> {type_of(part, dtype)}"
        return self.give(
            f"ddp.reduce_scatter {reduction} {name} on @dp {wire}: {types}", part, dtype
        )

    def all_gather(self, value, shape, wire=""):
        name, part, dtype = value
        types = f"{type_of(part, dtype)} -> {type_of(shape, dtype)}"
        return self.give(f"ddp.all_gather {name} on @dp {wire}: {types}", shape, dtype)

    def same_type(self, operation, value):
        _, shape, dtype = value
        return self.give(f"ddp.{operation} : {type_of(shape, dtype)}", shape, dtype)

    def text(self):
        types = [type_of(*argument) for argument in self.arguments]
        arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
        return "\n".join(
            [
                f"ddp.process_group @dp size {self.world}",
                f"func.func @step({arguments}) -> ({', '.join(self.types)}) {{",
                *self.lines,
                f"  return {', '.join(self.results)} : {', '.join(self.types)}",
                "}",
            ]
        )

    def inputs(self, seed):
        """Returns one step's inputs by rank: [rank][0][number]."""
        ranks = []
        for rank in range(self.world):
            random = np.random.default_rng([*seed, rank])
            values = []
            for shape, dtype in self.arguments:
                wide = random.standard_normal(shape) * 10.0 ** random.integers(
                    -3, 3, shape
                )
                start = Tensor("f64", np.asarray(wide, np.float64))
                values.append(model.cast(start, dtype))
                values[-1].data = values[-1].data.reshape(shape)
            ranks.append([values])
        return ranks

    def run(self, path, options="", env=None, edit=None):
        """Returns the inputs and the results by rank; edit(rank, values) changes inputs."""
        directory = runner.Directory(path)
        directory.write_module(self.text())
        inputs = self.inputs([runner.SEED, self.world])
        for rank, steps in enumerate(inputs):
            if edit:
                edit(rank, steps[0])
        directory.write_inputs(inputs)
        got = runner.run(directory, "step", self.world, 1, options, env)
        return [rank[0] for rank in inputs], [rank[0] for rank in got]


def check(got, want, what):
    assert difference(flat(got), flat(want)) is None, (
        f"{what}: {difference(flat(got), flat(want))}"
    )


@pytest.mark.parametrize("transport", ["shm", "gloo"])
@pytest.mark.parametrize("world", range(1, WORLD + 1))
def test_against_the_model(tmp_path, world, transport):
    step, expected = Step(world), []
    for dtype in DTYPES:
        for shape in SHAPES:
            number = len(step.arguments)
            value = step.argument(shape, dtype)
            for reduction in REDUCTIONS:
                for wire in ["", "wire f16 ", "wire bf16 "]:
                    part = step.reduce_scatter(value, reduction, wire)
                    expected.append(("scatter", number, reduction, wire))
                    step.all_gather(part, shape, wire)
                    expected.append(("gather", len(expected) - 1, wire))
            step.same_type(f"broadcast {value[0]} from {world - 1} on @dp", value)
            expected.append(("broadcast", number))
            if int(np.prod(shape)) % world == 0:
                step.same_type(f"all_to_all {value[0]} on @dp", value)
                expected.append(("exchange", number))
    inputs, got = step.run(tmp_path, env={"DDPHOOK_TRANSPORT": transport})

    wanted = []
    for kind, number, *rest in expected:
        if kind == "scatter":
            reduction, wire = rest
            hook = {"": ("allreduce",), "wire f16 ": ("fp16",), "wire bf16 ": ("bf16",)}
            tensors = [flat(rank[number]) for rank in inputs]
            sums = model.run_hook(hook[wire], tensors, reduction == "mean")
            wanted.append([part_of(sums[r], r, world) for r in range(world)])
        elif kind == "gather":
            whole = np.concatenate([part.data for part in wanted[number]])
            count = got[0][len(wanted)].data.size
            together = Tensor(wanted[number][0].dtype, whole[:count])
            # Values already rounded to the wire's type do not change.
            wanted.append([together] * world)
        elif kind == "broadcast":
            wanted.append([inputs[world - 1][number]] * world)
        else:
            parts = [
                [part_of(flat(inputs[r][number]), to, world).data for to in range(world)]
                for r in range(world)
            ]
            dtype = inputs[0][number].dtype
            wanted.append(
                [
                    Tensor(dtype, np.concatenate([parts[r][to] for r in range(world)]))
                    for to in range(world)
                ]
            )
    for rank in range(world):
        assert len(got[rank]) == len(wanted)
        for i, (kind, *rest) in enumerate(expected):
            check(got[rank][i], wanted[i][rank], f"rank {rank}, {kind} {rest}")


# The largest blocks make chunks of several exchanges, each with some ranks' pieces.
ENCODINGS = [
    ("i8", 256),
    ("i8", 4096),
    ("i4", 64),
    ("f8E4M3FN", 96),
    ("f8E5M2", 32),
    ("f16", None),
    ("bf16", None),
]


def spoil(rank, values):
    """Puts zeros, infinities and NaNs into some blocks of large arrays."""
    for value in values:
        flat = value.data.reshape(-1)
        if flat.size < 1000:
            continue
        infinity = 0x7F80 if value.dtype == "bf16" else np.inf
        flat[128:640] = 0
        if rank == 0:
            flat[700] = infinity
        flat[-1] = 0x7FC0 if value.dtype == "bf16" else np.nan


@pytest.mark.parametrize(
    "transport, world",
    [("shm", 1), ("shm", 2), ("shm", 3), ("shm", 4), ("gloo", 2), ("gloo", 3), ("gloo", 4)],
)
def test_encoded_against_the_model(tmp_path, world, transport):
    """Blocks do not end where parts do; with three elements, some ranks have none."""
    step, expected = Step(world), []
    for dtype in DTYPES:
        for shape in [(), (3,), (7, 33), (1000,), (70001,)]:
            number = len(step.arguments)
            value = step.argument(shape, dtype)
            for i, (code, block) in enumerate(ENCODINGS):
                reduction = REDUCTIONS[(number + i) % 2]
                blocks = f", {block}" if block else ""
                step.reduce_scatter(
                    value, reduction, f"wire !ddp.encoded<{code}{blocks}> "
                )
                expected.append((number, reduction, code, block or 1024))
    env = {"DDPHOOK_TRANSPORT": transport}
    inputs, got = step.run(tmp_path, env=env, edit=spoil)

    for i, (number, reduction, code, block) in enumerate(expected):
        arrays = [model._values(flat(rank[number])) for rank in inputs]
        divisor = world if reduction == "mean" else 1
        total = quantization_model.reduce_scaled(arrays, code, block, divisor)
        whole = model.cast(Tensor("f32", total), inputs[0][number].dtype)
        for rank in range(world):
            want = part_of(whole, rank, world)
            check(got[rank][i], want, f"rank {rank}, {expected[i]}, {want.dtype}")


@pytest.mark.parametrize("hook", ["int8", "int4", "fp8 format=f8E5M2 block-size=32"])
@pytest.mark.parametrize("world, transport", [(1, "shm"), (3, "shm"), (4, "gloo")])
def test_error_feedback(tmp_path, world, transport, hook):
    """Errors of tensors and buckets: four steps, each with the loss of the step before."""
    step, steps = Step(world), 4
    for dtype in DTYPES:
        value = step.argument((7, 133), dtype)
        step.same_type(f"all_reduce mean {value[0]} on @dp", value)
        step.reduce_scatter(value, "mean")
        bucket = f"!ddp.bucket<{dtype}, [7x133]>"
        name = f"%b{len(step.arguments)}"
        step.lines.append(
            f"  {name} = ddp.pack {value[0]} : {type_of(*value[1:])} -> {bucket}"
        )
        part = (part_size(931, world),)
        types = f"{bucket} -> {type_of(part, dtype)}"
        step.give(f"ddp.reduce_scatter mean {name} on @dp : {types}", part, dtype)
    directory = runner.Directory(tmp_path)
    directory.write_module(step.text())
    drawn = [step.inputs([runner.SEED, world, i]) for i in range(steps)]
    inputs = [[drawn[i][rank][0] for i in range(steps)] for rank in range(world)]
    directory.write_inputs(inputs)
    options = f"hook={hook} error-feedback=true bucket-cap-mb=0"
    env = {"DDPHOOK_TRANSPORT": transport}
    got = runner.run(directory, "step", world, steps, options, env)
    for rank in range(world):
        for i in range(steps):
            results = got[rank][i]
            for k in range(0, len(results), 3):
                want = part_of(flat(results[k]), rank, world)
                for part in results[k + 1 : k + 3]:
                    check(part, want, f"rank {rank}, step {i}, {want.dtype}")


@pytest.mark.parametrize(
    "options",
    [
        "",
        "hook=fp16",
        "hook=bf16 memory=device",
        "hook=int8",
        "hook=int4 error-feedback=false",
        "hook=fp16 accumulate=f32",
    ],
)
@pytest.mark.parametrize("world", range(1, WORLD + 1))
def test_is_the_part_of_the_all_reduce(tmp_path, world, options):
    """With all valid hooks, a reduce-scatter gives its part of the all-reduce, which has a
    separate bucket."""
    step = Step(world)
    for dtype in DTYPES:
        for shape in SHAPES:
            for reduction in REDUCTIONS:
                value = step.argument(shape, dtype)
                step.same_type(f"all_reduce {reduction} {value[0]} on @dp", value)
                step.reduce_scatter(value, reduction)
    _, got = step.run(tmp_path, f"{options} bucket-cap-mb=0".strip())
    for rank in range(world):
        for i in range(0, len(got[rank]), 2):
            part = part_of(flat(got[rank][i]), rank, world)
            check(got[rank][i + 1], part, f"rank {rank}, {step.types[i]}")


@pytest.mark.parametrize("options", ["", "memory=device", "overlap=false fuse=false"])
@pytest.mark.parametrize("world", [2, 3, 4])
def test_one_behind_the_other(tmp_path, world, options):
    """Results reuse memory of dead values, but never of their own operands."""
    step, shape = Step(world), (6 * world,)
    value = step.argument(shape, "f32")
    moved = value
    for _ in range(3):
        moved = step.same_type(f"all_to_all {moved[0]} on @dp", moved)
        moved = step.same_type(f"broadcast {moved[0]} from 1 on @dp", moved)
        part = step.reduce_scatter(moved, "sum")
        moved = step.all_gather(part, shape)
    # Only the last value is a result: all others have a slot in the arena.
    step.results, step.types = step.results[-1:], step.types[-1:]
    inputs, got = step.run(tmp_path, options)
    wanted = [rank[0].data for rank in inputs]
    for _ in range(3):
        parts = [array.reshape(world, -1) for array in wanted]
        sent = np.concatenate([parts[rank][1] for rank in range(world)])
        tensors = [Tensor("f32", sent)] * world
        wanted = [model.run_hook(("allreduce",), tensors, False)[0].data] * world
    for rank in range(world):
        check(got[rank][0], Tensor("f32", wanted[rank]), f"rank {rank}")


@pytest.mark.parametrize("world", range(1, WORLD + 1))
def test_against_torch(pool, tmp_path, world):
    """torch.distributed requires parts of equal size."""
    step, jobs = Step(world), []
    for dtype in DTYPES:
        for count in [1, 7, 1000, 50000]:
            value = step.argument((count * world,), dtype)
            part = step.reduce_scatter(value, "sum")
            step.all_gather(part, (count * world,))
            step.same_type(f"all_to_all {value[0]} on @dp", value)
            step.same_type(f"broadcast {value[0]} from 0 on @dp", value)
    inputs, got = step.run(tmp_path)
    ranks = tuple(range(world))
    pool.make_groups([ranks])
    jobs = [(ranks, [(t.dtype, t.data) for t in inputs[rank]]) for rank in range(world)]
    wanted = pool.call("run_exchanges", jobs, ranks)
    for rank in range(world):
        for i, value in enumerate(got[rank]):
            check(value, Tensor(value.dtype, wanted[rank][i]), f"rank {rank}, result {i}")
