# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The error tests drive ddphook-run with the parity suite's helpers."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "parity"))
import runner  # noqa: E402


@pytest.fixture(autouse=True)
def _nothing_runs_on():
    """An endless job of a test that has failed would fill the disk."""
    yield
    runner.end_all()
