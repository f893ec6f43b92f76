# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random steps that are written on buckets: what a hook's expansion may look like,
and a hand may write. A phase reduces its buckets in the first branch of an `scf.if`
and does something else with them in the other, reads them before and behind it, and
keeps states; or it starts collectives itself, on a condition or without one, and
awaits them behind other work. As linalg.py."""

from exchanges import start
from program import Op, Type, Value, bucket_type

FLAG, COUNTER = Type(None, "i1"), Type(None, "i64")
# Of a collective in flight; not in scope.
TOKEN = Type(None, "")


def _pick_bucket(b, type_=None):
    found = [v for v in b.scope if v in b.program.members]
    found = [v for v in found if type_ in (None, v.type)]
    return b._choose(found)


def _pack(b):
    """A bucket of one to three tensors of one element type."""
    first = b.pick_where(lambda v: v.type.shape)
    if not first:
        return None
    tensors = [first] + [
        b.pick_where(lambda v: v.type.shape and v.type.dtype == first.type.dtype)
        for _ in range(b.random.choice([0, 0, 1, 2]))
    ]
    result = _bucket(b, tuple(v.type for v in tensors))
    b.add(Op("pack", tensors, [result]))
    return result


def _bucket(b, members):
    """A new value, made of tensors of these types."""
    result = Value(bucket_type(members))
    b.program.members[result] = members
    return result


def _compute(b, bucket):
    """Something else of the bucket's type."""
    kind, result = b.random.random(), b.program.like(bucket)
    if kind < 0.5:
        factor = b.random.choice([2.0, 0.5, -1.0])
        b.add(Op("bucket_scale", [bucket], [result], {"factor": factor}))
    else:
        other = _pick_bucket(b, bucket.type) or bucket
        name = b.random.choice(["add", "sub"])
        operands = [bucket, other] if b.random.random() < 0.5 else [other, bucket]
        b.add(Op("bucket_binary", operands, [result], {"name": name}))
    return result


def _unpack(b, bucket):
    results = [Value(type_) for type_ in b.program.members[bucket]]
    b.add(Op("unpack", [bucket], results))


def _reduction(b):
    return {
        "group": b.random.choice(b.groups),
        "reduction": b.random.choice(["mean", "sum"]),
    }


def _reduce(b, bucket):
    """By a hook, as a bucket that ddp-bucketize has made."""
    attrs = {**_reduction(b), "bucket": b.program.name_bucket()}
    if b.random.random() < 0.4:
        name = b.random.choice(["allreduce", "fp16", "bf16"])
        attrs["hook"] = (name,)
    result = b.program.like(bucket)
    b.add(Op("bucket_reduce", [bucket], [result], attrs))
    return result


def _start(b, bucket, condition=None):
    attrs = {**_reduction(b), "wire": b.random.choice([None, None, "f16", "bf16"])}
    future = Value(TOKEN)
    operands = [bucket] if condition is None else [bucket, condition]
    b.block.ops.append(Op("bucket_start", operands, [future], attrs))
    return future


def _wait(b, future, bucket):
    result = b.program.like(bucket)
    b.add(Op("bucket_wait", [future], [result]))
    return result


def _inner(b, is_uniform):
    inner = type(b)(b.random, b.program, b.types, b.groups, outer=b)
    inner.is_uniform, inner.in_cf = b.is_uniform and is_uniform, False
    return inner


def _size(b):
    return b.random.choice([0, 0, 1, 2])


def _counter(b):
    """Whether a state has not counted to some number yet; counts on. The last is
    sometimes put off."""
    name = b.program.declare_state("i64", "replicated")
    count, one, limit = Value(COUNTER), Value(COUNTER), Value(COUNTER)
    flag, following = Value(FLAG), Value(COUNTER)
    compare = {"name": "arith.cmpi", "predicate": "slt"}
    b.block.ops += [
        Op("state_load", [], [count], {"state": name}),
        Op("const", [], [one], {"value": 1}),
        Op("const", [], [limit], {"value": b.random.choice([0, 1, 1, 2])}),
        Op("scalar", [count, limit], [flag], compare),
        Op("scalar", [count, one], [following], {"name": "arith.addi"}),
    ]
    return flag, Op("state_store", [following], [], {"state": name})


def _condition(b):
    """One on which all ranks agree, and what has to be done later."""
    if b.random.random() < 0.4:
        return _counter(b)
    same = [v for v in b.scope if v.type == FLAG and v in b.same]
    if same and b.random.random() < 0.8:
        return b.random.choice(same), None
    return b.constant("i1", b.random.random() < 0.5), None


