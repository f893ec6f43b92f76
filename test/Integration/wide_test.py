# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The step that docs/examples/wide makes from docs/examples/digits.

Environment: as for digits_resume_test.py.
"""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
TOOLS = pathlib.Path(
    os.environ.get("DDPHOOK_RUN", ROOT / "build" / "bin" / "ddphook-run")
).parent


def widen(first, second):
    command = [sys.executable, EXAMPLES / "wide" / "widen.py", str(first), str(second)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_digits_own_sizes_change_nothing():
    assert widen(128, 64) == (EXAMPLES / "digits" / "step.mlir").read_text()


# With 1024 neurons in both layers, the factors of some ranks have the same
# types as the biases that travel with them.
@pytest.mark.parametrize("hidden", [(1024, 1024), (64, 128), (10, 32)])
@pytest.mark.parametrize(
    "hook",
    ["allreduce", "fp16"]
    + [f"powersgd matrix-approximation-rank={rank}" for rank in (1, 2, 4)],
)
def test_without_copies(tmp_path, hidden, hook):
    step = tmp_path / "step.mlir"
    step.write_text(widen(*hidden))
    done = subprocess.run(
        [
            *(TOOLS / "ddphook-cc", step, "-o", tmp_path / "step.o"),
            f"--ddp-pipeline=hook={hook} require-no-copy=true",
        ],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
