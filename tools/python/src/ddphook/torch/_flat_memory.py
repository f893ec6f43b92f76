# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Flat arrays for the buckets of compiled steps.

The system gives new memory page by page, which takes longer than filling it does.
So arrays that nobody uses any more serve the next steps.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import deque

import torch

from ddphook.torch._bucket import flat_size


class FlatMemory:
    """Gives flat arrays, and takes them back when the last tensor in them is gone.

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
        self, gradients: list[torch.Tensor], flats: list[int]
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
        ends = [0] * (max(flats) + 1)
        begins, types = [], {}
        for gradient, flat in zip(gradients, flats):
            begins.append(ends[flat])
            ends[flat] += gradient.nbytes
            types[flat] = gradient.dtype
        memory = [
            self._take(flat_size(end // types[flat].itemsize), types[flat])
            for flat, end in enumerate(ends)
        ]
        whole = [torch.frombuffer(one, dtype=types[i]) for i, one in enumerate(memory)]
        places = [
            torch.frombuffer(
                memory[flat],
                dtype=gradient.dtype,
                count=gradient.numel(),
                offset=begin,
            ).view(gradient.shape)
            if gradient.numel() > 0
            else torch.empty_like(gradient)
            for gradient, flat, begin in zip(gradients, flats, begins)
        ]
        return whole, places

    def clear(self) -> None:
        """Frees what is not in use."""
        with self._lock:
            self._collect()
            self._free.clear()
            self._most = self._used

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
