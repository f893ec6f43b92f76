# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ddphook-exec when a rank fails, dies or hangs, when the tool is interrupted or
killed, and when the disk is too small: which error it says, and what it leaves."""

import os
import pathlib
import re
import signal
import time

import numpy
import pytest
from exec_harness import (
    HANG_S,
    UNCAUGHT,
    expect_error,
    finish,
    group_exists,
    outputs_in,
    start,
    write_vectors,
)
from safetensors.numpy import save_file

KILL, SEGV, HANG, EXIT, FAIL, STOP = range(6)


def test_first_cause_of_many_failures(tmp_path, files):
    """Rank 1 has no input for step 1; the others lose their peer by that."""
    write_vectors(tmp_path, 3, 2)
    (tmp_path / "in.1.1.safetensors").unlink()
    expect_error(
        r"rank 1: cannot open '.*/in\.1\.1\.safetensors': No such file or directory",
        "--entry=step",
        "--ranks=3",
        "--steps=2",
        files["inputs"],
        files["outputs"],
    )
    assert outputs_in(tmp_path) == [f"out.{rank}.0.safetensors" for rank in range(3)]


def scalar(value):
    return numpy.array(value, dtype=numpy.int32)


def misbehave(tmp_path, files, what, ranks=3):
    for rank in range(ranks):
        save_file(
            {"arg0": scalar(1), "arg1": scalar(what)},
            tmp_path / f"in.{rank}.0.safetensors",
        )
    return [
        "--entry=misbehave",
        f"--ranks={ranks}",
        files["inputs"],
        files["outputs"],
    ]


@pytest.mark.parametrize(
    "what, pattern",
    [
        (KILL, r"rank 1: was killed by signal 9 \(Killed\) in step 1"),
        (SEGV, r"rank 1: was killed by signal 11 \(Segmentation fault\) in step 1"),
        (EXIT, "rank 1: exited with status 5 in step 1"),
        (FAIL, "rank 1: entry 'misbehave' failed in step 1: UNSUPPORTED"),
    ],
)
def test_a_rank_that_dies(tmp_path, files, what, pattern):
    begin = time.monotonic()
    expect_error(pattern, *misbehave(tmp_path, files, what), **UNCAUGHT)
    assert outputs_in(tmp_path) == []
    # The others do not wait for the deadline of 300 s.
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize("what", [HANG, STOP])
def test_a_rank_that_hangs(tmp_path, files, what):
    # Two ranks wait until the same deadline. The second may hear of the first's
    # failure before it sees its own, and be the one that reports it. What is
    # recorded of the step has the number that the tool gives it.
    expect_error(
        "rank [02]: entry 'misbehave' failed in step 1: "
        r"(?:DEADLINE_EXCEEDED: .* of step 1|ABORTED: rank [02] failed: .*\(DEADLINE_EXCEEDED\))",
        *misbehave(tmp_path, files, what),
        DDPHOOK_TIMEOUT_S=2,
    )
    assert outputs_in(tmp_path) == []


def test_a_lone_rank_that_hangs(tmp_path, files):
    """Nobody waits for it, so the parent must notice."""
    save_file(
        {"arg0": scalar(0), "arg1": scalar(HANG)},
        tmp_path / "in.0.0.safetensors",
    )
    expect_error(
        "rank 0: made no progress for 6 s in step 1 and was killed",
        "--entry=misbehave",
        files["inputs"],
        DDPHOOK_TIMEOUT_S=1,
    )


def wait_for_ranks(process, count):
    """Until the tool has that many children."""
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + HANG_S
    while len(children.read_text().split()) < count:
        assert time.monotonic() < deadline, "the ranks never came"
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_the_ranks(tmp_path, files, number):
    process = start(misbehave(tmp_path, files, HANG))
    wait_for_ranks(process, 3)
    process.send_signal(number)
    code, errors = finish(process)
    assert re.fullmatch(
        rf"ddphook-exec: error: interrupted by signal {int(number)} \(.*\)\n", errors
    )
    assert code == 128 + number
    assert outputs_in(tmp_path) == []


def test_an_ignored_signal_stays_ignored(tmp_path, files):
    """As shells have it for jobs in the background; SIGTERM ends the run."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = start(misbehave(tmp_path, files, HANG))
    finally:
        signal.signal(signal.SIGINT, before)
    wait_for_ranks(process, 3)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.terminate()
    code, errors = finish(process)
    assert "interrupted by signal 15" in errors
    assert code == 128 + signal.SIGTERM


def test_outputs_that_cannot_fit(tmp_path, files):
    arguments = [
        *["--entry=step", "--inputs=random:1", files["outputs"]],
        f"--steps={2**62}",
    ]
    expect_error(
        rf"the outputs need .* EB, but '{tmp_path}' has only .* free "
        r"\(--free-space=ignore runs anyway\)",
        *arguments,
    )
    assert outputs_in(tmp_path) == []
    process = start([*arguments, "--free-space=ignore"])
    deadline = time.monotonic() + HANG_S
    while not outputs_in(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.terminate()
    assert finish(process)[0] == 128 + signal.SIGTERM
    assert outputs_in(tmp_path)


def test_ranks_end_with_the_tool(tmp_path, files):
    process = start(misbehave(tmp_path, files, HANG))
    wait_for_ranks(process, 3)
    process.kill()
    process.communicate(timeout=HANG_S)
    deadline = time.monotonic() + HANG_S
    while group_exists(process) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not group_exists(process)
