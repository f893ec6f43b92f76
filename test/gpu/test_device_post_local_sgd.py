# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Post-localSGD on a device against PyTorch's hook on CPU tensors: every bit, on both
sides of the step from which on ranks go on by themselves."""

import pytest
import test_post_local_sgd

# Of three ranks NCCL need not add in the order of Gloo.
CASES = [case for case in test_post_local_sgd.CASES if case[0] <= 3]


@pytest.mark.parametrize(
    "world, subgroups, all_reduces, dtype, wrapper, values, cap_mb", CASES
)
def test_hook(
    device, worlds, tmp_path, world, subgroups, all_reduces, dtype, wrapper, values, cap_mb
):
    if not device.modules.record:
        if world > max(worlds):
            pytest.skip(f"{world} ranks, but room for {max(worlds)}")
        if device.name != "guarded" and world > 2:
            pytest.skip("the order of sums is NCCL's")
    test_post_local_sgd.test_hook(
        tmp_path, world, subgroups, all_reduces, dtype, wrapper, values, cap_mb
    )
