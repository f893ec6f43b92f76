# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ddphook-run on a device: what it compiles in memory gives the bits of the module
that ddphook-cc wrote, and that module on the host gives the same numbers."""

import os

import powersgd_cases
import pytest
import runner
import test_powersgd
from tensors import difference

CASE = test_powersgd.free_case("run", "f32", 2)
STEPS = 4
# Of the largest element, after that many steps: CUDA kernels add the terms of a
# product in another order than the host's.
DRIFT = 1e-4


def run(directory, command):
    directory.clear_outputs()
    result = runner.finish(runner.start_command(command))
    assert result.code == 0, result.stderr
    return directory.read_outputs(CASE.world, STEPS)


def test_in_memory_and_on_the_host(device, tmp_path):
    device.modules.require(CASE.module.text(), CASE.pipeline())
    compiler = os.environ.get("DDPHOOK_RUN")
    if not compiler:
        pytest.skip("no ddphook-run: DDPHOOK_RUN is not set")
    if device.is_real and device.gpus < CASE.world:
        pytest.skip(f"{CASE.world} ranks, but {device.gpus} GPUs")
    directory = runner.Directory(tmp_path)
    directory.write_module(CASE.module.text())
    directory.write_inputs(CASE.gradients(STEPS))
    source, *flags = directory.arguments("step", CASE.world, STEPS)
    pipeline = f"--ddp-pipeline={CASE.pipeline()}"
    module = device.modules.path(CASE.module.text(), CASE.pipeline())
    exec_tool = device.exec_tool()

    def run_module(place):
        return run(directory, [exec_tool, module, f"--device={place}", *flags])

    want = run_module(device.name)
    in_memory = run(
        directory, [compiler, source, f"--device={device.name}", pipeline, *flags]
    )
    on_host = run_module("host")
    for rank in range(CASE.world):
        for step in range(STEPS):
            expected = want[rank][step]
            for ours, theirs in zip(in_memory[rank][step], expected):
                assert not difference(ours, theirs)
            for ours, theirs in zip(on_host[rank][step], expected):
                if device.name == "guarded":
                    assert not difference(ours, theirs)
                    continue
                near, whole = map(powersgd_cases.wide, (ours, theirs))
                scale = powersgd_cases.largest(whole)
                assert powersgd_cases.distance(near, whole, scale) <= DRIFT
