# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hierarchical groups on a device. Where its ranks are on one node, every array goes
through a reduce-scatter, an all-reduce of one rank and an all-gather."""

import cases
import pytest
import runner
import test_hierarchy
from cases import Options
from test_hierarchy import reference_of


@pytest.mark.parametrize("hook", ["allreduce", "fp16", "bf16"])
def test_every_type(device, worlds, tmp_path, hook):
    for world in worlds:
        # Of more ranks NCCL adds in an order of its own.
        if world > 2:
            continue
        module, options = cases.everything(), Options(hook=hook, bucket_cap_mb=0.01)
        path = tmp_path / str(world)
        path.mkdir()
        directory = runner.Directory(path)
        directory.write_module(module.text())
        inputs = cases.make_inputs(module, "step", world, 2, runner.SEED)
        directory.write_inputs(inputs)
        pipeline = f"{options.text()} topology=hierarchical"
        got = runner.run(directory, "step", world, 2, pipeline)
        reference = reference_of("a" * world)
        want = cases.expected(module, "step", options, inputs, reference)
        assert not cases.difference_of(got, want)


@pytest.mark.parametrize("nodes", ["ab", "abc", "aabb"])
def test_encodings(device, exact, tmp_path, nodes):
    """As if on several nodes: codes of shares travel between these."""
    if device.is_real and device.gpus < len(nodes) and not device.modules.record:
        pytest.skip(f"expected {len(nodes)} GPUs, but found {device.gpus}")

    def own_device(rank):
        if device.name == "guarded":
            return {}
        devices = {"EMULATED_CUDA_DEVICES": str(len(nodes))}
        return {"DDPHOOK_BACKEND_OPTIONS": f"device={rank}", **devices}

    module, options = test_hierarchy.encodings(), Options(bucket_cap_mb=0)
    test_hierarchy.check(
        tmp_path, runner.free_port(), module, options, nodes, steps=1, env_of=own_device
    )
