# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where gradients are, and how modules run there.

The only place that knows PyTorch's streams and events. A device belongs to one
context: `pack`, `begin` and `wait` are called by threads that compute gradients or
use averages, all others by the thread of the context.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import torch

from ddphook import _runtime
from ddphook._errors import UnsupportedError
from ddphook.torch._flat_memory import FlatMemory, device_arrays
from ddphook.torch._rendezvous import Meeting

# Of devices whose tensors modules can take.
KINDS = ("cpu", "cuda")


class Device(Protocol):
    """The memory of one device, and the order of what happens there.

    Attributes
    ----------
    memory
        The device of the tensors.
    target
        What modules are compiled for, as the compiler calls it; empty for the host.
    backend, backend_options
        Of the runtime; empty for those of the environment.
    allocator
        Of the memory that modules have there; none for the runtime's own.
    """

    memory: torch.device
    target: str
    backend: str
    backend_options: str
    allocator: _runtime.Allocator | None

    def attach(self, context: _runtime.Context) -> None:
        """Called once, when the job has been joined."""

    def finish_all(self, context: _runtime.Context) -> None:
        """Waits for all runs until now; raises a failure that none of them has."""

    def pack(
        self, gradients: Sequence[torch.Tensor], flats: Sequence[int]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Copies of contiguous gradients in flat arrays: `FlatMemory.take`."""

    def begin(self, arrays: Sequence[torch.Tensor], are_kept: bool = False) -> Any:
        """What a run on these arrays has to wait for.

        ``are_kept`` says that the caller has them until it has waited for the
        run's end; else whoever has them may let them go before.
        """

    def run(
        self, module: _runtime.Module, arrays: Sequence[torch.Tensor], begun: Any
    ) -> None:
        """Runs a module, or puts it into the device's queue."""

    def copy(self, copies: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Copies the second array of each pair to the first one, after all runs."""

    def new_future(self) -> torch.futures.Future[torch.Tensor]:
        """One that `finish` completes."""

    def finish(
        self, future: torch.futures.Future[torch.Tensor], value: torch.Tensor
    ) -> None:
        """Completes a future, whose users wait for all runs until now."""

    def end(self) -> Any:
        """The end of all runs until now, for `wait`."""

    def examine(
        self, look: Callable[[], torch.Tensor]
    ) -> Callable[[], torch.Tensor | None]:
        """Calls `look` after all runs so far; its result on the host, None until it is there."""

    def wait(self, end: Any) -> None:
        """Puts what this thread does next on the device behind an end."""

    def release(self, arrays: Sequence[torch.Tensor]) -> None:
        """Called before arrays are let go whose run's end nobody waits for."""


class Host:
    """The host: a run is over when its call returns."""

    memory = torch.device("cpu")
    target = backend = backend_options = ""
    allocator: _runtime.Allocator | None = None

    def __init__(self) -> None:
        self._flat = FlatMemory()

    def attach(self, context: _runtime.Context) -> None:
        pass

    def finish_all(self, context: _runtime.Context) -> None:
        pass

    def pack(
        self, gradients: Sequence[torch.Tensor], flats: Sequence[int]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        whole, places = self._flat.take(gradients, flats)
        for gradient, place in zip(gradients, places):
            ctypes.memmove(place.data_ptr(), gradient.data_ptr(), gradient.nbytes)
        return whole, places

    def begin(self, arrays: Sequence[torch.Tensor], are_kept: bool = False) -> None:
        return None

    def run(
        self, module: _runtime.Module, arrays: Sequence[torch.Tensor], begun: None
    ) -> None:
        module.run([array.data_ptr() for array in arrays])

    def copy(self, copies: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        for to, source in copies:
            to.copy_(source)

    def new_future(self) -> torch.futures.Future[torch.Tensor]:
        return torch.futures.Future()

    def finish(
        self, future: torch.futures.Future[torch.Tensor], value: torch.Tensor
    ) -> None:
        future.set_result(value)

    def end(self) -> None:
        return None

    def examine(
        self, look: Callable[[], torch.Tensor]
    ) -> Callable[[], torch.Tensor | None]:
        found = look()
        return lambda: found

    def wait(self, end: None) -> None:
        pass

    def release(self, arrays: Sequence[torch.Tensor]) -> None:
        pass


class CachingAllocator:
    """PyTorch's memory of GPUs, which its statistics and limits count.

    A block belongs to the stream that it was allocated for: others never get it
    before that stream has come to it.
    """

    def alloc(self, size: int, device: int, stream: int) -> int:
        address: int = torch.cuda.caching_allocator_alloc(size, device, stream)
        return address

    def free(self, address: int, size: int, device: int, stream: int) -> None:
        torch.cuda.caching_allocator_delete(address)


def _asks_for_registered_memory(options: str) -> bool:
    """Whether NCCL is to allocate the memory, which no other allocator can."""
    entries = (entry.partition("=") for entry in options.split(","))
    return any(
        name.strip() == "register" and value.strip() != "0"
        for name, _, value in entries
    )


class Cuda:
    """A GPU. Modules run on a stream of their own, beside the backward pass.

    Nothing waits on the host: a run waits for the stream on which gradients were
    computed, by an event, and so does the stream that uses averages for the run.

    Parameters
    ----------
    memory
        The GPU, with its number.
    """

    target = backend = "cuda"

    def __init__(self, memory: torch.device) -> None:
        self.memory = memory
        given = os.environ.get("DDPHOOK_BACKEND_OPTIONS")
        # The number is that of the GPUs that this process sees, as PyTorch counts.
        options = [given] if given else []
        self.backend_options = ",".join([*options, f"device={memory.index}"])
        self.allocator: _runtime.Allocator | None = None
        if not _asks_for_registered_memory(self.backend_options):
            self.allocator = CachingAllocator()
        self._stream: Any = torch.cuda.Stream(memory)

    def attach(self, context: _runtime.Context) -> None:
        context.set_stream(self._stream.cuda_stream)

    def finish_all(self, context: _runtime.Context) -> None:
        # A peer may have been lost since a run was put into the queue.
        context.synchronize()

    def pack(
        self, gradients: Sequence[torch.Tensor], flats: Sequence[int]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        whole, places = device_arrays(self.memory, gradients, flats)
        filled = [number for number, place in enumerate(places) if place.numel() > 0]
        if filled:
            # One kernel for many gradients.
            torch._foreach_copy_(
                [places[number] for number in filled],
                [gradients[number] for number in filled],
            )
        return whole, places

    def begin(self, arrays: Sequence[torch.Tensor], are_kept: bool = False) -> Any:
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.memory))
        # Of what is kept nothing is recorded: its memory would not be used again
        # before the host sees that the run has ended, which is a step later.
        if not are_kept:
            self.release(arrays)
        return event

    def run(
        self, module: _runtime.Module, arrays: Sequence[torch.Tensor], begun: Any
    ) -> None:
        self._stream.wait_event(begun)
        module.run([array.data_ptr() for array in arrays])

    def copy(self, copies: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        with torch.cuda.stream(self._stream):
            for to, source in copies:
                to.copy_(source)

    def new_future(self) -> torch.futures.Future[torch.Tensor]:
        return torch.futures.Future(devices=[self.memory])

    def finish(
        self, future: torch.futures.Future[torch.Tensor], value: torch.Tensor
    ) -> None:
        with torch.cuda.stream(self._stream):
            future.set_result(value)

    def end(self) -> Any:
        event = torch.cuda.Event()
        event.record(self._stream)
        return event

    def examine(
        self, look: Callable[[], torch.Tensor]
    ) -> Callable[[], torch.Tensor | None]:
        with torch.cuda.stream(self._stream):
            found = look().to("cpu", non_blocking=True)
        ended = self.end()
        return lambda: found if ended.query() else None

    def wait(self, end: Any) -> None:
        torch.cuda.current_stream(self.memory).wait_event(end)

    def release(self, arrays: Sequence[torch.Tensor]) -> None:
        for array in arrays:
            # Its memory is not for others before the run has ended.
            array.record_stream(self._stream)


def device_of(tensors: Iterable[tuple[str, torch.Tensor]]) -> Device:
    """The device of parameters, which are given with their names.

    Raises
    ------
    UnsupportedError
        They are on several devices, or as `device_at` says.
    """
    owners: dict[torch.device, str] = {}
    for name, tensor in tensors:
        owners.setdefault(tensor.device, name)
    if len(owners) > 1:
        each = " and ".join(f"'{name}' on {place}" for place, name in owners.items())
        raise UnsupportedError(
            f"expected all parameters on one device, but got {each}"
        )
    return device_at(next(iter(owners), Host.memory))


def device_at(memory: torch.device) -> Device:
    """The device that has this memory, for one context.

    Raises
    ------
    UnsupportedError
        It is of another kind, or the environment names another backend.
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
    return Host() if memory.type == "cpu" else Cuda(memory)


def join(meeting: Meeting, device: Device) -> _runtime.Context:
    """The context of a job on a device, by its own thread; collective."""
    context = meeting.join(device.backend, device.backend_options, device.allocator)
    try:
        device.attach(context)
    except BaseException:
        context.destroy()
        raise
    return context
