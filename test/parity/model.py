# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An independent model of the hooks' numerics, in numpy.

Written from docs/parity.md rather than from PyTorch's source or ddphook's: what the
hooks compute for each element, in which order Gloo's ring adds the ranks, and where
16-bit values are rounded. test_oracle.py checks it against the real hooks on real
process groups. It is then a second reference, and the oracle for world sizes that would
need too many processes.
"""

import numpy as np

import quantization_model
from tensors import Tensor, itemsize


def _to_f32(tensor):
    if tensor.dtype == "bf16":
        return (tensor.data.astype(np.uint32) << 16).view(np.float32)
    return tensor.data.astype(np.float32)


def _round(values, dtype):
    """Rounds f32 values to nearest even in a 16-bit type; f32 stays unchanged."""
    if dtype == "f32":
        return Tensor(dtype, values)
    if dtype == "f16":
        return Tensor(dtype, values.astype(np.float16))
    bits = values.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return Tensor(dtype, np.where(np.isnan(values), np.uint16(0x7FC0), rounded))


def cast(tensor, dtype):
    """Casts a tensor. From f64 to a 16-bit type it rounds twice, through f32, as in PyTorch."""
    if tensor.dtype == dtype:
        return tensor
    with np.errstate(all="ignore"):
        values = tensor.data if tensor.dtype == "f64" else _to_f32(tensor)
        if dtype == "f64":
            return Tensor(dtype, values.astype(np.float64))
        return _round(values.astype(np.float32), dtype)


def divide(tensor, divisor, on_cuda=False):
    """Divides; 16-bit types are divided in f32 and rounded once. PyTorch multiplies a CUDA
    tensor by the rounded inverse."""
    wide = tensor.data if tensor.dtype in ("f32", "f64") else _to_f32(tensor)
    divisor = wide.dtype.type(divisor)
    with np.errstate(all="ignore"):
        quotients = wide * (1 / divisor) if on_cuda else wide / divisor
        if tensor.dtype == "f64":
            return Tensor("f64", np.asarray(quotients))
        return _round(np.asarray(quotients), tensor.dtype)


def _add(a, b):
    with np.errstate(all="ignore"):
        if a.dtype in ("f32", "f64"):
            return Tensor(a.dtype, a.data + b.data)
        return _round(_to_f32(a) + _to_f32(b), a.dtype)


def ring_chunks(count, size, world):
    """Returns the element ranges that Gloo's ring reduces, each in its own rank order:
    W chunks of `count` elements of `size` bytes (some may be empty)."""
    if count == 0:
        return [(0, 0)] * world
    total = count * size
    largest = size * (2**20 // size)
    segments = max(-(-total // largest), 2 * world)
    segments = -(-segments // world) * world
    segment = -(-(-(-total // segments)) // size)
    width = segment * (segments // world)
    return [
        (min(c * width, count), min((c + 1) * width, count))
        for c in range(world)
    ]


def ring_sum(tensors):
    """Returns the result of an all-reduce of flat tensors, which is the same on every rank."""
    world = len(tensors)
    first = tensors[0]
    out = np.empty_like(first.data)
    chunks = ring_chunks(out.size, itemsize(first.dtype), world)
    for chunk, (begin, end) in enumerate(chunks):
        parts = [
            Tensor(t.dtype, t.data[begin:end])
            for t in (tensors[(chunk - 1 - i) % world] for i in range(world))
        ]
        total = parts[0]
        for part in parts[1:]:
            total = _add(part, total)
        out[begin:end] = total.data
    return Tensor(first.dtype, out)


WIRE = {"fp16": "f16", "bf16": "bf16"}
# The codes of hooks, and their default block sizes.
SCALED = {"int8": ("i8", 256), "int4": ("i4", 64), "fp8": ("f8E4M3FN", 256)}
AFFINE = {"quantization_pertensor": None, "quantization_perchannel": 512}


def _values(tensor):
    """Returns the elements in a type with which numpy computes."""
    if tensor.dtype == "bf16":
        return tensor.data.view(quantization_model.BF16)
    return tensor.data


def _reduce_encoded(hook, tensors, mean, on_cuda):
    """Returns the results of an encoded all-reduce, or None if the hook has no encoding."""
    arrays = [_values(tensor) for tensor in tensors]
    divisor = len(arrays) if mean else 1
    name, *rest = hook
    if name in SCALED:
        code, block = SCALED[name]
        block, code = [*rest, *(block, code)[len(rest) :]]
        total = quantization_model.reduce_scaled(arrays, code, block, divisor)
    elif name in AFFINE:
        block = rest[0] if rest else AFFINE[name]
        total = quantization_model.reduce_affine(arrays, block, divisor, on_cuda)
    elif name in WIRE and rest == ["f32"]:
        total = quantization_model.reduce_scaled(arrays, WIRE[name], 1024, divisor)
    else:
        return None
    return [cast(Tensor("f32", total), tensors[0].dtype)] * len(tensors)


def run_hook(hook, tensors, mean, on_cuda=False):
    """Runs one bucket through a hook; maps rank r's flat gradient to its result.

    `hook` is ("allreduce",), ("fp16",), ("bf16",), ("noop",), ("int8",), ("int8", block),
    ("fp8", block, code), … without error feedback, ("fp16", "f32") with the type of the
    sum, or ("wrap", element type, inner hook). If `mean` is false, it does not divide;
    `on_cuda` is about divisions alone, not about the order of sums.

    A wrapper only casts its input: the innermost hook's result, in the type of its input,
    is cast directly to the bucket's type. So nested wrappers do not affect the result."""
    dtype = tensors[0].dtype
    while hook[0] == "wrap":
        tensors = [cast(tensor, hook[1]) for tensor in tensors]
        hook = hook[2]
    world, inner = len(tensors), tensors[0].dtype
    if encoded := _reduce_encoded(hook, tensors, mean, on_cuda):
        return [cast(tensor, dtype) for tensor in encoded]
    if hook[0] != "noop":
        tensors = [cast(tensor, WIRE.get(hook[0], inner)) for tensor in tensors]
        if mean:
            tensors = [divide(tensor, world, on_cuda) for tensor in tensors]
        tensors = [ring_sum(tensors)] * world
    return [cast(cast(tensor, inner), dtype) for tensor in tensors]
