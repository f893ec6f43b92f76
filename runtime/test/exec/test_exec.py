# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ddphook-exec as users meet it: a command line, files, one line of error.

Runs the hand-made module of exec_module.c; no compiler is involved. Environment:
DDPHOOK_EXEC names the tool, DDPHOOK_EXEC_MODULES the directory with the modules.
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import numpy
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as torch_load
from safetensors.torch import save_file as torch_save

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

KILL, SEGV, HANG, EXIT, FAIL, STOP = range(6)

# For ranks that crash: in a build with a sanitizer that one must not catch the
# signal.
UNCAUGHT = {
    name: os.environ.get(name, "") + ":handle_segv=0"
    for name in ("ASAN_OPTIONS", "TSAN_OPTIONS")
}


def start(arguments, module=MODULE, **variables):
    """Starts the tool in a process group of its own, so that what it leaves
    behind can be found."""
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
        stderr=subprocess.PIPE,
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


@pytest.fixture
def files(tmp_path):
    return {
        "inputs": f"--inputs={tmp_path}/in.{{rank}}.{{step}}.safetensors",
        "outputs": f"--outputs={tmp_path}/out.{{rank}}.{{step}}.safetensors",
    }


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


@pytest.mark.parametrize("entry", ["step", "halves"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_means_over_ranks(tmp_path, files, ranks, entry):
    steps = 3
    write_vectors(tmp_path, ranks, steps)
    expect_ok(
        f"--entry={entry}",
        f"--ranks={ranks}",
        f"--steps={steps}",
        files["inputs"],
        files["outputs"],
    )
    assert outputs_in(tmp_path) == sorted(
        f"out.{rank}.{step}.safetensors"
        for rank in range(ranks)
        for step in range(steps)
    )
    for step in range(steps):
        expected = numpy.mean([vectors(rank, step) for rank in range(ranks)], axis=0)
        assert expected.any()
        for rank in range(ranks):
            got = load_file(tmp_path / f"out.{rank}.{step}.safetensors")
            assert list(got) == ["result0"]
            assert got["result0"].dtype == numpy.float32
            numpy.testing.assert_array_equal(got["result0"], expected)


def test_result_in_an_arguments_buffer(tmp_path, files):
    parameters = numpy.arange(7, dtype=numpy.float32)
    for rank in range(2):
        save_file(
            {"arg0": parameters, "arg1": vectors(rank, 0)},
            tmp_path / f"in.{rank}.0.safetensors",
        )
    expect_ok("--entry=update", "--ranks=2", files["inputs"], files["outputs"])
    mean = (vectors(0, 0) + vectors(1, 0)) / 2
    for rank in range(2):
        got = load_file(tmp_path / f"out.{rank}.0.safetensors")
        numpy.testing.assert_array_equal(got["result0"], parameters - mean / 2)
        assert got["result1"].shape == ()
        assert got["result1"] == mean[0]


TYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.bool,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.int64,
]


def test_every_type_goes_both_ways(tmp_path, files):
    torch.manual_seed(SEED)
    values = [(100 * torch.randn(2, 3)).to(dtype) for dtype in TYPES]
    values[4] = torch.tensor([[True, False, True], [False, False, True]])
    values += [torch.tensor(2.5), torch.zeros(0, 3)]
    torch_save(
        {f"arg{i}": value for i, value in enumerate(values)},
        tmp_path / "in.0.0.safetensors",
        metadata={"made": "by Python"},
    )
    expect_ok("--entry=types", files["inputs"], files["outputs"])
    got = torch_load(tmp_path / "out.0.0.safetensors")
    assert len(got) == len(values)
    for i, value in enumerate(values):
        result = got[f"result{i}"]
        assert result.dtype == value.dtype and result.shape == value.shape
        assert torch.equal(result, value)


def test_random_inputs(tmp_path, files):
    def draw(seed):
        expect_ok(
            "--entry=types",
            "--ranks=2",
            "--steps=2",
            f"--inputs=random:{seed}",
            files["outputs"],
        )
        return {
            (rank, step): torch_load(tmp_path / f"out.{rank}.{step}.safetensors")
            for rank in range(2)
            for step in range(2)
        }

    def flat(tensors):
        return torch.cat([tensors[f"result{i}"].double().ravel() for i in range(11)])

    first, again, other = draw(1), draw(1), draw(2)
    drawn = [flat(tensors) for tensors in first.values()]
    for key, tensors in first.items():
        assert torch.equal(flat(tensors), flat(again[key]))
        assert not torch.equal(flat(tensors), flat(other[key]))
        assert tensors["result3"].std() > 0
        for i in range(5, 10):
            assert tensors[f"result{i}"].min() >= 0
            assert tensors[f"result{i}"].max() <= 7
    for i in range(4):
        for j in range(i):
            assert not torch.equal(drawn[i], drawn[j])


def test_unwritten_results_are_nan(tmp_path, files):
    expect_ok("--entry=forget", files["outputs"])
    assert numpy.isnan(load_file(tmp_path / "out.0.0.safetensors")["result0"]).all()


def test_files_are_optional(tmp_path, files):
    expect_ok("--entry=nothing", "--ranks=2")
    expect_ok("--entry", "step", "--inputs", "random:1", "--ranks", "2")
    expect_ok("--entry=nothing", files["outputs"])
    assert load_file(tmp_path / "out.0.0.safetensors") == {}


def test_module_without_a_directory(tmp_path):
    os.symlink(MODULE, tmp_path / "m.so")
    result = subprocess.run(
        [TOOL, "m.so", "--entry=nothing"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_help():
    result = subprocess.run([TOOL, "--help"], capture_output=True, text=True)
    assert result.returncode == 0 and result.stderr == ""
    for flag in ("--entry", "--ranks", "--steps", "--inputs", "--outputs"):
        assert flag in result.stdout


HELP = r" \(see ddphook-exec --help\)"


@pytest.mark.parametrize(
    "pattern, arguments",
    [
        ("--entry=NAME is missing", []),
        ("unknown flag '--verbose'", ["--entry=step", "--verbose"]),
        ("unknown flag '--rank=2'", ["--entry=step", "--rank=2"]),
        ("expected one module, but got '.*' and 'x'", ["--entry=step", "x"]),
        (
            "expected --ranks to be a number from 1 to 1024, but got 'two'",
            ["--entry=step", "--ranks=two"],
        ),
        (
            "expected --steps to be a positive number, but got '0'",
            ["--entry=step", "--steps=0"],
        ),
        ("--outputs needs a value", ["--entry=step", "--outputs"]),
    ],
)
def test_wrong_command_lines(pattern, arguments):
    expect_error(pattern + HELP, *arguments, status=2)


@pytest.mark.parametrize(
    "pattern, arguments",
    [
        (
            "unknown entry 'train', expected 'step', 'halves', 'update', 'types', "
            "'misbehave', 'forget', 'nothing'",
            ["--entry=train"],
        ),
        ("--inputs is missing, but entry 'step' has arguments", ["--entry=step"]),
        (
            r"expected \{rank\} in --outputs with 2 ranks, but got 'o.\{step\}'",
            ["--entry=nothing", "--ranks=2", "--outputs=o.{step}"],
        ),
        (
            r"expected \{step\} in --outputs with 2 steps, but got 'o'",
            ["--entry=nothing", "--steps=2", "--outputs=o"],
        ),
        (
            "--outputs would overwrite --inputs 'x'",
            ["--entry=step", "--inputs=x", "--outputs=x"],
        ),
        (
            "rank 0: cannot open '/none/in': No such file or directory",
            ["--entry=step", "--inputs=/none/in"],
        ),
        (
            "rank 0: cannot create '/none/out': No such file or directory",
            ["--entry=nothing", "--outputs=/none/out"],
        ),
    ],
)
def test_wrong_requests(pattern, arguments):
    expect_error(pattern, *arguments)


@pytest.mark.parametrize(
    "defect, pattern",
    [
        (1, "'.*': expected a module of ABI version 4, but got 5"),
        (2, r"'.*': expected a module structure of \d+ bytes, but got \d+"),
        (3, "rank 0: cannot load the module: DATA_LOSS: .*hash.*"),
        (4, "'.*' has no symbol ddphook_compiled_module: .*"),
    ],
)
def test_wrong_modules(defect, pattern):
    expect_error(
        pattern, "--entry=nothing", module=MODULES / f"exec_module_{defect}.so"
    )


def test_modules_that_cannot_be_loaded(tmp_path):
    expect_error(
        "cannot load the module: .*No such file.*",
        "--entry=step",
        module=tmp_path / "none.so",
    )
    (tmp_path / "text.so").write_text("no shared object")
    expect_error(
        "cannot load the module: .*", "--entry=step", module=tmp_path / "text.so"
    )


def test_wrong_inputs(tmp_path, files):
    path = tmp_path / "in.0.0.safetensors"
    good = vectors(0, 0)

    def expect(pattern):
        expect_error(
            f"rank 0: '{re.escape(str(path))}'" + pattern,
            "--entry=step",
            files["inputs"],
            files["outputs"],
        )
        assert outputs_in(tmp_path) == []

    save_file({"arg1": good}, path)
    expect(r" has no tensor 'arg0', expected f32 \[7\]")
    save_file({"arg0": good.astype(numpy.float16)}, path)
    expect(r", tensor 'arg0': expected f32 \[7\], but got f16 \[7\]")
    save_file({"arg0": good[:6]}, path)
    expect(r", tensor 'arg0': expected f32 \[7\], but got f32 \[6\]")
    save_file({"arg0": good}, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    expect(r": tensor 'arg0' has data_offsets \[0, 28\] outside the 27 bytes of data")
    path.write_bytes(whole + b"x")
    expect(r": expected 28 bytes of data, but got 29")
    path.write_bytes(whole[:5])
    expect(r": expected a safetensors file, but got only 5 bytes")
    path.write_bytes(b"\xff" * 100)
    expect(r": expected a header of 18446744073709551615 bytes, but got a file of 100")
    path.write_bytes(whole.replace(b'"shape"', b'"shapf"'))
    expect(r": tensor 'arg0' has unknown key 'shapf'")


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
        (KILL, r"rank 1: was killed by signal 9 \(Killed\) in step 0"),
        (SEGV, r"rank 1: was killed by signal 11 \(Segmentation fault\) in step 0"),
        (EXIT, "rank 1: exited with status 5 in step 0"),
        (FAIL, "rank 1: entry 'misbehave' failed in step 0: UNSUPPORTED"),
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
    # failure before it sees its own, and be the one that reports it.
    expect_error(
        "rank [02]: entry 'misbehave' failed in step 0: "
        r"(?:DEADLINE_EXCEEDED: .*|ABORTED: rank [02] failed: .*\(DEADLINE_EXCEEDED\))",
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
        "rank 0: made no progress for 6 s in step 0 and was killed",
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
        r"\(--free-space=ignore runs nevertheless\)",
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


def test_progress(tmp_path, files):
    arguments = ["--entry=step", "--inputs=random:1", "--ranks=2", "--steps=3"]
    expect_ok(*arguments, "--progress=off")
    code, errors = run(*arguments, "--progress=on")
    assert code == 0
    # In between there are lines if it takes long.
    assert errors.endswith("ddphook-exec: 3 of 3 steps are done\n")


def test_ranks_end_with_the_tool(tmp_path, files):
    process = start(misbehave(tmp_path, files, HANG))
    wait_for_ranks(process, 3)
    process.kill()
    process.communicate(timeout=HANG_S)
    deadline = time.monotonic() + HANG_S
    while group_exists(process) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not group_exists(process)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def launch(world, arguments, **variables):
    """Starts the tool once per rank, as torchrun does."""
    port = free_port()
    processes = [
        start(
            arguments,
            RANK=rank,
            LOCAL_RANK=rank,
            WORLD_SIZE=world,
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
            **variables,
        )
        for rank in range(world)
    ]
    return [finish(process) for process in processes]


@pytest.mark.parametrize("ranks", [[], ["--ranks=3"]])
def test_joins_a_launched_job(tmp_path, files, ranks):
    write_vectors(tmp_path, 3, 2)
    arguments = ["--entry=step", "--steps=2", *ranks, *files.values()]
    assert launch(3, arguments) == [(0, "")] * 3
    assert len(outputs_in(tmp_path)) == 6
    for step in range(2):
        expected = numpy.mean([vectors(rank, step) for rank in range(3)], axis=0)
        for rank in range(3):
            got = load_file(tmp_path / f"out.{rank}.{step}.safetensors")
            numpy.testing.assert_array_equal(got["result0"], expected)


def test_a_rank_of_a_launched_job_fails(tmp_path, files):
    write_vectors(tmp_path, 2, 1)
    (tmp_path / "in.1.0.safetensors").unlink()
    results = launch(2, ["--entry=step", *files.values()], DDPHOOK_TIMEOUT_S=3)
    assert [code for code, _ in results] == [1, 1]
    assert re.fullmatch(
        "ddphook-exec: error: rank 0: entry 'step' failed in step 0: "
        "(PEER_LOST|ABORTED|DEADLINE_EXCEEDED): .*\n",
        results[0][1],
    )
    assert re.fullmatch(
        "ddphook-exec: error: rank 1: cannot open '.*': No such file or directory\n",
        results[1][1],
    )


def test_wrong_launch_variables():
    expect_error(
        "expected --ranks to be the world size of the launched job, 1, but got 2",
        "--entry=nothing",
        "--ranks=2",
        RANK=0,
        WORLD_SIZE=1,
    )
    expect_error(
        ".*RANK.*WORLD_SIZE.*",
        "--entry=nothing",
        RANK=0,
    )
    expect_error(
        "launch variables contradict each other: .*",
        "--entry=nothing",
        RANK=0,
        WORLD_SIZE=2,
        OMPI_COMM_WORLD_RANK=1,
        OMPI_COMM_WORLD_SIZE=2,
    )
    expect_error(
        r"expected \{rank\} in --outputs with 2 ranks, but got 'out'",
        "--entry=nothing",
        "--outputs=out",
        RANK=0,
        WORLD_SIZE=2,
        MASTER_ADDR="127.0.0.1",
    )
    expect_error(
        "expected DDPHOOK_TIMEOUT_S to be a number of seconds above 0, but got 'soon'",
        "--entry=nothing",
        DDPHOOK_TIMEOUT_S="soon",
    )


def test_many_ranks(tmp_path, files):
    """More ranks than cores; every one of them ends."""
    expect_ok("--entry=nothing", "--ranks=12", files["outputs"])
    assert len(outputs_in(tmp_path)) == 12
