# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A device for tensors on the host: the emulated CUDA device.

PyTorch has no tensors in its memory. So arrays are copied there before a module runs,
and back afterwards; modules, states and collectives are those of a GPU.
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
    """The counterpart of `ddphook.torch._device.Cuda`, without its streams."""

    memory = torch.device("cpu")
    target = "cuda"
    backend = "cuda_emulated"
    allocator = None

    def __init__(self, number):
        os.environ["EMULATED_CUDA_DEVICES"] = str(DEVICES)
        # The oracle of these tests is the host.
        self.backend_options = f"device={number},exact_division=1"
        self.runs = 0

    def attach(self, context):
        self.context = context

    finish_all = _device.Cuda.finish_all

    # Uses PyTorch's own allocators and copies only.
    pack, _make, _fill = _device.Cuda.pack, _device.Cuda._make, _device.Cuda._fill

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
        """Copies the device's memory to an array."""
        self.context.read_memory(bytes_of(array), address)

    def new_future(self):
        return torch.futures.Future()

    def finish(self, future, value):
        future.set_result(value)

    def end(self):
        return None

    examine = _device.Device.examine

    def wait(self, end):
        pass

    def release(self, arrays):
        pass

    @contextlib.contextmanager
    def copied(self, array):
        """Yields the address of a copy in the device's memory."""
        memory, size = ctypes.c_void_p(), ctypes.c_size_t(array.nbytes)
        rt, handle = _runtime.library(), self.context.handle
        _runtime.check(rt.ddphook_memory_alloc(handle, size, ctypes.byref(memory)))
        try:
            self.context.write_memory(memory.value, bytes_of(array))
            yield memory.value
        finally:
            rt.ddphook_memory_free(handle, memory, size)


class Late(Staged):
    """Delivers a run's results only when somebody waits for its end, as a stream would."""

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


class Lender:
    """Replaces PyTorch's caching allocator: poisoned memory of a second context on the
    emulated device."""

    def __init__(self, number):
        self.number = number
        self.sizes = {}
        self.allocations = 0
        self.fail_at = 0  # The allocation to fail, counted from 1, or 0 for none.
        os.environ["EMULATED_CUDA_DEVICES"] = str(DEVICES)
        self.context = _runtime.Context(
            0, 1, None, 60.0, Staged.backend, f"device={number}"
        )

    @property
    def allocated(self):
        return sum(self.sizes.values())

    def alloc(self, size, device, stream):
        assert size > 0
        assert device == self.number
        assert stream > 0
        self.allocations += 1
        if self.allocations == self.fail_at:
            raise torch.OutOfMemoryError(f"no {size} bytes")
        memory = ctypes.c_void_p()
        rt, handle = _runtime.library(), self.context.handle
        length = ctypes.c_size_t(size)
        _runtime.check(rt.ddphook_memory_alloc(handle, length, ctypes.byref(memory)))
        poison = (ctypes.c_char * size).from_buffer_copy(b"\x7f" * size)
        self.context.write_memory(memory.value, poison)
        self.sizes[memory.value] = size
        return memory.value

    def delete(self, address):
        size = ctypes.c_size_t(self.sizes.pop(address))
        rt, memory = _runtime.library(), ctypes.c_void_p(address)
        rt.ddphook_memory_free(self.context.handle, memory, size)


@contextlib.contextmanager
def lent(number):
    """Gives devices of this number memory of a lender, and checks that all of it returns."""
    lender = Lender(number)
    functions = {
        "caching_allocator_alloc": lender.alloc,
        "caching_allocator_delete": lender.delete,
    }
    with (
        mock.patch.multiple(torch.cuda, **functions),
        mock.patch.object(Staged, "allocator", _device.CachingAllocator()),
    ):
        yield lender
    assert lender.sizes == {}
    lender.context.destroy()


def bytes_of(tensor):
    return (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())


@contextlib.contextmanager
def registered(model, rank, *hook, **options):
    """Registers a hook with a model on the emulated device."""
    import ddphook.torch

    device = Staged(rank)
    with mock.patch.object(_device, "device_of", lambda _: device):
        handle = ddphook.torch.register(model, *hook, **options)
    with handle:
        yield handle
        assert device.runs > 0


@contextlib.contextmanager
def steps(rank, kind=Staged):
    """Runs compiled steps whose gradients are on the emulated device."""
    import ddphook.torch

    ddphook.torch.close()
    device = kind(rank)
    with mock.patch.object(_device, "device_at", lambda _: device):
        yield device
        ddphook.torch.close()
    assert device.runs > 0
