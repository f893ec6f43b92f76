# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The device that test/gpu runs on, and the modules that were compiled for it.

The helpers of test/parity start ddphook-run on a module's text. Here the same
calls start ddphook-exec on a shared object instead, since a machine with a GPU
may have no compiler: a module is found by a hash of its text and its options.
`pytest test/gpu --record=DIR` compiles them, with ddphook-cc, and runs nothing.

Environment: DDPHOOK_CC and DDPHOOK_EXEC name the tools (default: those of build/
in this checkout).
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import pytest
import runner

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Whatever the machine that compiles is.
MARCH = "x86-64-v3"
LAUNCHER = pathlib.Path(__file__).with_name("launch_ranks.py")


def tool(variable, name):
    path = os.environ.get(variable, str(ROOT / "build" / "bin" / name))
    if not os.access(path, os.X_OK):
        raise FileNotFoundError(f"expected {name} at {path}; set {variable}")
    return path


def module_name(text, pipeline):
    key = json.dumps([text, pipeline]).encode()
    return hashlib.sha256(key).hexdigest()[:24]


def compile_module(text, pipeline, path):
    """The module, which appears whole, with what it was made from beside it."""
    source = path.with_suffix(".mlir")
    partial = path.with_suffix(f".{os.getpid()}.partial")
    source.write_text(text)
    command = [tool("DDPHOOK_CC", "ddphook-cc"), source, "-o", partial, "--shared"]
    command += ["--device=cuda", f"--march={MARCH}"]
    if pipeline:
        command.append(f"--ddp-pipeline={pipeline}")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stderr}"
    path.with_suffix(".json").write_text(
        json.dumps({"pipeline": pipeline, "march": MARCH}, indent=2)
    )
    partial.rename(path)


class Modules:
    """A directory of compiled modules: `DIR/HASH.so`, each with the text and the
    options it was made from beside it. Where there is no directory to read, it
    compiles what is asked for."""

    def __init__(self, directory, record):
        self.directory, self.record = pathlib.Path(directory), record
        self.can_compile = record or not (self.directory / "COMPLETE").exists()
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.can_compile:
            with self.lock():
                self.forget_other_compilers()

    @contextlib.contextmanager
    def lock(self):
        """Tests of several devices run at once: each module is compiled once."""
        with open(self.directory / "LOCK", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def forget_other_compilers(self):
        compiler = pathlib.Path(tool("DDPHOOK_CC", "ddphook-cc")).resolve()
        stat = compiler.stat()
        mark = f"{compiler} {stat.st_size} {stat.st_mtime_ns}\n"
        stamp = self.directory / "COMPILER"
        if stamp.exists() and stamp.read_text() == mark:
            return
        for path in self.directory.glob("*.so"):
            path.unlink()
        stamp.write_text(mark)

    def path(self, text, pipeline):
        return self.directory / f"{module_name(text, pipeline)}.so"

    def make(self, text, pipeline):
        path = self.path(text, pipeline)
        if self.can_compile and not path.exists():
            with self.lock():
                if not path.exists():
                    compile_module(text, pipeline, path)
        assert path.exists(), (
            f"{path} is missing: the modules were recorded from other sources"
        )

    def require(self, text, pipeline=""):
        """Called first by tests that ask the oracle before they run anything."""
        self.make(text, pipeline)
        if self.record:
            pytest.skip("recorded")


class Device:
    def __init__(self, name, modules):
        self.name, self.modules = name, modules
        self.gpus = count_gpus() if name == "cuda" else 0
        # Runs with more ranks than GPUs, each with variables of its own.
        self.shares = False
        # Divides as the host does.
        self.divides_exactly = False

    @property
    def is_real(self):
        return self.name == "cuda"

    def rank_variables(self, rank):
        """What lets NCCL put several ranks on one GPU."""
        if not self.shares:
            return {}
        return {
            "NCCL_MULTI_RANK_GPU_ENABLE": "1",
            "NCCL_HOSTID": f"ddphook-test-{rank}",
            "NCCL_SOCKET_IFNAME": "lo",
            "NCCL_MAX_CTAS": "8",
        }

    def exec_tool(self):
        return tool("DDPHOOK_EXEC", "ddphook-exec")

    def start(self, arguments, env=None):
        """In place of runner.start: the same flags on this device."""
        flags, pipeline, ranks = [], "", None
        source, *rest = map(str, arguments)
        for flag in rest:
            if flag.startswith("--ddp-pipeline="):
                pipeline = flag.split("=", 1)[1]
            elif flag.startswith("--ranks=") and self.shares:
                ranks = int(flag.split("=", 1)[1])
            else:
                flags.append(flag)
        text = pathlib.Path(source).read_text()
        self.modules.require(text, pipeline)
        path = self.modules.path(text, pipeline)
        command = [self.exec_tool(), path, f"--device={self.name}", *flags]
        variables = dict(env or {})
        if self.divides_exactly:
            given = variables.get("DDPHOOK_BACKEND_OPTIONS")
            options = ",".join(filter(None, [given, "exact_division=1"]))
            variables["DDPHOOK_BACKEND_OPTIONS"] = options
        if ranks is not None and ranks > max(self.gpus, 1):
            each = [json.dumps(self.rank_variables(rank)) for rank in range(ranks)]
            command = [sys.executable, LAUNCHER, runner.free_port(), *each, "--"] + command
        elif ranks is not None:
            command.append(f"--ranks={ranks}")
        return runner.start_command(command, variables)


# The exit status is the number.
COUNT = """
import ctypes
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
raise SystemExit(count.value if found else 0)
"""


def count_gpus():
    """Returns how many GPUs the driver shows to a process; 0 without a driver. This process
    does not call it: processes that are forked afterwards could not."""
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True)
    return 0 if done.stderr else done.returncode
