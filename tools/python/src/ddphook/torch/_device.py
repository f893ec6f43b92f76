# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The devices of gradients, and how modules run there.

Only this module knows PyTorch's streams and events. A device belongs to one context.
Threads that compute gradients or use averages call `pack`, `begin` and `wait`; the
thread of the context calls all other methods.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ddphook import _runtime
from ddphook._errors import UnsupportedError
from ddphook.torch import _private
from ddphook.torch._flat_memory import Arrays, FlatMemory, flat_array, scattered_arrays
from ddphook.torch._rendezvous import Meeting

# Devices whose tensors modules can take.
KINDS = ("cpu", "cuda")
HOST = torch.device("cpu")

_Tensors = Sequence[torch.Tensor]
Future = torch.futures.Future[torch.Tensor]


class Device:
    """The memory of one device, and the order of the work on it: here of the host, where a
    run ends when its call returns.

    `target` is the compiler's name of the target that modules are compiled for, empty
    for the host. An empty `backend` is the environment's. `allocator` allocates the
    modules' memory there; None stands for the runtime's own.
    """

    target = backend = backend_options = ""
    allocator: _runtime.Allocator | None = None

    def __init__(self, memory: torch.device = HOST) -> None:
        self.memory = memory
        self._flat = FlatMemory()

    def attach(self, context: _runtime.Context) -> None:
        """Attaches to the context; called once, after the job has been joined."""

    def finish_all(self, context: _runtime.Context) -> None:
        """Waits for all runs so far; raises a failure that no run has reported."""

    def pack(self, gradients: _Tensors, parts: int) -> Arrays:
        """Copies contiguous gradients of one type. Returns the arrays of a module that
        reduces them, of which this rank gets one of `parts`, and its results' places."""
        if parts > 1:
            return scattered_arrays(self._make, gradients, parts)
        whole, places = flat_array(self._make, gradients)
        self._fill(places, gradients)
        return [whole], places

    def _make(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        return self._flat.take(size, dtype)

    def _fill(self, places: _Tensors, gradients: _Tensors) -> None:
        for gradient, place in zip(gradients, places):
            ctypes.memmove(place.data_ptr(), gradient.data_ptr(), gradient.nbytes)

    def begin(self, arrays: _Tensors, are_kept: bool = False) -> Any:
        """Returns what a run on these arrays has to wait for.

        ``are_kept`` says that the caller keeps the arrays until it has waited for the
        end of the run; otherwise they may be released before.
        """

    def run(self, module: _runtime.Module, arrays: _Tensors, begun: Any) -> None:
        """Runs a module, or enqueues it on the device."""
        module.run([array.data_ptr() for array in arrays])

    def copy(self, copies: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Copies the second array of each pair to the first, after all runs."""
        for to, source in copies:
            to.copy_(source)

    def new_future(self) -> Future:
        """Returns a future for `finish` to complete."""
        return torch.futures.Future()

    def finish(self, future: Future, value: torch.Tensor) -> None:
        """Completes a future, whose users wait for all runs so far."""
        future.set_result(value)

    def end(self) -> Any:
        """Returns the end of all runs so far, for `wait`."""

    def examine(self, look: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor | None]:
        """Calls `look` after all runs so far; returns its result on the host, or None before."""
        found = look()
        return lambda: found

    def wait(self, end: Any) -> None:
        """Makes this thread's next work on the device wait for an end."""

    def release(self, arrays: _Tensors) -> None:
        """Prepares for the release of arrays while nobody waits for the end of their run."""


class CachingAllocator:
    """PyTorch's allocator of GPU memory, which its statistics and limits include.

    A block belongs to the stream that it was allocated for: no other stream gets it
    before that stream has reached its release.
    """

    def alloc(self, size: int, device: int, stream: int) -> int:
        return torch.cuda.caching_allocator_alloc(size, device, stream)

    def free(self, address: int, size: int, device: int, stream: int) -> None:
        torch.cuda.caching_allocator_delete(address)


def _asks_for_registered_memory(options: str) -> bool:
    """Returns whether NCCL has to allocate the memory, which excludes other allocators."""
    entries = (map(str.strip, entry.partition("=")) for entry in options.split(","))
    return any(name == "register" and value != "0" for name, _, value in entries)


class Cuda(Device):
    """A GPU. Modules run on their own stream, concurrently with the backward pass.

    The host does not wait. By events, a run waits for the stream that computed the
    gradients, and the stream that uses the averages waits for the run.
    """

    target = backend = "cuda"

    def __init__(self, memory: torch.device) -> None:
        super().__init__(memory)
        # The index counts the GPUs visible to this process, as PyTorch does.
        options = os.environ.get("DDPHOOK_BACKEND_OPTIONS"), f"device={memory.index}"
        self.backend_options = ",".join(filter(None, options))
        if not _asks_for_registered_memory(self.backend_options):
            self.allocator = CachingAllocator()
        self._stream: Any = torch.cuda.Stream(memory)

    def attach(self, context: _runtime.Context) -> None:
        context.set_stream(self._stream.cuda_stream)

    def finish_all(self, context: _runtime.Context) -> None:
        # A peer may have been lost since a run was enqueued.
        context.synchronize()

    def _make(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, device=self.memory)

    def _fill(self, places: _Tensors, gradients: _Tensors) -> None:
        if filled := [pair for pair in zip(places, gradients) if pair[0].numel() > 0]:
            # Copies many gradients by one kernel.
            _private.foreach_copy_(*map(list, zip(*filled)))

    def begin(self, arrays: _Tensors, are_kept: bool = False) -> Any:
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.memory))
        # Kept arrays are not recorded: their memory could not be reused before the
        # host sees that the run has ended, which is a step later.
        if not are_kept:
            self.release(arrays)
        return event

    def run(self, module: _runtime.Module, arrays: _Tensors, begun: Any) -> None:
        self._stream.wait_event(begun)
        super().run(module, arrays, begun)

    def copy(self, copies: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        with torch.cuda.stream(self._stream):
            super().copy(copies)

    def new_future(self) -> Future:
        return torch.futures.Future(devices=[self.memory])

    def finish(self, future: Future, value: torch.Tensor) -> None:
        with torch.cuda.stream(self._stream):
            super().finish(future, value)

    def end(self) -> Any:
        event = torch.cuda.Event()
        event.record(self._stream)
        return event

    def examine(self, look: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor | None]:
        with torch.cuda.stream(self._stream):
            found = look().to("cpu", non_blocking=True)
        ended = self.end()
        return lambda: found if ended.query() else None

    def wait(self, end: Any) -> None:
        torch.cuda.current_stream(self.memory).wait_event(end)

    def release(self, arrays: _Tensors) -> None:
        for array in arrays:
            # Its memory must not be reused before the run has ended.
            array.record_stream(self._stream)


def device_of(tensors: Iterable[tuple[str, torch.Tensor]]) -> Device:
    """Returns the device of the parameters, which are given with their names.

    Refuses parameters on several devices.
    """
    owners: dict[torch.device, str] = {}
    for name, tensor in tensors:
        owners.setdefault(tensor.device, name)
    if len(owners) > 1:
        each = " and ".join(f"'{name}' on {place}" for place, name in owners.items())
        raise UnsupportedError(f"expected all parameters on one device, but got {each}")
    return device_at(next(iter(owners), HOST))


def device_at(memory: torch.device) -> Device:
    """Returns the device with this memory, for one context.

    Refuses devices of another kind, and an environment that names another backend.
    """
    if memory.type not in KINDS:
        raise UnsupportedError(
            f"expected parameters on a CPU or on a CUDA device, but got {memory}"
        )
    expected = "host" if memory.type == "cpu" else "cuda"
    given = os.environ.get("DDPHOOK_BACKEND") or expected
    if given != expected:
        raise UnsupportedError(
            f"expected DDPHOOK_BACKEND={expected} for parameters on {memory}, but got "
            f"{given}; unset it, or move the model"
        )
    return Device() if memory.type == "cpu" else Cuda(memory)


def join(meeting: Meeting, device: Device) -> _runtime.Context:
    """Joins a job for a device and returns the context; the context's thread calls it.

    Collective.
    """
    context = _runtime.Context(
        meeting.rank,
        meeting.world_size,
        meeting,
        meeting.timeout_s,
        device.backend,
        device.backend_options,
        device.allocator,
    )
    try:
        device.attach(context)
    except BaseException:
        context.destroy()
        raise
    return context
