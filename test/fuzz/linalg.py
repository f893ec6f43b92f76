# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random operations of linalg. Each function gets a Builder (generate.py), appends
one or a few operations to its block, and returns whether it could.

Memory is what this is about: wherever an operation has a destination, it may be
fresh, shared with another operation, or a value that is alive."""

import itertools

from program import Op, Type, Value

BINARY = "addf subf mulf maximumf minimumf divf".split()
UNARY = ("arith.negf", "math.absf", "math.sqrt")
NAMED = {
    "add": "arith.addf",
    "sub": "arith.subf",
    "mul": "arith.mulf",
    "max": "arith.maximumf",
    "min": "arith.minimumf",
    "div": "arith.divf",
}
WIDTH = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def destination(b, type_):
    """Where an operation writes: mostly memory that something else uses."""
    choice = b.random.random()
    if choice < 0.55:
        value = b.pick(type_)
        if value:
            return value
    if choice < 0.75:
        shared = [v for v in b.empties if v.type == type_]
        if shared:
            return b.random.choice(shared)
    value = Value(type_, is_defined=False)
    b.add(Op("empty", [], [value]))
    if choice < 0.9:
        filled = Value(type_)
        b.add(Op("fill", [b.constant(type_.dtype), value], [filled]))
        return filled
    return value


def body(b, args, out, out_types):
    """A random body: the types of its arguments, which of them are not to be read
    (`out`: number → defined), and the types to yield. Gives (body, yields)."""
    instructions, types = [], []
    readable = [
        (("arg", i), dtype) for i, dtype in enumerate(args) if out.get(i, True)
    ]

    def emit(name, references, result, types_, attrs=None):
        instructions.append((name, references, types_, attrs or {}))
        types.append(result)
        readable.append((("tmp", len(types) - 1), result))
        return readable[-1][0]

    def constant(dtype):
        value = b.random.choice([0.0, 1.0, -1.0, 0.5, 0.1, 3.0, -0.3])
        return emit("arith.constant", [], dtype, [dtype], {"value": value})

    def get(dtype):
        """A value of this type, cast where there is none."""
        own = [ref for ref, t in readable if t == dtype]
        if own and b.random.random() < 0.9:
            return b.random.choice(own[-3:] if b.random.random() < 0.6 else own)
        near = [(ref, t) for ref, t in readable if castable(t, dtype)]
        if near and not own:
            ref, source = b.random.choice(near)
            name = "arith.extf" if WIDTH[source] < WIDTH[dtype] else "arith.truncf"
            return emit(name, [ref], dtype, [source, dtype])
        return constant(dtype)

    def step(dtype):
        kind = b.random.random()
        if kind < 0.7:
            name = "arith." + b.random.choice(BINARY[:5] if kind < 0.6 else BINARY)
            return emit(name, [get(dtype), get(dtype)], dtype, [dtype])
        if kind < 0.88:
            return emit(b.random.choice(UNARY), [get(dtype)], dtype, [dtype])
        predicate = b.random.choice(["olt", "oge", "oeq", "une", "ult", "uno"])
        left, right = get(dtype), get(dtype)
        flag = emit("arith.cmpf", [left, right], "i1", [dtype], {"predicate": predicate})
        readable.pop()
        return emit("arith.select", [flag, get(dtype), get(dtype)], dtype, [dtype])

    yields = []
    for dtype in out_types:
        last = None
        for _ in range(b.random.choice([0, 1, 1, 2, 2, 3])):
            last = step(dtype)
        yields.append(last or get(dtype))
    return instructions, yields


def castable(source, target):
    """What one arith.extf or arith.truncf does."""
    return source in WIDTH and WIDTH[source] != WIDTH[target]


def linalg(b, ins, outs, maps, iterators, instructions, yields, form="generic", **more):
    results = [Value(v.type) for v in outs]
    attrs = {
        "ins": len(ins),
        "outs": len(outs),
        "maps": maps,
        "iterators": iterators,
        "body": instructions,
        "yields": yields,
        "form": form,
        **more,
    }
    b.add(Op("linalg", [*ins, *outs], results, attrs))
    return results


def elementwise(b):
    type_ = b.type_of_some_tensor()
    identity = tuple(range(len(type_.shape)))
    iterators = ["parallel"] * len(type_.shape)
    form = b.random.choice(["generic", "map", "short_map", "named", "copy"])
    if form in ("named", "short_map"):
        name, mnemonic = b.random.choice(list(NAMED.items()))
        count = 2
        if form == "short_map" and b.random.random() < 0.4:
            mnemonic, count = b.random.choice(UNARY), 1
        ins = [b.pick(type_) for _ in range(count)]
        references = [("arg", i) for i in range(count)]
        instructions, yields = [(mnemonic, references, [type_.dtype], {})], [("tmp", 0)]
        form = name if form == "named" else form
    elif form == "copy":
        ins, instructions, yields = [b.pick(type_)], [], [("arg", 0)]
    else:
        types = [
            t for t in b.types if t.shape == type_.shape and b.random.random() < 0.6
        ]
        ins = [b.pick(t) for t in types + [type_] * b.random.choice([0, 1, 1, 2])]
        ins = [v for v in ins if v]
    outs = [destination(b, type_)]
    if form == "generic" and b.random.random() < 0.2:
        outs.append(destination(b, type_))
    if form in ("generic", "map"):
        args = [v.type.dtype for v in ins + outs]
        out = {len(ins) + i: v.is_defined for i, v in enumerate(outs)}
        instructions, yields = body(b, args, out, [v.type.dtype for v in outs])
    maps = [identity] * (len(ins) + len(outs))
    if form == "map" and not ins:
        form = "generic"
    linalg(b, ins, outs, maps, iterators, instructions, yields, form)
    return True


def contraction(b):
    """matmul and its relatives, as an operation of its own or as a generic one."""
    pairs = [
        (x, y)
        for x, y in itertools.product(b.tensors(), repeat=2)
        if len(x.type.shape) == 2
        and len(y.type.shape) in (1, 2)
        and x.type.shape[1] == y.type.shape[0]
        and x.type.dtype == y.type.dtype
        and x.type.shape[1] <= 64
    ]
    if not pairs:
        return False
    x, y = b.random.choice(pairs)
    dtype = x.type.dtype
    if b.random.random() < 0.15 and dtype in ("f16", "bf16"):
        dtype = "f32"
    is_vector = len(y.type.shape) == 1
    out_type = Type(x.type.shape[:1] + y.type.shape[1:], dtype)
    out = destination(b, out_type)
    if not out.is_defined:
        filled = Value(out_type)
        b.add(Op("fill", [b.constant(dtype), out], [filled]))
        out = filled
    body_, left, right = [], ("arg", 0), ("arg", 1)
    if dtype != x.type.dtype:
        casts = [x.type.dtype, dtype]
        body_ = [("arith.extf", [left], casts, {}), ("arith.extf", [right], casts, {})]
        left, right = ("tmp", 0), ("tmp", 1)
    count = len(body_)
    body_ = body_ + [
        ("arith.mulf", [left, right], [dtype], {}),
        ("arith.addf", [("arg", 2), ("tmp", count)], [dtype], {}),
    ]
    if is_vector:
        maps, iterators = [(0, 1), (1,), (0,)], ["parallel", "reduction"]
    else:
        maps = [(0, 2), (2, 1), (0, 1)]
        iterators = ["parallel", "parallel", "reduction"]
    form = "generic"
    if b.random.random() < 0.7:
        form = "matvec" if is_vector else "matmul"
    linalg(b, [x, y], [out], maps, iterators, body_, [("tmp", count + 1)], form)
    return True


def reduction(b):
    x = b.pick_where(lambda v: len(v.type.shape) >= 1)
    if not x:
        return False
    rank, dtype = len(x.type.shape), x.type.dtype
    dims = sorted(b.random.sample(range(rank), b.random.randint(1, rank)))
    if max(x.type.shape[d] for d in dims) > 64:
        return False
    kept = [d for d in range(rank) if d not in dims]
    out = destination(b, Type(tuple(x.type.shape[d] for d in kept), dtype))
    if not out.is_defined:
        filled = Value(out.type)
        b.add(Op("fill", [b.constant(dtype), out], [filled]))
        out = filled
    iterators = ["reduction" if d in dims else "parallel" for d in range(rank)]
    maps = [tuple(range(rank)), tuple(kept)]
    if b.random.random() < 0.6:
        name = "arith." + b.random.choice(["addf", "mulf", "maximumf", "minimumf"])
        # linalg.reduce calls its combiner with (element, accumulator).
        instructions = [(name, [("arg", 0), ("arg", 1)], [dtype], {})]
        yields, form = [("tmp", 0)], "reduce"
    else:
        instructions, yields = body(b, [dtype, dtype], {}, [dtype])
        form = "generic"
    linalg(
        b, [x], [out], maps, iterators, instructions, yields, form, dimensions=dims
    )
    return True


def movement(b):
    """transpose, broadcast, and generic operations that read in another order."""
    x = b.pick_where(lambda v: len(v.type.shape) in (1, 2))
    if not x:
        return False
    shape, dtype = x.type.shape, x.type.dtype
    if len(shape) == 2:
        out = destination(b, Type(shape[::-1], dtype))
        if b.random.random() < 0.6:
            linalg(
                b, [x], [out], [(1, 0), (0, 1)], ["parallel"] * 2, [], [("arg", 0)],
                "transpose", permutation=(1, 0),
            )
        else:
            instructions, yields = body(
                b, [dtype, dtype], {1: out.is_defined}, [dtype]
            )
            linalg(
                b, [x], [out], [(1, 0), (0, 1)], ["parallel"] * 2, instructions, yields
            )
        return True
    targets = [t for t in b.types if len(t.shape) == 2 and t.dtype == dtype]
    targets = [t for t in targets if shape[0] in t.shape]
    if not targets:
        return False
    target = b.random.choice(targets)
    axis = b.random.choice([i for i in (0, 1) if target.shape[i] == shape[0]])
    out = destination(b, target)
    maps, iterators = [(axis,), (0, 1)], ["parallel"] * 2
    if b.random.random() < 0.5:
        linalg(
            b, [x], [out], maps, iterators, [], [("arg", 0)],
            "broadcast", dimensions=[1 - axis],
        )
    else:
        instructions, yields = body(b, [dtype, dtype], {1: out.is_defined}, [dtype])
        linalg(b, [x], [out], maps, iterators, instructions, yields)
    return True


def fill(b):
    type_ = b.type_of_some_tensor()
    scalar = b.pick_scalar(type_.dtype) if b.random.random() < 0.4 else None
    scalar = scalar or b.constant(type_.dtype)
    b.add(Op("fill", [scalar, destination(b, type_)], [Value(type_)]))
    return True
