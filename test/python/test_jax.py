# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compressed gradients in JAX: ddphook.jax, on 2, 3 and 4 CPU devices and in 2 processes."""

import concurrent.futures
import os
import pathlib
import re
import socket
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

import ranks
from conftest import ROOT

PROGRAMS = pathlib.Path(__file__).with_name("jax_programs.py")
HANG_S = 600


def run(*command):
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    return done.stdout


@pytest.mark.parametrize(
    "program, devices",
    [
        ("trains_as_jax_does", 2),
        ("trains_as_jax_does", 3),
        ("equals_the_model", 2),
        ("equals_the_model", 3),
        ("state_is_a_checkpoint", 2),
        ("runs_in_jit_and_scan", 2),
        ("donates", 4),
        ("reduces_over_one_axis_of_two", 4),
        ("programs_with_everything", 2),
        ("programs_with_other_collectives", 2),
        ("reduces_in_loops_and_branches", 2),
        ("numbers_of_python", 2),
        ("statistics_in_a_loss", 3),
        ("explicit_meshes", 2),
        ("reduces_nothing", 2),
        ("refuses", 2),
    ],
)
def test_program(program, devices):
    run(PROGRAMS, program, devices)


@pytest.mark.parametrize(
    "program",
    [
        "metrics_are_exact",
        "exempt_takes_expressions",
        "linear_algebra",
        "kernels_compress",
        "sharded_optimizer",
        "warns_of_what_does_nothing",
        "names_of_types",
        "no_vmap",
    ],
)
def test_request(program):
    run(PROGRAMS.with_name("jax_requests.py"), program, 2)


def test_two_processes(tmp_path):
    """Two processes of one device each, over Gloo, give the results of one with two devices."""
    try:
        socket.gethostbyname(socket.gethostname())
    except OSError as error:
        pytest.fail(f"JAX looks up the name of this machine, see /etc/hosts: {error}")
    program = PROGRAMS.with_name("jax_processes.py")
    address = f"127.0.0.1:{ranks.free_port()}"
    jobs = [[tmp_path / f"{i}", 2, address, i] for i in range(2)] + [[tmp_path / "one", 2]]
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        list(pool.map(lambda job: run(program, *job), jobs))
    first, second, alone = (load_file(job[0]) for job in jobs)
    # The error belongs to each device; everything else is equal.
    assert set(first) ^ set(second) == {"powersgd b1.error0", "powersgd b1.error1"}
    assert set(first) | set(second) == set(alone)
    for name in set(first) & set(second):
        np.testing.assert_array_equal(first[name], second[name], name)
    assert not np.array_equal(alone["powersgd b1.error0"], alone["powersgd b1.error1"])
    for mine in (first, second):
        for name, value in mine.items():
            # A sum of two has only one order, so 16-bit results are equal. Matrix products may be
            # summed by another number of threads.
            limit = 0 if name.startswith("fp16") else 2**-16 * np.abs(alone[name]).max()
            np.testing.assert_allclose(value, alone[name], rtol=0, atol=limit)
    assert not np.array_equal(alone["fp16 a"], alone["powersgd a"])


def test_documented_program():
    """The commands of docs/frontends.md: PowerSGD trains as well as no compression."""
    page = (ROOT / "docs" / "frontends.md").read_text(encoding="utf-8")
    [commands] = re.findall(r"```sh\n(export DDPHOOK_LIBRARY_DIR=[^`]*xla/train.py[^`]*)```", page)
    losses = {}
    for hook in ("powersgd", "allreduce"):
        if hook == "allreduce":
            commands = re.sub("--hook=powersgd.*", "--hook=allreduce", commands, flags=re.S)
        done = subprocess.run(
            ["bash", "-ec", commands],
            cwd=ROOT,
            env={**os.environ, "DDPHOOK_TEST_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )
        assert done.returncode == 0, done.stderr[-6000:]
        sent = {int(n) for n in re.findall(r"(\d+) bytes sent", done.stdout)}
        assert max(sent) == {"powersgd": 3200, "allreduce": 41472}[hook]
        losses[hook] = [float(x) for x in re.findall(r"loss (\S+)", done.stdout)]
    first, last = losses["allreduce"][0], losses["allreduce"][-1]
    assert losses["powersgd"][0] == first and last < 0.1 * first
    assert losses["powersgd"][-1] < 1.1 * last


def test_jax_is_imported_by_nobody_else():
    run("-c", "import ddphook, sys; assert 'jax' not in sys.modules")
