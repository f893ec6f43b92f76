# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Error feedback over hierarchical groups, to the last bit: each rank keeps the error of
its shard of its node's sum (docs/hierarchy.md). test_hierarchy.py has the model of
stages, quantization_model.py that of codes.
"""

import numpy as np
import pytest

import cases
import model
import quantization_model
import runner
import tensors
from cases import Function, Grad, Module
from tensors import Tensor, difference
from test_hierarchy import share
from test_parity import run_launched
from test_resume import same

SEED = 7
HOOKS = {
    "int8": ("i8", 256),
    "int4 block-size=32": ("i4", 32),
    "fp8": ("f8E4M3FN", 256),
}


def flatten(values):
    flat = np.concatenate([value.data.reshape(-1) for value in values])
    return Tensor(values[0].dtype, flat)


class Shares:
    """The model of one bucket, step by step; `nodes` has the node of each rank."""

    def __init__(self, hook, nodes, stream=None):
        self.code, self.block = HOOKS[hook]
        self.names, self.stream, self.step = nodes, stream, 0
        self.errors = {}  # By node and number of the shard.

    def reduce(self, flats):
        """Returns the mean, which is the result of all ranks."""
        nodes = {}
        for name, flat in zip(self.names, flats):
            nodes.setdefault(name, []).append(flat)
        sums = {
            name: model.run_hook(("allreduce",), node, True)[0]
            for name, node in nodes.items()
        }
        shares = len(next(iter(nodes.values())))
        dtype, parts = flats[0].dtype, []
        for number in range(shares):
            arrays = []
            for rank, (name, total) in enumerate(sums.items()):
                part = share(total, number, shares)
                # The first error is zero; adding it turns -0 into 0.
                zero = Tensor(dtype, np.zeros_like(part.data))
                part = model._add(part, self.errors.get((name, number), zero))
                array = model._values(part)
                random = None
                if self.stream is not None:
                    lane = number * (len(sums) + 1) + rank + 1
                    random = quantization_model.random_numbers(
                        len(array), self.stream, self.step, lane
                    )
                lost = quantization_model.encoding_error(
                    array, self.code, self.block, random
                )
                lost = lost.view(part.data.dtype)
                self.errors[name, number] = Tensor(dtype, lost)
                arrays.append(array)
            rounding = (self.stream, self.step, number)
            total = quantization_model.reduce_scaled(
                arrays,
                self.code,
                self.block,
                len(arrays),
                None if self.stream is None else rounding,
            )
            parts.append(model.cast(Tensor("f32", total), dtype).data)
        self.step += 1
        return Tensor(dtype, np.concatenate(parts))

    def state(self, rank, size):
        """Returns the rank's state: its shard's error at its offset, and zeros elsewhere."""
        name = self.names[rank]
        number = self.names[:rank].count(name)
        part = -(-size // self.names.count(name))
        error = self.errors[name, number].data
        kept = np.zeros(size, error.dtype)
        kept[number * part : number * part + len(error)] = error
        return kept


def options_of(hook, more=""):
    return f"hook={hook} error-feedback=true topology=hierarchical {more}".strip()


GRADS = [
    Grad((300,), "f32"),
    Grad((7, 133), "f32"),
    Grad((5, 61), "bf16"),
    Grad((1,), "f64"),
    Grad((129,), "f16"),
]


@pytest.mark.parametrize(
    "nodes, transport, hook, rounding, more",
    [
        ("a", "shm", "int8", "nearest", ""),
        ("a", "shm", "int4 block-size=32", "stochastic", "overlap=false"),
        ("aa", "shm", "int4 block-size=32", "nearest", "overlap=false"),
        ("ab", "gloo", "fp8", "nearest", ""),
        ("ab", "auto", "int8", "stochastic", ""),
        ("abc", "auto", "int4 block-size=32", "nearest", "overlap=false"),
        ("aabb", "auto", "int4 block-size=32", "nearest", ""),
        ("aabb", "auto", "fp8", "stochastic", "overlap=false"),
        ("abab", "gloo", "int8", "nearest", "memory=device"),
        ("abcd", "auto", "int8", "nearest", ""),
        ("aaaa", "auto", "int4 block-size=32", "stochastic", ""),
    ],
)
def test_steps(tmp_path, free_port, monkeypatch, nodes, transport, hook, rounding, more):
    """Four steps of every type, with fewer elements than ranks. The first step has negative
    zeros, whose sign codes of fp8 keep and the first errors do not. A later one has an
    infinity, whose block feeds nothing back."""
    monkeypatch.setenv("DDPHOOK_TRANSPORT", transport)
    world, steps = len(nodes), 4
    module = Module([Function("step", GRADS)])
    inputs = cases.make_inputs(module, "step", world, steps, [runner.SEED, world])
    for rank in inputs:
        for value in rank[0]:
            value.data.reshape(-1)[-3:] = model.cast(
                Tensor("f32", np.array([-0.0], np.float32)), value.dtype
            ).data
    inputs[-1][1][0].data[7] = np.inf
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    directory.write_inputs(inputs)
    more += f" bucket-cap-mb=0 rounding={rounding} random-seed={SEED}"
    options = options_of(hook, more)
    got = run_launched(directory, world, steps, options, free_port, nodes)
    for number, grad in enumerate(GRADS):
        stream = None
        if rounding == "stochastic":
            stream = quantization_model.stream(SEED, f"step.arg{number}")
        bucket = Shares(hook, nodes, stream)
        for step in range(steps):
            flats = [flatten([inputs[rank][step][number]]) for rank in range(world)]
            want = bucket.reduce(flats)
            for rank in range(world):
                result = flatten([got[rank][step][number]])
                assert difference(result, want) is None, (grad, step, rank)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("elements", [330017, 1900009])
def test_arrays_of_many_chunks(tmp_path, free_port, elements, rounding):
    """Arrays are longer than a transport's chunks; shards of the longer ones are reduced in
    pieces."""
    nodes, steps, hook = "aabb", 3, "int4 block-size=32"
    module = Module([Function("step", [Grad((elements,), "f32", values="gaussian")])])
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    inputs = cases.make_inputs(module, "step", len(nodes), steps, runner.SEED)
    directory.write_inputs(inputs)
    options = options_of(hook, f"rounding={rounding} random-seed={SEED}")
    got = run_launched(directory, len(nodes), steps, options, free_port, nodes)
    stream = None
    if rounding == "stochastic":
        stream = quantization_model.stream(SEED, "step.arg0")
    bucket = Shares(hook, nodes, stream)
    for step in range(steps):
        want = bucket.reduce([flatten(rank[step]) for rank in inputs])
        for rank in got:
            assert difference(flatten(rank[step]), want) is None, step


TEXT = """ddp.process_group @dp
func.func @step(%a: tensor<40x31xf32> {ddp.name = "w"},
                %b: tensor<31xf32> {ddp.name = "b"})
    -> (tensor<40x31xf32>, tensor<31xf32>) {
  %r = ddp.all_reduce mean %a on @dp : tensor<40x31xf32>
  %s = ddp.all_reduce mean %b on @dp : tensor<31xf32>
  return %r, %s : tensor<40x31xf32>, tensor<31xf32>
}
"""
SIZE = 40 * 31 + 31


class Job:
    """Runs TEXT on nodes; returns results and the standard error output."""

    def __init__(self, path, port, pipeline=""):
        self.directory, self.port = runner.Directory(path), port
        self.directory.write_module(TEXT)
        self.pipeline = options_of("int4 block-size=32", pipeline)

    def run(self, nodes, inputs, *flags, pipeline=None, code=0):
        world, steps = len(nodes), len(inputs[0])
        self.directory.clear_outputs()
        self.directory.write_inputs(inputs)
        processes = []
        for rank in range(world):
            env = runner.launch(rank, world, self.port)
            env.update(DDPHOOK_NODE=nodes[rank], DDPHOOK_LOG="warn")
            pipeline = self.pipeline if pipeline is None else pipeline
            arguments = self.directory.arguments("step", None, steps, pipeline)
            processes.append(runner.start([*arguments, *flags], env))
        results = [runner.finish(process) for process in processes]
        assert all((result.code != 0) == (code != 0) for result in results), results
        errors = "".join(result.stderr for result in results)
        return [] if code else self.directory.read_outputs(world, steps), errors


def inputs_of(world, steps):
    random = np.random.default_rng([runner.SEED, 4000, world])
    return [
        [
            [
                Tensor("f32", random.standard_normal(shape).astype(np.float32))
                for shape in [(40, 31), (31,)]
            ]
            for _ in range(steps)
        ]
        for _ in range(world)
    ]


def test_resume(tmp_path, free_port):
    """Five steps equal three, a checkpoint and two more; the file has the errors by the names
    of gradients, at the offsets of the shards."""
    nodes = "abab"
    job, inputs = Job(tmp_path, free_port), inputs_of(4, 5)
    middle, whole = (str(tmp_path / f"{p}.{{rank}}.safetensors") for p in "mw")
    expected, _ = job.run(nodes, inputs, f"--state-out={whole}")
    job.run(nodes, [rank[:3] for rank in inputs], f"--state-out={middle}")
    second, _ = job.run(
        nodes, [rank[3:] for rank in inputs], f"--state-in=strict:{middle}"
    )
    bucket = Shares("int4 block-size=32", nodes)
    for step in range(5):
        bucket.reduce([flatten(rank[step]) for rank in inputs])
    for rank in range(4):
        for step in (3, 4):
            for a, b in zip(second[rank][step - 3], expected[rank][step], strict=True):
                assert same(a, b), (rank, step)
        (name, kept), *others = tensors.load(whole.format(rank=rank)).items()
        assert (name, others) == ("b0.share_error", [])
        want = bucket.state(rank, SIZE)
        assert kept.data.reshape(-1).tobytes() == want.tobytes(), rank
    text = (tmp_path / "w.0.safetensors").read_bytes()
    assert rb"\"gradients\":[[\"w\",\"b\"]]" in text
    assert b"int4.share_error" in text


def test_errors_begin_anew(tmp_path, free_port):
    """In a world of another size, or on other nodes, errors begin at zero, with a warning that
    names them; a strict load is refused."""
    job, inputs = Job(tmp_path, free_port), inputs_of(4, 2)
    saved = str(tmp_path / "s.{rank}.safetensors")
    job.run("aabb", inputs, f"--state-out={saved}")
    for nodes, why in [
        ("abab", "was saved by ranks on other nodes"),
        ("aaaa", "was saved by ranks on other nodes"),
        ("ab", "was saved by 4 ranks, but this job has 2"),
    ]:
        some = [rank[:2] for rank in inputs[: len(nodes)]]
        fresh, _ = job.run(nodes, some)
        got, errors = job.run(nodes, some, f"--state-in={saved}")
        assert why in errors
        assert "state 'b0.share_error' of 'w', 'b' begins at zero" in errors
        assert not cases.difference_of(got, fresh)
        _, errors = job.run(nodes, some, f"--state-in=strict:{saved}", code=1)
        assert "nodes" in errors or "world size" in errors


def test_what_does_not_go_over(tmp_path, free_port):
    """The error of a shard is not the error of a rank's gradient, and belongs to the whole
    bucket."""
    job, inputs = Job(tmp_path, free_port), inputs_of(2, 1)
    saved = str(tmp_path / "s.{rank}.safetensors")
    job.run("aa", inputs, f"--state-out={saved}")
    flat = job.pipeline.replace("hierarchical", "flat")
    _, errors = job.run("aa", inputs, f"--state-in={saved}", pipeline=flat, code=1)
    assert "it has no state 'int4.error' of gradient" in errors
    small = job.pipeline + " bucket-cap-mb=0"
    _, errors = job.run("aa", inputs, f"--state-in={saved}", pipeline=small, code=1)
    assert "'int4.share_error' of gradients 'w', 'b' is indivisible" in errors
