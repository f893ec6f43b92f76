# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs ddphook-exec as users do: a command line, files, one line of error.

The modules are made by hand, no compiler is involved. Environment: DDPHOOK_EXEC
names the tool, DDPHOOK_EXEC_MODULES the directory with the modules.
"""

import os
import pathlib
import re
import signal
import subprocess

import numpy
import pytest
from safetensors.numpy import save_file

TOOL = os.environ["DDPHOOK_EXEC"]
MODULES = pathlib.Path(os.environ["DDPHOOK_EXEC_MODULES"])
MODULE = MODULES / "exec_module_0.so"
SEED = 20261
# No healthy run takes a tenth of this.
HANG_S = 60
LAUNCH = (
    "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT"
).split()
LAUNCH_PREFIXES = ("OMPI_", "PMI_", "PMIX_", "SLURM_", "TORCHELASTIC_", "DDPHOOK_")
# For ranks that crash: a sanitizer must not catch the signal, nor UCX, which comes
# with the Gloo of Debian 13.
UNCAUGHT = {
    name: os.environ.get(name, "") + ":handle_segv=0"
    for name in ("ASAN_OPTIONS", "TSAN_OPTIONS")
} | {"UCX_HANDLE_ERRORS": "none"}


def start(arguments, module=MODULE, **variables):
    """Starts the tool in a process group of its own, so that what it leaves
    behind can be found. It says nothing unless something goes wrong, however
    long the machine lets it wait."""
    return start_talking(
        ["--quiet", *arguments], module, **{"DDPHOOK_LOG": "error", **variables}
    )


def start_talking(arguments, module=MODULE, stderr=subprocess.PIPE, **variables):
    """The same without --quiet."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in LAUNCH and not name.startswith(LAUNCH_PREFIXES)
    }
    environment |= {name: str(value) for name, value in variables.items()}
    return subprocess.Popen(
        [TOOL, str(module), *map(str, arguments)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )


def group_exists(process):
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def finish(process):
    """Exit status and standard error; whatever happened, no process may be
    left."""
    try:
        output, errors = process.communicate(timeout=HANG_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, errors = process.communicate()
        pytest.fail(f"hung for {HANG_S} s; stderr: {errors}")
    assert output == ""
    left = group_exists(process)
    if left:
        os.killpg(process.pid, signal.SIGKILL)
    assert not left, "a process was left behind"
    return process.returncode, errors


def run(*arguments, **variables):
    return finish(start(arguments, **variables))


def expect_ok(*arguments, **variables):
    assert run(*arguments, **variables) == (0, "")


def expect_error(pattern, *arguments, status=1, **variables):
    """The whole of standard error must be one line that matches `pattern`."""
    code, errors = run(*arguments, **variables)
    assert re.fullmatch(f"ddphook-exec: error: (?:{pattern})\n", errors), errors
    assert code == status


def vectors(rank, step):
    """A multiple of 12 in every element: means over 1 to 4 ranks and their
    halves are exact in every order and in f16."""
    random = numpy.random.default_rng([SEED, rank, step])
    return (12 * random.integers(-40, 41, 7)).astype(numpy.float32)


def outputs_in(path):
    """What the tool wrote, unfinished files included."""
    return sorted(
        item.name for item in path.iterdir() if not item.name.startswith("in.")
    )


def write_vectors(path, ranks, steps):
    for rank in range(ranks):
        for step in range(steps):
            save_file(
                {"arg0": vectors(rank, step)}, path / f"in.{rank}.{step}.safetensors"
            )
