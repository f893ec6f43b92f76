# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a generated program computes on every rank: an interpreter of values.

A value is one array (or number) per rank. Ranks go through a program together, and
apart where a branch or a loop depends on a number of their own. Memory does not
exist here, which is the point: whatever the compiler shares or reuses must not be
seen.
"""

import numpy as np

import exchanges
import numerics
from buckets import Buckets, Place, size_of
from program import dtype_of, split_operands, uses


class Evaluator:
    """`poison` fills memory that nothing has written; results that depend on it
    show that a program is not valid. `low_rank` evaluates PowerSGD's buckets
    (powersgd.py); without it they are as before PowerSGD's first iteration."""

    def __init__(self, program, poison):
        self.program, self.poison, self.low_rank = program, poison, None
        self.buckets = Buckets(program)
        # Counters by block (and kind of average).
        self.counters = {}
        # By name and rank.
        self.states = {}
        self.needs = {}

    def step(self, inputs):
        """inputs[rank][number of the argument]; results[rank]."""
        func = self.program.func(self.program.entry)
        ranks = range(self.program.world)
        arguments = [{r: inputs[r][a.number] for r in ranks} for a in func.body.args]
        results = self._func(func, arguments, tuple(ranks))
        return [[result[r] for result in results] for r in ranks]

    def _func(self, func, arguments, ranks):
        env = dict(zip(func.body.args, arguments))
        self._block(func.body, env, ranks)
        return [env[value] for value in func.body.yields]

    def _needs(self, op):
        """The values that an operation uses and does not define itself."""
        if op not in self.needs:
            inner = set()
            for region in op.regions:
                inner |= _defined(region)
            self.needs[op] = set(uses(op)) - inner
        return self.needs[op]

    def _block(self, block, env, ranks):
        """Operations in order, except that a bucket waits for its last gradient,
        and what needs its averages for the bucket."""
        buckets = self.buckets.low_rank(block) if self.low_rank else []
        shared = {op: bucket for bucket in buckets for op in bucket.members}
        pending = list(block.ops)
        iteration = self.counters.get(block, 0)
        while pending:
            left = []
            for op in pending:
                ready = self._needs(op)
                bucket = shared.get(op)
                if bucket:
                    if op.result in env:
                        continue
                    ready = [member.operands[0] for member in bucket.members]
                if any(value not in env for value in ready):
                    left.append(op)
                elif bucket:
                    self._low_rank(bucket, env, iteration)
                else:
                    self._op(op, env, ranks, block)
            if len(left) == len(pending):
                raise AssertionError("the program has no order")
            pending = left
        self.counters[block] = iteration + 1

    def _low_rank(self, bucket, env, iteration):
        parts = [
            {r: env[member.operands[0]][r] for r in range(self.program.world)}
            for member in bucket.members
        ]
        results = self.low_rank.run(bucket, parts, iteration)
        for member, result in zip(bucket.members, results):
            env[member.result] = result

    def _op(self, op, env, ranks, block):
        method = getattr(self, f"_{op.kind}", None)
        if method:
            results = method(op, env, ranks, block)
        else:
            results = [{} for _ in op.results]
            for r in ranks:
                local = _LOCAL[op.kind](self, op, [env[v][r] for v in op.operands])
                for result, value in zip(results, local):
                    result[r] = value
        for value, result in zip(op.results, results):
            env[value] = result

    # What ranks do together.

    def _all_reduce(self, op, env, ranks, block):
        if len(ranks) != self.program.world:
            raise AssertionError("a collective under divergent control flow")
        return [self._reduce(op, env[op.operands[0]], self.buckets.places[op], block)]

    def _bucket_reduce(self, op, env, ranks, block):
        if len(ranks) != self.program.world:
            raise AssertionError("a collective under divergent control flow")
        hook = self.buckets.hooks[op]
        return [self._reduce(op, env[op.operands[0]], Place(hook, 0, None), block)]

    def _bucket_start(self, op, env, ranks, block):
        if len(ranks) != self.program.world:
            raise AssertionError("a collective under divergent control flow")
        value, *condition = [env[v] for v in op.operands]
        if condition and not all(condition[0].values()):
            if any(condition[0].values()):
                raise AssertionError("a collective under divergent control flow")
            return [value]
        hook = {None: "allreduce", "f16": "fp16", "bf16": "bf16"}[op.attrs["wire"]]
        return [self._reduce(op, value, Place((hook,), 0, None), block)]

    def _exchange(self, op, env, ranks, block):
        if len(ranks) != self.program.world:
            raise AssertionError("a collective under divergent control flow")
        value, out = env[op.operands[0]], {}
        type_ = op.attrs.get("type") or op.result.type
        for members in self._partition(op.attrs["group"]):
            parts = [value[r].reshape(-1) for r in members]
            got = exchanges.run(op, parts, self._dtype(op.operands[0]))
            if type_.shape is not None:
                got = [array.reshape(type_.shape) for array in got]
            out.update(zip(members, got))
        return [out]

    _exchange_start = _exchange

    def _reduce(self, op, value, place, block):
        """What each rank gets."""
        hook, group = place.hook, op.attrs["group"]
        outer, is_within_nodes = [], False
        while hook[0] == "wrap":
            outer, hook = outer + [hook[1]], hook[2]
        if hook[0] == "post_local_sgd":
            _, start, subgroup, reduces = hook
            hook = ("allreduce",)
            if self.counters.get(block, 0) >= start:
                hook = hook if reduces else ("noop",)
                is_within_nodes = not subgroup
                group = subgroup or group
        for wire in reversed(outer):
            hook = ("wrap", wire, hook)
        out = {}
        mean = op.attrs["reduction"] == "mean"
        for members in self._partition(group, is_within_nodes):
            parts = [value[r] for r in members]
            dtype = self._dtype(op.operands[0])
            results = self._run_hook(
                hook, None if is_within_nodes else group, members, parts, dtype, mean, place
            )
            out.update(zip(members, results))
        return out

    def _run_hook(self, hook, group, members, parts, dtype, mean, place):
        """On the ranks `members` of a group."""
        program = self.program
        is_hierarchical = (
            program.options.get("topology") == "hierarchical" and group is not None
        ) or group in program.hierarchical
        arguments = (parts, dtype, mean, place.offset, place.count)
        if not is_hierarchical:
            return numerics.run_hook(hook, *arguments)
        nodes = {}
        for position, rank in enumerate(members):
            name = program.nodes[rank] if program.nodes else ""
            nodes.setdefault(name, []).append(position)
        return numerics.run_on_nodes(hook, list(nodes.values()), *arguments)

    def _dtype(self, value):
        return dtype_of(self.program, value)

    # States.

    def _state_load(self, op, env, ranks, block):
        values = self.states.setdefault(op.attrs["state"], {})
        for r in ranks:
            values.setdefault(r, self._initial(op.result))
        return [{r: values[r] for r in ranks}]

    def _initial(self, value):
        members = self.program.members.get(value)
        if not members:
            return 0
        size = sum(size_of(member) for member in members)
        return np.zeros(size, numerics.STORAGE[members[0].dtype])

    def _state_store(self, op, env, ranks, block):
        values = self.states.setdefault(op.attrs["state"], {})
        values.update({r: env[op.operands[0]][r] for r in ranks})
        return []

    def _average(self, op, env, ranks, block):
        place = self.buckets.places[op]
        iteration, warmup = self.counters.get(block, 0), op.attrs["warmup"]
        value = env[op.operands[0]]
        if iteration < warmup or (iteration - warmup) % op.attrs["every"]:
            return [value]
        out = {}
        for members in self._partition(op.attrs["group"]):
            parts = [value[r] for r in members]
            dtype = op.result.type.dtype
            results = self._run_hook(
                ("allreduce",), op.attrs["group"], members, parts, dtype, True, place
            )
            out.update(zip(members, results))
        return [out]

    def _partition(self, group, is_within_nodes=False):
        program = self.program
        sets = program.groups[group] or [tuple(range(program.world))]
        if not program.nodes or not is_within_nodes:
            return sets
        return [
            tuple(rank for rank in ranks if program.nodes[rank] == node)
            for ranks in sets
            for node in sorted({program.nodes[rank] for rank in ranks})
        ]

    def _call(self, op, env, ranks, block):
        func = self.program.func(op.attrs["callee"])
        return self._func(func, [env[v] for v in op.operands], ranks)

    # Control flow.

    def _split(self, ranks, key):
        """Ranks by what they decide."""
        parts = {}
        for r in ranks:
            parts.setdefault(key(r), []).append(r)
        return [(choice, tuple(members)) for choice, members in parts.items()]

    def _run_region(self, region, env, ranks):
        inner = dict(env)
        self._block(region, inner, ranks)
        return [{r: inner[v][r] for r in ranks} for v in region.yields]

    def _merge(self, op, parts):
        results = [{} for _ in op.results]
        for values in parts:
            for result, value in zip(results, values):
                result.update(value)
        return results

    def _if(self, op, env, ranks, block):
        condition = env[op.operands[0]]
        parts = self._split(ranks, lambda r: bool(condition[r]))
        return self._merge(
            op,
            [self._run_region(op.regions[0 if c else 1], env, m) for c, m in parts],
        )

    def _switch(self, op, env, ranks, block):
        number, last = env[op.operands[0]], len(op.regions) - 1
        parts = self._split(
            ranks, lambda r: number[r] if 0 <= number[r] < last else last
        )
        return self._merge(
            op, [self._run_region(op.regions[c], env, m) for c, m in parts]
        )

    def _for(self, op, env, ranks, block):
        bounds = [env[v] for v in op.operands[:3]]
        parts = self._split(ranks, lambda r: tuple(int(b[r]) for b in bounds))
        return self._merge(op, [self._loop(op, env, m, *b) for b, m in parts])

    def _loop(self, op, env, ranks, bounds_lower, upper, step):
        values = [{r: env[v][r] for r in ranks} for v in op.operands[3:]]
        body = op.regions[0]
        for i in range(bounds_lower, upper, step):
            inner = {**env, body.args[0]: dict.fromkeys(ranks, i)}
            inner.update(zip(body.args[1:], values))
            values = self._run_region(body, inner, ranks)
        return values

    def _while(self, op, env, ranks, block):
        """Ranks that are through with it wait for the others."""
        before, after = op.regions
        values = [{r: env[v][r] for r in ranks} for v in op.operands]
        results = [{} for _ in op.results]
        while ranks:
            inner = {**env, **dict(zip(before.args, values))}
            condition, *passed = self._run_region(before, inner, ranks)
            for result, value in zip(results, passed):
                result.update({r: value[r] for r in ranks if not condition[r]})
            ranks = tuple(r for r in ranks if condition[r])
            if ranks:
                inner = {**env, **dict(zip(after.args, passed))}
                values = self._run_region(after, inner, ranks)
        return results


