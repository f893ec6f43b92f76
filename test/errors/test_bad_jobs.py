# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Jobs that cannot start or cannot go on: contradictory launch variables, ranks
compiled differently, peers that are killed, stopped or never come."""

import contextlib
import os
import pathlib
import signal
import socket
import time

import numpy as np
import pytest

import harness
import runner
from harness import SLACK_S, TIMEOUT_S
from tensors import Tensor

DEADLINE = {"DDPHOOK_TIMEOUT_S": TIMEOUT_S}


@pytest.fixture
def port():
    return runner.free_port()


def start_ranks(directory, world, port, ranks=None, env=None, **arguments):
    """Ranks that were launched one by one; {rank: process}."""
    return {
        rank: runner.start(
            directory.arguments("step", **arguments),
            {**runner.launch(rank, world, port), **DEADLINE, **(env or {})},
        )
        for rank in (range(world) if ranks is None else ranks)
    }


def endless(tmp_path, world):
    """A job that reads the same inputs in every step and never ends by itself."""
    directory = harness.make(tmp_path, world=world)
    directory.inputs = tmp_path / "in.{rank}.0.safetensors"
    return directory


def wait_for_step(directory, world, step=3):
    """Until every rank has written a step: the job is in full swing."""
    deadline = time.monotonic() + runner.HANG_S
    paths = [
        directory.path / f"out.{rank}.{step}.safetensors" for rank in range(world)
    ]
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, "the job did not start"
        time.sleep(0.01)


def finish_soon(directory, processes, *words, limit=TIMEOUT_S + SLACK_S):
    """All given processes fail cleanly within the limit."""
    begin = time.monotonic()
    try:
        for process in processes:
            left = max(0.1, limit - (time.monotonic() - begin))
            harness.assert_error(runner.finish(process, left), *words)
        harness.assert_nothing_left(directory, *processes)
    finally:
        for process in processes:
            runner.kill_descendants(process)


CONTRADICTIONS = {
    "rank without size": ({"RANK": 0}, "WORLD_SIZE"),
    "size without rank": ({"WORLD_SIZE": 2}, "RANK"),
    "rank beyond size": ({"RANK": 2, "WORLD_SIZE": 2}, "RANK"),
    "negative rank": ({"RANK": -1, "WORLD_SIZE": 2}, "RANK"),
    "rank is no number": ({"RANK": "first", "WORLD_SIZE": 2}, "RANK"),
    "rank with a tail": ({"RANK": "0x", "WORLD_SIZE": 2}, "RANK"),
    "no size": ({"RANK": 0, "WORLD_SIZE": 0}, "WORLD_SIZE"),
    "no address": ({"MASTER_ADDR": None}, "MASTER_ADDR"),
    "port is no port": ({"MASTER_PORT": 70000}, "MASTER_PORT"),
    "torchrun and Open MPI differ in rank": (
        {"OMPI_COMM_WORLD_RANK": 1, "OMPI_COMM_WORLD_SIZE": 2},
        "OMPI_COMM_WORLD_RANK",
    ),
    "torchrun and Slurm differ in size": (
        {"SLURM_PROCID": 0, "SLURM_NTASKS": 3, "SLURM_STEP_ID": 0},
        "SLURM_NTASKS",
    ),
    "bad timeout": ({"DDPHOOK_TIMEOUT_S": "soon"}, "DDPHOOK_TIMEOUT_S"),
    "bad backend": ({"DDPHOOK_BACKEND": "abacus"}, "abacus"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_launch_variables(tmp_path, port, name):
    changes, word = CONTRADICTIONS[name]
    env = {**runner.launch(0, 2, port), **DEADLINE}
    if "without" in name:
        del env["RANK"], env["WORLD_SIZE"]
    env = {k: v for k, v in {**env, **changes}.items() if v is not None}
    directory = harness.make(tmp_path, world=2)
    begin = time.monotonic()
    harness.expect_failure(directory, word, env=env)
    assert time.monotonic() - begin < TIMEOUT_S + SLACK_S


def test_transport_that_does_not_exist(tmp_path, port):
    """Transports are the backend's own, so this shows once all ranks are there."""
    directory = harness.make(tmp_path, world=2)
    env = {"DDPHOOK_TRANSPORT": "pigeon"}
    processes = start_ranks(directory, 2, port, env=env)
    finish_soon(directory, processes.values(), "pigeon")
    assert directory.output_files() == []


