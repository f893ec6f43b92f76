# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""--state-in and --state-out of ddphook-exec.

Runs the hand-made module of exec_state_module.c, whose steps depend on each
other through a counter, a random generator, error feedback and a factor.
"""

import os
import resource
import signal
import subprocess
import time

import numpy
import pytest
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

import exec_harness
from exec_harness import MODULES, SEED

MODULE = MODULES / "exec_state_module.so"
OTHER = MODULES / "exec_other_state_module.so"
NAMES = ["b0.error", "b0.q", "powersgd.generator", "powersgd.iter"]


def run(*arguments, module=MODULE, **variables):
    return exec_harness.run(*arguments, module=module, **variables)


def expect_ok(*arguments, **variables):
    assert run(*arguments, **variables) == (0, "")


def expect_error(pattern, *arguments, module=MODULE, **variables):
    exec_harness.expect_error(pattern, *arguments, module=module, **variables)


@pytest.fixture
def job(tmp_path):
    """Runs steps: `job(ranks, steps, *flags)`, results in directory `out`."""
    random = numpy.random.default_rng(SEED)
    for rank in range(4):
        values = random.standard_normal(14).astype(numpy.float32)
        save_file({"arg0": values}, tmp_path / f"in.{rank}.safetensors")

    def flags(ranks, steps, *more, out="out"):
        (tmp_path / out).mkdir(exist_ok=True)
        return (
            "--entry=step",
            f"--ranks={ranks}",
            f"--steps={steps}",
            f"--inputs={tmp_path}/in.{{rank}}.safetensors",
            f"--outputs={tmp_path}/{out}/{{rank}}.{{step}}",
            *more,
        )

    return flags


def result(path, rank, step):
    return load_file(path / f"{rank}.{step}")["result0"]


def states_of(path):
    return {name: value.tobytes() for name, value in load_file(path).items()}


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ten_steps_are_five_and_five(job, tmp_path, ranks):
    whole = f"--state-out={tmp_path}/whole.{{rank}}.safetensors"
    half = f"{tmp_path}/half.{{rank}}.safetensors"
    end = f"--state-out={tmp_path}/end.{{rank}}.safetensors"
    expect_ok(*job(ranks, 10, whole, out="ten"))
    expect_ok(*job(ranks, 5, f"--state-out={half}", out="first"))
    expect_ok(*job(ranks, 5, f"--state-in={half}", end, out="second"))
    for rank in range(ranks):
        for step in range(10):
            part, number = ("first", step) if step < 5 else ("second", step - 5)
            assert (
                result(tmp_path / "ten", rank, step).tobytes()
                == result(tmp_path / part, rank, number).tobytes()
            )
        assert states_of(tmp_path / f"whole.{rank}.safetensors") == states_of(
            tmp_path / f"end.{rank}.safetensors"
        )
        final = load_file(tmp_path / f"end.{rank}.safetensors")
        assert final["powersgd.iter"] == 10
    # Without the states it would have been something else.
    assert not numpy.array_equal(
        result(tmp_path / "first", 0, 0), result(tmp_path / "second", 0, 0)
    )


def test_resuming_in_place(job, tmp_path):
    files = f"{tmp_path}/s.{{rank}}"
    expect_ok(*job(2, 1, f"--state-out={files}"))
    for _ in range(3):
        expect_ok(*job(2, 1, f"--state-in={files}", f"--state-out={files}"))
    assert load_file(tmp_path / "s.1")["powersgd.iter"] == 4
    assert sorted(p.name for p in tmp_path.glob("s.*")) == [
        "s.0",
        "s.1",
        "s.manifest.json",
    ]


def test_files_for_python(job, tmp_path):
    expect_ok(*job(1, 1, f"--state-out={tmp_path}/s"))
    with safe_open(tmp_path / "s", framework="numpy") as file:
        assert sorted(file.keys()) == NAMES
        assert file.metadata()["ddphook.world_size"] == "1"
        assert file.get_tensor("powersgd.iter").shape == ()
        assert file.get_tensor("b0.error").shape == (14,)
        assert file.get_tensor("b0.q").shape == (3, 1)
        generator = file.get_tensor("powersgd.generator")
    # numpy goes on where the module stopped.
    state = ("MT19937", generator[:624].view(numpy.uint32), int(generator[624]))
    rng = numpy.random.RandomState()
    rng.set_state(state)
    expected = numpy.random.RandomState(42)
    expected.randint(10**9), expected.randint(10**9)
    assert rng.randint(10**9) == expected.randint(10**9)


def test_another_world_size(job, tmp_path):
    files = f"{tmp_path}/s.{{rank}}"
    expect_ok(*job(2, 3, f"--state-out={files}"))
    saved = load_file(tmp_path / "s.0")
    code, errors = run(
        *job(3, 1, f"--state-in={files}", f"--state-out={tmp_path}/new.{{rank}}")
    )
    assert errors == (
        f"ddphook-exec: note: '{files}' is of 2 ranks: 1 state of single ranks to start at "
        "zero, 3 loaded\n"
    )
    assert code == 0
    # The first result is the mean of the gradients, and the saved factor.
    mean = sum(
        load_file(tmp_path / f"in.{rank}.safetensors")["arg0"] / numpy.float32(3)
        for rank in range(3)
    )
    factor = numpy.resize(saved["b0.q"].reshape(-1), 14)
    numpy.testing.assert_allclose(
        result(tmp_path / "out", 2, 0), mean + factor, rtol=1e-5, atol=1e-6
    )
    assert load_file(tmp_path / "new.2")["powersgd.iter"] == 4
    expect_error(
        r"rank \d: cannot load the states: FAILED_PRECONDITION: the checkpoint of "
        r"'.*s\.manifest\.json' has another world size: expected 3 ranks, but got 2",
        *job(3, 1, f"--state-in=strict:{files}"),
    )


def plain(path, rank=0, **changes):
    """States as a script would write them, from PyTorch's hook, say."""
    random = numpy.random.RandomState(rank)
    _, words, position = numpy.random.RandomState(5).get_state()[:3]
    tensors = {
        "powersgd.iter": numpy.array(7, numpy.int64),
        "powersgd.generator": numpy.append(
            words.view(numpy.int32), numpy.int32(position)
        ),
        "b0.error": random.standard_normal(14).astype(numpy.float32),
        "b0.q": numpy.arange(3, dtype=numpy.float32).reshape(3, 1),
    }
    tensors |= changes
    save_file({k: v for k, v in tensors.items() if v is not None}, path)
    return tensors


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"powersgd.iter": numpy.array([7], numpy.int64)},
        {"b0.q": numpy.arange(3, dtype=numpy.float32)},
    ],
)
def test_plain_files(job, tmp_path, change):
    given = [plain(tmp_path / f"p.{rank}", rank, **change) for rank in range(2)]
    expect_ok(
        *job(
            2,
            1,
            f"--state-in=strict:{tmp_path}/p.{{rank}}",
            f"--state-out={tmp_path}/s.{{rank}}",
        )
    )
    gradients = [
        load_file(tmp_path / f"in.{rank}.safetensors")["arg0"] for rank in range(2)
    ]
    sums = [given[rank]["b0.error"] + gradients[rank] for rank in range(2)]
    half = numpy.float32(0.5)
    out = (sums[0] * half + sums[1] * half) + numpy.resize([0, 1, 2], 14).astype(
        numpy.float32
    )
    for rank in range(2):
        assert result(tmp_path / "out", rank, 0).tobytes() == out.tobytes()
        after = load_file(tmp_path / f"s.{rank}")
        assert after["powersgd.iter"] == 8
        assert after["b0.error"].tobytes() == (sums[rank] - out).tobytes()


