# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reduce-scatters, all-gathers, all-to-alls and broadcasts in flight: bits equal those of
the same program without overlap, which test_exchanges.py compares with a model. There
are several steps, several groups, and uneven or empty parts.
"""

import itertools
import pathlib
import subprocess

import numpy as np
import pytest

import runner
from oracle import WORLD
from tensors import difference
from test_exchanges import DTYPES, Step, part_size, type_of

STEPS = 3
# With three elements, some of four ranks have none.
SHAPES = [(), (3,), (0, 5), (7, 33), (4, 250)]


class Program(Step):
    """A program with work next to collectives: sums, by loops or by calls of the runtime,
    which may write in place of an operand."""

    def __init__(self, world, by_calls=False):
        super().__init__(world)
        self.by_calls = by_calls
        self.groups = {"dp": (world, f"ddp.process_group @dp size {world}")}
        if world == 4:
            self.groups["pairs"] = (
                2,
                "ddp.process_group @pairs size 2 ranks [[0, 2], [3, 1]]",
            )
        alone = ", ".join(f"[{rank}]" for rank in range(world))
        self.groups["alone"] = (1, f"ddp.process_group @alone size 1 ranks [{alone}]")

    def add(self, a, b):
        name, shape, dtype = a
        t = type_of(shape, dtype)
        number = len(self.lines)
        if self.by_calls:
            self.lines.append(f"  %s{number} = ddp.add {name}, {b[0]} : {t}, {t}")
            return f"%s{number}", shape, dtype
        self.lines.append(f"  %e{number} = tensor.empty() : {t}")
        self.lines.append(
            f"  %s{number} = linalg.add ins({name}, {b[0]} : {t}, {t})"
            f" outs(%e{number} : {t}) -> {t}"
        )
        return f"%s{number}", shape, dtype

    def collective(self, text, shape, dtype):
        name = f"%c{len(self.lines)}"
        self.lines.append(f"  {name} = ddp.{text} -> {type_of(shape, dtype)}")
        return name, shape, dtype

    def result(self, value):
        name, shape, dtype = value
        self.results.append(name)
        self.types.append(type_of(shape, dtype))

    def layer(self, shape, dtype, group, wire=""):
        """Adds a gradient, its part, the part's update, and the gathered parameters."""
        ranks = self.groups[group][0]
        a, b = self.argument(shape, dtype), self.argument(shape, dtype)
        gradient = self.add(a, b)
        part = (part_size(int(np.prod(shape)), ranks),)
        t, p = type_of(shape, dtype), type_of(part, dtype)
        scattered = self.collective(
            f"reduce_scatter mean {gradient[0]} on @{group} {wire}: {t}", part, dtype
        )
        own = self.argument(part, dtype)
        updated = self.add(own, scattered)
        gathered = self.collective(
            f"all_gather {updated[0]} on @{group} : {p}", shape, dtype
        )
        self.result(updated)
        self.result(self.add(gathered, a))
        # Adds a broadcast, in place or not: its operand is read before it, its result after.
        name = f"%b{len(self.lines)}"
        self.lines.append(
            f"  {name} = ddp.broadcast {gathered[0]} from {ranks - 1} on @{group} : {t}"
        )
        self.result(self.add((name, shape, dtype), b))
        if int(np.prod(shape)) % ranks == 0:
            name = f"%x{len(self.lines)}"
            self.lines.append(f"  {name} = ddp.all_to_all {a[0]} on @{group} : {t}")
            self.result((name, shape, dtype))
        return gathered

    def text(self):
        groups = "\n".join(text for _, text in self.groups.values())
        body = super().text().split("\n", 1)[1]
        return f"{groups}\n{body}"


def make(world, wire="", by_calls=False):
    program = Program(world, by_calls)
    groups = ["dp", *program.groups]
    cases = itertools.product(DTYPES, SHAPES)
    for number, (dtype, shape) in enumerate(cases):
        program.layer(shape, dtype, groups[number % len(groups)], wire)
    return program


