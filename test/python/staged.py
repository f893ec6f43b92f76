# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A device for tensors of the host: the emulated CUDA device.

PyTorch has no tensors in its memory. So arrays are copied into that before a
module runs, and out of it afterwards; modules, states and collectives are those
of a GPU.
"""

import contextlib
import ctypes
import os
from unittest import mock

import torch

from ddphook import _runtime
from ddphook.torch import _device

DEVICES = 3


class Staged:
    """As `ddphook.torch._device.Cuda`, without its streams."""

    memory = torch.device("cpu")
    target = "cuda"
    backend = "cuda_emulated"

    def __init__(self, number):
        os.environ["EMULATED_CUDA_DEVICES"] = str(DEVICES)
        self.backend_options = f"device={number}"
        self.runs = 0

    def attach(self, context):
        self.context = context

    finish_all = _device.Cuda.finish_all

    # Of allocators and copies it knows those of PyTorch alone.
    pack = _device.Cuda.pack

    def begin(self, arrays, are_kept=False):
        return None

    def run(self, module, arrays, begun):
        with contextlib.ExitStack() as stack:
            memory = [stack.enter_context(self.copied(array)) for array in arrays]
            module.run(memory)
            for array, address in zip(arrays, memory, strict=True):
                self.take(array, address)
        self.runs += 1

    def take(self, array, address):
        """Gives an array what the device has there."""
        self.context.read_memory(bytes_of(array), address)

    def new_future(self):
        return torch.futures.Future()

    def finish(self, future, value):
        future.set_result(value)

    def end(self):
        return None

    def wait(self, end):
        pass

    def release(self, arrays):
        pass

    @contextlib.contextmanager
    def copied(self, array):
        """The address of a copy in the device's memory."""
        memory, size = ctypes.c_void_p(), ctypes.c_size_t(array.nbytes)
        rt, handle = _runtime.library(), self.context.handle
        _runtime.check(rt.ddphook_memory_alloc(handle, size, ctypes.byref(memory)))
        try:
            self.context.write_memory(memory.value, bytes_of(array))
            yield memory.value
        finally:
            rt.ddphook_memory_free(handle, memory, size)


class Late(Staged):
    """Arrays have a run's results when somebody has waited for its end, as on a
    stream, and not before."""

    def __init__(self, number):
        super().__init__(number)
        self.late = []
        self.ended = self.waited = 0

    def take(self, array, address):
        copy = (ctypes.c_char * array.nbytes)()
        self.context.read_memory(copy, address)
        self.late.append((array.data_ptr(), copy))

    def end(self):
        self.ended += 1
        late, self.late = self.late, []
        return late

    def wait(self, end):
        self.waited += 1
        for address, copy in end:
            ctypes.memmove(address, copy, len(copy))


def bytes_of(tensor):
    return (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())


@contextlib.contextmanager
def registered(model, rank, *hook, **options):
    """``ddphook.torch.register`` of a model whose device is the emulated one."""
    import ddphook.torch

    device = Staged(rank)
    with mock.patch.object(_device, "device_of", lambda _: device):
        handle = ddphook.torch.register(model, *hook, **options)
    with handle:
        yield handle
        assert device.runs > 0


@contextlib.contextmanager
def steps(rank, kind=Staged):
    """Compiled steps whose gradients are on the emulated device."""
    import ddphook.torch

    ddphook.torch.close()
    device = kind(rank)
    with mock.patch.object(_device, "device_at", lambda _: device):
        yield device
        ddphook.torch.close()
    assert device.runs > 0
