# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checkpoints and state files that are wrong, and ones that cannot be written.

The files are called in.…, so that what a failed run must not leave is told from
what a test put there.
"""

import os
import resource
import subprocess

import numpy as np
import pytest

import harness
import runner
import tensors
from tensors import Tensor

PIPELINE = "hook=powersgd start-powersgd-iter=2"
OTHER = "hook=powersgd start-powersgd-iter=3"
MODULE = """module {
  ddp.process_group @dp
  func.func @step(%g0: tensor<30x20xf32>, %g1: tensor<20xf32>)
      -> (tensor<30x20xf32>, tensor<20xf32>) {
    %r0 = ddp.all_reduce mean %g0 on @dp : tensor<30x20xf32>
    %r1 = ddp.all_reduce mean %g1 on @dp : tensor<20xf32>
    return %r0, %r1 : tensor<30x20xf32>, tensor<20xf32>
  }
}
"""
WORLD = 2
STEPS = 4


def gradients(rank, step):
    random = np.random.default_rng([runner.SEED, rank, step])
    return [
        Tensor("f32", random.standard_normal(shape).astype(np.float32))
        for shape in ((30, 20), (20,))
    ]


def states(directory):
    return str(directory.path / "in.state.{rank}.safetensors")


def rank_file(directory, rank):
    return directory.path / f"in.state.{rank}.safetensors"


def manifest(directory):
    return directory.path / "in.state.manifest.json"


def run(directory, *flags, world=WORLD, pipeline=PIPELINE, **more):
    arguments = directory.arguments("step", world, STEPS, pipeline)
    return runner.finish(runner.start([*arguments, *flags], **more))


@pytest.fixture
def saved(tmp_path):
    """A directory with the checkpoint of a good run."""
    directory = runner.Directory(tmp_path)
    directory.write_module(MODULE)
    directory.write_inputs(
        [[gradients(rank, step) for step in range(STEPS)] for rank in range(3)]
    )
    result = run(directory, f"--state-out={states(directory)}")
    assert (result.code, result.stderr) == (0, "")
    directory.clear_outputs()
    return directory


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.path.glob("in.state*")}


def expect_refused(directory, *words, world=WORLD, pipeline=PIPELINE, strict=False):
    before = files_of(directory)
    harness.expect_failure(
        directory,
        "cannot load the states",
        *words,
        ranks=world,
        steps=STEPS,
        pipeline=pipeline,
        arguments=[f"--state-in={'strict:' if strict else ''}{states(directory)}"],
    )
    assert files_of(directory) == before


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


DAMAGES = {
    "last byte flipped": lambda path: flip(path, -1),
    "a byte in the middle flipped": lambda path: flip(path, path.stat().st_size // 2),
    "metadata flipped": lambda path: flip(path, 60),
    "cut": lambda path: os.truncate(path, path.stat().st_size - 1),
    "cut in the header": lambda path: os.truncate(path, 100),
    "empty": lambda path: os.truncate(path, 0),
    "no safetensors": lambda path: path.write_bytes(b"no safetensors" * 99),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_file_of_one_rank(saved, name):
    DAMAGES[name](rank_file(saved, 1))
    expect_refused(saved, "rank 1", "DATA_LOSS", "in.state.1.safetensors")


@pytest.mark.parametrize("name", ["last byte flipped", "cut", "no safetensors"])
def test_damaged_manifest(saved, name):
    if name == "last byte flipped":
        flip(manifest(saved), 100)
    elif name == "cut":
        os.truncate(manifest(saved), 90)
    else:
        manifest(saved).write_text('{"format": "something else"}')
    expect_refused(saved, "DATA_LOSS", "in.state.manifest.json")


def test_missing_file(saved):
    rank_file(saved, 1).unlink()
    expect_refused(saved, "rank 1", "IO_ERROR", "No such file or directory")


def test_missing_manifest(saved):
    manifest(saved).unlink()
    expect_refused(saved, "DATA_LOSS", "part of a checkpoint", "does not exist")


def test_nothing_there(saved):
    for path in saved.path.glob("in.state*"):
        path.unlink()
    expect_refused(saved, "IO_ERROR", "No such file or directory")


def test_files_of_another_rank_and_of_another_save(saved):
    second = rank_file(saved, 1)
    old = second.read_bytes()
    second.write_bytes(rank_file(saved, 0).read_bytes())
    expect_refused(saved, "rank 1", "DATA_LOSS", "ddphook.rank")
    second.write_bytes(old)
    result = run(
        saved, f"--state-in={states(saved)}", f"--state-out={states(saved)}"
    )
    assert (result.code, result.stderr) == (0, "")
    saved.clear_outputs()
    second.write_bytes(old)
    expect_refused(saved, "rank 1", "DATA_LOSS", "but of another one")


def test_state_of_another_plan(saved):
    expect_refused(
        saved,
        "PLAN_MISMATCH",
        "another plan",
        "'powersgd.error' of gradient 'step.arg0'",
        "start_powerSGD_iter = 3",
        pipeline=OTHER,
    )
    expect_refused(
        saved,
        "PLAN_MISMATCH",
        "another plan",
        "no counterpart for its state 'powersgd.error' of gradient 'step.arg0'",
        pipeline="hook=fp16",
    )


def test_a_part_of_the_states(saved):
    """What cannot be carried over is dropped on demand, and counted."""
    given = f"partial:{states(saved)}"
    result = run(saved, f"--state-in={given}", pipeline=OTHER)
    # The generator and the counter go on; two errors and a Q begin anew.
    assert (result.code, result.stderr) == (
        0,
        f"ddphook-run: note: '{states(saved)}' lacks 3 states of gradients, which start "
        "from their initial values, and has 3 that were dropped\n",
    )
    saved.clear_outputs()
    result = run(
        saved,
        f"--state-in={given}",
        pipeline="hook=fp16",
        env={"DDPHOOK_LOG": "info"},
    )
    assert result.code == 0
    for name in ("step.arg0", "step.arg1"):
        what = f"its state 'powersgd.error' of gradient '{name}' is dropped\n"
        assert what in result.stderr


def test_a_checkpoint_of_an_older_version(saved):
    text = manifest(saved).read_text()
    assert '"version": 2' in text
    manifest(saved).write_text(text.replace('"version": 2', '"version": 1'))
    expect_refused(
        saved, "UNSUPPORTED", "expected a checkpoint of version 2, but got 1"
    )

def test_a_part_of_the_states_in_another_world(saved):
    """Both are said: what the other hook has no use for, and what the other ranks
    cannot have."""
    flag = f"--state-in=partial:{states(saved)}"
    notes = {
        OTHER: [
            "lacks 3 states of gradients, which start from their initial values, and has "
            "3 that were dropped",
            "is of 2 ranks: 2 states to start from initial values, 2 loaded",
        ],
        PIPELINE: [
            "is of 2 ranks: 1 state of single ranks to start at zero, 3 loaded"
        ],
    }
    for pipeline, expected in notes.items():
        result = run(saved, flag, world=3, pipeline=pipeline)
        assert (result.code, result.stderr) == (
            0,
            "".join(
                f"ddphook-run: note: '{states(saved)}' {line}\n" for line in expected
            ),
        )
        saved.clear_outputs()


def test_another_world_size(saved):
    expect_refused(
        saved, "expected 3 ranks, but got 2", world=3, strict=True
    )
    result = run(saved, f"--state-in={states(saved)}", world=3)
    assert result.code == 0
    assert result.stderr == (
        f"ddphook-run: note: '{states(saved)}' is of 2 ranks: 1 state of single ranks to "
        "start at zero, 3 loaded\n"
    )


def plain(directory, changes, rank=0):
    path = rank_file(directory, rank)
    named = tensors.load(path)
    named.update(changes)
    tensors.save(path, {name: t for name, t in named.items() if t is not None})
    manifest(directory).unlink(missing_ok=True)


def test_plain_files(saved):
    """What the others are changes of: it loads."""
    for rank in range(WORLD):
        plain(saved, {}, rank)
    result = run(saved, f"--state-in=strict:{states(saved)}")
    assert (result.code, result.stderr) == (0, "")


PLAIN = {
    "unknown state": (
        {"b7.error": Tensor("f32", np.zeros(3, np.float32))},
        ["b7.error", "no such state"],
    ),
    "wrong type": (
        {"b0.error": Tensor("f64", np.zeros(620))},
        ["b0.error", "F32 [620]", "F64 [620]"],
    ),
    "wrong size": (
        {"b0.q": Tensor("f32", np.zeros(21, np.float32))},
        ["b0.q", "F32 [20, 1]", "F32 [21]"],
    ),
    "transposed": (
        {"b0.q": Tensor("f32", np.zeros((1, 20), np.float32))},
        ["b0.q", "F32 [20, 1]", "F32 [1, 20]"],
    ),
    "other counter": (
        {"powersgd.iter": Tensor("i64", np.array(1, np.int64))},
        ["powersgd.iter", "different values"],
    ),
    "no generator": (
        {"powersgd.generator": Tensor("i32", np.full(625, -1, np.int32))},
        ["powersgd.generator", "position"],
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_wrong_plain_files(saved, name):
    changes, words = PLAIN[name]
    plain(saved, {}, 0)
    plain(saved, changes, 1)
    expect_refused(saved, "INVALID_ARGUMENT", *words)


def test_a_state_is_missing(saved):
    plain(saved, {}, 0)
    plain(saved, {"b0.q": None}, 1)
    expect_refused(saved, "rank 1", "b0.q", strict=True)


def save_errors(directory, result, *words):
    harness.assert_error(result, "cannot save the states", *words)
    assert [name for name in directory.output_files() if "state" in name] == []


def test_disk_full_while_saving(saved):
    """Played by a limit on the size of files."""
    before = files_of(saved)
    saved.clear_outputs()
    room = max(len(data) for data in before.values()) - 1

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    arguments = saved.arguments("step", WORLD, STEPS, PIPELINE)
    arguments.append(f"--state-out={states(saved)}")
    done = subprocess.run(
        [runner.tool(), *map(str, arguments)],
        preexec_fn=limit,
        # Shared memory is a file too.
        env=runner.environment({"DDPHOOK_TRANSPORT": "gloo"}),
        capture_output=True,
        text=True,
    )
    save_errors(
        saved,
        runner.Result(done.returncode, done.stdout, done.stderr),
        "File too large",
        ".pending-",
    )
    assert files_of(saved) == before


def test_nowhere_to_save(saved):
    none = saved.path / "none" / "state.{rank}"
    result = run(saved, f"--state-out={none}")
    save_errors(saved, result, "IO_ERROR", "No such file or directory")


def test_place_of_the_manifest_is_taken(saved):
    before = files_of(saved)
    place = saved.path / "taken.manifest.json"
    place.mkdir()
    result = run(saved, f"--state-out={saved.path}/taken.{{rank}}.safetensors")
    save_errors(saved, result, "not a regular file")
    assert sorted(p.name for p in saved.path.glob("taken*")) == [place.name]
    assert files_of(saved) == before


def test_place_of_a_file_is_taken(saved):
    """A directory in the place of a rank's file: nothing is left beside it."""
    place = saved.path / "taken.1.safetensors"
    place.mkdir()
    result = run(saved, f"--state-out={saved.path}/taken.{{rank}}.safetensors")
    save_errors(saved, result, "rank 1", "IO_ERROR", "not a regular file")
    assert sorted(p.name for p in saved.path.glob("taken*")) == [place.name]
    saved.clear_outputs()
    result = run(saved, f"--state-out={place}", world=1)
    save_errors(saved, result, "IO_ERROR", "not a regular file")
    assert sorted(p.name for p in saved.path.glob("taken*")) == [place.name]


def test_patterns(saved):
    for flags, words in (
        (["--state-out=state"], ["{rank}", "--state-out"]),
        (["--state-in=s.{step}"], ["{step}", "--state-in"]),
        (["--state-in=strict:"], ["strict"]),
        (["--state-out="], ["--state-out"]),
        (["--state-in=a", "--state-in=b"], ["twice"]),
    ):
        harness.expect_failure(
            saved, *words, ranks=WORLD, steps=STEPS, pipeline=PIPELINE, arguments=flags
        )


def test_no_save_after_a_failed_step(saved):
    """A step that cannot read its gradients ends the run."""
    (saved.path / f"in.1.{STEPS - 1}.safetensors").unlink()
    before = files_of(saved)
    result = run(
        saved,
        f"--state-in={states(saved)}",
        f"--state-out={states(saved)}",
        env={"DDPHOOK_TIMEOUT_S": harness.TIMEOUT_S},
    )
    harness.assert_error(result, f"in.1.{STEPS - 1}.safetensors")
    assert files_of(saved) == before
