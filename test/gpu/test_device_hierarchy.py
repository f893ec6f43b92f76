# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hierarchical groups on a device: its ranks are on one node, so that every array
goes through a reduce-scatter, an all-reduce of one rank and an all-gather."""

import cases
import pytest
import runner
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
