# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arithmetic of the fuzzer's model, from docs/parity.md: what an operation on
elements gives, and what a hook makes of a gradient.

An array of f16, f32 or f64 has numpy's type. One of bf16 is a float32 array of
numbers that bf16 can hold. Every operation rounds its result to its type.
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "parity"))

import quantization_model  # noqa: E402

STORAGE = {
    "f16": np.float16,
    "bf16": np.float32,
    "f32": np.float32,
    "f64": np.float64,
}
SIZES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}


def to_bf16(values):
    """Rounds float32 to nearest even among the numbers that bf16 can hold."""
    values = np.array(values, np.float32, order="C")
    bits = values.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) & np.uint32(0xFFFF0000)
    # A NaN must not be rounded up to infinity.
    rounded = np.where(np.isnan(values), np.uint32(0x7FC00000), rounded)
    return rounded.astype(np.uint32).view(np.float32)


def as_type(values, dtype):
    """Values of whatever precision, rounded once to `dtype`."""
    values = np.asarray(values)
    with np.errstate(all="ignore"):
        if dtype == "bf16":
            return to_bf16(_round_to_odd(values))
        return values.astype(STORAGE[dtype])


def _round_to_odd(values):
    """float32 such that rounding it further is like rounding the f64 values."""
    narrow = np.array(values, np.float32, order="C")
    if values.dtype != np.float64:
        return narrow
    wide = narrow.astype(np.float64)
    bits = narrow.view(np.uint32)
    bits = np.where(np.abs(wide) > np.abs(values), bits - 1, bits)
    inexact = (wide != values) & np.isfinite(values) & (values != 0)
    return np.where(inexact, bits | 1, bits).astype(np.uint32).view(np.float32)


def cast(values, source, target):
    """ddp.cast: from f64 to 16 bits through f32."""
    if source == "f64" and target in ("f16", "bf16"):
        values = as_type(values, "f32")
    return as_type(values, target)


def _extreme(a, b, is_max):
    """arith.maximumf, minimumf: NaN wins, and −0 is less than +0."""
    chosen = np.maximum(a, b) if is_max else np.minimum(a, b)
    negative = np.signbit(a) & np.signbit(b) if is_max else np.signbit(a) | np.signbit(b)
    zero = np.where(negative, -0.0, 0.0).astype(chosen.dtype)
    return np.where((a == 0) & (b == 0), zero, chosen)


