# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Flat arrays for the buckets of compiled steps, on the host and on devices."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import deque
from collections.abc import Sequence

import torch
from torch.utils import dlpack

from ddphook.torch._bucket import flat_size


def device_arrays(
    memory: torch.device, gradients: Sequence[torch.Tensor], flats: Sequence[int]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """As `FlatMemory.take`, by the allocator that PyTorch has for a device.

    That keeps what is freed for later steps itself, in the order of the stream.
    """
    sizes, types, begins = _layout(gradients, flats)
    whole = [
        torch.empty(size, dtype=dtype, device=memory)
        for size, dtype in zip(sizes, types)
    ]
    places = [
        _alone(whole[flat][begin : begin + gradient.numel()].view(gradient.shape))
        if gradient.numel() > 0
        else torch.empty_like(gradient, device=memory)
        for gradient, flat, begin in zip(gradients, flats, begins)
    ]
    return whole, places


def _alone(part: torch.Tensor) -> torch.Tensor:
    """A tensor of the same memory, which it keeps, with a storage of its own."""
    return dlpack.from_dlpack(dlpack.to_dlpack(part))


def _layout(
    gradients: Sequence[torch.Tensor], flats: Sequence[int]
) -> tuple[list[int], list[torch.dtype], list[int]]:
    """Elements and type of each flat array, and where in it a gradient begins."""
    sizes = [0] * (max(flats) + 1)
    types = [torch.float32] * len(sizes)
    begins = []
    for gradient, flat in zip(gradients, flats):
        begins.append(sizes[flat])
        sizes[flat] += gradient.numel()
        types[flat] = gradient.dtype
    return list(map(flat_size, sizes)), types, begins


class FlatMemory:
    """Gives flat arrays, and takes them back when the last tensor in them is gone.

    The system gives new memory page by page, which takes longer than filling it
    does. So arrays that nobody uses any more serve the next steps.

    Any thread may call its methods. It never holds more bytes, with those in use,
    than have been in use at one time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Finalizers put them here, which may run at any time, with the lock held.
        self._returned: deque[torch.Tensor] = deque()
        # Oldest first.
        self._free: list[torch.Tensor] = []
        self._used = self._most = 0

    def take(
        self, gradients: Sequence[torch.Tensor], flats: Sequence[int]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Flat arrays, and the place of each gradient in its own.

        Places are no views: an operator's results may not be views of one tensor.
        Each has a storage of its own, which keeps all of the flat array.

        Parameters
        ----------
        gradients
            Contiguous tensors.
        flats
            The number of the flat array of each gradient; all of an array have
            one type.
        """
        sizes, types, begins = _layout(gradients, flats)
        memory = [self._take(size, dtype) for size, dtype in zip(sizes, types)]
        whole = [torch.frombuffer(one, dtype=type_) for one, type_ in zip(memory, types)]
        places = [
            torch.frombuffer(
                memory[flat],
                dtype=gradient.dtype,
                count=gradient.numel(),
                offset=begin * gradient.itemsize,
            ).view(gradient.shape)
            if gradient.numel() > 0
            else torch.empty_like(gradient)
            for gradient, flat, begin in zip(gradients, flats, begins)
        ]
        return whole, places

    def _take(self, size: int, dtype: torch.dtype) -> ctypes.Array[ctypes.c_char]:
        """An array's memory as a buffer of Python's."""
        with self._lock:
            self._collect()
            for number, tensor in enumerate(self._free):
                if tensor.dtype == dtype and tensor.numel() == size:
                    del self._free[number]
                    break
            else:
                tensor = torch.empty(size, dtype=dtype)
            self._used += tensor.nbytes
            self._most = max(self._most, self._used)
            self._shrink()
        memory = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
        weakref.finalize(memory, self._returned.append, tensor).atexit = False
        return memory

    def _collect(self) -> None:
        while self._returned:
            tensor = self._returned.popleft()
            self._used -= tensor.nbytes
            self._free.append(tensor)

    def _shrink(self) -> None:
        """Frees the arrays that were given back first."""
        while self._free and self._used + self._bytes_free() > self._most:
            del self._free[0]

    def _bytes_free(self) -> int:
        return sum(tensor.nbytes for tensor in self._free)