def test_a_plain_file_may_lack_states(job, tmp_path):
    plain(tmp_path / "p", **{"b0.error": None, "powersgd.generator": None})
    code, errors = run(
        *job(1, 1, f"--state-in={tmp_path}/p", f"--state-out={tmp_path}/s")
    )
    assert (code, errors) == (
        0,
        f"ddphook-exec: note: '{tmp_path}/p' lacks 2 of 4 states, which keep their initial "
        "values\n",
    )
    assert load_file(tmp_path / "s")["powersgd.iter"] == 8
    expect_error(
        r"rank 0: cannot load the states: INVALID_ARGUMENT: '.*p' has no tensor of "
        "state 'powersgd.generator'",
        *job(1, 1, f"--state-in=strict:{tmp_path}/p"),
    )


@pytest.mark.parametrize(
    "change, pattern",
    [
        (
            {"b0.Q": numpy.zeros(3, numpy.float32)},
            "'.*' has a tensor 'b0.Q', but the module has no such state",
        ),
        (
            {"b0.q": numpy.zeros(4, numpy.float32)},
            r"'.*', tensor 'b0.q': expected F32 \[3, 1\], but got F32 \[4\]",
        ),
        (
            {"b0.q": numpy.zeros((1, 3), numpy.float32)},
            r"'.*', tensor 'b0.q': expected F32 \[3, 1\], but got F32 \[1, 3\]",
        ),
        (
            {"b0.error": numpy.zeros(14, numpy.float64)},
            r"'.*', tensor 'b0.error': expected F32 \[14\], but got F64 \[14\]",
        ),
        (
            {"powersgd.iter": numpy.array(7, numpy.int32)},
            r"'.*', tensor 'powersgd.iter': expected I64 \[\], but got I32 \[\]",
        ),
        (
            {"powersgd.generator": numpy.full(625, 625, numpy.int32)},
            "state 'powersgd.generator': expected a random generator with a "
            "position from 0 to 624, but got 625",
        ),
    ],
)
def test_wrong_plain_files(job, tmp_path, change, pattern):
    plain(tmp_path / "p", **change)
    expect_error(
        "rank 0: cannot load the states: INVALID_ARGUMENT: " + pattern,
        *job(1, 1, f"--state-in={tmp_path}/p"),
    )


