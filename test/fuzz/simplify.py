# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ways to make a program simpler, for reduce.py. Each takes a program and the
number of the candidate, changes the program, and returns whether there was a
candidate of that number. What comes out need not fail, nor differ."""

import copy

from program import COLLECTIVES, Op, Value, uses, walk


def blocks(program):
    for func in program.funcs:
        yield from _nested(func.body)


def _nested(block):
    yield block
    for op in block.ops:
        for region in op.regions:
            yield from _nested(region)


def sites(program):
    """(block, position) of every operation, the last ones first."""
    found = [(block, i) for block in blocks(program) for i in range(len(block.ops))]
    return found[::-1]


def replace(program, mapping):
    def get(value):
        while value in mapping:
            value = mapping[value]
        return value

    for block in blocks(program):
        block.yields = [get(v) for v in block.yields]
        for op in block.ops:
            op.operands = [get(v) for v in op.operands]


def scope_at(program, block, position):
    """Values that are visible at a place."""

    def find(current, seen):
        if current is block:
            return seen + current.args + results(current.ops[:position])
        before = seen + current.args
        for op in current.ops:
            for region in op.regions:
                found = find(region, before)
                if found is not None:
                    return found
            before = before + op.results
        return None

    for func in program.funcs:
        found = find(func.body, [])
        if found is not None:
            return found
    return []


def results(ops):
    return [value for op in ops for value in op.results]


def fewer_steps(program, number):
    smaller = [n for n in (1, 2) if n < program.steps]
    if number >= len(smaller):
        return False
    program.steps = smaller[number]
    return True


def fewer_ranks(program, number):
    smaller = [n for n in (1, 2, 3) if n < program.world]
    if number >= len(smaller):
        return False
    program.world = smaller[number]
    program.nodes = program.nodes[: program.world]
    for name, ranks in program.groups.items():
        if ranks is not None:
            program.groups[name] = [(r,) for r in range(program.world)]
    return True


def fewer_nodes(program, number):
    """On one machine, or with groups that are flat."""
    if number >= 2 or not program.nodes:
        return False
    program.hierarchical = ()
    program.options.pop("topology", None)
    program.nodes = program.nodes if number else ""
    return True


def fewer_options(program, number):
    if number >= len(program.options):
        return False
    del program.options[sorted(program.options)[number]]
    return True


def fewer_results(program, number):
    """Without one result of a function, nor of its calls."""
    places = [(f, i) for f in program.funcs for i in range(len(f.body.yields))]
    if number >= len(places):
        return False
    func, i = places[number]
    func.gradients = ()
    used = {v for block in blocks(program) for v in block.yields}
    used |= {v for block in blocks(program) for op in block.ops for v in op.operands}
    calls = [op for f in program.funcs for op in walk(f.body) if op.kind == "call"]
    calls = [op for op in calls if op.attrs["callee"] == func.name]
    if any(op.results[i] in used for op in calls) or len(func.body.yields) == 1:
        return True  # Nothing changes, so it is not interesting.
    for op in calls:
        del op.results[i]
    del func.body.yields[i]
    return True


def remove_dead(program, number):
    """Without anything whose results nothing uses; first with, then without the
    collectives, whose memory may matter."""
    if number >= 2:
        return False
    keep = ("average", "call", *COLLECTIVES) if number else ()
    changed = True
    while changed:
        changed = False
        used = {v for block in blocks(program) for v in block.yields}
        used |= {v for b in blocks(program) for op in b.ops for v in op.operands}
        for block in blocks(program):
            for op in list(block.ops):
                kinds = [op.kind, *(n.kind for r in op.regions for n in walk(r))]
                if "state_store" in kinds or set(kinds) & set(keep):
                    continue
                if not used.intersection(op.results):
                    block.ops.remove(op)
                    changed = True
    return True


def remove_range(program, number):
    """Without a run of operations of a block, from halves down to single ones."""
    places = []
    for block in blocks(program):
        size = len(block.ops) // 2
        while size > 1:
            places += [(block, i, size) for i in range(0, len(block.ops), size)]
            size //= 2
    if number >= len(places):
        return False
    block, begin, size = places[number]
    for position in range(min(begin + size, len(block.ops)) - 1, begin - 1, -1):
        _remove(program, block, position, 0)
    return True


def _remove(program, block, position, choice):
    """Removes an operation if something can stand in for its results."""
    op = block.ops[position]
    scope = scope_at(program, block, position)
    mapping = {}
    for result in op.results:
        fitting = [v for v in op.operands if v.type == result.type]
        fitting += [v for v in scope[::-1] if v.type == result.type]
        fitting = [v for v in fitting if v.is_defined or not result.is_defined]
        if not fitting:
            return
        mapping[result] = fitting[min(choice, len(fitting) - 1)]
    del block.ops[position]
    replace(program, mapping)


def remove_operation(program, number):
    """Without one operation; other values of their types stand in for its
    results. Several choices for each operation."""
    places = sites(program)
    if number >= 3 * len(places):
        return False
    block, position = places[number // 3]
    _remove(program, block, position, number % 3)
    return True


def inline_region(program, number):
    """The operations of a branch or of a loop's body, in place of it."""
    places = [(b, i) for b, i in sites(program) if b.ops[i].regions]
    if number >= 3 * len(places):
        return False
    block, position = places[number // 3]
    op = block.ops[position]
    if number % 3 >= len(op.regions):
        return True
    region = op.regions[number % 3]
    yields, mapping = list(region.yields), {}
    if op.kind == "for":
        mapping.update(zip(region.args, [op.operands[0], *op.operands[3:]]))
    elif op.kind == "while":
        mapping.update(zip(region.args, op.operands))
        yields = yields[1:] if number % 3 == 0 else yields
    mapping.update(zip(op.results, yields))
    block.ops[position : position + 1] = region.ops
    replace(program, mapping)
    return True


def inline_call(program, number):
    places = [(b, i) for b, i in sites(program) if b.ops[i].kind == "call"]
    if number >= len(places):
        return False
    block, position = places[number]
    op = block.ops[position]
    body = copy.deepcopy(program.func(op.attrs["callee"]).body)
    mapping = dict(zip(body.args, op.operands))
    mapping.update(zip(op.results, body.yields))
    block.ops[position : position + 1] = body.ops
    replace(program, mapping)
    return True


def fewer_carried(program, number):
    """A loop or a branch without one of its values."""
    places = [
        (b, i, k)
        for b, i in sites(program)
        if b.ops[i].kind in ("if", "switch", "for")
        for k in range(len(b.ops[i].results))
    ]
    if number >= len(places):
        return False
    block, position, k = places[number]
    op = block.ops[position]
    scope = scope_at(program, block, position)
    if op.kind == "for":
        stand_in = op.operands[3 + k]
        mapping = {op.results[k]: stand_in, op.regions[0].args[1 + k]: stand_in}
        del op.operands[3 + k], op.regions[0].args[1 + k]
    else:
        fitting = [v for v in scope if v.type == op.results[k].type and v.is_defined]
        if not fitting:
            return True
        mapping = {op.results[k]: fitting[-1]}
    for region in op.regions:
        del region.yields[k]
    del op.results[k]
    replace(program, mapping)
    return True


def fewer_arguments(program, number):
    places = [(f, i) for f in program.funcs for i in range(len(f.body.args))]
    if number >= len(places):
        return False
    func, i = places[number]
    used = set(func.body.yields) | {v for op in func.body.ops for v in uses(op)}
    if func.body.args[i] in used:
        return True
    del func.body.args[i]
    for caller in program.funcs:
        for op in walk(caller.body):
            if op.kind == "call" and op.attrs["callee"] == func.name:
                del op.operands[i]
    return True


def fewer_marks(program, number):
    """Attributes of arguments, hooks of operations and functions."""
    holders = [f for f in program.funcs if f.hook]
    ops = [op for f in program.funcs for op in walk(f.body)]
    holders += [op for op in ops if op.attrs.get("hook") or op.attrs.get("cf")]
    holders += [v for f in program.funcs for v in f.body.args if v.marks]
    if number >= len(holders):
        return False
    holder = holders[number]
    if isinstance(holder, Value):
        holder.marks = ()
    elif isinstance(holder, Op):
        holder.attrs.pop("hook" if holder.attrs.get("hook") else "cf")
    else:
        holder.hook = None
    return True


def simpler_values(program, number):
    kinds = ["integers", "normal"]
    kinds = kinds[: kinds.index(program.values)] if program.values in kinds else kinds
    if number >= len(kinds):
        return False
    program.values = kinds[number]
    return True


def simpler_linalg(program, number):
    """Elementwise operations become copies or sums; destinations become fresh."""
    places = [(b, i) for b, i in sites(program) if b.ops[i].kind in ("linalg", "fill")]
    if number >= 3 * len(places):
        return False
    block, position = places[number // 3]
    op = block.ops[position]
    if number % 3 == 2:
        out = op.operands[-1] if op.kind == "fill" else op.operands[op.attrs["ins"]]
        fresh = Value(out.type, is_defined=False)
        if not out.is_defined:
            return True
        block.ops.insert(position, Op("empty", [], [fresh]))
        op.operands[-1 if op.kind == "fill" else op.attrs["ins"]] = fresh
        return True
    if op.kind == "fill":
        return True
    attrs = op.attrs
    identity = all(m == attrs["maps"][0] for m in attrs["maps"])
    if not identity or attrs["outs"] != 1 or attrs["form"] in ("copy", "short_map"):
        return True
    type_ = op.result.type
    ins = [i for i in range(attrs["ins"]) if op.operands[i].type == type_]
    if not ins:
        return True
    chosen = ins[0] if number % 3 == 0 else ins[-1]
    out = op.operands[attrs["ins"]]
    if number % 3 == 1:
        body, form = [("math.absf", [("arg", 0)], [type_.dtype], {})], "short_map"
        yields = [("tmp", 0)]
    else:
        body, form, yields = [], "copy", [("arg", 0)]
    maps = [attrs["maps"][0]] * 2
    op.attrs = {**attrs, "ins": 1, "maps": maps}
    op.attrs.update(body=body, yields=yields, form=form)
    op.operands = [op.operands[chosen], out]
    return True


# The ones that take much away come first.
SIMPLIFICATIONS = [
    fewer_steps,
    fewer_ranks,
    fewer_nodes,
    fewer_options,
    fewer_results,
    remove_dead,
    inline_region,
    remove_range,
    remove_operation,
    inline_region,
    inline_call,
    fewer_carried,
    fewer_arguments,
    fewer_marks,
    simpler_values,
    simpler_linalg,
]