def _defined(block):
    values = set(block.args)
    for op in block.ops:
        values.update(op.results)
        for region in op.regions:
            values |= _defined(region)
    return values


# What each rank does alone: (evaluator, operation, its operands) → results.


def _run_const(evaluator, op, operands):
    type_, value = op.result.type, op.attrs["value"]
    if type_.dtype == "i1":
        return [bool(value)]
    if type_.dtype in ("index", "i64"):
        return [int(value)]
    return [np.full(type_.shape or (), numerics.as_type(value, type_.dtype))]


def _run_scalar(evaluator, op, operands):
    name, dtype = op.attrs["name"], op.result.type.dtype
    if name.startswith("arith.cmp"):
        return [bool(numerics.compare(op.attrs["predicate"], *operands))]
    if name == "arith.select":
        return [operands[1] if operands[0] else operands[2]]
    if name == "arith.addi":
        return [operands[0] + operands[1]]
    return [np.asarray(numerics.elementwise(name, operands, dtype))]


def _run_empty(evaluator, op, operands):
    type_ = op.result.type
    return [np.full(type_.shape, numerics.as_type(evaluator.poison, type_.dtype))]


def _run_fill(evaluator, op, operands):
    return [np.full(op.result.type.shape, operands[0])]


def _run_extract(evaluator, op, operands):
    return [np.asarray(operands[0][tuple(int(i) for i in operands[1:])])]


