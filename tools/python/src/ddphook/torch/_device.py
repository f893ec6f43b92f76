# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where gradients are, and how modules run there.

The only place that knows PyTorch's streams and events. A device belongs to one
hook: `begin` is called by the thread that has computed gradients, `run` and
`finish` by the thread of the context.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch

from ddphook import _runtime
from ddphook._errors import UnsupportedError


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
    """

    memory: torch.device
    target: str
    backend: str
    backend_options: str

    def attach(self, context: _runtime.Context) -> None:
        """Called once, when the job has been joined."""

    def begin(self, arrays: Sequence[torch.Tensor]) -> Any:
        """What a run on these arrays has to wait for."""

    def run(
        self, module: _runtime.Module, arrays: Sequence[torch.Tensor], begun: Any
    ) -> None:
        """Runs a module, or puts it into the device's queue."""

    def new_future(self) -> torch.futures.Future[torch.Tensor]:
        """One that `finish` completes."""

    def finish(
        self, future: torch.futures.Future[torch.Tensor], value: torch.Tensor
    ) -> None:
        """Completes a future, whose users wait for all runs until now."""


class Host:
    """The host: a run is over when its call returns."""

    memory = torch.device("cpu")
    target = backend = backend_options = ""

    def attach(self, context: _runtime.Context) -> None:
        pass

    def begin(self, arrays: Sequence[torch.Tensor]) -> None:
        return None

    def run(
        self, module: _runtime.Module, arrays: Sequence[torch.Tensor], begun: None
    ) -> None:
        module.run([array.data_ptr() for array in arrays])

    def new_future(self) -> torch.futures.Future[torch.Tensor]:
        return torch.futures.Future()

    def finish(
        self, future: torch.futures.Future[torch.Tensor], value: torch.Tensor
    ) -> None:
        future.set_result(value)


class Cuda:
    """A GPU. Modules run on a stream of their own, beside the backward pass.

    Nothing waits on the host: a run waits for the stream on which gradients were
    computed, by an event, and whoever uses a future for the run, as PyTorch's
    futures do it.

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
        self._stream: Any = torch.cuda.Stream(memory)

    def attach(self, context: _runtime.Context) -> None:
        context.set_stream(self._stream.cuda_stream)

    def begin(self, arrays: Sequence[torch.Tensor]) -> Any:
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.memory))
        for array in arrays:
            # Its memory is not for others before the run has ended.
            array.record_stream(self._stream)
        return event

    def run(
        self, module: _runtime.Module, arrays: Sequence[torch.Tensor], begun: Any
    ) -> None:
        self._stream.wait_event(begun)
        module.run([array.data_ptr() for array in arrays])

    def new_future(self) -> torch.futures.Future[torch.Tensor]:
        return torch.futures.Future(devices=[self.memory])

    def finish(
        self, future: torch.futures.Future[torch.Tensor], value: torch.Tensor
    ) -> None:
        with torch.cuda.stream(self._stream):
            future.set_result(value)


def device_of(tensors: Iterable[tuple[str, torch.Tensor]]) -> Device:
    """The device of parameters, which are given with their names.

    Raises
    ------
    UnsupportedError
        They are on several devices, or on one of another kind; or the
        environment names a backend that is not of their device.
    """
    owners: dict[torch.device, str] = {}
    for name, tensor in tensors:
        owners.setdefault(tensor.device, name)
    if len(owners) > 1:
        each = " and ".join(f"'{name}' on {place}" for place, name in owners.items())
        raise UnsupportedError(
            f"expected all parameters on one device, but got {each}"
        )
    memory = next(iter(owners), Host.memory)
    if memory.type not in ("cpu", "cuda"):
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
