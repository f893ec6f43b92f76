# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random collectives that are no all-reduces: of tensors and buckets, with parts of
uneven size and empty ones, as operations, which the pipeline may put in flight, and
started by hand. As statements.py. And what they give."""

import random

import numpy as np

import numerics
from buckets import size_of
from program import Op, Type, Value, dtype_of

NAMES = ("reduce_scatter", "all_gather", "all_to_all", "broadcast")
WIRES = {"fp16": "f16", "bf16": "bf16"}
PLAIN = [("allreduce",), ("allreduce",), ("fp16",), ("bf16",)]
ENCODED = [
    ("fp16", "f32"),
    ("bf16", "f32"),
    ("int8", 256),
    ("int8", 32),
    ("int4", 32),
    ("fp8", 64),
    ("fp8", 32, "f8E5M2"),
]


def is_wanted(seed):
    """Whether the program of a seed has such collectives. With a generator of its
    own, so that other seeds are the programs they were."""
    return random.Random(f"other collectives of {seed}").random() < 0.3


def size_of_group(program, group):
    ranks = program.groups[group]
    return len(ranks[0]) if ranks else program.world


def _elements(program, value):
    members = program.members.get(value)
    return sum(map(size_of, members)) if members else size_of(value.type)


def _operand(b, fits=lambda elements: True):
    """A tensor, or sometimes a bucket."""

    def is_fitting(value):
        if value not in b.program.members and value.type.shape is None:
            return False
        return fits(_elements(b.program, value))

    buckets = [v for v in b.scope if v in b.program.members and is_fitting(v)]
    if buckets and b.random.random() < 0.25:
        return b._choose(buckets)
    return b.pick_where(is_fitting)


def _gathered(b, dtype, count, world):
    """A type that parts of `count` elements on each rank may become."""
    least = max((count - 1) * world + 1, 0) if count else 0
    fitting = [
        t for t in b.types if t.dtype == dtype and least <= size_of(t) <= count * world
    ]
    if fitting and b.random.random() < 0.6:
        return b.random.choice(fitting)
    return Type((b.random.randint(least, count * world),), dtype)


def _describe(b, hooks):
    """The attributes of a collective, its operand and its result, or nothing."""
    name, group = b.random.choice(NAMES), b.random.choice(b.groups)
    world = size_of_group(b.program, group)
    attrs = {"name": name, "group": group}
    if name == "all_gather":
        x = b.pick_where(lambda v: len(v.type.shape) == 1)
    elif name == "all_to_all":
        x = _operand(b, lambda elements: elements % world == 0)
    else:
        x = _operand(b)
    if not x:
        return None
    dtype = dtype_of(b.program, x)
    if name == "reduce_scatter":
        attrs["reduction"] = b.random.choice(["mean", "sum"])
        attrs["code"] = b.random.choice(hooks)
        result = Value(Type((-(-_elements(b.program, x) // world),), dtype))
    elif name == "all_gather":
        attrs["wire"] = b.random.choice([None, None, "f16", "bf16"])
        result = Value(_gathered(b, dtype, x.type.shape[0], world))
        attrs["elements"] = size_of(result.type)
    else:
        if name == "broadcast":
            attrs["root"] = b.random.randrange(world)
        result = b.program.like(x)
    return attrs, x, result


def exchange(b):
    if not b.is_uniform:
        return False
    # A code magnifies what PowerSGD's rounding errors make of a gradient.
    is_exact = "powersgd" not in b.program.options.get("hook", "")
    described = _describe(b, PLAIN + (ENCODED if is_exact else []))
    if described:
        attrs, x, result = described
        b.add(Op("exchange", [x], [result], attrs))
    return bool(described)


def start(b):
    """One that is started: its future and what it gives, or nothing."""
    described = _describe(b, PLAIN)
    if not described:
        return None
    attrs, x, result = described
    future, attrs["type"] = Value(Type(None, "")), result.type
    b.block.ops.append(Op("exchange_start", [x], [future], attrs))
    return future, result


# What is printed.


def print_code(hook):
    """The attribute of a reduce-scatter's hook."""
    name, *parameters = hook
    if name in WIRES:
        return f"#ddp.{name}<accumulate = f32>" if parameters else f"#ddp.{name}"
    if name not in numerics.CODES:
        return f"#ddp.{name}"
    parts = [f"block_size = {parameters[0]}", "error_feedback = false"]
    parts += [f"format = {code}" for code in parameters[1:]]
    return f"#ddp.{name}<{', '.join(parts)}>"


def print_exchange(op, operand):
    attrs = op.attrs
    text = "ddp."
    if op.kind == "exchange_start":
        text += "exchange_start "
    text += attrs["name"]
    text += f" {attrs['reduction']}" if "reduction" in attrs else ""
    text += f" {operand}"
    text += f" from {attrs['root']}" if "root" in attrs else ""
    text += f" on @{attrs['group']}"
    wire = attrs.get("wire")
    if op.kind == "exchange_start" and "code" in attrs:
        wire = WIRES.get(attrs["code"][0])
    text += f" wire {wire}" if wire else ""
    if op.kind == "exchange" and "code" in attrs:
        text += f" {{ddp.hook = {print_code(attrs['code'])}}}"
    return text


# What ranks get.


def run(op, parts, dtype):
    """`parts` has what the ranks of a group have, flat; theirs in that order."""
    world, name = len(parts), op.attrs["name"]
    if name == "broadcast":
        return [parts[op.attrs["root"]]] * world
    if name == "all_to_all":
        cut = [np.split(part, world) for part in parts]
        return [np.concatenate([theirs[r] for theirs in cut]) for r in range(world)]
    if name == "all_gather":
        wire = op.attrs["wire"] or dtype
        whole = np.concatenate(parts)[: op.attrs["elements"]]
        return [numerics.cast(numerics.cast(whole, dtype, wire), wire, dtype)] * world
    mean, hook = op.attrs["reduction"] == "mean", op.attrs["code"]
    total = numerics.run_hook(hook, parts, dtype, mean, 0, None)[0]
    padded = np.zeros(-(-total.size // world) * world, total.dtype)
    padded[: total.size] = total
    return np.split(padded, world)