def test_plain_files_must_agree(job, tmp_path):
    plain(tmp_path / "p.0")
    plain(tmp_path / "p.1", **{"powersgd.iter": numpy.array(8, numpy.int64)})
    expect_error(
        r"rank \d: cannot load the states: INVALID_ARGUMENT: state 'powersgd.iter' "
        "is the same on all ranks, but the files give rank 0 and rank 1 different "
        "values",
        *job(2, 1, f"--state-in={tmp_path}/p.{{rank}}"),
    )
    expect_error(
        r"rank \d: cannot load the states: INVALID_ARGUMENT: expected {rank} in the "
        r"pattern of the files of 2 ranks, but got '.*p\.0'",
        *job(2, 1, f"--state-in={tmp_path}/p.0"),
    )


def test_wrong_checkpoints(job, tmp_path):
    files = f"{tmp_path}/s.{{rank}}"
    given = f"--state-in={files}"
    load = "cannot load the states: "
    expect_error(
        f"rank 0: {load}IO_ERROR: cannot open '.*s.0': No such file or directory",
        *job(1, 1, given),
    )
    expect_ok(*job(2, 1, f"--state-out={files}"))
    expect_error(
        rf"rank \d: {load}PLAN_MISMATCH: the checkpoint of '.*s.manifest.json' "
        "belongs to another plan, and does not fit this one: it has no state "
        r"'test\.iter' of gradient 'b1\.w' \(and 6 more\)",
        *job(2, 1, given),
        module=OTHER,
    )
    good = (tmp_path / "s.1").read_bytes()
    damaged = bytearray(good)
    damaged[-1] ^= 4
    (tmp_path / "s.1").write_bytes(damaged)
    expect_error(
        f"rank 1: {load}DATA_LOSS: '.*s.1': tensor '.*' is damaged: expected the "
        "checksum [0-9a-f]{16}, but got [0-9a-f]{16}",
        *job(2, 1, given),
    )
    (tmp_path / "s.1").write_bytes(good[:-7])
    expect_error(f"rank 1: {load}DATA_LOSS: '.*s.1': .*", *job(2, 1, given))
    (tmp_path / "s.1").unlink()
    expect_error(
        f"rank 1: {load}IO_ERROR: cannot open '.*s.1': No such file or directory",
        *job(2, 1, given),
    )
    (tmp_path / "s.1").write_bytes(good)
    expect_ok(*job(2, 1, given))
    (tmp_path / "s.manifest.json").unlink()
    expect_error(
        rf"rank \d: {load}DATA_LOSS: '.*s.\d' is a part of a checkpoint, whose "
        "manifest '.*s.manifest.json' does not exist",
        *job(2, 1, given),
    )


def test_a_full_disk(job, tmp_path):
    """Played by a limit on the size of files; results have room."""
    files = f"{tmp_path}/s.{{rank}}"
    expect_ok(*job(2, 2, f"--state-out={files}"))
    before = {path.name: path.read_bytes() for path in tmp_path.glob("s.*")}

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500))

    done = subprocess.run(
        [
            exec_harness.TOOL,
            str(MODULE),
            *job(2, 1, f"--state-in={files}", f"--state-out={files}"),
        ],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
        # Shared memory is a file too.
        env=os.environ | {"DDPHOOK_TRANSPORT": "gloo"},
    )
    assert done.returncode == 1
    assert "cannot save the states: IO_ERROR: cannot write" in done.stderr
    assert "File too large" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert {p.name: p.read_bytes() for p in tmp_path.glob("s.*")} == before
    expect_ok(*job(2, 1, f"--state-in={files}"))


