# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step that ddphook-cc compiled, called through the C API."""

import ctypes

import model
import numpy as np


class Stats(ctypes.Structure):
    """ddphook_stats_t, as far as it is read."""

    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.c_uint64) for name in ("steps", "collectives", "wire_bytes")
    ]


class Compiled:
    """A step that ddphook compiled: that of model.py, unless arrays for other
    results are given."""

    def __init__(self, runtime, path, values, results=None):
        self.runtime = runtime
        self.object = ctypes.CDLL(str(path))
        self.module = runtime.load_module(self.object)
        shapes = {name: model.shape(kind, o) for name, kind, o in model.parameters()}
        self.results = results or {
            name: np.full(shapes[name], np.nan, np.float32) for name in model.returned()
        }
        arrays = [*values.values(), *self.results.values()]
        pointers = [array.ctypes.data for array in arrays]
        self.buffers = (ctypes.c_void_p * len(pointers))(*pointers)

    def step(self):
        self.runtime.check(self.module.entries[0].invoke(self.buffers))

    def wire_bytes(self):
        stats = Stats(ctypes.sizeof(Stats))
        self.runtime.check(
            self.runtime.library.ddphook_module_stats(
                ctypes.byref(self.module), ctypes.byref(stats)
            )
        )
        return stats.wire_bytes
