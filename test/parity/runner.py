# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Drives ddphook-run like a user: input files, command line, output files.

DDPHOOK_RUN names the tool (default: build/bin/ddphook-run of this checkout), and
DDPHOOK_TEST_SEED is the seed of all random inputs. This module has no expectations.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass

import tensors

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "runtime" / "test"))
from ports import free_port as free_port  # noqa: E402

SEED = int(os.environ.get("DDPHOOK_TEST_SEED", "20261"))
# A run that takes longer hangs; the slowest normal run takes a few seconds.
HANG_S = 120
# More steps than any test lets a job run, or than fit on a disk as outputs.
ENDLESS = 1000000
MARK = "PARITY_SUITE_RUN"
# Variables by which the launcher of the tests assigns a process to a job.
_LAUNCH = (
    "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT"
).split()
_LAUNCH_PREFIXES = ("OMPI_", "PMI_", "PMIX_", "SLURM_", "DDPHOOK_")


def tool():
    """Returns the path of ddphook-run; if it does not exist, every run fails."""
    root = pathlib.Path(__file__).resolve().parents[2]
    default = root / "build" / "bin" / "ddphook-run"
    return os.environ.get("DDPHOOK_RUN", str(default))


def environment(changes):
    """Returns this process's environment without launch variables, with `changes`."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in _LAUNCH and not name.startswith(_LAUNCH_PREFIXES)
    }
    # Suppresses messages about waiting, which depend on the machine's speed.
    changes = {"DDPHOOK_LOG": "error", **changes}
    return {**clean, **{name: str(value) for name, value in changes.items()}}


def launch(rank, world, port):
    """Returns the variables that torchrun would set for a rank on this machine."""
    return {
        "RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_RANK": rank,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }


@dataclass
class Result:
    code: int
    stdout: str
    stderr: str


# The processes started since end_all().
_started = []


def start(arguments, env=None, summary=False):
    """Starts the tool in a separate process group."""
    if not os.access(tool(), os.X_OK):
        raise FileNotFoundError(
            f"expected ddphook-run at {tool()}; build it or set DDPHOOK_RUN"
        )
    quiet = [] if summary else ["--quiet"]
    return start_command([tool(), *quiet, *arguments], env)


def start_command(command, env=None):
    """Starts any tool in a separate process group."""
    mark = {MARK: uuid.uuid4().hex}
    process = subprocess.Popen(
        [*map(str, command)],
        env=environment({**(env or {}), **mark}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell starts background jobs with SIGINT ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    process.mark = f"{MARK}={mark[MARK]}"
    _started.append(process)
    return process


def end_all():
    """Ends all started processes: a failing test may leave an endless job."""
    while _started:
        process = _started.pop()
        if process.poll() is None:
            kill_descendants(process)
            process.wait()


def descendants(process):
    """Returns the pids of a started tool and its live descendants, wherever they moved: they
    have a variable in their environment."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # The process has ended, or belongs to another user.
        if process.mark.encode() in variables:
            found.append(int(entry.name))
    return found


def kill_descendants(process):
    for pid in descendants(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def finish(process, timeout=HANG_S):
    """Waits for a started tool; kills it with its children if it hangs."""
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        kill_descendants(process)
        stdout, stderr = process.communicate()
        raise AssertionError(
            f"ddphook-run hung for {timeout} s; stderr:\n{stderr}"
        ) from None
    return Result(process.returncode, stdout, stderr)


class Directory:
    """The files of one or more runs: the module, the inputs and the outputs."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.module = self.path / "module.mlir"
        self.inputs = self.path / "in.{rank}.{step}.safetensors"
        self.outputs = self.path / "out.{rank}.{step}.safetensors"

    def write_module(self, text):
        self.module.write_text(text)

    def write_inputs(self, inputs):
        for rank, steps in enumerate(inputs):
            for step, values in enumerate(steps):
                tensors.save(
                    str(self.inputs).format(rank=rank, step=step),
                    {f"arg{i}": value for i, value in enumerate(values)},
                )

    def arguments(self, entry, ranks=None, steps=None, pipeline=""):
        flags = [f"--inputs={self.inputs}", f"--outputs={self.outputs}"]
        if ranks is not None:
            flags.append(f"--ranks={ranks}")
        if steps is not None:
            flags.append(f"--steps={steps}")
        if steps == ENDLESS:
            flags.append("--free-space=ignore")
        if pipeline:
            flags.append(f"--ddp-pipeline={pipeline}")
        return [self.module, f"--entry={entry}", *flags]

    def read_outputs(self, ranks, steps):
        """Returns outputs [rank][step][number], whose names must be result0, result1, …"""
        out = []
        for rank in range(ranks):
            out.append([])
            for step in range(steps):
                path = str(self.outputs).format(rank=rank, step=step)
                named = tensors.load(path)
                names = [f"result{i}" for i in range(len(named))]
                if set(names) != set(named):
                    raise AssertionError(f"{path} holds {sorted(named)}")
                out[-1].append([named[name] for name in names])
        return out

    def clear_outputs(self):
        """Removes outputs, so that a later run does not find an earlier one's results."""
        for path in self.path.glob("out.*"):
            path.unlink()

    def output_files(self):
        """Returns every file that a run left, including temporary ones."""
        inputs = {self.module.name}
        return sorted(
            path.name
            for path in self.path.iterdir()
            if path.name not in inputs and not path.name.startswith("in.")
        )


def run(directory, entry, ranks, steps, pipeline="", env=None):
    """Runs the tool, expects success, and returns its outputs."""
    directory.clear_outputs()
    arguments = directory.arguments(entry, ranks, steps, pipeline)
    result = finish(start(arguments, env))
    if result.code != 0:
        raise AssertionError(
            f"ddphook-run exited with {result.code}; stderr:\n{result.stderr}"
        )
    return directory.read_outputs(ranks, steps)
