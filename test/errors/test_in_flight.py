# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A peer that is lost while a collective is in flight: a status, and no hang."""

import signal

import numpy as np
import pytest

import harness
import runner
from harness import SLACK_S
from tensors import Tensor
from test_bad_jobs import finish_soon, start_ranks, wait_for_step

# Two buckets travel while a loop multiplies matrices, which is almost all of the
# step: that is where a rank is when it is lost.
WORK = """module {
  ddp.process_group @dp
  func.func @step(%a: tensor<50x40xf32>, %b: tensor<30xf32>, %m: tensor<96x96xf32>)
      -> (tensor<50x40xf32>, tensor<30xf32>, tensor<96x96xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %turns = arith.constant 100 : index
    %empty = tensor.empty() : tensor<96x96xf32>
    %ra = ddp.all_reduce mean %a on @dp : tensor<50x40xf32>
    %rb = ddp.all_reduce mean %b on @dp : tensor<30xf32>
    %zero = arith.constant 0.0 : f32
    %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<96x96xf32>)
        -> tensor<96x96xf32>
    %sum = scf.for %i = %c0 to %turns step %c1 iter_args(%acc = %start)
        -> tensor<96x96xf32> {
      %next = linalg.matmul ins(%m, %m : tensor<96x96xf32>, tensor<96x96xf32>)
          outs(%acc : tensor<96x96xf32>) -> tensor<96x96xf32>
      scf.yield %next : tensor<96x96xf32>
    }
    return %ra, %rb, %sum : tensor<50x40xf32>, tensor<30xf32>, tensor<96x96xf32>
  }
}
"""
# The same of a reduce-scatter and an all-to-all.
EXCHANGES = (
    WORK.replace("@dp\n", "@dp size 2\n", 1)
    .replace(
        "ddp.all_reduce mean %a on @dp : tensor<50x40xf32>",
        "ddp.reduce_scatter mean %a on @dp : tensor<50x40xf32> -> tensor<1000xf32>",
    )
    .replace("ddp.all_reduce mean %b", "ddp.all_to_all %b")
    .replace("(tensor<50x40xf32>,", "(tensor<1000xf32>,")
    .replace(": tensor<50x40xf32>, tensor<30xf32>,", ": tensor<1000xf32>, tensor<30xf32>,")
)
# The second is in PowerSGD's vanilla phase all the time.
PIPELINES = {
    "exchanges": "overlap=true overlap-depth=2",
    "plain": "bucket-cap-mb=0 overlap=true",
    "vanilla": "bucket-cap-mb=0 overlap=true hook=powersgd start-powersgd-iter=1000000",
}


# Where a collective in flight runs: beside the loop, or before it.
SETTINGS = [
    ("shm", "always", "plain"),
    ("shm", "never", "plain"),
    ("shm", "always", "vanilla"),
    ("shm", "always", "exchanges"),
    ("gloo", "always", "exchanges"),
    ("gloo", "never", "exchanges"),
    ("gloo", "always", "plain"),
    ("gloo", "never", "plain"),
    ("gloo", "always", "vanilla"),
]


def start(tmp_path, transport, progress, pipeline, timeout):
    text = EXCHANGES if pipeline == "exchanges" else WORK
    directory = harness.make(tmp_path, text, world=2)
    shapes = [(50, 40), (30,), (96, 96)]
    inputs = [Tensor("f32", np.ones(shape, np.float32)) for shape in shapes]
    directory.write_inputs([[inputs]] * 2)
    directory.inputs = tmp_path / "in.{rank}.0.safetensors"
    env = {
        "DDPHOOK_TRANSPORT": transport,
        "DDPHOOK_TIMEOUT_S": timeout,
        "DDPHOOK_BACKEND_OPTIONS": f"async_progress={progress}",
    }
    processes = start_ranks(
        directory,
        2,
        runner.free_port(),
        env=env,
        steps=runner.ENDLESS,
        pipeline=PIPELINES[pipeline],
    )
    wait_for_step(directory, 2)
    return directory, processes


@pytest.mark.parametrize("transport, progress, pipeline", SETTINGS)
@pytest.mark.parametrize("victim", [0, 1])
def test_peer_that_is_killed(tmp_path, transport, progress, pipeline, victim):
    directory, processes = start(tmp_path, transport, progress, pipeline, 60)
    dead = processes.pop(victim)
    dead.kill()
    runner.finish(dead)
    finish_soon(directory, processes.values(), limit=SLACK_S)


@pytest.mark.parametrize("transport, progress, pipeline", SETTINGS)
def test_peer_that_is_stopped(tmp_path, transport, progress, pipeline):
    directory, processes = start(
        tmp_path, transport, progress, pipeline, harness.TIMEOUT_S
    )
    stopped = processes.pop(1)
    stopped.send_signal(signal.SIGSTOP)
    try:
        finish_soon(directory, processes.values())
    finally:
        runner.kill_descendants(stopped)
        stopped.wait()