def _branch(b, fill, buckets, futures, is_then, reduces):
    """What becomes of the buckets in one branch."""
    inner = _inner(b, reduces)
    values = list(buckets)
    waits = [(i, f) for i, f in enumerate(futures) if f]
    b.random.shuffle(waits)
    if b.random.random() < 0.3:
        fill(inner, _size(b))
    for i, future in waits:
        values[i] = _wait(inner, future, buckets[i])
        if b.random.random() < 0.2:
            values[i] = _compute(inner, values[i])
    for i, bucket in enumerate(values):
        chance = 0.8 if is_then else 0.2
        if reduces and not futures[i] and b.random.random() < chance:
            values[i] = _reduce(inner, bucket)
        if b.random.random() < (0.3 if is_then else 0.7):
            values[i] = _compute(inner, values[i])
        if b.random.random() < 0.15:
            _unpack(inner, values[i])
    if inner.depth < 3 and b.random.random() < 0.2:
        fill(inner, 1)
        values[0] = _choice(inner, fill, [values[0]])[0]
    if b.random.random() < 0.3:
        fill(inner, _size(b))
    types = {value.type for value in values[:2]}
    if len(values) > 1 and len(types) == 1 and b.random.random() < 0.2:
        values[:2] = values[1::-1]
    inner.block.yields = values
    return inner.block


def _choice(b, fill, buckets):
    """Buckets, or those that two branches make of them."""
    reduces = b.is_uniform
    if reduces:
        condition, later = _condition(b)
    else:
        condition, later = b.condition(), None
    starts = reduces and b.random.random() < 0.4
    futures = []
    for bucket in buckets:
        is_started = starts and b.random.random() < 0.8
        futures.append(_start(b, bucket, condition) if is_started else None)
        if is_started:
            fill(b, _size(b))
    if b.random.random() < 0.2:
        _compute(b, b.random.choice(buckets))
    if later and b.random.random() < 0.3:
        b.block.ops.append(later)
        later = None
    regions = [
        _branch(b, fill, buckets, futures, is_then, reduces)
        for is_then in (True, False)
    ]
    results = [b.program.like(bucket) for bucket in buckets]
    b.add(Op("if", [condition], results, {}, regions))
    if later:
        b.block.ops.append(later)
    return results


def phase(b, fill):
    """Buckets, something in between, and what branches make of them."""
    buckets = [_pack(b)]
    if not buckets[0]:
        return
    # What is printed as several blocks would part states and waits from the rest.
    in_cf, b.in_cf = b.in_cf, False
    _phase(b, fill, buckets)
    b.in_cf = in_cf


def _phase(b, fill, buckets):
    while len(buckets) < 3 and b.random.random() < 0.4:
        fill(b, _size(b))
        last = b.program.members[buckets[-1]]
        if b.random.random() < 0.4 and all(b.pick(t) for t in last):
            result = _bucket(b, last)
            b.add(Op("pack", [b.pick(t) for t in last], [result]))
            buckets.append(result)
        else:
            buckets.append(_pack(b))
    state = None
    if b.depth == 0 and b.random.random() < 0.3:
        members = b.program.members[buckets[0]]
        state = b.program.declare_state(str(bucket_type(members)), "per_rank")
        loaded, total = _bucket(b, members), _bucket(b, members)
        b.add(Op("state_load", [], [loaded], {"state": state}))
        b.add(Op("bucket_binary", [buckets[0], loaded], [total], {"name": "add"}))
        if b.random.random() < 0.5:
            buckets[0] = b.random.choice([total, loaded])
    fill(b, _size(b))
    if b.random.random() < 0.2:
        _unpack(b, b.random.choice(buckets))
    results = _choice(b, fill, buckets)
    if state:
        values = [total, results[0], buckets[0]]
        stored = [b.random.choice(values)]
        b.block.ops.append(Op("state_store", stored, [], {"state": state}))
    if b.random.random() < 0.3:
        fill(b, _size(b))
    for bucket in results:
        if b.random.random() < 0.9:
            _unpack(b, bucket)
    if b.random.random() < 0.25:
        _unpack(b, b.random.choice(buckets))


def flight(b, fill):
    """Collectives that are started and awaited by hand."""
    if not b.is_uniform or not b.pick_where(lambda v: v.type.shape):
        return
    in_cf, b.in_cf = b.in_cf, False
    # What exchanges give; else a future comes with the bucket that is reduced.
    flying, given = [], set()
    for _ in range(b.random.choice([1, 1, 2, 3])):
        if b.program.has_exchanges and b.random.random() < 0.5:
            if started := start(b):
                flying.append(started)
                given.add(started[1])
                fill(b, _size(b))
                continue
        bucket = _pick_bucket(b) if b.random.random() < 0.2 else None
        bucket = bucket or _pack(b)
        flying.append((_start(b, bucket), bucket))
        fill(b, _size(b))
    b.random.shuffle(flying)
    for future, bucket in flying:
        if bucket in given:
            b.add(Op("bucket_wait", [future], [bucket]))
            continue
        result = _wait(b, future, bucket)
        if b.random.random() < 0.5:
            fill(b, _size(b))
        _unpack(b, result)
        if b.random.random() < 0.2:
            _unpack(b, bucket)
    b.in_cf = in_cf


PHASES = [phase, phase, phase, phase, flight]
