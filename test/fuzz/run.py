# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles and runs one program with ddphook-run and compares it with the model."""

import copy
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass

import compare
import inputs
from printer import print_program

HANG_S = 120
# Options that change when and where something is computed, never what; and those
# of which that is true up to two ranks.
ORDERING = ("overlap", "overlap-depth", "interleave", "fuse")
REGROUPING = ("group-mb", "pack-collectives")
ROOT = pathlib.Path(__file__).resolve().parents[2]


def tool():
    return os.environ.get("DDPHOOK_RUN", str(ROOT / "build" / "bin" / "ddphook-run"))


@dataclass
class Outcome:
    # "ok", "wrong", "crashed", "hung", "refused"; or "invalid", when results
    # depend on memory that nothing has written: the generator's mistake.
    kind: str
    message: str = ""

    @property
    def key(self):
        """What has to stay the same when a program is made smaller."""
        if self.kind != "refused" and self.kind != "crashed":
            return self.kind
        text = re.sub(r"'[^']*'|\"[^\"]*\"|%\w+(#\d+)?|\d+", "*", self.message)
        return f"{self.kind}: {text}"


def command(program, directory):
    arguments = [
        tool(),
        f"{directory}/module.mlir",
        f"--entry={program.entry}",
        *([] if program.nodes else [f"--ranks={program.world}"]),
        f"--steps={program.steps}",
        f"--outputs={directory}/out.{{rank}}.{{step}}",
    ]
    if program.func(program.entry).body.args:
        arguments.append(f"--inputs={directory}/in.{{rank}}.{{step}}")
    if program.options:
        arguments.append(f"--ddp-pipeline={program.pipeline}")
    return arguments


def _environment():
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DDPHOOK_", "OMPI_", "PMI", "SLURM_"))
        and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")
    }
    return clean


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def launches(program, port):
    """What each process has in its environment: one of all ranks, or, with nodes, one
    for each rank, as torchrun would set it."""
    if not program.nodes:
        return [{}]
    return [
        {
            "RANK": str(rank),
            "WORLD_SIZE": str(program.world),
            "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "DDPHOOK_NODE": node,
        }
        for rank, node in enumerate(program.nodes)
    ]


def run(program, keep=None):
    """The outcome of one program; its files stay in `keep`, if given."""
    values = inputs.draw_all(program)
    samples = compare.expected_results(program, values)
    if samples is None:
        return Outcome("invalid", "a result depends on memory that nothing wrote")
    directory = keep or tempfile.mkdtemp(prefix="ddphook-fuzz-")
    try:
        return _run(program, directory, values, samples)
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


def _run(program, directory, values, samples):
    pathlib.Path(directory, "module.mlir").write_text(print_program(program))
    inputs.save_program_inputs(program, directory, values)
    got, failure = _execute(program, directory)
    if failure:
        return failure
    wrong = _find_difference(got, samples, compare.difference) if samples else None
    if not wrong and compare.compresses(program):
        wrong, failure = _compare_with_plain(program, directory, got)
    return failure or (Outcome("wrong", wrong) if wrong else Outcome("ok"))


def _execute(program, directory):
    """[step][rank][number], or the failure."""
    processes = [
        subprocess.Popen(
            command(program, directory),
            env={**_environment(), **launch},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        for launch in launches(program, _free_port())
    ]
    end, failure = time.monotonic() + HANG_S, None
    for process in processes:
        try:
            left = max(end - time.monotonic(), 1)
            _, stderr = process.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            _, stderr = process.communicate()
            failure = Outcome("hung", f"nothing after {HANG_S} s: {stderr[-300:]}")
        # Ranks fail for what the first of them does.
        if process.returncode and not failure:
            failure = _classify(program, directory, process.returncode, stderr)
    if failure:
        return None, failure
    types = [v.type for v in program.func(program.entry).body.yields]
    return [
        [
            inputs.load(f"{directory}/out.{rank}.{step}", types)
            for rank in range(program.world)
        ]
        for step in range(program.steps)
    ], None


def _find_difference(got, samples, difference):
    for step, ranks in enumerate(got):
        for rank, results in enumerate(ranks):
            for number, value in enumerate(results):
                expected = [sample[step][rank][number] for sample in samples]
                wrong = difference(value, expected)
                if wrong:
                    return f"result {number} on rank {rank} in step {step}: {wrong}"
    return None


def _compare_with_plain(program, directory, got):
    """PowerSGD's bits do not depend on how the step is put in order."""
    plain = copy.copy(program)
    left_out = ORDERING + (REGROUPING if program.world <= 2 else ())
    plain.options = {k: v for k, v in program.options.items() if k not in left_out}
    plain.options.update({"fuse": "false", "overlap": "false"})
    expected, failure = _execute(plain, directory)
    if failure:
        # The message is that of other options than the program's.
        failure.message = f"{failure.message} (with {plain.pipeline})"
        return None, failure
    wrong = _find_difference(
        got, [expected], lambda a, b: inputs.difference(a, b[0])
    )
    return (f"not as with {plain.pipeline}: {wrong}" if wrong else None), None


def _find_frames(program, directory):
    """Where the compiler crashes: ddphook-opt prints its stack, ddphook-run does
    not. Empty, if it does not crash."""
    opt = str(pathlib.Path(tool()).with_name("ddphook-opt"))
    pipeline = f"--ddp-pipeline={program.pipeline}"
    arguments = [opt, f"{directory}/module.mlir", pipeline, "--ddp-lower-to-llvm"]
    arguments += ["-o", "/dev/null"]
    try:
        found = subprocess.run(
            arguments, capture_output=True, text=True, errors="replace", timeout=90
        )
    except subprocess.TimeoutExpired:
        return ["unknown: no stack after 90 s"]
    frames = re.findall(r"^ ?#\d+ 0x\w+ ((?:mlir|llvm)::[\w:]+)", found.stderr, re.M)
    plumbing = ("llvm::sys", "mlir::detail", "mlir::PassManager")
    return [frame for frame in frames if not frame.startswith(plumbing)][:3]


def _classify(program, directory, code, stderr):
    lines = stderr.splitlines()
    if code < 0:
        frames = " < ".join(_find_frames(program, directory))
        return Outcome("crashed", f"signal {-code} {frames or 'behind the compiler'}")
    if "killed by signal" in stderr:
        return Outcome("crashed", next(line for line in lines if "killed by signal" in line))
    errors = [line for line in lines if "error:" in line]
    message = errors[0].split("error:", 1)[1].strip() if errors else stderr[-300:]
    if "is not valid" in message or "expects different type" in message:
        return Outcome("invalid", message)
    place = re.match(r"(.*?):\d+:\d+: error", errors[0]) if errors else None
    if not place and "ddphook-run: rank" in stderr:
        return Outcome("crashed", f"exit {code}: {stderr[-300:]}")
    return Outcome("refused", message)


def describe(program):
    nodes = f" on {program.nodes}" if program.nodes else ""
    return (
        f"seed {program.seed}: {program.world} ranks{nodes}, {program.steps} steps, "
        f"{program.pipeline or 'no options'}"
    )
