# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""--device of ddphook-exec: the same files in and out whatever the device.

Runs the hand-made module of exec_device_module.c on the host and on the guarded
device of guarded_backend.cpp, whose memory kills whoever touches it from the
host. DDPHOOK_TEST_BACKENDS names the directory with its library.
"""

import os

import numpy
import pytest
from safetensors.numpy import load_file, save_file

import exec_harness
from exec_harness import MODULES, SEED

MODULE = MODULES / "exec_device_module.so"
TOUCHING = MODULES / "exec_touching_module.so"
HOST_MODULE = MODULES / "exec_state_module.so"
BACKENDS = os.environ["DDPHOOK_TEST_BACKENDS"]
COUNT = 14


def run(*arguments, module=MODULE, **variables):
    return exec_harness.run(
        *arguments, module=module, LD_LIBRARY_PATH=BACKENDS, **variables
    )


def expect_ok(*arguments, **variables):
    assert run(*arguments, **variables) == (0, "")


def expect_error(pattern, *arguments, module=MODULE, **variables):
    exec_harness.expect_error(
        pattern, *arguments, module=module, LD_LIBRARY_PATH=BACKENDS, **variables
    )


def arguments_of(rank, step):
    random = numpy.random.default_rng([SEED, rank, step])
    return {
        "arg0": random.standard_normal(COUNT).astype(numpy.float32),
        "arg1": numpy.array(0.5 + step),
        "arg2": numpy.array([rank, step], numpy.int32),
        "arg3": random.standard_normal(COUNT).astype(numpy.float32),
    }


@pytest.fixture
def job(tmp_path):
    """Flags of a run on `device`, which writes to the directory of that name."""
    for rank in range(3):
        for step in range(4):
            save_file(arguments_of(rank, step), tmp_path / f"in.{rank}.{step}")

    def flags(device, ranks, steps, *more, out=None):
        out = out or device
        (tmp_path / out).mkdir(exist_ok=True)
        return (
            "--entry=step",
            f"--ranks={ranks}",
            f"--steps={steps}",
            f"--device={device}",
            f"--inputs={tmp_path}/in.{{rank}}.{{step}}",
            f"--outputs={tmp_path}/{out}/{{rank}}.{{step}}",
            *more,
        )

    return flags


def same(first, second):
    return first.keys() == second.keys() and all(
        first[name].dtype == second[name].dtype
        and first[name].shape == second[name].shape
        and first[name].tobytes() == second[name].tobytes()
        for name in first
    )


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_same_files_on_every_device(job, tmp_path, ranks):
    steps = 3
    for device in ["host", "guarded"]:
        states = f"--state-out={tmp_path}/{device}/state.{{rank}}"
        expect_ok(*job(device, ranks, steps, states))
    error = [numpy.zeros(COUNT, numpy.float32) for _ in range(ranks)]
    draws = []
    for step in range(steps):
        inputs = [arguments_of(rank, step) for rank in range(ranks)]
        error = [e + given["arg0"] for e, given in zip(error, inputs)]
        mean = sum(e.astype(numpy.float64) for e in error) / ranks
        for rank in range(ranks):
            got = load_file(tmp_path / f"guarded/{rank}.{step}")
            numpy.testing.assert_allclose(got["result0"], mean, atol=1e-6)
            update = inputs[rank]["arg3"] + (0.5 + step) * mean
            numpy.testing.assert_allclose(got["result1"], update, atol=1e-5)
            assert list(got["result2"]) == [rank, step]
            assert numpy.isfinite(got["result3"]).all()
            assert same(got, load_file(tmp_path / f"host/{rank}.{step}"))
            error[rank] = error[rank] - got["result0"]
        draws.append(load_file(tmp_path / f"guarded/0.{step}")["result3"].tobytes())
    # New numbers in odd steps, of the numbers in host memory.
    assert draws[0] != draws[1] and draws[1] == draws[2]
    for rank in range(ranks):
        assert same(
            load_file(tmp_path / f"host/state.{rank}"),
            load_file(tmp_path / f"guarded/state.{rank}"),
        )


def test_going_on_on_another_device(job, tmp_path):
    state = f"{tmp_path}/state.{{rank}}"
    expect_ok(*job("host", 2, 4, out="whole"))
    expect_ok(*job("guarded", 2, 2, f"--state-out={state}"))
    for rank in range(2):
        for step in range(2):
            (tmp_path / f"in.{rank}.{step}").unlink()
            (tmp_path / f"in.{rank}.{step + 2}").rename(
                tmp_path / f"in.{rank}.{step}"
            )
    expect_ok(*job("host", 2, 2, f"--state-in=strict:{state}"))
    expect_ok(*job("guarded", 2, 2, f"--state-in=strict:{state}"))
    for rank in range(2):
        for step in range(2):
            whole = load_file(tmp_path / f"whole/{rank}.{step + 2}")
            for device in ["host", "guarded"]:
                assert same(whole, load_file(tmp_path / f"{device}/{rank}.{step}"))


def test_random_inputs(job, tmp_path):
    for device in ["host", "guarded"]:
        flags = [f for f in job(device, 2, 2) if not f.startswith("--inputs")]
        expect_ok(*flags, "--inputs=random:7")
    for rank in range(2):
        for step in range(2):
            got = load_file(tmp_path / f"guarded/{rank}.{step}")
            assert numpy.std(got["result0"]) > 0
            assert same(got, load_file(tmp_path / f"host/{rank}.{step}"))


def test_device_from_the_environment(job, tmp_path):
    flags = [f for f in job("guarded", 1, 1) if not f.startswith("--device")]
    # Only the guarded device takes this option.
    guarded = {"DDPHOOK_BACKEND": "guarded", "DDPHOOK_BACKEND_OPTIONS": "streams=1"}
    expect_ok(*flags, **guarded)
    assert numpy.isfinite(load_file(tmp_path / "guarded/0.0")["result0"]).all()
    # The flag wins.
    expect_error(
        ".*: INVALID_ARGUMENT: expected the host backend's option async_progress, "
        "but got 'streams'",
        *flags,
        "--device=host",
        **guarded,
    )


def test_in_a_launched_job(job, tmp_path):
    flags = job("guarded", 1, 2)
    expect_ok(*flags, RANK=0, WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=1)
    assert (tmp_path / "guarded/0.1").exists()


def test_memory_is_short(job):
    expect_error(
        "rank 0: argument 3: RESOURCE_EXHAUSTED: cannot allocate 56 bytes of "
        "guarded memory",
        *job("guarded", 1, 1),
        DDPHOOK_BACKEND_OPTIONS=f"limit={2700 + 128 + 100}",
    )


def test_modules_for_the_host(job):
    expect_error(
        "rank 0: cannot load the module: FAILED_PRECONDITION: the module reads "
        "and writes memory of the host itself, which the backend 'guarded' does "
        "not have: expected one compiled for a device",
        *job("guarded", 1, 1),
        module=HOST_MODULE,
    )


def test_modules_that_touch_device_memory(job):
    assert run(*job("host", 1, 1), module=TOUCHING) == (0, "")
    code, errors = run(
        *job("guarded", 1, 1), module=TOUCHING, **exec_harness.UNCAUGHT
    )
    assert code != 0 and "rank 0" in errors


def test_failures_on_the_device(job, tmp_path):
    expect_error(
        "rank 0: entry 'step' failed in step 2: INTERNAL: the device failed as "
        "it was told to",
        *job("guarded", 1, 3, f"--state-out={tmp_path}/state"),
        # Every copy of an array waits for the device, and every step does:
        # 6 + 1 + 4 in the first step, then 6 and the step.
        DDPHOOK_BACKEND_OPTIONS="fail=18",
    )
    assert not (tmp_path / "state").exists()


def test_unknown_devices(job):
    expect_error(
        "rank 0: cannot join the job: UNSUPPORTED: the backend 'nosuch' is not "
        "available .*",
        *job("nosuch", 1, 1),
    )
    expect_error(
        r"--device has an empty value \(see ddphook-exec --help\)",
        *job("", 1, 1, out="x"),
        status=2,
    )