def _run_insert(evaluator, op, operands):
    out = np.array(operands[1])
    out[tuple(int(i) for i in operands[2:])] = operands[0]
    return [out]


def _run_from_elements(evaluator, op, operands):
    return [np.array(operands).reshape(op.result.type.shape)]


def _slices(op, operands):
    rows = zip(op.attrs["offsets"], op.attrs["sizes"], op.attrs["strides"])
    slices = []
    for offset, size, stride in rows:
        begin = int(operands[-1]) if offset is None else offset
        slices.append(slice(begin, begin + size * stride, stride))
    return tuple(slices)


def _run_extract_slice(evaluator, op, operands):
    out = np.array(operands[0][_slices(op, operands)])
    return [out.reshape(op.result.type.shape)]


def _run_insert_slice(evaluator, op, operands):
    out = np.array(operands[1])
    out[_slices(op, operands)] = operands[0].reshape(op.attrs["sizes"])
    return [out]


def _run_reshape(evaluator, op, operands):
    return [operands[0].reshape(op.result.type.shape)]


def _run_pack(evaluator, op, operands):
    return [np.concatenate([value.reshape(-1) for value in operands])]


def _run_unpack(evaluator, op, operands):
    sizes = [size_of(result.type) for result in op.results]
    parts = np.split(operands[0], np.cumsum(sizes)[:-1])
    return [p.reshape(r.type.shape) for p, r in zip(parts, op.results)]


def _run_bucket_scale(evaluator, op, operands):
    dtype = evaluator._dtype(op.result)
    factor = numerics.as_type(op.attrs["factor"], dtype)
    return [numerics.elementwise("arith.mulf", (operands[0], factor), dtype)]


def _run_bucket_binary(evaluator, op, operands):
    name, dtype = f"arith.{op.attrs['name']}f", evaluator._dtype(op.result)
    return [numerics.elementwise(name, operands, dtype)]


def _run_bucket_wait(evaluator, op, operands):
    return operands


def _run_linalg(evaluator, op, operands):
    ins, outs = split_operands(op)
    first, last = len(ins), len(ins) + len(outs)
    captured = operands[last:]
    return numerics.run_linalg(
        op.attrs, operands[:first], operands[first:last], captured
    )


_LOCAL = {
    name.removeprefix("_run_"): function
    for name, function in dict(globals()).items()
    if name.startswith("_run_")
}
_LOCAL["alloc_copy"] = lambda evaluator, op, operands: [operands[0]]
