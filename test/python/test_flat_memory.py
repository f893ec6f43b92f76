# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The flat arrays of compiled steps: the locations of gradients, exclusive use of memory,
its reuse, and the bound on its size."""

import gc

import numpy as np
import pytest
import torch

from ddphook.torch._flat_memory import FlatMemory, flat_arrays

SEED = 20261126


def addresses(tensors):
    return [tensor.data_ptr() for tensor in tensors]


# PyTorch's allocator makes the arrays of devices; here for the host.
@pytest.mark.parametrize("make", [FlatMemory().take, torch.empty], ids=["host", "device"])
def test_places(make):
    """Gradients are consecutive in the array of their number."""
    gradients = [
        torch.zeros(3, 5),
        torch.zeros(7, dtype=torch.float16),
        torch.zeros(0, 4),
        torch.zeros(()),
    ]
    whole, places = flat_arrays(make, gradients, [0, 1, 0, 0])
    assert [(one.dtype, one.numel()) for one in whole] == [
        (torch.float32, 16),
        (torch.float16, 7),
    ]
    assert [place.shape for place in places] == [g.shape for g in gradients]
    first = whole[0].data_ptr()
    assert addresses([places[0], places[3]]) == [first, first + 60]
    assert places[1].data_ptr() == whole[1].data_ptr()
    # Each has a separate storage of only its part, which keeps the array's memory alive.
    assert [place.untyped_storage().nbytes() for place in places[::3]] == [60, 4]
    places[0].fill_(7.0)
    del whole
    gc.collect()
    assert bool((places[0] == 7).all())


KEEPERS = {
    "whole": lambda whole, place: whole,
    "place": lambda whole, place: place,
    "view": lambda whole, place: place[10:].view(-1, 2),
    "numpy": lambda whole, place: place.numpy(),
}


@pytest.mark.parametrize("kept", KEEPERS)
def test_what_is_kept_is_not_given_again(kept):
    """Any reference to an array keeps other steps from reusing its memory."""
    memory, gradient = FlatMemory(), torch.zeros(1000)
    whole, places = flat_arrays(memory.take, [gradient], [0])
    address = whole[0].data_ptr()
    keeper = KEEPERS[kept](whole[0], places[0])
    del whole, places
    gc.collect()
    others, _ = flat_arrays(memory.take, [gradient], [0])
    assert others[0].data_ptr() != address
    del keeper, others
    gc.collect()
    again = [flat_arrays(memory.take, [gradient], [0])[0][0] for _ in range(2)]
    assert address in addresses(again)


def test_never_more_than_at_one_time():
    """Arrays of new sizes replace those of earlier steps."""
    print(f"seed {SEED}")
    random = np.random.default_rng(SEED)
    memory, most = FlatMemory(), 0
    for _ in range(300):
        used = []
        for _ in range(random.integers(1, 5)):
            size = int(random.choice([1, 10, 1000, 4096]))
            dtype = [torch.float32, torch.float16][random.integers(2)]
            whole, _ = flat_arrays(memory.take, [torch.zeros(size, dtype=dtype)], [0])
            whole[0].fill_(float(len(used)))
            used.append(whole[0])
        for number, tensor in enumerate(used):
            assert bool((tensor == number).all())
        most = max(most, sum(tensor.nbytes for tensor in used))
        held = sum(tensor.nbytes for tensor in memory._free + list(memory._returned))
        assert held + sum(tensor.nbytes for tensor in used) <= most
        del used, whole, tensor
