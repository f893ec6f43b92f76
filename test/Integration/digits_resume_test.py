# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A run of docs/examples/digits that stops and goes on ends like one that never
stopped, bit by bit; and goes on from nothing but whole checkpoints.

Compiles the program, once for each hook, with the ddphook-cc and the runtime that
lie beside DDPHOOK_RUN (default: build/bin/ddphook-run of this checkout), and
runs it on two ranks. DDPHOOK_TEST_CXX names the C++ compiler.
"""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "digits"
TOOLS = pathlib.Path(
    os.environ.get("DDPHOOK_RUN", ROOT / "build" / "bin" / "ddphook-run")
).parent
LIBRARIES = TOOLS.parent / "lib"
CXX = os.environ.get("DDPHOOK_TEST_CXX", "clang++-22")
HANG_S = 120
WORLD = 2
EPOCHS = 30
PIPELINES = {
    "fp16": "hook=fp16",
    "powersgd": "hook=powersgd matrix-approximation-rank=2 start-powersgd-iter=44",
    # Compression begins after the first checkpoint, in epoch 14.
    "late": "hook=powersgd matrix-approximation-rank=4 start-powersgd-iter=300",
    "batched": "hook=batched_powersgd start-powersgd-iter=44",
    # Ranks that differ: each has a half of its own.
    "noop": "hook=noop",
}


class Programs(dict):
    """The program by the name of its pipeline, built when a test first asks for it."""

    def __init__(self, make_folder):
        super().__init__()
        self.make_folder = make_folder

    def __missing__(self, name):
        folder = self.make_folder(name)
        subprocess.run(
            [
                *(TOOLS / "ddphook-cc", EXAMPLE / "step.mlir"),
                *("-o", folder / "digits.o", f"--header={folder}/digits.h"),
                *("--name=digits", f"--ddp-pipeline={PIPELINES[name]}"),
            ],
            check=True,
        )
        self[name] = folder / "program"
        subprocess.run(
            [
                *(CXX, "-std=c++17", "-O1", EXAMPLE / "main.cpp"),
                *(folder / "digits.o", f"-I{folder}", "-o", self[name]),
                *(f"-I{ROOT}/runtime/include", f"-L{LIBRARIES}", "-lddphook_rt"),
                *(f"-Wl,-rpath,{LIBRARIES}", "-lm"),
            ],
            check=True,
        )
        return self[name]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return Programs(tmp_path_factory.mktemp)


def start(program, *flags, world=WORLD):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(world):
        environment = {
            "PATH": os.environ["PATH"],
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "DDPHOOK_TIMEOUT_S": "60",
            "DDPHOOK_LOG": "error",
        }
        processes.append(
            subprocess.Popen(
                [program, EXAMPLE / "digits.txt", *flags],
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
    return processes


def finish(processes):
    """Exit codes of the ranks, what rank 0 printed, and what all complained."""
    results = [process.communicate(timeout=HANG_S) for process in processes]
    codes = [process.returncode for process in processes]
    return codes, results[0][0], "".join(stderr for _, stderr in results)


def run(program, *flags):
    """What the ranks' parameters and velocities are in the end."""
    codes, output, errors = finish(start(program, *flags))
    assert errors == ""
    assert codes in ([0] * WORLD, [2] * WORLD)
    digests = re.findall(r"^parameters of rank \d+: (\w{16})$", output, re.M)
    assert len(digests) == WORLD
    return digests


def refuse(program, *flags, world=WORLD):
    """What the ranks say when none goes on."""
    codes, output, errors = finish(start(program, *flags, world=world))
    assert codes == [1] * world
    assert output == ""
    return errors


NO_STATES = pytest.mark.full("noop has no states either")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[NO_STATES] * (n == "fp16")) for n in PIPELINES]
)
def test_resume(tmp_path, programs, name):
    program, epochs = programs[name], str(EPOCHS)
    whole = run(program, epochs)
    saved = f"--save={tmp_path}/c"
    resumed = f"--resume={tmp_path}/c"
    parts = [
        run(program, epochs, saved, "--until=3"),
        run(program, epochs, saved, resumed, "--until=13"),
        run(program, epochs, resumed),
    ]
    assert parts[0] != whole and parts[1] != whole
    assert parts[2] == whole
    # Saving disturbs nothing, and a finished run can be resumed too.
    assert run(program, epochs, f"--save={tmp_path}/d") == whole
    assert run(program, epochs, f"--resume={tmp_path}/d") == whole
    if name == "noop":
        assert whole[0] != whole[1]
    else:
        assert whole[0] == whole[1]