def test_ranks_unlike_the_launched_job(tmp_path, port):
    directory = harness.make(tmp_path, world=2)
    env = {**runner.launch(0, 2, port), **DEADLINE}
    harness.expect_failure(directory, "3", "2", ranks=3, env=env)


@pytest.mark.parametrize("rank", [0, 1])
def test_peer_that_never_comes(tmp_path, port, rank):
    directory = harness.make(tmp_path, world=2)
    processes = start_ranks(directory, 2, port, ranks=[rank])
    finish_soon(directory, processes.values())
    assert directory.output_files() == []


def test_two_processes_with_one_rank(tmp_path, port):
    """Neither of two ranks 1 may go on as if the job were complete. The third
    process waits for what the first said, so its error may name either cause."""
    directory = harness.make(tmp_path, world=3)
    processes = start_ranks(directory, 3, port, ranks=[0, 1])
    processes[2] = start_ranks(directory, 3, port, ranks=[1])[1]
    finish_soon(directory, processes.values())
    assert directory.output_files() == []


def test_ranks_with_different_secrets(tmp_path, port):
    """The one that may not join says why, and so do those that wait for it."""
    directory = harness.make(tmp_path, world=2)
    for rank, secret in enumerate(["the secret of this job", "the secret of that job"]):
        env = {"DDPHOOK_JOB_SECRET": secret, "DDPHOOK_TIMEOUT_S": 6}
        processes = start_ranks(directory, 2, port, [rank], env)
        if rank == 0:
            waiting = processes[0]
    limit = 6 + 2 * SLACK_S
    finish_soon(directory, [processes[1]], "another DDPHOOK_JOB_SECRET", limit=limit)
    finish_soon(directory, [waiting], "rank 1", "lacked the job's secret", limit=limit)
    assert directory.output_files() == []


MISMATCHES = {
    "hooks": ({"pipeline": "hook=fp16"}, {"pipeline": "hook=bf16"}),
    "wrappers": ({"pipeline": "wrapper=fp16"}, {"pipeline": "hook=allreduce"}),
    "buckets": ({"pipeline": "bucket-cap-mb=0.00001"}, {}),
}


@pytest.mark.parametrize("name", MISMATCHES)
@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_ranks_compiled_differently(tmp_path, port, name, transport):
    text = harness.GOOD.replace("xf64>", "xf32>")
    directory = harness.make(tmp_path, text, world=2)
    inputs = [harness.good_inputs()[0], Tensor("f32", np.ones(7, np.float32))]
    directory.write_inputs([[inputs]] * 2)
    processes = []
    for rank, arguments in enumerate(MISMATCHES[name]):
        env = {"DDPHOOK_TRANSPORT": transport}
        started = start_ranks(directory, 2, port, [rank], env, **arguments)
        processes.append(started[rank])
    # Both ranks say what differs, not only that something does.
    finish_soon(directory, processes, "PLAN_MISMATCH")
    assert directory.output_files() == []


def test_ranks_with_different_seeds(tmp_path, port):
    """Of reduce-scatters, too, which no bucket of the plan describes."""
    text = """ddp.process_group @dp size 2
func.func @step(%x: tensor<64xf32>) -> tensor<32xf32> {
  %s = ddp.reduce_scatter mean %x on @dp : tensor<64xf32> -> tensor<32xf32>
  return %s : tensor<32xf32>
}
"""
    directory = harness.make(tmp_path, text, world=2)
    directory.write_inputs([[[Tensor("f32", np.ones(64, np.float32))]]] * 2)
    processes = []
    for rank in range(2):
        pipeline = f"hook=int8 rounding=stochastic random-seed={rank}"
        started = start_ranks(directory, 2, port, [rank], pipeline=pipeline)
        processes.append(started[rank])
    finish_soon(directory, processes, "PLAN_MISMATCH", "collectives[0].stream")
    assert directory.output_files() == []


def test_ranks_with_different_modules(tmp_path, port):
    directory = harness.make(tmp_path / "job", world=2)
    processes = list(start_ranks(directory, 2, port, [0]).values())
    other = harness.make(tmp_path / "other", harness.GOOD.replace("mean %g1", "sum %g1"))
    arguments = directory.arguments("step")
    arguments[0] = other.module
    env = {**runner.launch(1, 2, port), **DEADLINE}
    processes.append(runner.start(arguments, env))
    finish_soon(directory, processes, "PLAN_MISMATCH")
    assert directory.output_files() == []


