# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Flat arrays for the buckets of compiled steps, on the host and on devices."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence

import torch
from torch.utils import dlpack

from ddphook.torch._bucket import flat_size

Arrays = tuple[list[torch.Tensor], list[torch.Tensor]]


def flat_array(
    make: Callable[..., torch.Tensor], gradients: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Returns a flat array, and in it the part of each contiguous gradient, all of one type.

    `make` makes an array of a size and ``dtype``. Parts are no views: an operator's results
    may not be views of one tensor. Each has a separate storage, which keeps the whole array
    alive.
    """
    sizes = [gradient.numel() for gradient in gradients]
    whole = make(flat_size(sum(sizes)), dtype=gradients[0].dtype)
    places = [
        # Has the same memory, which it keeps alive.
        dlpack.from_dlpack(dlpack.to_dlpack(part.view(gradient.shape)))
        if gradient.numel() > 0
        else torch.empty_like(gradient, device=whole.device)
        for gradient, part in zip(gradients, whole[: sum(sizes)].split(sizes))
    ]
    return whole, places


def scattered_arrays(
    make: Callable[..., torch.Tensor], gradients: Sequence[torch.Tensor], parts: int
) -> Arrays:
    """Returns the array of a reduce-scatter with that of this rank's part, and in the latter
    the place of each gradient's rows.

    Chunk r of the first array has part r of each contiguous gradient's rows.
    """
    columns = [gradient.view(parts, -1) for gradient in gradients]
    whole = make(sum(map(torch.numel, columns)), dtype=gradients[0].dtype)
    torch.cat(columns, 1, out=whole.view(parts, -1))
    part, places = flat_array(make, [each[: len(each) // parts] for each in gradients])
    return [whole, part], places


class FlatMemory:
    """Provides flat arrays, and reuses each when the last tensor in it is released.

    The system maps new memory page by page, which takes longer than filling it. So
    arrays that are no longer used serve later steps. On a device, PyTorch's allocator
    does the same, in stream order.

    Any thread may call its methods. It never holds more bytes, including those in use,
    than the largest number that was in use at one time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Finalizers append here; they may run at any time, even with the lock held.
        self._returned: deque[torch.Tensor] = deque()
        # Oldest first.
        self._free: list[torch.Tensor] = []
        self._used = self._most = 0

    def take(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        """Returns an array that nobody else has; makes one for `flat_array`."""
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
            # Frees the arrays that were returned first, as needed.
            while self._free and self._used + sum(t.nbytes for t in self._free) > self._most:
                del self._free[0]
        memory = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
        weakref.finalize(memory, self._returned.append, tensor).atexit = False
        return torch.frombuffer(memory, dtype=dtype)

    def _collect(self) -> None:
        while self._returned:
            tensor = self._returned.popleft()
            self._used -= tensor.nbytes
            self._free.append(tensor)