@pytest.mark.parametrize("killed", [[0], [1], [0, 1]])
def test_killed(tmp_path, programs, killed):
    """Ranks die somewhere, in a save perhaps; the checkpoint is whole."""
    program, folder = programs["powersgd"], tmp_path / "c"
    epochs = "1000"
    processes = start(program, epochs, f"--save={folder}")
    deadline = time.monotonic() + HANG_S
    while not (folder / "latest").exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(0.05 * (1 + len(killed)))
    for rank in killed:
        processes[rank].send_signal(signal.SIGKILL)
    codes, _, _ = finish(processes)
    assert all(codes[rank] == -signal.SIGKILL for rank in killed)
    assert 0 not in codes
    slot = (folder / "latest").read_text().strip()
    program_file = (folder / slot / "program.0").read_bytes()
    epoch = int(program_file.split(b"\n")[2])
    print(f"killed after epoch {epoch}")
    assert epoch % 10 == 0
    until = f"--until={epoch + 7}"
    resumed = run(program, epochs, f"--resume={folder}", until)
    assert resumed == run(program, epochs, until)


@pytest.fixture
def checkpoint(tmp_path, programs):
    """Two slots: after epoch 10 in 0, after epoch 20 in 1."""
    folder = tmp_path / "c"
    run(programs["powersgd"], str(EPOCHS), f"--save={folder}", "--until=20")
    assert (folder / "latest").read_text() == "1\n"
    return folder


def test_halves_of_two_saves(checkpoint, programs):
    program, resume = programs["powersgd"], f"--resume={checkpoint}"
    for rank in range(WORLD):
        path = checkpoint / "1" / f"program.{rank}"
        good = path.read_bytes()
        shutil.copy(checkpoint / "0" / f"program.{rank}", path)
        errors = refuse(program, str(EPOCHS), resume)
        assert f"'{path}' does not belong to the states beside it" in errors
        path.write_bytes(good)
    for path in (checkpoint / "1").glob("states.*"):
        shutil.copy(checkpoint / "0" / path.name, path)
    errors = refuse(program, str(EPOCHS), resume)
    assert "does not belong to the states beside it" in errors


def test_manifest_of_another_save(checkpoint, programs):
    name = "states.manifest.json"
    shutil.copy(checkpoint / "0" / name, checkpoint / "1" / name)
    errors = refuse(programs["powersgd"], str(EPOCHS), f"--resume={checkpoint}")
    assert "loading the step's states: DATA_LOSS" in errors


def test_ranks_of_two_saves(checkpoint, programs):
    for name in ("program.1", "states.1.safetensors"):
        shutil.copy(checkpoint / "0" / name, checkpoint / "1" / name)
    errors = refuse(programs["powersgd"], str(EPOCHS), f"--resume={checkpoint}")
    assert "loading the step's states: DATA_LOSS" in errors


def test_another_rank(checkpoint, programs):
    slot = checkpoint / "1"
    shutil.copy(slot / "program.0", slot / "program.1")
    errors = refuse(programs["powersgd"], str(EPOCHS), f"--resume={checkpoint}")
    assert f"'{slot}/program.1' is of another run: expected rank 1 of 2" in errors


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "missing"])
@pytest.mark.parametrize("rank", range(WORLD))
def test_damage(checkpoint, programs, rank, damage):
    path = checkpoint / "1" / f"program.{rank}"
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[:-100])
    elif damage == "bit":
        middle = len(content) // 2
        changed = bytes([content[middle] ^ 1])
        path.write_bytes(content[:middle] + changed + content[middle + 1 :])
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
    errors = refuse(programs["powersgd"], str(EPOCHS), f"--resume={checkpoint}")
    want = "cannot read '{}'" if damage == "missing" else "'{}' is damaged"
    assert want.format(path) in errors


def test_another_run(checkpoint, programs):
    resume = f"--resume={checkpoint}"
    errors = refuse(programs["powersgd"], "31", resume)
    assert "is of another run: expected rank 0 of 2, 31 epochs" in errors
    errors = refuse(programs["powersgd"], str(EPOCHS), resume, world=1)
    assert "is of another run: expected rank 0 of 1" in errors
    errors = refuse(programs["fp16"], str(EPOCHS), resume)
    assert "loading the step's states: PLAN_MISMATCH" in errors


def test_nothing_there(tmp_path, programs):
    errors = refuse(programs["powersgd"], f"--resume={tmp_path}/none")
    assert errors.count(f"there is no checkpoint in '{tmp_path}/none'") == WORLD
    errors = refuse(programs["powersgd"], f"--save={tmp_path}/none/c", "10")
    assert "cannot make" in errors


@pytest.mark.parametrize(
    "flags", [["0"], ["10", "--until=11"], ["--save="], ["--until=x"], ["1", "2"]]
)
def test_arguments(programs, flags):
    assert "usage: " in refuse(programs["fp16"], *flags)
