# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What --small leaves out (conftest.py)."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TESTS = """
import dataclasses
import pytest

@dataclasses.dataclass
class Case:
    name: str
    world: int
    hook: str

@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("hook", ["fp16", "bf16", "noop"])
@pytest.mark.parametrize("mean", [True, False])
def test_product(world, hook, mean):
    print("product", world, hook, mean)

CASES = [Case(f"{w}-{h}", w, h) for w in (1, 2) for h in ("fp16", "bf16")]

@pytest.mark.parametrize("case, number", [(c, i) for i, c in enumerate(CASES)])
def test_fields(case, number):
    print("fields", case.world, case.hook)

@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.full("slow"))])
def test_seeds(seed):
    print("seeds", seed)

@pytest.mark.full("slow")
def test_slow():
    print("slow")

def test_quick():
    print("quick")
"""


def run(tmp_path, *options):
    path = tmp_path / "test_it.py"
    path.write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-qs", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-p", "conftest", *options, path],
        env={**os.environ, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.lstrip(".").split() for line in done.stdout.splitlines()]
    return {
        name: [line[1:] for line in lines if line[:1] == [name]]
        for name in ("product", "fields", "seeds", "slow", "quick")
    }, done.stdout


def test_everything_runs_without_it(tmp_path):
    ran, output = run(tmp_path)
    assert list(map(len, ran.values())) == [24, 4, 3, 1, 1]
    assert "deselected" not in output


def test_every_value_occurs(tmp_path):
    ran, output = run(tmp_path, "--small")
    assert list(map(len, ran.values())) == [4, 2, 2, 0, 1]
    assert "9 passed, 24 deselected" in output
    worlds, hooks, means = map(set, zip(*ran["product"]))
    assert worlds == {"1", "2", "3", "4"} and len(hooks) == 3 and len(means) == 2
    worlds, hooks = map(set, zip(*ran["fields"]))
    assert len(worlds) == 2 and len(hooks) == 2
    assert ran["seeds"] == [["0"], ["1"]]
