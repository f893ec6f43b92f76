# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PowerSGD's statistics equal PyTorch's: those in the modules' periodic reports, and those
in the tools' summary."""

import math
import re

import pytest

import powersgd_cases
from numerics_cases import make_case, pipeline, run
from powersgd_cases import SHAPES, Case
from powersgd_model import Config

REPORT = re.compile(
    r"ddphook: bucket (\w+), iteration (\d+): (\d+) elements sent as (\d+) "
    r"\(rate ([0-9.]+)\)\n"
)


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("shapes", ["mlp", "conv", "transformer", "awkward", "nothing"])
@pytest.mark.parametrize("kind", ["f32", "fp16", "batched"])
def test_counts_are_those_of_compression_stats(pool, tmp_path, kind, shapes, world):
    """Sums up reports of every iteration."""
    dtype, wrapper, batched = powersgd_cases.KINDS[kind]
    config = Config(matrix_approximation_rank=2, wrapper=wrapper, batched=batched)
    case = Case(
        "counts", tuple(SHAPES[shapes]), dtype, config, world, "gaussian", cap_mb=0.01
    )
    gradients = case.gradients(5)
    job = (config, case.bucket_shapes, dtype, case.flat(gradients))
    ((_, snapshots),) = pool.run_powersgd(world, [job])
    want = snapshots[0][-1].stats
    options = case.pipeline("compression-stats-logging-frequency=1")
    env = {"DDPHOOK_LOG": "info"}
    _, _, stderr = run(tmp_path, case, gradients, options, env=env)
    assert not REPORT.sub("", stderr), stderr
    reports = REPORT.findall(stderr)
    got = tuple(sum(int(report[i]) for report in reports) for i in (2, 3))
    assert got == tuple(want)
    names = [f"b{n}" for n in range(len(case.buckets))]
    assert [r[:2] for r in reports] == [
        (name, str(step)) for step in range(case.first, 5) for name in names
    ]
    for _, _, before, after, rate in reports:
        assert rate == f"{int(before) / int(after):.2f}"


SUMMARY = re.compile(
    r"ddphook-run: wire: .* a rank in \d+ collectives, uncompressed .*, ratio "
    r"([\d.]+); compression_stats: rate ([\d.]+), numel (\d+) before, (\d+) after\n"
)
BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}


@pytest.mark.parametrize("kind", ["f32", "fp16", "batched"])
def test_the_summary_is_that_of_compression_stats(pool, tmp_path, kind):
    """Checks the three numbers of PowerSGDState.compression_stats(), and the ratio of bytes,
    which also includes uncompressed steps and the wire's type."""
    steps, world = 5, 2
    dtype, wrapper, batched = powersgd_cases.KINDS[kind]
    config = Config(matrix_approximation_rank=1, wrapper=wrapper, batched=batched)
    case = Case(
        "summary", tuple(SHAPES["mlp"]), dtype, config, world, "gaussian", cap_mb=0.01
    )
    gradients = case.gradients(steps)
    job = (config, case.bucket_shapes, dtype, case.flat(gradients))
    ((_, snapshots),) = pool.run_powersgd(world, [job])
    before, after = snapshots[0][-1].stats
    _, _, stderr = run(tmp_path, case, gradients, case.pipeline(), summary=True)
    ratio, rate, *numel = SUMMARY.search(stderr).groups()
    assert (rate, *map(int, numel)) == (f"{before / after:.2f}", before, after)
    elements = sum(
        math.prod(shape) for bucket in case.bucket_shapes for shape in bucket
    )
    assert before == elements * (steps - case.first)
    sent = elements * case.first + after
    size = BYTES[dtype]
    wire = 2 if wrapper else size
    assert ratio == f"{elements * steps * size / (sent * wire):.2f}"


def test_reports_come_every_so_often(tmp_path):
    case = make_case("f32", 2)
    gradients = case.gradients(10)
    options = pipeline("hook=powersgd compression-stats-logging-frequency=3")
    for log, steps in (("info", ["2", "5", "8"]), ("", []), ("error", [])):
        env = {"DDPHOOK_LOG": log}
        _, _, stderr = run(tmp_path, case, gradients, options, env=env)
        assert [r[1] for r in REPORT.findall(stderr)] == steps
