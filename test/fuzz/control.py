# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random control flow: branches and loops, structured or not. A branch that may go
another way on another rank holds no collective. Each function gets a Builder and
what fills a block with statements."""

from program import Op, Type, Value

INDEX, FLAG = Type(None, "index"), Type(None, "i1")


def _nested(b, is_uniform, in_cf=False):
    inner = type(b)(b.random, b.program, b.types, b.groups, outer=b)
    inner.is_uniform = b.is_uniform and is_uniform
    inner.in_cf = b.in_cf and in_cf
    return inner


def _size(b):
    return b.random.choice([0, 1, 1, 2, 3])


def _yield(b, types, own=0.75):
    """One value for each type: mostly of this block, else from outside."""
    for type_ in types:
        mine = {v for op in b.block.ops for v in op.results} | set(b.block.args)
        inside = [v for v in b.scope if v.type == type_ and v in mine]
        outside = [v for v in b.scope if v.type == type_]
        pool = inside if inside and b.random.random() < own else outside
        b.block.yields.append(b.random.choice(pool[-5:]))


def _some_types(b):
    count = b.random.choice([1, 1, 2, 3])
    return [b.type_of_some_tensor() for _ in range(count)]


def _use_cf(b):
    return b.in_cf and b.random.random() < 0.2


def branch(b, fill):
    condition, types, cf = b.condition(), _some_types(b), _use_cf(b)
    regions = []
    for _ in range(2):
        inner = _nested(b, condition in b.same, cf)
        fill(inner, _size(b))
        _yield(inner, types)
        regions.append(inner.block)
    results = [Value(t) for t in types]
    b.add(Op("if", [condition], results, {"cf": cf}, regions))


def switch(b, fill):
    numbers = [v for v in b.scope if v.type == INDEX]
    number = b.random.choice(numbers) if numbers else b.constant("index", 1)
    types, regions = _some_types(b), []
    for _ in range(3):
        inner = _nested(b, number in b.same)
        fill(inner, _size(b))
        _yield(inner, types)
        regions.append(inner.block)
    b.add(Op("switch", [number], [Value(t) for t in types], {}, regions))


def _trip_count(b):
    numbers = [v for v in b.scope if v.type == INDEX]
    if numbers and b.random.random() < 0.4:
        return b.random.choice(numbers)
    return b.constant("index", b.random.choice([0, 1, 2, 2, 3]))


def loop(b, fill):
    """Tensors that go through a loop, some of them changing places."""
    bounds = [b.constant("index", 0), _trip_count(b), b.constant("index", 1)]
    inits = [b.pick(t) for t in _some_types(b)]
    if b.random.random() < 0.3:
        inits.append(b.pick(inits[0].type))
    buckets = [v for v in b.scope if v in b.program.members]
    if buckets and b.random.random() < 0.3:
        inits.append(b.random.choice(buckets))
    cf = _use_cf(b)
    inner = _nested(b, bounds[1] in b.same, cf)
    inner.add_argument(Value(INDEX))
    inner.same.add(inner.block.args[0])
    for value in inits:
        inner.add_argument(b.program.like(value))
    fill(inner, _size(b))
    if b.random.random() < 0.3:
        _swap(inner, [v.type for v in inits])
    else:
        _yield(inner, [v.type for v in inits])
    results = [b.program.like(v) for v in inits]
    b.add(Op("for", bounds + inits, results, {"cf": cf}, [inner.block]))


def _swap(b, types):
    """Yields the loop's own values in another order where types allow it."""
    left = list(b.block.args[1:])
    for type_ in types:
        fitting = [v for v in left if v.type == type_] or [
            v for v in b.scope if v.type == type_
        ]
        value = fitting[-1] if b.random.random() < 0.8 else b.pick(type_)
        if value in left:
            left.remove(value)
        b.block.yields.append(value)


def while_loop(b, fill):
    """Counts to a number in its `before` region, which may do more than compare."""
    limit = _trip_count(b)
    tensors = [b.pick(t) for t in _some_types(b)]
    inits = [b.constant("index", 0), *tensors]
    types = [v.type for v in tensors]
    before = _nested(b, limit in b.same)
    before.add_argument(Value(INDEX))
    before.same.add(before.block.args[0])
    for type_ in types:
        before.add_argument(Value(type_))
    if b.random.random() < 0.4:
        fill(before, _size(b))
    count, condition, following = before.block.args[0], Value(FLAG), Value(INDEX)
    attrs = {"name": "arith.cmpi", "predicate": "slt"}
    before.block.ops.append(Op("scalar", [count, limit], [condition], attrs))
    before.block.yields = [condition, count]
    _yield(before, types, own=0.9)

    after = _nested(b, limit in b.same)
    after.add_argument(Value(INDEX))
    after.same.add(after.block.args[0])
    for type_ in types:
        after.add_argument(Value(type_))
    fill(after, _size(b))
    one = after.constant("index", 1)
    operands = [after.block.args[0], one]
    after.block.ops.append(Op("scalar", operands, [following], {"name": "arith.addi"}))
    after.block.yields = [following]
    _yield(after, types)

    results = [Value(INDEX)] + [Value(t) for t in types]
    op = Op("while", inits, results, {}, [before.block, after.block])
    b.block.ops.append(op)
    b.scope += results[1:]


CONTROL = [branch, branch, loop, loop, loop, while_loop, switch]
