# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The flat arrays of compiled steps: the locations of gradients, exclusive use of memory,
its reuse, and the bound on its size."""

import gc

import numpy as np
import pytest
import torch

from ddphook.torch._flat_memory import FlatMemory, flat_array, scattered_arrays

SEED = 20261126


def addresses(tensors):
    return [tensor.data_ptr() for tensor in tensors]


# PyTorch's allocator makes the arrays of devices; here for the host.
@pytest.mark.parametrize("make", [FlatMemory().take, torch.empty], ids=["host", "device"])
def test_places(make):
    """Gradients are consecutive in the array."""
    gradients = [torch.zeros(3, 5), torch.zeros(0, 4), torch.zeros(())]
    whole, places = flat_array(make, gradients)
    assert (whole.dtype, whole.numel()) == (torch.float32, 16)
    assert [place.shape for place in places] == [g.shape for g in gradients]
    first = whole.data_ptr()
    assert addresses(places[::2]) == [first, first + 60]
    # Each has a separate storage of only its part, which keeps the array's memory alive.
    assert [place.untyped_storage().nbytes() for place in places[::2]] == [60, 4]
    places[0].fill_(7.0)
    del whole
    gc.collect()
    assert bool((places[0] == 7).all())
    assert flat_array(make, gradients[1:2])[0].numel() == 1


@pytest.mark.parametrize("make", [FlatMemory().take, torch.empty], ids=["host", "device"])
def test_places_of_rows(make):
    """A chunk has the rows that one rank gets of each gradient."""
    gradients = [torch.arange(12.0).view(4, 3), torch.arange(12.0, 16.0)]
    (whole, part), places = scattered_arrays(make, gradients, 2)
    assert whole.tolist() == [*range(6), 12, 13, *range(6, 12), 14, 15]
    assert [place.shape for place in places] == [(2, 3), (2,)]
    assert part.numel() == 8
    assert addresses(places) == [part.data_ptr(), part.data_ptr() + 24]


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
    whole, places = flat_array(memory.take, [gradient])
    address = whole.data_ptr()
    keeper = KEEPERS[kept](whole, places[0])
    del whole, places
    gc.collect()
    other, _ = flat_array(memory.take, [gradient])
    assert other.data_ptr() != address
    del keeper, other, _
    gc.collect()
    again = [flat_array(memory.take, [gradient])[0] for _ in range(2)]
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
            whole, _ = flat_array(memory.take, [torch.zeros(size, dtype=dtype)])
            whole.fill_(float(len(used)))
            used.append(whole)
        for number, tensor in enumerate(used):
            assert bool((tensor == number).all())
        most = max(most, sum(tensor.nbytes for tensor in used))
        held = sum(tensor.nbytes for tensor in memory._free + list(memory._returned))
        assert held + sum(tensor.nbytes for tensor in used) <= most
        del used, whole, tensor, _
