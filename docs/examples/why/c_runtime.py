# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls a compiled module from a Python process, through the runtime's C API.

As much of runtime.h as this example needs: join the job, load a module made by
`ddphook-cc --shared`, run its only entry point on tensors. The package ddphook is
not needed.
"""

import ctypes
import os

import torch


class Entry(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        (
            "invoke",
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)),
        ),
    ]


class Module(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("abi_version", ctypes.c_uint32),
        ("plan", ctypes.c_char_p),
        ("plan_size", ctypes.c_uint64),
        ("plan_hash", ctypes.c_uint64),
        ("handle", ctypes.c_void_p),
        ("entry_count", ctypes.c_uint64),
        ("entries", ctypes.POINTER(Entry)),
    ]


class Runtime:
    """A process's place in the job, found by its launch variables; with a rank
    and a world size they are set first, for a job on this machine whose rank 0
    listens on the port DDPHOOK_PORT. DDPHOOK_RT names libddphook_rt.so."""

    def __init__(self, rank=None, world=None):
        self.library = ctypes.CDLL(os.environ["DDPHOOK_RT"], ctypes.RTLD_GLOBAL)
        self.library.ddphook_last_error.restype = ctypes.c_char_p
        if rank is not None:
            os.environ.update(
                RANK=str(rank),
                WORLD_SIZE=str(world),
                LOCAL_RANK=str(rank),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=os.environ["DDPHOOK_PORT"],
            )
        self.context = ctypes.c_void_p()
        create = self.library.ddphook_context_create
        self.check(create(None, ctypes.byref(self.context)))

    def check(self, status):
        if status:
            raise RuntimeError(self.library.ddphook_last_error().decode())

    def barrier(self):
        self.check(self.library.ddphook_barrier(self.context))

    def load_module(self, library):
        """The module of a shared object, loaded on all ranks."""
        module = Module.in_dll(library, "ddphook_compiled_module")
        load = self.library.ddphook_module_load
        self.check(load(self.context, ctypes.byref(module)))
        return module

    def load(self, path):
        return CompiledModule(self, path)


class CompiledModule:
    def __init__(self, runtime, path):
        self.runtime = runtime
        self.library = ctypes.CDLL(path)
        self.module = runtime.load_module(self.library)
        self.results = None

    def reduce(self, tensors):
        """Runs the entry point on contiguous tensors and returns its results,
        as many and of the same types; they are overwritten by the next call."""
        if not self.results:
            self.results = [torch.empty_like(tensor) for tensor in tensors]
        pointers = [t.data_ptr() for t in (*tensors, *self.results)]
        buffers = (ctypes.c_void_p * len(pointers))(*pointers)
        self.runtime.check(self.module.entries[0].invoke(buffers))
        return self.results
