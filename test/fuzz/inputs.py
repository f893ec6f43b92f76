# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ranks get as arguments, and the files that carry it. An argument's values
depend on the program's seed, its number, the rank and the step alone, so that a
reduced program computes on the same numbers."""

import json
import math
import struct

import numpy as np

import numerics

_FILE_TYPES = {
    "f16": ("F16", np.float16),
    "bf16": ("BF16", np.uint16),
    "f32": ("F32", np.float32),
    "f64": ("F64", np.float64),
    "index": ("I64", np.int64),
    "i1": ("BOOL", np.bool_),
}
_SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 65504.0, 65520.0, 1e-7, 6e-8, 3.0]


def draw(program, argument, rank, step):
    """One argument on one rank in one step."""
    is_same = "replicated" in argument.marks
    key = [program.seed, argument.number, 0 if is_same else rank + 1, step]
    random_ = np.random.Generator(np.random.PCG64(key))
    type_ = argument.type
    if type_.dtype == "index":
        return int(random_.integers(0, 4))
    if type_.dtype == "i1":
        return bool(random_.integers(0, 2))
    shape = type_.shape or ()
    values = random_.standard_normal(shape)
    if program.values == "integers":
        values = np.round(values * 3)
    elif program.values == "special":
        wide = values * 10.0 ** random_.integers(-8, 6, shape)
        special = random_.choice(_SPECIAL, shape)
        values = np.where(random_.random(shape) < 0.1, special, wide)
    return numerics.as_type(numerics.as_type(values, "f32"), type_.dtype)


def draw_all(program):
    """[step][rank][number of the argument]."""
    arguments = program.func(program.entry).body.args
    return [
        [
            {a.number: draw(program, a, rank, step) for a in arguments}
            for rank in range(program.world)
        ]
        for step in range(program.steps)
    ]


def save(path, tensors):
    """tensors: (name, type, value); a safetensors file."""
    header, blobs, offset = {}, [], 0
    for name, type_, value in tensors:
        file_type, storage = _FILE_TYPES[type_.dtype]
        if type_.dtype == "bf16":
            value = (np.ascontiguousarray(value).view(np.uint32) >> 16).astype(storage)
        blob = np.asarray(value, storage).tobytes()
        header[name] = {
            "dtype": file_type,
            "shape": list(type_.shape or ()),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def load(path, types):
    """The results of a run, in the model's representation."""
    with open(path, "rb") as file:
        raw = file.read()
    (length,) = struct.unpack_from("<Q", raw)
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    out = []
    for number, type_ in enumerate(types):
        entry = header[f"result{number}"]
        file_type, storage = _FILE_TYPES[type_.dtype]
        shape = type_.shape or ()
        if entry["dtype"] != file_type or tuple(entry["shape"]) != shape:
            raise ValueError(f"result{number} is {entry}, but expected {type_}")
        begin, end = entry["data_offsets"]
        if end - begin != math.prod(shape) * np.dtype(storage).itemsize:
            raise ValueError(f"result{number} has {end - begin} bytes")
        value = np.frombuffer(data[begin:end], storage).reshape(shape)
        if type_.dtype == "bf16":
            value = (value.astype(np.uint32) << 16).view(np.float32).reshape(shape)
        out.append(value)
    return out


def save_program_inputs(program, directory, values):
    arguments = program.func(program.entry).body.args
    for step, ranks in enumerate(values):
        for rank, named in enumerate(ranks):
            save(
                f"{directory}/in.{rank}.{step}",
                [
                    (f"arg{i}", a.type, named[a.number])
                    for i, a in enumerate(arguments)
                ],
            )


def difference(got, want):
    """None where both are bit-equal, any NaN equal to any NaN; else in words."""
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype.kind != "f":
        return None if np.array_equal(got, want) else f"got {got}, expected {want}"
    bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[got.dtype.itemsize]
    left, right = (np.ascontiguousarray(a).reshape(-1) for a in (got, want))
    differs = (left.view(bits) != right.view(bits)) & ~(
        np.isnan(left) & np.isnan(right)
    )
    if not differs.any():
        return None
    first = int(np.argmax(differs))
    return (
        f"{int(differs.sum())} of {left.size} elements differ, first at {first}: "
        f"expected {want.reshape(-1)[first]!r}, but got {left[first]!r}"
    )
