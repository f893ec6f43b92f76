# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random operations without regions, beside those of linalg: slices, reshapes,
elements, scalars, and what steps do with an average. As linalg.py."""

import linalg
from linalg import BINARY
from program import Op, Type, Value


def gradient(b, type_):
    """A tensor that was just computed."""
    x = b.pick(type_)
    out = Value(type_, is_defined=False)
    b.add(Op("empty", [], [out]))
    maps = [tuple(range(len(type_.shape)))] * 3
    iterators = ["parallel"] * len(type_.shape)
    instructions = [("arith.mulf", [("arg", 0), ("arg", 1)], [type_.dtype], {})]
    yields = [("tmp", 0)]
    linalg.linalg(b, [x, x], [out], maps, iterators, instructions, yields, "mul")


def overwrite(b, value):
    """Something that may be computed in the memory of a value."""
    type_ = value.type
    kind = b.random.random()
    if kind < 0.6 or not type_.shape or 0 in type_.shape:
        identity = tuple(range(len(type_.shape)))
        name = b.random.choice(["math.absf", "arith.negf"])
        ins = [value if b.random.random() < 0.5 else b.pick(type_)]
        instructions, form = [(name, [("arg", 0)], [type_.dtype], {})], "short_map"
        if b.random.random() < 0.4:
            read = ("arg", 1)
            instructions = [("arith.addf", [("arg", 0), read], [type_.dtype], {})]
            form = "generic"
        maps, iterators = [identity] * 2, ["parallel"] * len(type_.shape)
        yields = [("tmp", 0)]
        linalg.linalg(b, ins, [value], maps, iterators, instructions, yields, form)
    elif kind < 0.8:
        insert_slice(b, value)
    else:
        reshape(b, value)


def _window(b, shape):
    sizes = [b.random.randint(1, n) for n in shape]
    strides = [
        2 if 2 * s <= n and b.random.random() < 0.15 else 1
        for n, s in zip(shape, sizes)
    ]
    offsets = [
        b.random.randint(0, n - (s - 1) * k - 1)
        for n, s, k in zip(shape, sizes, strides)
    ]
    return {"offsets": offsets, "sizes": sizes, "strides": strides}


def _dynamic(b, attrs):
    """Sometimes the first offset is a value."""
    if attrs["offsets"] and b.random.random() < 0.15:
        index = b.constant("index", attrs["offsets"][0])
        attrs["offsets"] = [None] + attrs["offsets"][1:]
        return [index]
    return []


def extract_slice(b):
    x = b.pick_where(lambda v: v.type.shape and 0 not in v.type.shape)
    if not x:
        return False
    attrs = _window(b, x.type.shape)
    shape = tuple(attrs["sizes"])
    if shape[0] == 1 and b.random.random() < 0.5:
        shape = shape[1:]
    operands, result = [x, *_dynamic(b, attrs)], Value(Type(shape, x.type.dtype))
    b.add(Op("extract_slice", operands, [result], attrs))
    return True


def insert_slice(b, into=None):
    into = into or b.pick_where(lambda v: v.type.shape and 0 not in v.type.shape)
    if not into:
        return False
    shape, dtype = into.type.shape, into.type.dtype
    sources = [
        v
        for v in b.tensors()
        if v.type.dtype == dtype
        and len(v.type.shape) == len(shape)
        and 0 not in v.type.shape
        and all(a <= n for a, n in zip(v.type.shape, shape))
    ]
    source = b.random.choice(sources)
    sizes = list(source.type.shape)
    offsets = [b.random.randint(0, n - s) for n, s in zip(shape, sizes)]
    attrs = {"offsets": offsets, "sizes": sizes, "strides": [1] * len(sizes)}
    operands = [source, into, *_dynamic(b, attrs)]
    b.add(Op("insert_slice", operands, [Value(into.type)], attrs))
    return True


def reshape(b, x=None):
    x = x or b.pick_where(lambda v: len(v.type.shape) >= 1)
    if not x:
        return False
    shape = x.type.shape
    if len(shape) > 1 and b.random.random() < 0.6:
        count = 1
        for n in shape:
            count *= n
        target, groups, collapse = (count,), [range(len(shape))], True
    else:
        axis = b.random.randrange(len(shape))
        n = shape[axis]
        factors = [d for d in range(1, n + 1) if n % d == 0] or [1]
        factor = b.random.choice(factors)
        target = shape[:axis] + (factor, n // factor) + shape[axis + 1 :]
        groups, at = [], 0
        for i in range(len(shape)):
            width = 2 if i == axis else 1
            groups.append(range(at, at + width))
            at += width
        collapse = False
        if len(target) > 3:
            return False
    attrs = {"groups": groups, "collapse": collapse}
    b.add(Op("reshape", [x], [Value(Type(target, x.type.dtype))], attrs))
    return True


def _indices(b, shape):
    return [b.constant("index", b.random.randrange(n)) for n in shape]


def element(b):
    x = b.pick_where(lambda v: 0 not in v.type.shape)
    if not x:
        return False
    dtype = x.type.dtype
    kind = b.random.random()
    if kind < 0.5:
        b.add(Op("extract", [x, *_indices(b, x.type.shape)], [Value(Type(None, dtype))]))
        return True
    scalar = b.pick_scalar(dtype) or b.constant(dtype)
    if kind < 0.8:
        operands = [scalar, x, *_indices(b, x.type.shape)]
        b.add(Op("insert", operands, [Value(x.type)]))
    else:
        values = [b.pick_scalar(dtype) or scalar for _ in range(b.random.randint(1, 4))]
        b.add(Op("from_elements", values, [Value(Type((len(values),), dtype))]))
    return True


def scalar(b):
    dtype = b.random.choice(b.dtypes)
    x, y = (b.pick_scalar(dtype) or b.constant(dtype) for _ in range(2))
    name = "arith." + b.random.choice(BINARY)
    b.add(Op("scalar", [x, y], [Value(Type(None, dtype))], {"name": name}))
    return True


def select(b):
    """One of two tensors: neither's memory is known any more."""
    type_ = b.type_of_some_tensor()
    condition = b.condition()
    operands = [condition, b.pick(type_), b.pick(type_)]
    attrs = {"name": "arith.select"}
    b.add(Op("scalar", operands, [Value(type_)], attrs))
    return True


def alloc_copy(b):
    x = b.pick(b.type_of_some_tensor())
    b.add(Op("alloc_copy", [x], [Value(x.type)]))
    return True


def constant_tensor(b):
    type_ = b.random.choice(b.types)
    value = b.random.choice([0.0, 1.0, -2.5])
    b.add(Op("const", [], [Value(type_)], {"value": value}))
    return True
