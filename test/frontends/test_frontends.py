# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of other people's libraries, and the examples that train with some."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
HANG_S = 1800


def run(*command):
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    return done.stdout


PROGRAMS = {path.stem for path in (HERE / "programs").glob("*.py")}
# Both frameworks, a loop, two axes, batch normalization, a transformer.
SOME = {"flax_batchnorm", "jax_scan_layers", "jax_two_axes", "torch_gpt", "torch_resnet"}


@pytest.mark.parametrize(
    "programs",
    [
        pytest.param(SOME, id="some"),
        pytest.param(PROGRAMS - SOME, id="others", marks=pytest.mark.full("minutes")),
    ],
)
def test_the_corpus(programs):
    """No program does worse than docs/generated/Corpus.md says."""
    run(sys.executable, HERE / "corpus.py", "--check", *sorted(programs))


@pytest.mark.full("trains four times; docs/examples/flax-gpt")
def test_flax_gpt(tmp_path):
    """The first steps of docs/examples/flax-gpt, before roundings add up."""
    example = ROOT / "docs" / "examples" / "flax-gpt" / "run.sh"
    plot = tmp_path / "losses.svg"
    lines = run(example, "4", plot).splitlines()
    assert lines[0].split() == ["step", "JAX", "allreduce", "fp16", "powersgd"]
    rows = [[float(number) for number in line.split()] for line in lines[1:-3]]
    assert [row[0] for row in rows] == [0, 1, 2, 3]
    # All of them learn.
    assert all(end < begin - 0.5 for begin, end in zip(rows[0][1:], rows[-1][1:]))
    limits = {"allreduce": 2**-16, "fp16": 2**-12, "powersgd": 2**-6}
    for line, (hook, limit) in zip(lines[-3:], limits.items(), strict=True):
        name, _, _, deviation, *_ = line.split()
        assert name == f"{hook}:" and float(deviation) < limit
    # A hook that does nothing would be as close as the uncompressed run.
    assert rows[-1][2] != rows[-1][4]
    assert plot.read_text().count("<path") > 4


def test_a_large_step_is_imported():
    """The texts with which the time of an import is measured."""
    environment = {**os.environ, "DDPHOOK_SCALE_RUNS": "1"}
    done = subprocess.run(
        [sys.executable, HERE / "scale.py", "--no-gpt", "--gradients", "1000"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env=environment,
        check=True,
    )
    assert "| 1,000 gradients | " in done.stdout