def test_killed_while_saving(job, tmp_path):
    """kill -9 at any moment: the checkpoint is the old or the new one."""
    files = f"{tmp_path}/s.{{rank}}"
    expect_ok(*job(2, 1, f"--state-out={files}"))
    random = numpy.random.RandomState(SEED)
    seen = 1
    for _ in range(25):
        process = exec_harness.start(
            job(2, 1, f"--state-in={files}", f"--state-out={files}"), module=MODULE
        )
        time.sleep(random.uniform(0.0, 0.12))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        expect_ok(
            *job(2, 1, f"--state-in=strict:{files}", f"--state-out={tmp_path}/t.{{rank}}")
        )
        counts = [load_file(tmp_path / f"t.{r}")["powersgd.iter"] for r in range(2)]
        # One more than what was loaded.
        assert counts[0] == counts[1]
        assert counts[0] - 1 in (seen, seen + 1)
        seen = counts[0] - 1
    # A save that ends well leaves nothing else.
    expect_ok(*job(2, 1, f"--state-in={files}", f"--state-out={files}"))
    assert sorted(p.name for p in tmp_path.glob("s.*")) == [
        "s.0",
        "s.1",
        "s.manifest.json",
    ]


def raw(header, data=b""):
    return len(header).to_bytes(8, "little") + header + data


def described(name, dtype="I64", shape="[]", offsets="[0,8]"):
    return (
        f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'
    ).encode()


ITER = described("powersgd.iter")
HEADERS = {
    "good": b"{" + ITER + b"}",
    "padded": b"{" + ITER + b"}    ",
    "zero bytes": b"{" + ITER + b"}\0\0\0",
    "a zero byte": b"{" + ITER + b"}\0",
    "a zero byte in front": b"\0{" + ITER + b"}",
    "zero bytes and more": b"{" + ITER + b"}\0" + b"{" + ITER + b"}",
    "two headers": b"{" + ITER + b"}{" + ITER + b"}",
    "letters": b"{" + ITER + b"} x",
    "a space in front": b" {" + ITER + b"}",
    "a mark in front": b"\xef\xbb\xbf{" + ITER + b"}",
    "no utf-8": b"{" + described("powersgd.iter\xff").replace(b"\xc3", b"") + b"}",
    "a comment": b"{" + ITER + b"/* */}",
    "a comma": b"{" + ITER + b",}",
    "the name twice": b"{" + ITER + b"," + ITER + b"}",
    "metadata": b'{"__metadata__":{"a":"b"},' + ITER + b"}",
    "metadata of a number": b'{"__metadata__":{"a":1},' + ITER + b"}",
    "a text for a shape": b"{" + described("powersgd.iter", shape='"[]"') + b"}",
    "a negative size": b"{" + described("powersgd.iter", shape="[-1,-1]") + b"}",
    "a fraction": b"{" + described("powersgd.iter", shape="[1.0]") + b"}",
    "too short": b"{" + described("powersgd.iter", offsets="[0,4]") + b"}",
    "behind the end": b"{" + described("powersgd.iter", offsets="[8,16]") + b"}",
    "a gap": b"{" + described("powersgd.iter", "I32", "[]", "[4,8]") + b"}",
    "more data": b"{" + described("powersgd.iter", "I32", "[]", "[0,4]") + b"}",
    "an unknown type": b"{" + described("powersgd.iter", "I65") + b"}",
    "an array": b"[" + ITER.replace(b'"powersgd.iter":', b"") + b"]",
    "nothing": b"",
}


@pytest.mark.parametrize("name", HEADERS)
def test_no_more_than_safetensors_takes(job, tmp_path, name):
    """What Python's safetensors refuses is refused, and also what it takes
    against the format's description: a name twice, a space in front."""
    path = tmp_path / "p"
    path.write_bytes(raw(HEADERS[name], bytes(8)))
    code, errors = run(*job(1, 1, f"--state-in={path}"))
    if name in ("good", "padded", "metadata"):
        assert code == 0, errors
        assert load_file(path)["powersgd.iter"] == 0
        return
    assert code == 1
    assert "cannot load the states: DATA_LOSS: " in errors
    if name not in ("the name twice", "a space in front"):
        with pytest.raises(SafetensorError):
            load_file(path)
