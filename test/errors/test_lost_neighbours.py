# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A peer of a hierarchical group that is lost: everybody gets a status, those too
who share neither a node nor a position with it."""

import signal

import numpy as np
import pytest

import harness
import runner
from harness import SLACK_S
from tensors import Tensor
from test_bad_jobs import endless, finish_soon, start_ranks, wait_for_step

NODES = "aabb"
HOOKS = {
    "fp16": "hook=fp16",
    # One matrix, assigned to the first rank of each node.
    "powersgd": "hook=powersgd matrix-approximation-rank=1 min-compression-rate=1 "
    "start-powersgd-iter=2",
    # In pieces.
    "long": "hook=bf16",
    "long, feedback": "hook=int4 error-feedback=true",
}
LONG = 600011
# Only a part is written: a job without an end fills no disk.
TEXT = f"""ddp.process_group @dp
func.func @step(%g: tensor<{LONG}xf32>) -> tensor<9xf32> {{
  %r = ddp.all_reduce mean %g on @dp : tensor<{LONG}xf32>
  %s = tensor.extract_slice %r[7] [9] [1] : tensor<{LONG}xf32> to tensor<9xf32>
  return %s : tensor<9xf32>
}}
"""


def make(tmp_path, hook):
    """A job that reads the same inputs in every step and never ends by itself."""
    if not hook.startswith("long"):
        return endless(tmp_path, len(NODES))
    directory = runner.Directory(tmp_path)
    directory.write_module(TEXT)
    values = np.linspace(-1, 1, LONG, dtype=np.float32)
    directory.write_inputs([[[Tensor("f32", values)]]] * len(NODES))
    directory.inputs = tmp_path / "in.{rank}.0.safetensors"
    return directory


LOST = [("fp16", 0), ("fp16", 3), ("powersgd", 2), ("long", 0), ("long", 3)]
LOST += [("long, feedback", 1)]
STOPPED = [("fp16", 2), ("powersgd", 1), ("long", 1), ("long", 2)]


def start(tmp_path, timeout, hook):
    directory = make(tmp_path, hook)
    port, processes = runner.free_port(), {}
    for rank, node in enumerate(NODES):
        env = {"DDPHOOK_NODE": node, "DDPHOOK_TIMEOUT_S": timeout}
        pipeline = f"{HOOKS[hook]} topology=hierarchical bucket-cap-mb=0"
        processes |= start_ranks(
            directory,
            len(NODES),
            port,
            [rank],
            env,
            steps=runner.ENDLESS,
            pipeline=pipeline,
        )
    wait_for_step(directory, len(NODES))
    return directory, processes


@pytest.mark.parametrize("hook, victim", LOST)
def test_peer_that_is_killed(tmp_path, hook, victim):
    directory, processes = start(tmp_path, 60, hook)
    dead = processes.pop(victim)
    dead.kill()
    runner.finish(dead)
    finish_soon(directory, processes.values(), limit=SLACK_S)


@pytest.mark.parametrize("hook, victim", STOPPED)
def test_peer_that_is_stopped(tmp_path, hook, victim):
    directory, processes = start(tmp_path, harness.TIMEOUT_S, hook)
    stopped = processes.pop(victim)
    stopped.send_signal(signal.SIGSTOP)
    try:
        finish_soon(directory, processes.values())
    finally:
        runner.kill_descendants(stopped)
        stopped.wait()