_COMPARISONS = {
    "olt": lambda a, b: a < b,
    "oge": lambda a, b: a >= b,
    "oeq": lambda a, b: a == b,
    "une": lambda a, b: ~(a == b),
    "uno": lambda a, b: np.isnan(a) | np.isnan(b),
    "ult": lambda a, b: ~(a >= b),
    "slt": lambda a, b: a < b,
    "sge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}

_ELEMENTWISE = {
    "arith.addf": lambda a, b: a + b,
    "arith.subf": lambda a, b: a - b,
    "arith.mulf": lambda a, b: a * b,
    "arith.divf": lambda a, b: a / b,
    "arith.negf": lambda a: -a,
    "arith.maximumf": lambda a, b: _extreme(a, b, True),
    "arith.minimumf": lambda a, b: _extreme(a, b, False),
    "math.absf": np.abs,
    "math.sqrt": np.sqrt,
    "math.copysign": np.copysign,
}


def elementwise(name, operands, dtype):
    """One operation of arith or math on floating-point numbers."""
    with np.errstate(all="ignore"):
        return as_type(_ELEMENTWISE[name](*operands), dtype)


def compare(predicate, a, b):
    with np.errstate(all="ignore"):
        return _COMPARISONS[predicate](a, b)


def run_body(attrs, arguments, captured):
    """The body of a linalg operation on arrays of one shape (or scalars)."""
    tmp = []

    def get(reference):
        kind, number = reference
        return {"arg": arguments, "tmp": tmp, "captured": captured}[kind][number]

    for name, references, types, extra in attrs["body"]:
        operands = [get(reference) for reference in references]
        if name == "arith.constant":
            tmp.append(as_type(extra["value"], types[0]))
        elif name == "arith.cmpf":
            tmp.append(compare(extra["predicate"], *operands))
        elif name == "arith.select":
            tmp.append(np.where(*operands))
        elif name in ("arith.extf", "arith.truncf"):
            tmp.append(as_type(operands[0], types[1]))
        else:
            tmp.append(elementwise(name, operands, types[0]))
    return [get(reference) for reference in attrs["yields"]]


def _view(array, axes, parallel, index):
    """An operand for one index of the reductions, its axes in the order of the
    parallel dimensions, those that it lacks of size 1."""
    array = array[tuple(slice(None) if d in parallel else index[d] for d in axes)]
    own = [d for d in axes if d in parallel]
    array = array.transpose([own.index(d) for d in parallel if d in own])
    return array[tuple(slice(None) if d in own else np.newaxis for d in parallel)]


def run_linalg(attrs, ins, outs, captured):
    """A linalg operation as the plain loop nest: the reductions' indices in
    order, everything else at once."""
    maps, iterators = attrs["maps"], attrs["iterators"]
    sizes = {}
    for axes, array in zip(maps, [*ins, *outs]):
        sizes.update(zip(axes, array.shape))
    parallel = [d for d, name in enumerate(iterators) if name == "parallel"]
    reduced = [d for d, name in enumerate(iterators) if name == "reduction"]
    outs = [np.array(out) for out in outs]
    shape = tuple(sizes[d] for d in parallel)
    for numbers in np.ndindex(*(sizes[d] for d in reduced)):
        index = dict(zip(reduced, numbers))
        arguments = [
            np.broadcast_to(_view(array, axes, parallel, index), shape)
            for axes, array in zip(maps, [*ins, *outs])
        ]
        results = run_body(attrs, arguments, captured)
        for number, (out, values) in enumerate(zip(outs, results)):
            axes = maps[len(ins) + number]
            order = [parallel.index(d) for d in axes]
            outs[number] = (
                np.broadcast_to(values, shape).transpose(order).astype(out.dtype)
            )
    return outs


# What hooks do.


def ring_sum(parts, dtype, offset=0, count=None):
    """The all-reduce of the parts that ranks have, in the order of Gloo's ring,
    where they begin at element `offset` of a message of `count`."""
    world, size = len(parts), SIZES[dtype]
    length = parts[0].size
    count = length if count is None else count
    if world == 1:
        return parts[0]
    largest = size * (2**20 // size)
    segments = max(-(-count * size // largest), 2 * world)
    segments = -(-segments // world) * world
    segment = -(-(-(-count * size // segments)) // size)
    chunk = max(segment * (segments // world), 1)
    out = np.empty(length, STORAGE[dtype])
    flat = [part.reshape(-1) for part in parts]
    places = (offset + np.arange(length)) // chunk
    for c in range(world):
        mine = places == c
        total = flat[(c - 1) % world][mine]
        for i in range(2, world + 1):
            addend = flat[(c - i) % world][mine]
            total = elementwise("arith.addf", (addend, total), dtype)
        out[mine] = total
    return out.reshape(parts[0].shape)


WIRES = {"fp16": "f16", "bf16": "bf16"}
CODES = {"int8": "i8", "int4": "i4", "fp8": "f8E4M3FN"}


def is_encoded(hook):
    return (
        hook[0] in CODES
        or hook[0].startswith("quantization")
        or (hook[0] in WIRES and len(hook) > 1)
    )


def run_encoded(hook, parts, dtype, mean):
    """A hook whose collective is encoded, on a whole bucket; f32."""
    name, *parameters = hook
    divisor = len(parts) if mean else 1
    shape = parts[0].shape
    parts = [part.reshape(-1) for part in parts]
    if name.startswith("quantization"):
        if dtype == "bf16":
            parts = [part.astype(quantization_model.BF16) for part in parts]
        block = int(parameters[0]) if parameters else None
        total = quantization_model.reduce_affine(parts, block, divisor)
    else:
        code = WIRES.get(name) or [CODES[name], *parameters[1:]][-1]
        block = None if name in WIRES else int(parameters[0])
        total = quantization_model.reduce_scaled(parts, code, block, divisor)
    return total.reshape(shape)


def run_hook(hook, parts, dtype, mean, offset, count):
    """A hook without a state on one member of a bucket: what every rank gets."""
    own = dtype
    while hook[0] == "wrap":
        parts = [cast(part, own, hook[1]) for part in parts]
        own, hook = hook[1], hook[2]
    if hook[0] == "noop":
        return [cast(part, own, dtype) for part in parts]
    if is_encoded(hook):
        total = run_encoded(hook, parts, own, mean)
        return [cast(cast(total, "f32", own), own, dtype)] * len(parts)
    wire = WIRES.get(hook[0], own)
    parts = [cast(part, own, wire) for part in parts]
    if mean:
        world = as_type(len(parts), wire)
        parts = [elementwise("arith.divf", (part, world), wire) for part in parts]
    total = ring_sum(parts, wire, offset, count)
    # Back to the type that the innermost hook was given, and from there at once.
    return [cast(cast(total, wire, own), own, dtype)] * len(parts)


def run_on_nodes(hook, nodes, parts, dtype, mean, offset, count):
    """The same over a hierarchical group, as docs/hierarchy.md says; `nodes` has the
    positions in `parts` of the ranks of each node."""
    own, shape = dtype, parts[0].shape
    while hook[0] == "wrap":
        parts = [cast(part, own, hook[1]) for part in parts]
        own, hook = hook[1], hook[2]
    if hook[0] == "noop":
        return [cast(part, own, dtype) for part in parts]
    sums = []
    for node in nodes:
        mine = [parts[i] for i in node]
        total = run_hook(("allreduce",), mine, own, mean, offset, count)[0]
        sums.append(total.reshape(-1))
    length, shares = sums[0].size, len(nodes[0])
    count = length if count is None else count
    share = max(-(-count // shares), 1)
    places = offset + np.arange(length)
    out = np.empty(length, STORAGE[own])
    for begin in range(0, count, share):
        mine = (places >= begin) & (places < begin + share)
        if mine.any():
            theirs = [total[mine] for total in sums]
            first, size = places[mine][0] - begin, min(share, count - begin)
            out[mine] = run_hook(hook, theirs, own, mean, first, size)[0]
    return [cast(out.reshape(shape), own, dtype)] * len(parts)
