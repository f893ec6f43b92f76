# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of the parity suite: an element type and an array of bits.

numpy has no bfloat16, so a bf16 tensor holds its bit patterns as uint16; other types
use numpy's own. A small safetensors codec reads and writes files, because numpy's
safetensors cannot hold bfloat16 and because the error tests need to write broken files.
This module has no arithmetic (model.py does).
"""

import json
import math
import struct
from dataclasses import dataclass

import numpy as np

# Element type in MLIR: numpy type that stores it, name in safetensors files.
DTYPES = {
    "f16": (np.float16, "F16"),
    "bf16": (np.uint16, "BF16"),
    "f32": (np.float32, "F32"),
    "f64": (np.float64, "F64"),
}
# Files may also hold counters and generators, in states.
_FILE_DTYPES = {**DTYPES, "i32": (np.int32, "I32"), "i64": (np.int64, "I64")}
_BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass
class Tensor:
    dtype: str
    data: np.ndarray

    def __post_init__(self):
        expected = np.dtype(_FILE_DTYPES[self.dtype][0])
        if self.data.dtype != expected:
            raise TypeError(
                f"expected {expected} to store {self.dtype}, but got "
                f"{self.data.dtype}"
            )

    @property
    def bits(self):
        """The elements' bit patterns, flat."""
        flat = np.ascontiguousarray(self.data).reshape(-1)
        return flat.view(_BITS[flat.itemsize])

    @property
    def is_nan(self):
        """A flat array that is true for each NaN."""
        if self.dtype == "bf16":
            return (self.bits & 0x7FFF) > 0x7F80
        return np.isnan(self.data).reshape(-1)


def itemsize(dtype):
    return np.dtype(_FILE_DTYPES[dtype][0]).itemsize


def difference(got, want):
    """Returns None if `got` is bit-equal to `want` (any NaN equals any NaN), otherwise one
    line that says where and how they differ."""
    if got.dtype != want.dtype or got.data.shape != want.data.shape:
        return (
            f"expected {list(want.data.shape)} {want.dtype}, but got "
            f"{list(got.data.shape)} {got.dtype}"
        )
    differs = (got.bits != want.bits) & ~(got.is_nan & want.is_nan)
    count = int(np.count_nonzero(differs))
    if count == 0:
        return None
    first = int(np.argmax(differs))
    digits = 2 * itemsize(got.dtype)
    return (
        f"{count} of {differs.size} elements differ, first at {first}: expected "
        f"bits 0x{int(want.bits[first]):0{digits}x}, but got "
        f"0x{int(got.bits[first]):0{digits}x}"
    )


def encode(tensors):
    """Returns the bytes of a safetensors file that holds `tensors` (name: Tensor)."""
    header, blobs, offset = {}, [], 0
    for name, tensor in tensors.items():
        blob = np.ascontiguousarray(tensor.data).tobytes()
        header[name] = {
            "dtype": _FILE_DTYPES[tensor.dtype][1],
            "shape": list(tensor.data.shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(blobs)


def save(path, tensors):
    with open(path, "wb") as file:
        file.write(encode(tensors))


def load(path):
    """Returns the tensors of a safetensors file (name: Tensor). Checks that every byte of the
    file belongs to exactly one tensor, as the format requires."""
    with open(path, "rb") as file:
        raw = file.read()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    data = memoryview(raw)[8 + length :]
    names = {name: dtype for dtype, (_, name) in _FILE_DTYPES.items()}
    tensors, end = {}, 0
    for name, entry in sorted(
        header.items(), key=lambda item: item[1]["data_offsets"]
    ):
        dtype, shape = names[entry["dtype"]], entry["shape"]
        begin, stop = entry["data_offsets"]
        if begin != end or stop - begin != math.prod(shape) * itemsize(dtype):
            raise ValueError(f"{path}: {name} has wrong offsets {begin}, {stop}")
        array = np.frombuffer(data[begin:stop], _FILE_DTYPES[dtype][0])
        tensors[name] = Tensor(dtype, array.reshape(shape))
        end = stop
    if end != len(data):
        raise ValueError(f"{path}: {len(data) - end} bytes belong to no tensor")
    return tensors
