# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks started by a real launcher: PyTorch's torchrun."""

import subprocess
import sys

import pytest

import cases
import runner
from cases import Options


@pytest.mark.parametrize("transport", ["shm", "gloo"])
@pytest.mark.parametrize("rendezvous", ["static", "c10d"])
def test_torchrun(tmp_path, free_port, rendezvous, transport):
    """Two kinds of rendezvous in torchrun. With c10d, its store takes any port, and the next
    port may be in use: ddphook's port is then set explicitly."""
    world, steps, options = 2, 2, Options(hook="fp16")
    module = cases.everything()
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    inputs = cases.make_inputs(module, "step", world, steps, runner.SEED)
    directory.write_inputs(inputs)
    variables = {"DDPHOOK_TRANSPORT": transport, "OMP_NUM_THREADS": 1}
    launcher = [
        *[sys.executable, "-m", "torch.distributed.run", "--no-python"],
        f"--nproc-per-node={world}",
        f"--rdzv-backend={rendezvous}",
    ]
    if rendezvous == "static":
        launcher += ["--master-addr=127.0.0.1", f"--master-port={free_port}"]
    else:
        # torchrun would pass the machine's name to the ranks, but it need not resolve.
        launcher += ["--local-addr=127.0.0.1", f"--rdzv-endpoint=127.0.0.1:{free_port}"]
        variables["DDPHOOK_PORT"] = free_port + 1
    arguments = directory.arguments("step", None, steps, options.text())
    done = subprocess.run(
        [*launcher, runner.tool(), *map(str, arguments)],
        env=runner.environment(variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=runner.HANG_S,
    )
    assert done.returncode == 0, done.stderr
    got = directory.read_outputs(world, steps)
    want = cases.expected(module, "step", options, inputs, cases.model_reference)
    assert not cases.difference_of(got, want)


def test_torchrun_when_a_rank_fails(tmp_path, free_port):
    """The launcher notices the failure, and no rank waits for the deadline."""
    module = cases.everything()
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    inputs = cases.make_inputs(module, "step", 1, 1, runner.SEED)
    directory.write_inputs(inputs)  # Rank 1 has no inputs.
    launcher = [
        *[sys.executable, "-m", "torch.distributed.run", "--no-python"],
        *["--nproc-per-node=2", "--master-addr=127.0.0.1"],
        f"--master-port={free_port}",
    ]
    done = subprocess.run(
        [*launcher, runner.tool(), *map(str, directory.arguments("step"))],
        env=runner.environment({"DDPHOOK_TIMEOUT_S": 300, "OMP_NUM_THREADS": 1}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "in.1.0.safetensors" in done.stderr, done.stderr


def test_torchrun_restarts(tmp_path, free_port):
    """Rank 1 is killed in two runs of the job, wherever it is: the third run starts at once,
    at the same port."""
    world, steps, options = 2, 2, Options(hook="fp16")
    module = cases.everything()
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    inputs = cases.make_inputs(module, "step", world, steps, runner.SEED)
    directory.write_inputs(inputs)
    script = """if [ "$TORCHELASTIC_RESTART_COUNT" -lt 2 ] && [ "$RANK" = 1 ]; then
      timeout -s KILL "0.$((1 + 2 * TORCHELASTIC_RESTART_COUNT))" "$@"
      exit 1
    fi
    exec "$@"
    """
    launcher = [
        *[sys.executable, "-m", "torch.distributed.run", "--no-python"],
        *["--nproc-per-node=2", "--max-restarts=2", "--monitor-interval=0.1"],
        *["--master-addr=127.0.0.1", f"--master-port={free_port}"],
    ]
    arguments = directory.arguments("step", None, steps, options.text())
    done = subprocess.run(
        [*launcher, "sh", "-c", script, "sh", runner.tool(), *map(str, arguments)],
        env=runner.environment({"DDPHOOK_TRANSPORT": "gloo", "OMP_NUM_THREADS": 1}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=runner.HANG_S,
    )
    assert done.returncode == 0, done.stderr
    got = directory.read_outputs(world, steps)
    want = cases.expected(module, "step", options, inputs, cases.model_reference)
    assert not cases.difference_of(got, want)
