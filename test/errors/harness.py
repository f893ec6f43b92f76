# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What every failing run of ddphook-run has to look like, and small inputs."""

import time

import numpy as np

import runner
import tensors
from tensors import Tensor

# The deadline that tests give, and what a loaded machine may take on top.
TIMEOUT_S = 2
SLACK_S = 8
_CRASHES = (
    "Stack dump",
    "PLEASE submit a bug report",
    "terminate called",
    "Assertion",
    "AddressSanitizer",
    "runtime error:",
)

GOOD = """module {
  ddp.process_group @dp
  func.func @step(%g0: tensor<3x5xf32>, %g1: tensor<7xf64>)
      -> (tensor<3x5xf32>, tensor<7xf64>) {
    %r0 = ddp.all_reduce mean %g0 on @dp : tensor<3x5xf32>
    %r1 = ddp.all_reduce mean %g1 on @dp : tensor<7xf64>
    return %r0, %r1 : tensor<3x5xf32>, tensor<7xf64>
  }
}
"""


def good_inputs():
    return [
        Tensor("f32", np.arange(15, dtype=np.float32).reshape(3, 5)),
        Tensor("f64", np.arange(7, dtype=np.float64)),
    ]


def make(path, text=GOOD, world=1, steps=1):
    """A directory with a module and good inputs for every rank and step."""
    path.mkdir(exist_ok=True)
    directory = runner.Directory(path)
    directory.write_module(text)
    directory.write_inputs([[good_inputs()] * steps] * world)
    return directory


def error_lines(stderr):
    # The colon keeps file names out.
    return [line for line in stderr.splitlines() if "error:" in line.lower()]


def assert_error(result, *words, lines=1):
    """A clean failure: an exit status, not a signal; `lines` lines (a number or
    a range) that say error; the given words in them."""
    assert result.code > 0, f"exit status {result.code}; stderr:\n{result.stderr}"
    for crash in _CRASHES:
        assert crash not in result.stderr, result.stderr
    errors = error_lines(result.stderr)
    allowed = lines if isinstance(lines, range) else range(lines, lines + 1)
    assert len(errors) in allowed, f"{len(errors)} error lines:\n{result.stderr}"
    for word in words:
        assert any(word in line for line in errors), (
            f"expected '{word}' in the error, but got:\n{result.stderr}"
        )


def assert_nothing_left(directory, *processes):
    """No process, and no output file that is not whole."""
    deadline = time.monotonic() + SLACK_S
    for process in processes:
        while left := runner.descendants(process):
            assert time.monotonic() < deadline, f"processes left: {left}"
            time.sleep(0.02)
    for name in directory.output_files():
        assert name.startswith("out.") and name.endswith(".safetensors"), (
            f"left behind: {name}"
        )
        tensors.load(directory.path / name)


def expect_failure(directory, *words, entry="step", env=None, **rest):
    """One call of ddphook-run that has to fail without writing anything.
    rest: ranks, steps, pipeline, arguments (more of them), lines."""
    arguments = directory.arguments(
        entry, rest.get("ranks"), rest.get("steps"), rest.get("pipeline", "")
    )
    arguments += rest.get("arguments", [])
    process = runner.start(arguments, env)
    result = runner.finish(process)
    assert_error(result, *words, lines=rest.get("lines", 1))
    assert_nothing_left(directory, process)
    assert directory.output_files() == []
    return result
