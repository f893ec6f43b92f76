# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Post-local SGD and averages of parameters against PyTorch's real hook and its
PeriodicModelAverager on real process groups: every result, to the last bit."""

from dataclasses import dataclass

import pytest

import cases
import runner
from cases import Function, Grad, Module, Options
from oracle import WORLD
from tensors import DTYPES, Tensor

PARTITIONS = {
    "pairs": [(0, 1), (2, 3)],
    "odds": [(0, 2), (1, 3)],
    "alone": [(0,), (1,), (2,), (3,)],
}
SHAPES = [(31, 17), (127,), (), (5, 7, 3), (64, 64), (0, 5), (257, 3)]


@dataclass(frozen=True)
class Case:
    world: int
    dtype: str = "f32"
    start: int = 2
    subgroup: str = None
    reduces: bool = True
    wrapper: str = None
    cap_mb: float = None

    @property
    def name(self):
        parts = [f"w{self.world}", self.dtype, f"start{self.start}"]
        parts += [self.subgroup or "node", "reduces" if self.reduces else "keeps"]
        return "-".join(parts + [self.wrapper] * bool(self.wrapper) + ["torch"])

    @property
    def groups(self):
        """The subgroup of every rank."""
        whole = tuple(range(self.world))
        parts = PARTITIONS[self.subgroup] if self.subgroup else [whole]
        return [next(part for part in parts if rank in part) for rank in whole]

    def pipeline(self):
        options = {
            "hook": "post_local_sgd",
            "start-localsgd-iter": self.start,
            "post-local-gradient-allreduce": str(self.reduces).lower(),
        }
        if self.subgroup:
            options["subgroup"] = self.subgroup
        if self.wrapper:
            options["wrapper"] = self.wrapper
        text = Options(bucket_cap_mb=self.cap_mb).text()
        return " ".join([f"{k}={v}" for k, v in options.items()] + [text])


CASES = [
    Case(1),
    Case(2),
    Case(3, cap_mb=0.004),
    Case(4, subgroup="pairs"),
    Case(4, subgroup="odds", cap_mb=0.004, dtype="f64"),
    Case(4, subgroup="alone", start=0),
    Case(4, subgroup="pairs", wrapper="fp16", cap_mb=0.004),
    Case(4, subgroup="odds", wrapper="bf16", start=1),
    Case(2, reduces=False, dtype="bf16"),
    Case(3, reduces=False, wrapper="fp16", cap_mb=0.004),
    Case(3, dtype="f16", start=3),
    Case(2, start=-1),
    Case(2, start=100),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_post_local_sgd(pool, tmp_path, case):
    steps = 5
    values = [name for name in cases.VALUES if name != "bits"]
    grads = [
        Grad(shape, case.dtype, values=values[i % len(values)])
        for i, shape in enumerate(SHAPES)
    ]
    module = Module([Function("step", grads)])
    if case.subgroup:
        lists = [list(part) for part in PARTITIONS[case.subgroup]]
        module.groups[case.subgroup] = f"ranks {lists}"
    inputs = cases.make_inputs(module, "step", case.world, steps, runner.SEED)
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    directory.write_inputs(inputs)
    got = runner.run(directory, "step", case.world, steps, case.pipeline())

    options = Options(bucket_cap_mb=case.cap_mb)
    (function,) = module.functions
    buckets = [b[0] for b in cases.buckets_of(module, function, options)]
    whole = tuple(range(case.world))
    pool.call("make_groups", [(sorted({whole, *case.groups}),)] * WORLD)
    settings = (case.start, case.reduces, case.wrapper)
    flat = [cases.flatten_buckets(buckets, steps) for steps in inputs]
    arguments = [
        (whole, case.groups[rank], settings, case.dtype, flat[rank]) for rank in whole
    ]
    out = pool.call("run_local_sgd", arguments, whole)
    for rank in whole:
        for step in range(steps):
            ours = cases.flatten_buckets(buckets, [got[rank][step]])[0]
            for number, data in enumerate(out[rank][step]):
                report = cases.difference(
                    Tensor(case.dtype, ours[number]), Tensor(case.dtype, data)
                )
                assert not report, f"rank {rank}, step {step}, b{number}: {report}"


def averages_text(shapes, dtype, clauses):
    grads = [Grad(shape, dtype) for shape in shapes]
    types = ", ".join(grad.type for grad in grads)
    arguments = ", ".join(f"%w{i}: {g.type}" for i, g in enumerate(grads))
    lines = ["module {", "  ddp.process_group @dp"]
    lines.append(f"  func.func @step({arguments}) -> ({types}) {{")
    for i, grad in enumerate(grads):
        lines.append(f"    %a{i} = ddp.average %w{i} on @dp {clauses} : {grad.type}")
    results = ", ".join(f"%a{i}" for i in range(len(grads)))
    return "\n".join(lines + [f"    return {results} : {types}", "  }", "}", ""])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "world, period, warmup", [(1, 2, 0), (2, 1, 0), (3, 2, 1), (4, 3, 2), (3, 4, 0)]
)
def test_averages_of_parameters(pool, tmp_path, dtype, world, period, warmup):
    """Ranks with parameters of their own, nine steps."""
    steps = 9
    grads = [Grad(shape, dtype) for shape in SHAPES]
    module = Module([Function("step", grads)])
    inputs = cases.make_inputs(module, "step", world, steps, runner.SEED)
    directory = runner.Directory(tmp_path)
    clauses = f"every {period}" + (f" warmup {warmup}" if warmup else "")
    directory.write_module(averages_text(SHAPES, dtype, clauses))
    directory.write_inputs(inputs)
    got = runner.run(directory, "step", world, steps)
    whole = tuple(range(world))
    pool.call("make_groups", [((whole,),)] * WORLD)
    arguments = [
        (whole, period, warmup, dtype, [[t.data for t in s] for s in inputs[rank]])
        for rank in whole
    ]
    out = pool.call("run_averager", arguments, whole)
    want = [
        [[Tensor(dtype, data) for data in step] for step in rank] for rank in out
    ]
    report = cases.difference_of(got, want)
    assert not report, report