@pytest.mark.parametrize("transport", ["shm", "gloo"])
@pytest.mark.parametrize("world, victim", [(2, 1), (2, 0), (3, 1)])
def test_peer_that_is_killed(tmp_path, port, transport, world, victim):
    """The others notice; they do not wait for the deadline."""
    directory = endless(tmp_path, world)
    env = {"DDPHOOK_TRANSPORT": transport, "DDPHOOK_TIMEOUT_S": 60}
    processes = start_ranks(directory, world, port, env=env, steps=runner.ENDLESS)
    wait_for_step(directory, world)
    dead = processes.pop(victim)
    dead.kill()
    runner.finish(dead)
    finish_soon(directory, processes.values(), limit=SLACK_S)


@pytest.mark.parametrize("transport", ["shm", "gloo"])
@pytest.mark.parametrize("victim", [0, 1])
def test_peer_that_is_stopped(tmp_path, port, transport, victim):
    directory = endless(tmp_path, 2)
    env = {"DDPHOOK_TRANSPORT": transport}
    processes = start_ranks(directory, 2, port, env=env, steps=runner.ENDLESS)
    wait_for_step(directory, 2)
    stopped = processes.pop(victim)
    stopped.send_signal(signal.SIGSTOP)
    try:
        finish_soon(directory, processes.values())
    finally:
        runner.kill_descendants(stopped)
        stopped.wait()


def test_peer_that_stops_early_by_itself(tmp_path, port):
    """One rank was told to run fewer steps: the other must not hang."""
    directory = endless(tmp_path, 2)
    short = start_ranks(directory, 2, port, [0], steps=2)[0]
    long = start_ranks(directory, 2, port, [1], steps=runner.ENDLESS)[1]
    finish_soon(directory, [long])
    assert runner.finish(short).code == 0


def rank_processes(process, world):
    """The processes that ddphook-run started for its ranks."""
    deadline = time.monotonic() + runner.HANG_S
    while True:
        children = [p for p in runner.descendants(process) if p != process.pid]
        if len(children) >= world:
            return children
        assert time.monotonic() < deadline, f"expected {world} ranks, got {children}"
        time.sleep(0.01)


@pytest.mark.parametrize("killed", [0, 1])
def test_rank_of_ours_that_is_killed(tmp_path, killed):
    """--ranks=2: ddphook-run itself tells, and ends the other rank."""
    directory = endless(tmp_path, 2)
    process = runner.start(directory.arguments("step", 2, runner.ENDLESS))
    wait_for_step(directory, 2)
    os.kill(sorted(rank_processes(process, 2))[killed], signal.SIGKILL)
    result = runner.finish(process, SLACK_S)
    harness.assert_error(result, lines=range(1, 4))
    harness.assert_nothing_left(directory, process)


def listening_ports(process):
    """The TCP ports on which a process of this machine listens."""
    inodes = set()
    for name in os.listdir(f"/proc/{process}/fd"):
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(f"/proc/{process}/fd/{name}"))
    ports = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                ports.append(int(fields[1].rsplit(":", 1)[1], 16))
    return ports


def test_ranks_of_ours_have_a_secret(tmp_path):
    """--ranks=2: whoever connects to the store is asked for it."""
    directory = endless(tmp_path, 2)
    process = runner.start(directory.arguments("step", 2, runner.ENDLESS))
    try:
        wait_for_step(directory, 2)
        ports = [p for rank in rank_processes(process, 2) for p in listening_ports(rank)]
        assert len(ports) == 1
        with socket.create_connection(("127.0.0.1", ports[0]), timeout=SLACK_S) as stranger:
            greeting = stranger.recv(41, socket.MSG_WAITALL)
            assert greeting[:9] == b"ddphook\x02\x01"
            stranger.sendall(bytes(88))
            assert stranger.recv(4096, socket.MSG_WAITALL) == bytes(33)
    finally:
        process.kill()
        runner.finish(process)
        runner.kill_descendants(process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_ddphook_run_that_is_ended(tmp_path, number):
    """Whatever ends ddphook-run ends its ranks."""
    directory = endless(tmp_path, 3)
    process = runner.start(directory.arguments("step", 3, runner.ENDLESS))
    wait_for_step(directory, 3)
    rank_processes(process, 3)
    process.send_signal(number)
    assert runner.finish(process, SLACK_S).code != 0
    try:
        harness.assert_nothing_left(directory, process)
    finally:
        runner.kill_descendants(process)
