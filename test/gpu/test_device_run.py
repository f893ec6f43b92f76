# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ddphook-run on a device: what it compiles in memory gives the bits of the module
that ddphook-cc wrote, and so does that module on the host."""

import os

import pytest
import runner
import test_powersgd
from tensors import difference

CASE = test_powersgd.free_case("run", "f32", 2)
STEPS = 4


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
    on_device = f"--device={device.name}"
    exec_tool = device.exec_tool()
    want = run(directory, [exec_tool, module, on_device, *flags])
    others = {
        "ddphook-run": [compiler, source, on_device, pipeline, *flags],
    }
    # Products on a GPU are summed in another order.
    if not device.is_real:
        others["on the host"] = [exec_tool, module, "--device=host", *flags]
    for what, command in others.items():
        got = run(directory, command)
        for rank in range(CASE.world):
            for step in range(STEPS):
                for ours, theirs in zip(got[rank][step], want[rank][step]):
                    assert not difference(ours, theirs), what
