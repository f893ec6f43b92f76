# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A peer of a hierarchical group that is lost: everybody gets a status, those too
who share neither a node nor a position with it."""

import signal

import pytest

import harness
import runner
from harness import SLACK_S
from test_bad_jobs import endless, finish_soon, start_ranks, wait_for_step

# Minutes of steps: more than any test waits for.
ENDLESS = 20000
NODES = "aabb"


def start(tmp_path, timeout):
    directory = endless(tmp_path, len(NODES))
    port, processes = runner.free_port(), {}
    for rank, node in enumerate(NODES):
        env = {"DDPHOOK_NODE": node, "DDPHOOK_TIMEOUT_S": timeout}
        pipeline = "hook=fp16 topology=hierarchical bucket-cap-mb=0"
        processes |= start_ranks(
            directory, len(NODES), port, [rank], env, steps=ENDLESS, pipeline=pipeline
        )
    wait_for_step(directory, len(NODES))
    return directory, processes


@pytest.mark.parametrize("victim", [0, 3])
def test_peer_that_is_killed(tmp_path, victim):
    directory, processes = start(tmp_path, 60)
    dead = processes.pop(victim)
    dead.kill()
    runner.finish(dead)
    finish_soon(directory, processes.values(), limit=SLACK_S)


def test_peer_that_is_stopped(tmp_path):
    directory, processes = start(tmp_path, harness.TIMEOUT_S)
    stopped = processes.pop(2)
    stopped.send_signal(signal.SIGSTOP)
    try:
        finish_soon(directory, processes.values())
    finally:
        runner.kill_descendants(stopped)
        stopped.wait()
