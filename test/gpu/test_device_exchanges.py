# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reduce-scatters, all-gathers, all-to-alls and broadcasts of a compiled program on a
device: the first against the all-reduce of the same program, the others against
what the ranks put in.
"""

import numpy as np
import pytest
from tensors import Tensor
from test_exchanges import DTYPES, Step, check, flat, part_of
from test_exchanges_in_flight import DEPTHS, compare, make


@pytest.mark.parametrize("options", ["", "hook=fp16", "hook=bf16"])
def test_exchanges(device, worlds, tmp_path, options):
    for world in worlds:
        # NCCL adds in an order of its own. Of two ranks any order is the same.
        if device.name != "guarded" and world > 2:
            continue
        shapes = [(2 * world,), (7 * world, 33)]
        if world <= 2:
            shapes += [(), (3,), (1001,)]
        path = tmp_path / str(world)
        path.mkdir()
        step = Step(world)
        for dtype in DTYPES:
            for shape in shapes:
                value = step.argument(shape, dtype)
                step.same_type(f"all_reduce mean {value[0]} on @dp", value)
                part = step.reduce_scatter(value, "mean")
                step.all_gather(part, shape)
                step.same_type(f"broadcast {value[0]} from {world - 1} on @dp", value)
                if int(np.prod(shape)) % world == 0:
                    step.same_type(f"all_to_all {value[0]} on @dp", value)
        inputs, got = step.run(path, f"{options} bucket-cap-mb=0".strip())
        for rank in range(world):
            results = iter(got[rank])
            for number, (shape, dtype) in enumerate(step.arguments):
                what = f"{world} ranks, rank {rank}, {shape} {dtype}"
                whole = flat(next(results))
                check(next(results), part_of(whole, rank, world), f"part, {what}")
                check(next(results), whole, f"parts together, {what}")
                check(next(results), inputs[world - 1][number], f"broadcast, {what}")
                if whole.data.size % world == 0:
                    parts = [
                        part_of(flat(values[number]), rank, world).data
                        for values in inputs
                    ]
                    together = Tensor(dtype, np.concatenate(parts))
                    check(next(results), together, f"exchange, {what}")


@pytest.mark.parametrize("options", ["", "hook=int8 error-feedback=true"])
def test_in_flight(worlds, tmp_path, options):
    """Calls beside collectives: as the same program without overlap. Where modules
    are compiled beforehand there is no compiler to ask what is in flight."""

    def count(directory, options):
        return 0 if "overlap=false" in options else 1 << 30

    for world in worlds:
        path = tmp_path / str(world)
        path.mkdir()
        program = make(world, by_calls=True)
        compare(path, program, options, DEPTHS[:2], count=count)
