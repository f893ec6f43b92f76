# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ddphook-exec tells people: the progress line, sizes, the summary, whom a
rank waits for, versions, and what a misspelt word may have meant."""

import os
import pty
import re
import signal
import subprocess

from exec_harness import (
    HANG_S,
    MODULES,
    TOOL,
    expect_error,
    expect_ok,
    finish,
    run,
    start,
    start_talking,
)
from ports import free_port

NUMBER = r"[\d.e+-]+"
BYTES = rf"{NUMBER} (?:bytes|[kMGTPE]B)"
TIME = rf"(?:{NUMBER} s|\d+ min \d+ s|\d+ h \d+ min)"
RANDOM = ["--entry=step", "--inputs=random:1"]


def read_until(process, descriptor, pattern):
    """What a process wrote to the descriptor, up to a match; it ends with HANG_S
    at the latest, because the process does."""
    text = ""
    while not re.search(pattern, text):
        try:
            data = os.read(descriptor, 4096)
        except OSError:  # A terminal that nobody has open any more.
            data = b""
        assert data, f"expected '{pattern}', but got {text!r}"
        text += data.decode()
    return text


def read_rest(terminal):
    """What is written until nobody has the terminal open any more."""
    text = b""
    while True:
        try:
            text += os.read(terminal, 4096)
        except OSError:
            os.close(terminal)
            return text.decode()


def on_terminal(arguments, **variables):
    """The tool with a terminal as its standard error, and our end of that."""
    ours, theirs = pty.openpty()
    process = start_talking(arguments, stderr=theirs, **variables)
    os.close(theirs)
    return process, ours


def test_progress_on_a_terminal(tmp_path):
    process, terminal = on_terminal([*RANDOM, "--ranks=2", f"--steps={10**9}"])
    shown = (
        rf"\r\x1b\[Kddphook-exec: step (\d+) of {10**9}, {NUMBER} ms a step, "
        rf"{TIME} left\r"
    )
    # One line, which is written over.
    text = read_until(process, terminal, f"{shown}{shown}")
    assert "\n" not in text
    first, second = (int(step) for step in re.search(shown + shown, text).groups())
    assert 0 < first <= second
    process.send_signal(signal.SIGTERM)
    # The line goes before anything else is said.
    text += read_until(process, terminal, r"interrupted by signal.*\n")
    assert re.search(r"\r\x1b\[Kddphook-exec: error: interrupted by signal 15", text)
    assert process.wait(HANG_S) == 128 + signal.SIGTERM
    os.close(terminal)


def test_no_progress_if_nobody_wants_it():
    """In runs that are long enough for some of it."""
    arguments = [*RANDOM, "--steps=200000"]
    process, terminal = on_terminal([*arguments, "--quiet"])
    assert read_rest(terminal) == ""
    assert process.wait(HANG_S) == 0
    process, terminal = on_terminal([*arguments, "--progress=off"])
    assert not re.search(r"step \d", read_rest(terminal))
    assert process.wait(HANG_S) == 0


def summary(*arguments, module=MODULES / "exec_module_0.so", **variables):
    """The lines of a run that is not on a terminal."""
    process = start_talking(arguments, module, DDPHOOK_LOG="error", **variables)
    code, errors = finish(process)
    assert code == 0, errors
    return errors.splitlines()


def test_summary(tmp_path, files):
    lines = summary(*RANDOM, "--ranks=2", "--steps=3", files["outputs"])
    pattern = files["outputs"].removeprefix("--outputs=")
    size = sum(item.stat().st_size for item in tmp_path.iterdir())
    assert size < 1000, "printed as kB"
    assert len(lines) == 3
    assert re.fullmatch(
        rf"ddphook-exec: steps: 3 of 'step' on 2 ranks in {TIME}, "
        rf"{NUMBER} ms each \(median\)",
        lines[0],
    )
    # Seven floats in every step, as they are.
    assert lines[1:] == [
        "ddphook-exec: wire: 84 bytes a rank in 3 collectives, uncompressed 84 "
        "bytes, ratio 1.00",
        f"ddphook-exec: files: 6 files of {size} bytes in all as '{pattern}'",
    ]
    assert summary("--entry=nothing")[1:] == ["ddphook-exec: wire: no collectives"]
    expect_ok(*RANDOM)


def test_summary_of_states(tmp_path):
    module = MODULES / "exec_state_module.so"
    pattern = f"{tmp_path}/s.{{rank}}"
    arguments = ["--entry=step", "--inputs=random:1", "--ranks=2"]
    lines = summary(*arguments, f"--state-out={pattern}", module=module)
    sizes = [(tmp_path / f"s.{rank}").stat().st_size for rank in range(2)]
    total = f"{sum(sizes) / 1000:.3g} kB"
    assert re.fullmatch(rf"ddphook-exec: states: 4 of {BYTES} a rank", lines[2])
    assert lines[3] == (
        f"ddphook-exec: files: 2 files of {total} in all as '{pattern}', and a manifest"
    )


def test_summary_of_a_launched_job(tmp_path):
    port = free_port()
    processes = [
        start_talking(
            RANDOM,
            RANK=rank,
            LOCAL_RANK=rank,
            WORLD_SIZE=2,
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
            DDPHOOK_LOG="error",
        )
        for rank in range(2)
    ]
    results = [finish(process) for process in processes]
    assert [code for code, _ in results] == [0, 0]
    assert "steps: 1 of 'step' on 2 ranks" in results[0][1]
    assert results[1][1] == ""


def test_the_size_is_told_before_it_is_written(tmp_path, files):
    """On a terminal always, elsewhere only if it is much."""
    pattern = files["outputs"].removeprefix("--outputs=")
    told = (
        rf"ddphook-exec: will write 8 files of {BYTES} in all as "
        rf"'{re.escape(pattern)}'; '{re.escape(str(tmp_path))}' has {BYTES} free\r?\n"
    )
    arguments = [*RANDOM, "--steps=8", files["outputs"]]
    process, terminal = on_terminal(arguments)
    assert re.match(told, read_until(process, terminal, "manifest|files: 8 files.*\n"))
    assert process.wait(HANG_S) == 0
    os.close(terminal)
    code, errors = run(*arguments, "--progress=on")
    assert (code, "will write" in errors) == (0, False), "--quiet"
    process = start_talking([*arguments, "--progress=on"], DDPHOOK_LOG="error")
    assert re.match(told, finish(process)[1])
    assert "will write" not in "\n".join(summary(*arguments))


def test_waiting_is_told():
    """Rank 0 waits for rank 1 to join, and says so until it does."""
    port = free_port()
    job = {"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    first = start(RANDOM, **job, RANK=0, DDPHOOK_LOG="warn")
    told = (
        rf"ddphook: rank 0 is waiting for rank 1 of 2 to join at 127\.0\.0\.1:{port}, "
        r"\d+ s\n"
    )
    read_until(first, first.stderr.fileno(), told)
    second = start(RANDOM, **job, RANK=1)
    assert finish(second) == (0, "")
    assert finish(first)[0] == 0


def test_waiting_for_rank_zero_is_told():
    port = free_port()
    job = {"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    second = start(RANDOM, **job, RANK=1, DDPHOOK_LOG="warn")
    told = (
        rf"ddphook: rank 1 is waiting for rank 0 of 2 at 127\.0\.0\.1:{port} "
        r"\(cannot connect: Connection refused\), \d+ s\n"
    )
    read_until(second, second.stderr.fileno(), told)
    first = start(RANDOM, **job, RANK=0)
    assert finish(first) == (0, "")
    assert finish(second)[0] == 0


def test_unknown_variables_are_told_once():
    process = start([*RANDOM, "--ranks=3"], DDPHOOK_TIMEOUT=5, DDPHOOK_LOG="warn")
    code, errors = finish(process)
    line = (
        "ddphook: unknown environment variable DDPHOOK_TIMEOUT, did you mean "
        "DDPHOOK_TIMEOUT_S?\n"
    )
    assert (code, errors.count(line)) == (0, 1), errors


def test_values_that_mean_nothing():
    for name, value, words in [
        ("DDPHOOK_LOG", "loud", "error, warn or info"),
        ("DDPHOOK_TRANSPORT", "pigeon", "auto, shm or gloo"),
    ]:
        expect_error(
            f"expected {name} to be {words}, but got '{value}'",
            *RANDOM,
            **{name: value},
        )


def test_misspelt_flags():
    for flag, meant in [("--input=x", "inputs"), ("--rank", "ranks"),
                        ("--state=x", "state-in"), ("--versoin", "version")]:
        expect_error(
            rf"unknown flag '{flag}', did you mean --{meant}\? "
            r"\(see ddphook-exec --help\)",
            *RANDOM,
            flag,
            status=2,
        )


def test_version_and_help():
    def output(flag):
        done = subprocess.run([TOOL, flag], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout

    assert re.fullmatch(
        r"ddphook-exec \(ddphook\) \d+\.\d+\.\d+\nruntime ABI \d+, plan \d+\n",
        output("--version"),
    )
    text = output("--help")
    assert text.startswith("usage: ddphook-exec MODULE.so --entry=NAME [flags]\n")
    assert "--quiet" in text and "--version" in text