def count_starts(directory, options):
    tool = pathlib.Path(runner.tool()).with_name("ddphook-opt")
    command = [tool, directory.module, f"--ddp-pipeline=verify-order=true {options}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.count("collective_start(")


def compare(path, program, options, overlaps, env=None, count=count_starts):
    """Checks that each of `overlaps` gives the same bits as none, with enough in flight."""
    world = program.world
    directory = runner.Directory(path)
    directory.write_module(program.text())
    drawn = [program.inputs([runner.SEED, world, i]) for i in range(STEPS)]
    directory.write_inputs(
        [[drawn[i][rank][0] for i in range(STEPS)] for rank in range(world)]
    )

    def run(overlap):
        return runner.run(
            directory, "step", world, STEPS, f"{options} {overlap}", env
        )

    assert count(directory, f"{options} overlap=false") == 0
    wanted = run("overlap=false")
    for overlap in overlaps:
        started = count(directory, f"{options} {overlap}")
        assert started >= len(program.arguments) // 3, f"{overlap}: {started}"
        got = run(overlap)
        for rank in range(world):
            for i in range(STEPS):
                assert len(got[rank][i]) == len(wanted[rank][i])
                for k, value in enumerate(got[rank][i]):
                    problem = difference(value, wanted[rank][i][k])
                    what = f"{overlap}, rank {rank}, step {i}, {program.types[k]}"
                    assert problem is None, f"{what}: {problem}"


DEPTHS = [f"overlap-depth={depth}" for depth in (1, 2, 5)]


@pytest.mark.parametrize("transport", ["shm", "gloo"])
@pytest.mark.parametrize("world", range(1, WORLD + 1))
@pytest.mark.parametrize("by_calls", [False, True])
def test_same_bits(tmp_path, world, transport, by_calls):
    env = {
        "DDPHOOK_TRANSPORT": transport,
        "DDPHOOK_BACKEND_OPTIONS": "async_progress=always",
    }
    compare(tmp_path, make(world, "", by_calls), "", DEPTHS, env)


@pytest.mark.parametrize(
    "options",
    [
        "hook=fp16",
        pytest.param("hook=bf16", marks=pytest.mark.full("as fp16")),
        pytest.param("hook=int8", marks=pytest.mark.full("as with error feedback")),
        "hook=int8 error-feedback=true",
        "hook=int4 error-feedback=true rounding=stochastic random-seed=7",
        pytest.param(
            "hook=fp8 format=f8E5M2 block-size=32 error-feedback=true",
            marks=pytest.mark.full("as int8"),
        ),
        "hook=fp16 accumulate=f32",
        "topology=hierarchical",
    ],
)
@pytest.mark.parametrize("world", [2, 3, 4])
def test_hooks(tmp_path, world, options):
    """The hook's work on scattered values precedes the start."""
    compare(tmp_path, make(world, by_calls=world == 3), options, DEPTHS[1:2])


@pytest.mark.parametrize("wire", ["f16", "bf16", "!ddp.encoded<i8, 64>"])
def test_wires(tmp_path, wire):
    compare(tmp_path, make(3, f"wire {wire} "), "", DEPTHS[1:2])


def test_in_a_loop(tmp_path):
    """In a loop, each iteration awaits what it starts."""
    world, shape, part = 3, (10, 7), (24,)
    program = Program(world)
    t, p = type_of(shape, "f32"), type_of(part, "f32")
    x, own = program.argument(shape, "f32"), program.argument(part, "f32")
    program.lines.append(f"""  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %turns = arith.constant 5 : index
  %e = tensor.empty() : {t}
  %f = tensor.empty() : {p}
  %w, %q = scf.for %i = %zero to %turns step %one
      iter_args(%wi = {x[0]}, %qi = {own[0]}) -> ({t}, {p}) {{
    %g = linalg.sub ins(%wi, {x[0]} : {t}, {t}) outs(%e : {t}) -> {t}
    %s = ddp.reduce_scatter mean %g on @dp : {t} -> {p}
    %h = linalg.add ins(%wi, {x[0]} : {t}, {t}) outs(%e : {t}) -> {t}
    %u = linalg.add ins(%qi, %s : {p}, {p}) outs(%f : {p}) -> {p}
    %v = ddp.all_gather %u on @dp : {p} -> {t}
    %r = linalg.abs ins(%h : {t}) outs(%e : {t}) -> {t}
    %n = linalg.add ins(%v, %r : {t}, {t}) outs(%e : {t}) -> {t}
    scf.yield %n, %u : {t}, {p}
  }}""")
    program.result(("%w", shape, "f32"))
    program.result(("%q", part, "f32"))
    compare(tmp_path, program, "", DEPTHS[:2])


def test_messages_of_a_hook(tmp_path):
    """With interleave, the all-gathers of topk's buckets are in flight."""
    program = Program(4)
    for shape in [(40, 8), (33, 7), (64,)]:
        a, b = program.argument(shape, "f32"), program.argument(shape, "f32")
        gradient = program.add(a, b)
        t = type_of(shape, "f32")
        name = f"%m{len(program.lines)}"
        program.lines.append(f"  {name} = ddp.all_reduce mean {gradient[0]} on @dp : {t}")
        program.result(program.add((name, shape, "f32"), a))
    options = "hook=#ddp.topk<density=0.1> bucket-cap-mb=0"
    compare(tmp_path, program, options, ["interleave=true", "interleave=true overlap-depth=3"])
